"""Which tests of servers every run has, and which the long one alone, `make soak`."""

from __future__ import annotations

import os

import pytest

IN_SOAK = os.environ.get("STREAMING_SINK_SERVERS") == "all"

only_in_soak = pytest.mark.skipif(not IN_SOAK, reason="a long one: make soak")
