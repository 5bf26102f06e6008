"""What the logs of zones, and their tables, say of a platform's day: its work items and its rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pyiceberg.table import StaticTable

from benchmarks.measure import newest_metadata
from streaming_sink.zones.ledger import Ledger
from streaming_sink.zones.records import KIND
from streaming_sink.zones.status import status
from timeline import names
from timeline.plans.claims import all_instants, holder_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    import pyarrow as pa

    from streaming_sink import ingest

_OPEN = 20


@dataclass(frozen=True, slots=True)
class Passage:
    """A work item, from the arrival of its files to its commit."""

    arrived_ms: Sequence[int]
    """When each of its files was announced."""
    planned_ms: int
    visible_ms: int | None
    """None while it is not in the table."""
    disturbed: bool = False
    """A worker was killed that had claimed it."""
    spent_ms: int = 0
    """Of the worker that landed it."""

    @property
    def waited_ms(self) -> int:
        return max(0, self.planned_ms - min(self.arrived_ms))

    @property
    def lags_ms(self) -> list[int]:
        """From the announcement of each file until it was visible; [] while they are not."""
        if self.visible_ms is None:
            return []
        return [max(0, self.visible_ms - each) for each in self.arrived_ms]


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of tables against those that were delivered."""

    expected: int = 0
    lost: int = 0
    doubled: int = 0
    changed: int = 0
    """Those that were not delivered so, or not at all."""

    def __add__(self, other: Rows) -> Rows:
        return Rows(
            self.expected + other.expected,
            self.lost + other.lost,
            self.doubled + other.doubled,
            self.changed + other.changed,
        )


def passages_in(zone: ingest.BufferZone, disturbed: Collection[int]) -> list[Passage]:
    """Return the work items of a zone; those with these numbers were disturbed."""
    ledger, found = Ledger(zone), []
    for _, plan in zone.plans_after(0):
        for item in plan.items:
            landed = ledger.landed(item.number)
            found.append(
                Passage(
                    [file.arrived_ms for file in item.files],
                    names.ulid_time_ms(plan.id),
                    None if landed is None else landed.landed_ms,
                    item.number in disturbed,
                    0 if landed is None else sum(landed.milliseconds.values()),
                )
            )
    return found


def left_in(zones: Sequence[ingest.BufferZone]) -> list[str]:
    """Return a line for each zone in which files wait or items are open, and one for each of the first open
    items, with who has claimed it.
    """
    left = []
    for zone in zones:
        now = status(zone)
        if now.waiting or now.open_count:
            waiting = sum(each.files for each in now.waiting)
            left.append(f"{zone.store.location}: {waiting} files wait, {now.open_count} items are open")
            left += [f"  {line}" for line in _open_in(zone)]
    return left


def _open_in(zone: ingest.BufferZone) -> Iterator[str]:
    instants = all_instants(zone.store, KIND)
    for item in Ledger(zone).open_items(_OPEN):
        held = instants.get(item.claim_id, {}).get("inflight", 0)
        holder = f"try {held} of {holder_of(zone.store, item.claim_id, held)}" if held else "no worker's"
        yield f"item {item.number}, {item.files} files, {item.why}: {holder}"


def depths(passages: Sequence[Passage]) -> tuple[list[int], list[int]]:
    """Return how many files waited for a rule, and how many for a worker and its commit, second by second."""
    first = min((min(each.arrived_ms) for each in passages), default=0)
    last = max((each.visible_ms or each.planned_ms for each in passages), default=0)
    seconds = np.arange(first, last, 1000)

    def reached(moments: Iterable[tuple[int, int]]) -> np.ndarray:
        """Return how many files had come so far by each second."""
        at, files = np.array(sorted(moments), np.int64).reshape(-1, 2).T
        return np.append(0, np.cumsum(files))[np.searchsorted(at, seconds, side="right")]

    arrived = reached((at, 1) for each in passages for at in each.arrived_ms)
    planned = reached((each.planned_ms, len(each.arrived_ms)) for each in passages)
    landed = ((each.visible_ms, len(each.arrived_ms)) for each in passages if each.visible_ms is not None)
    return (arrived - planned).tolist(), (planned - reached(landed)).tolist()


def live_of(table_location: str) -> tuple[pa.Table, list[tuple[object, int]], int]:
    """Return a table's rows as pyiceberg reads them, the partition and bytes of its live files, and how many
    commits there were after it was created.
    """
    newest = newest_metadata(Path(table_location))
    scan = StaticTable.from_metadata(str(newest)).scan()
    files = [(task.file.partition[0], task.file.file_size_in_bytes) for task in scan.plan_files()]
    return scan.to_arrow(), files, int(newest.name[1:].partition(".")[0]) - 1


def compare_rows(found: pa.Table, expected: pa.Table) -> Rows:
    """Compare rows, which have an `id` each, with those that were delivered."""
    ids, wanted = found["id"].to_numpy(), expected["id"].to_numpy()
    distinct, first = np.unique(ids, return_index=True)
    known, here, there = np.intersect1d(distinct, wanted, assume_unique=True, return_indices=True)
    same = np.ones(len(known), bool)
    for name in expected.column_names:
        same &= found[name].to_numpy()[first[here]] == expected[name].to_numpy()[there]
    return Rows(
        len(wanted), len(wanted) - len(known), len(ids) - len(distinct), len(distinct) - int(same.sum())
    )
