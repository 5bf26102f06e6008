"""The mutation score: how many schedules it takes to catch each rule when it is switched off."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pool
from pathlib import Path

from tests.simulation.catalogs.partition_columns import PARTITION_COLUMNS
from tests.simulation.clusterers import PLANNED
from tests.simulation.key_runs import INDEXED
from tests.simulation.mutations import ELSEWHERE, SWITCHES
from tests.simulation.naming import NAMED, NAMED_IN_A_CATALOG
from tests.simulation.schedule import (
    AUDITS,
    CATALOGS,
    INGESTION,
    KEYED_CATALOGS,
    KEYS,
    MIRRORS,
    OUTBOXES,
    STORMY,
    run,
)
from tests.simulation.switch import Switch

MOST_SEEDS = 3000
_KNOWN_SEEDS = Path(__file__).with_name("known_seeds.json")


@dataclass(frozen=True)
class Scored:
    """One switch, and how it was caught."""

    rule: str
    what: str
    seeds: int | None
    """How many schedules were run until one broke; None if none did."""
    caught: str
    seed: int = 0
    """The schedule that broke."""

    @property
    def name(self) -> str:
        return f"{self.rule}: {self.what}"

    @property
    def outcome(self) -> str:
        if self.seeds is None:
            return "NOT CAUGHT"
        return "1 schedule" if self.seeds == 1 else f"{self.seeds} schedules"


def score(
    switches: Sequence[Switch],
    most: int = MOST_SEEDS,
    processes: int = 2,
    known_seeds: Mapping[str, int] | None = None,
) -> Iterator[Scored]:
    """Throw each switch and run schedules from seed 0 on until the oracle objects, at most so many.

    A known seed of a switch is tried first: it saves the search as long as the code that it met is the same.
    """
    first = [(known_seeds or {}).get(f"{switch.rule}: {switch.what}") for switch in switches]
    numbers = [SWITCHES.index(switch) for switch in switches]
    # Coverage would trace the forked processes too, and make them three times as slow.
    with Pool(processes, initializer=sys.settrace, initargs=(None,)) as pool:
        yield from pool.imap_unordered(
            partial(_score_one, most=most), zip(numbers, first, strict=True), chunksize=1
        )


def _score_one(numbered: tuple[int, int | None], most: int) -> Scored:
    number, first = numbered
    switch = SWITCHES[number]
    first_seed = OUTBOXES if switch.two_tables else KEYS if switch.keyed else 0
    first_seed = INDEXED if switch.indexed else PLANNED if switch.planned else first_seed
    first_seed = AUDITS if switch.audited else INGESTION if switch.buffered else first_seed
    first_seed = CATALOGS if switch.catalog else first_seed
    if switch.named:
        first_seed = NAMED_IN_A_CATALOG if switch.catalog else NAMED
    first_seed = PARTITION_COLUMNS if switch.partitioned else first_seed
    first_seed = KEYED_CATALOGS if switch.keyed_catalog else first_seed
    first_seed = MIRRORS if switch.mirrored else first_seed
    step = STORMY if switch.stormy else 1
    seeds = range(first_seed, first_seed + most * step, step)
    with switch.thrown():
        for tried, seed in enumerate([*([] if first is None else [first]), *seeds]):
            if violation := run(seed).violation:
                return Scored(switch.rule, switch.what, tried + 1, violation, seed)
    return Scored(switch.rule, switch.what, None, "")


def known_seeds() -> dict[str, int]:
    """Return the seeds that caught each switch in the last run of the whole score."""
    seeds: dict[str, int] = json.loads(_KNOWN_SEEDS.read_text())
    return seeds


def remember_seeds(scored: Sequence[Scored]) -> None:
    """Store the seeds of this score for `known_seeds`."""
    caught = {each.name: each.seed for each in scored if each.seeds is not None}
    _KNOWN_SEEDS.write_text(json.dumps(caught, indent=1, sort_keys=True) + "\n")


def _by_rule(scored: Scored) -> tuple[bool, int]:
    """Order the rules of the protocol by number, and what has none after them."""
    numbered = scored.rule[1:].isdigit()
    return not numbered, int(scored.rule[1:]) if numbered else 0


def markdown(scored: Sequence[Scored]) -> str:
    """Return the table of docs/correctness.md."""
    rows = [(each.rule, each.what, each.outcome) for each in sorted(scored, key=_by_rule)]
    rows += ELSEWHERE
    lines = ["| rule | broken so | caught after |", "| --- | --- | --- |"]
    return "\n".join([*lines, *(f"| {rule} | {what} | {caught} |" for rule, what, caught in rows)])
