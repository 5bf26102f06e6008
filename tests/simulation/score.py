"""The mutation score: how many schedules it takes to catch each rule when it is switched off."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pool

from tests.simulation.mutations import ELSEWHERE, SWITCHES, Switch
from tests.simulation.schedule import STORMY, run

MOST_SEEDS = 3000


@dataclass(frozen=True)
class Scored:
    """One switch, and how it was caught."""

    rule: str
    what: str
    seeds: int | None
    """How many schedules were run until one broke; None where none did."""
    caught: str

    @property
    def outcome(self) -> str:
        if self.seeds is None:
            return "NOT CAUGHT"
        return "1 schedule" if self.seeds == 1 else f"{self.seeds} schedules"


def score(switches: Sequence[Switch], most: int = MOST_SEEDS, processes: int = 2) -> Iterator[Scored]:
    """Throw each switch and run schedules from seed 0 on until the oracle objects, at most so many."""
    # Coverage would trace the forked processes too, and make them three times as slow.
    with Pool(processes, initializer=sys.settrace, initargs=(None,)) as pool:
        numbers = [SWITCHES.index(switch) for switch in switches]
        yield from pool.imap_unordered(partial(_score_one, most=most), numbers, chunksize=1)


def _score_one(number: int, most: int) -> Scored:
    switch = SWITCHES[number]
    with switch.thrown():
        for tried, seed in enumerate(range(0, most * STORMY, STORMY) if switch.stormy else range(most)):
            if violation := run(seed).violation:
                return Scored(switch.rule, switch.what, tried + 1, violation)
    return Scored(switch.rule, switch.what, None, "")


def markdown(scored: Sequence[Scored]) -> str:
    """Return the table of docs/correctness.md."""
    rows = [
        (each.rule, each.what, each.outcome) for each in sorted(scored, key=lambda each: int(each.rule[1:]))
    ]
    rows += ELSEWHERE
    lines = ["| rule | broken so | caught after |", "| --- | --- | --- |"]
    return "\n".join([*lines, *(f"| {rule} | {what} | {caught} |" for rule, what, caught in rows)])
