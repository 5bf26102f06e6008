"""The two tiers of tests: what every run has, and what `make soak` has besides.

    STREAMING_SINK_SOAK=1 pytest tests/spark/test_kill.py    # the long version of a test

`STREAMING_SINK_SOAK=4` counts four times as far; `STREAMING_SINK_KILL_SEED` replays another run of the tests
that kill at random moments.
"""

from __future__ import annotations

import os

import pytest

SOAK = int(os.environ.get("STREAMING_SINK_SOAK", "0"))
"""How often the soak counts as far as it does by itself; 0 in every other run."""
IN_SOAK = SOAK > 0
SEED = int(os.environ.get("STREAMING_SINK_KILL_SEED", "1"))

only_in_soak = pytest.mark.soak
"""Skipped in every other run (`tests/conftest.py`)."""
longer_in_soak = pytest.mark.longer
"""In every run, and longer in the soak."""


def count(in_every_run: int, in_soak: int) -> int:
    """Return how far a test counts: kills, commits, files."""
    return in_soak * SOAK or in_every_run
