"""Simulates the commit protocol: replays a seed, runs many, or scores the simulator by mutations."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from multiprocessing import Pool

from tests.simulation.mutations import SWITCHES
from tests.simulation.schedule import run
from tests.simulation.score import MOST_SEEDS, markdown, remember_seeds, score


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", nargs="?", type=int, help="replay this schedule and print its trace")
    parser.add_argument("--schedules", type=int, metavar="N", help="run N schedules")
    parser.add_argument(
        "--mutations",
        action="store_true",
        help="break each rule, report when it is caught, and store the seeds",
    )
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed (default 0)")
    parser.add_argument("--most", type=int, default=MOST_SEEDS, metavar="N", help="most seeds for one rule")
    parser.add_argument("--processes", type=int, default=2, metavar="P")
    parser.add_argument("--only", metavar="RULE", help="score the switches of this rule, and store no seeds")
    given = parser.parse_args()
    if given.seed is not None:
        return _replay(given.seed)
    if given.schedules:
        return _many(range(given.first, given.first + given.schedules), given.processes)
    if given.mutations:
        chosen = [switch for switch in SWITCHES if given.only in (None, switch.rule)]
        scored = []
        for each in score(chosen, given.most, given.processes):
            _say(f"{each.rule}: {each.what}: {each.outcome}: seed {each.seed}: {each.caught}")
            scored.append(each)
        if given.only is None:
            remember_seeds(scored)
            _say(markdown(scored))
        return 0 if all(each.seeds is not None for each in scored) else 1
    return parser.error("give a seed, --schedules or --mutations")


def _replay(seed: int) -> int:
    report = run(seed, traced=True)
    _say("\n".join(report.trace))
    _say(f"\nseed {seed}: {report.versions} versions, {report.steps} steps")
    _say(f"VIOLATION: {report.violation}" if report.violation else "no rule was broken")
    return 1 if report.violation else 0


def _many(seeds: range, processes: int) -> int:
    started, met, versions, broken = time.perf_counter(), Counter[str](), 0, []
    with Pool(processes) as pool:
        for report in pool.imap_unordered(run, seeds, chunksize=10):
            met += report.met
            versions += report.versions
            if report.violation:
                broken.append(report.seed)
                _say(f"seed {report.seed}: {report.violation}")
    seconds = time.perf_counter() - started
    _say(f"{len(seeds)} schedules, {versions} versions, {seconds:.0f} s, {len(seeds) / seconds:.1f} a second")
    for what, count in sorted(met.items()):
        _say(f"{count:9} {what}")
    if broken:
        _say(f"{len(broken)} violations; replay one with: python -m tests.simulation {min(broken)}")
    else:
        _say("no rule was broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
