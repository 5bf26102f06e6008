"""Which tests every run has, and which the long one alone, `make soak`: those of servers where it is told
STREAMING_SINK_SERVERS=all, the others where STREAMING_SINK_SPARK=all.
"""

from __future__ import annotations

import os

import pytest

IN_SOAK = "all" in (os.environ.get("STREAMING_SINK_SERVERS"), os.environ.get("STREAMING_SINK_SPARK"))

only_in_soak = pytest.mark.skipif(not IN_SOAK, reason="a long one: make soak")
