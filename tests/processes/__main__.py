"""The long versions of what this folder and the kills of streams test: `python -m tests.processes --help`."""

from __future__ import annotations

import argparse
import os
import sys

import pytest

_TESTS = [
    "tests/processes",
    "tests/spark/test_kill.py",
    "tests/spark/test_kill_parts.py",
    "tests/spark/test_siphon_kill.py",
    "tests/spark/test_upsert_kill.py",
]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.processes", description=__doc__)
    parser.add_argument("--commits", default="100", help="of each of the 8 writers of a race")
    parser.add_argument("--kills", default="50", help="of writers, of streams, and before power cuts")
    parser.add_argument("--cuts", default="20", help="random states of the disk at each event, besides three")
    parser.add_argument("--seed", default="1")
    given, rest = parser.parse_known_args()
    os.environ.update(
        RACE_COMMITS=given.commits,
        RACE_KILLS=given.kills,
        RACE_SEED=given.seed,
        POWER_CUT_KILLS=given.kills,
        POWER_CUT_SEEDS=given.cuts,
        STREAMING_SINK_KILLS=given.kills,
        STREAMING_SINK_SIPHON_KILLS=given.kills,
        STREAMING_SINK_UPSERT_KILLS=given.kills,
        STREAMING_SINK_KILL_SEED=given.seed,
    )
    return pytest.main([*_TESTS, "--durations=0", *rest])


if __name__ == "__main__":
    sys.exit(main())
