"""Which commits are rewrites of another engine, and of which partitions, by real snapshots in a catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from planners.model import TablePartition
from planners.room import FIRST_DISTANCE_MS, LONGEST_WAIT_MS, SMALL_FILES_WHILE_WAITING
from streaming_sink.table.foreign_rewrites import ForeignRewrites, Room
from tests.unit.timeline.logs.kinds import CatalogKind, Kind, VersionFilesKind
from timeline.changes.changes import Append, Replace, SetProperties
from timeline.manifests.manifests import ManifestFiles
from timeline.table import Table

BELOW = 10**9
P0, P1 = (TablePartition(0, (value,)) for value in range(2))


@pytest.fixture
def kind(tmp_path: Path) -> Iterator[CatalogKind]:
    made = CatalogKind(tmp_path)
    yield made
    made.close()


@pytest.fixture
def table(kind: CatalogKind) -> Table:
    """A table of two partitions."""
    made = kind.create()
    made.commit([Append((kind.file([1, 2]), kind.file([3, 4], p=1)))], open_below_bytes=BELOW)
    return made


def room_of(table: Table) -> Room:
    return ForeignRewrites().room(table.refresh(), BELOW)


def test_rows_that_another_engine_deletes_make_their_partition_wait(kind: CatalogKind, table: Table) -> None:
    kind.read().delete("id = 1")  # copy on write
    assert room_of(table) == Room(frozenset({P0}), frozenset({P0}))
    kind.read().delete("id = 3")
    assert room_of(table).waiting == {P0, P1}


def test_its_appends_and_our_own_merges_make_none_wait(kind: CatalogKind, table: Table) -> None:
    kind.read().append(
        pa.table({"id": [5], "p": [0]}, schema=pa.schema([("id", pa.int64()), ("p", pa.int32())]))
    )
    table.refresh()
    small = [it.location for it in table.head.live_files() if it.partition == (1,)]
    table.commit([Replace(frozenset(small), (kind.file([3, 4], p=1),))])
    assert room_of(table) == Room()


def test_it_ends_by_the_tables_time(kind: CatalogKind, table: Table) -> None:
    kind.read().delete("id = 1")
    seen = ForeignRewrites()
    deleted_ms = table.refresh().metadata.last_updated_ms
    for after_ms, waits, late in (
        (2 * FIRST_DISTANCE_MS - 5_000, True, True),
        (2 * FIRST_DISTANCE_MS + 5_000, False, True),
        (LONGEST_WAIT_MS + 5_000, False, False),
    ):
        kind.clock.now_ms = deleted_ms + after_ms
        table.commit([SetProperties({"x": str(after_ms)})])
        room = seen.room(table.head, BELOW)
        assert (P0 in room.waiting, P0 in room.rewritten) == (waits, late)


def test_a_partition_with_too_many_small_files_waits_no_longer(kind: CatalogKind, table: Table) -> None:
    kind.read().delete("id = 1")
    table.refresh()
    files = [kind.file([100 + row]) for row in range(SMALL_FILES_WHILE_WAITING - 1)]
    table.commit([Append(tuple(files))], open_below_bytes=BELOW)
    assert room_of(table).waiting == {P0}
    table.commit([Append((kind.file([1000]),))], open_below_bytes=BELOW)
    assert room_of(table) == Room(frozenset({P0}))


def test_each_commit_is_read_once_and_one_whose_manifests_are_gone_makes_none_wait(
    kind: CatalogKind, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind.read().delete("id = 1")
    table.refresh()
    find, reads, seen = ManifestFiles.find_entries, list[int](), ForeignRewrites()

    def counting(self: Any, manifest: Any) -> Any:
        reads.append(1)
        return find(self, manifest)

    monkeypatch.setattr(ManifestFiles, "find_entries", counting)
    first = seen.room(table.head, BELOW)
    read = len(reads)
    assert (read > 0, first.waiting) == (True, {P0})
    assert seen.room(table.head, BELOW) == first
    assert len(reads) == read
    monkeypatch.setattr(ManifestFiles, "find_entries", lambda *_: None)
    assert ForeignRewrites().room(table.head, BELOW) == Room()


def test_a_table_of_version_files_has_no_other_engines(tmp_path: Path) -> None:
    kind: Kind = VersionFilesKind(tmp_path)
    table = kind.create()
    table.commit([Append((kind.file([1]),))])
    assert ForeignRewrites().room(table.head, BELOW) == Room()
