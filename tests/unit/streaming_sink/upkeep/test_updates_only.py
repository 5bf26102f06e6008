"""A table that is only ever updated: what its batches and passes leave behind does not grow with them."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from pyiceberg.manifest import DataFile

from planners import FileSizing
from planners.fills import PlannedFill
from planners.folds import DELETE_FILES_AT_MOST, PlannedDeleteMerge
from planners.sizing import SMALL_FILES_AT_MOST
from streaming_sink.upkeep.filler import DELETE_FILES_WHILE_FILLING
from streaming_sink.upkeep.fills import commit_merges, plan_merges
from tests.sinks import flat_options
from tests.tiers import count, longer_in_soak
from tests.unit.timeline.cleaning import BRIEF, MINUTE_MS, Shore
from timeline import properties
from timeline.changes.changes import Append, Replace
from timeline.changes.delete_merges import MergeDeletes
from timeline.changes.row_deltas import RowDelta
from timeline.manifests.entries import DeleteFile
from timeline.plans.reservations import Reservations

BATCHES = count(300, 1_500)
"""The long run takes 5,000."""
KIB = 1024
SIZING = FileSizing(max_file_bytes=256 * KIB, small_file_bytes=192 * KIB)
FULL = 250
"""Rows of a kibibyte."""
KEYS = 4 * FULL


class Updated(Shore):
    """A table with a row for each key: row r is one of the key r modulo `KEYS`."""

    def __init__(self) -> None:
        super().__init__({**BRIEF, properties.MANIFEST_MIN_MERGE_COUNT: "8"})
        self.options = flat_options("/lake/updated", {"sizing": SIZING, "fill": "beside"})
        self.expected = {key: key for key in range(KEYS)}
        self.next = KEYS
        files = tuple(self.data(range(start, start + FULL)) for start in range(0, KEYS, FULL))
        self.table.commit([Append(files)])

    def data(self, rows: Iterable[int]) -> DataFile:
        held = tuple(rows)
        return self.file(held, size=KIB * len(held))

    def deletes(self, file: DataFile, *positions: int) -> DeleteFile:
        made = super().deletes(file, *positions)
        self.objects.overwrite(self.store.relative(made.file_path), b"x" * 10)
        return made

    def deleted(self, location: str, among: Iterable[str] | None = None) -> set[int]:
        head = self.table.head
        live = head.find_live(location)
        assert live is not None
        names = {it.location for it in head.deletes_of(live)} if among is None else set(among)
        return {position for name in names for position in self.positions[name]}

    def left(self, location: str) -> list[int]:
        gone = self.deleted(location)
        return [row for at, row in enumerate(self.rows[location]) if at not in gone]

    def update(self, keys: Iterable[int]) -> None:
        """Commit a batch that changes the rows of these keys, as the sink does."""
        self.clock.now_ms += MINUTE_MS
        head, old = self.table.head, {self.expected[key]: key for key in keys}
        found: dict[str, list[int]] = defaultdict(list)
        for file in head.live_files():
            gone = self.deleted(file.location)
            for at, row in enumerate(self.rows[file.location]):
                if row in old and at not in gone:
                    found[file.location].append(at)
        assert sum(map(len, found.values())) == len(old)
        for key in old.values():
            self.next += KEYS
            self.expected[key] = self.next - self.next % KEYS + key
        named = {live.location: live for live in head.live_files() if live.location in found}
        applied = frozenset(it.location for live in named.values() for it in head.deletes_of(live))
        deletes = tuple(self.deletes(self._data_file(at), *positions) for at, positions in found.items())
        new = self.data(self.expected[key] for key in old.values())
        self.table.commit([RowDelta((new,), deletes, applied)], open_below_bytes=SIZING.small_file_bytes)

    def run_pass(self) -> None:
        """Fill, fold and merge what the planner says, as a pass beside the stream does."""
        plan = plan_merges(self.table.head, [(0, (0,))], self.options, {})
        changes = [*map(self._replace, plan.fills), *map(self._merge, plan.delete_merges)]
        if changes:
            below = SIZING.small_file_bytes
            done = commit_merges(self.table, changes, 0, below, Reservations(self.table.store))
            assert done.problems == ()

    def most_delete_files(self) -> int:
        head = self.table.head
        return max(len(head.deletes_of(file)) for file in head.live_files())

    def _replace(self, fill: PlannedFill) -> Replace:
        rows = [row for file in fill.inputs for row in self.left(file.path)]
        ends = [*fill.cuts, len(rows)]
        parts = [rows[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        return Replace(
            frozenset(file.path for file in fill.inputs),
            tuple(self.data(part) for part in parts if part),  # no file is written of no row
            frozenset(deletes.path for file in fill.inputs for deletes in file.deletes),
            sum(len(self.deleted(file.path)) for file in fill.inputs),
        )

    def _merge(self, merge: PlannedDeleteMerge) -> MergeDeletes:
        removed = frozenset(it.path for it in merge.deletes)
        positions = sorted(self.deleted(merge.file.path, removed))
        return MergeDeletes(removed, (self.deletes(self._data_file(merge.file.path), *positions),))

    def _data_file(self, location: str) -> DataFile:
        for manifest in self.table.head.manifests:
            for entry in self.table.head.manifest_files.entries(manifest):
                if entry.data_file.file_path == location:
                    return entry.data_file
        raise AssertionError(location)

    def sizes(self) -> Mapping[str, int]:
        """What a table holds beside its rows."""
        head, below_data = self.table.head, {it for it in self.paths() if it.startswith("data/")}
        return {
            "objects": len(self.paths()),
            "data and delete files": len(below_data),
            "live data files": len(list(head.live_files())),
            "live delete files": len(list(head.delete_files())),
            "rows of live data files": sum(file.rows for file in head.live_files()),
            "manifests": len(head.manifests),
            "snapshots": len(head.metadata.snapshots),
            "bytes of the newest version": max(
                len(self.objects.read(it.path).data)
                for it in self.objects.list_folder("metadata")
                if it.path.endswith(".json")
            ),
        }


@longer_in_soak
def test_what_a_table_of_updates_holds_is_bounded() -> None:
    """The second half of the batches leaves no more behind than the first."""
    table, dice = Updated(), random.Random(16)
    early, late = Counter[str](), Counter[str]()
    for batch in range(BATCHES):
        few = batch % 5 == 0
        table.update(dice.sample(range(20) if few else range(KEYS), 5))
        assert table.most_delete_files() <= DELETE_FILES_WHILE_FILLING
        if batch % 3 == 2:  # a pass takes longer than a batch
            table.run_pass()
            assert table.most_delete_files() <= DELETE_FILES_AT_MOST
        if batch % 10 == 9:
            seen = early if batch < BATCHES // 2 else late
            seen |= Counter(table.sizes())
    assert set(table.live_rows()) == set(table.expected.values())
    assert table.live_rows().total() == KEYS
    assert {what: (size, early[what]) for what, size in late.items() if size > 1.25 * early[what]} == {}
    assert late["rows of live data files"] < 1.5 * KEYS
    assert late["live data files"] <= 6 + SMALL_FILES_AT_MOST
    assert late["snapshots"] < 2 * 122
    table.check_nothing_is_missing()
    assert table.leftover() == set()
