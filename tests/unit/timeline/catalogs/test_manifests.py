"""Manifests that another engine has merged over open and sealed files: the bounds hold again soon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.typedef import Record

from tests.unit.timeline.logs.kinds import CatalogKind
from tests.unit.timeline.world import data_file
from timeline import names
from timeline.changes.changes import Append, Replace
from timeline.manifests.contents import is_data
from timeline.manifests.manifest_policy import OPEN_ENTRIES, SEALED_ENTRIES
from timeline.table import Table
from timeline.versions.head import Head

SMALL, FULL = 1_000, 1_000_000
OPEN_BELOW = 100_000


@pytest.fixture
def kind(tmp_path: Path) -> Iterator[CatalogKind]:
    made = CatalogKind(tmp_path)
    yield made
    made.close()


def files(kind: CatalogKind, count: int, size: int, rows: int = 1) -> list[DataFile]:
    """Return files that no test reads."""
    made = list[DataFile]()
    for _ in range(count):
        file_id = names.ulid(kind.clock.now_ms, next(kind._seeds))
        path = f"data/p=0/{names.data_file_name(file_id, 'app', 0, 0, 0)}"
        made.append(data_file(kind.store().uri(path), rows, partition=Record(0), size=size))
    return made


def merge_by_another_engine(kind: CatalogKind) -> None:
    """Append a file as an engine does that merges all manifests into one of up to 8 MB."""
    with kind.read().transaction() as edit:
        edit.set_properties(
            {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
        )
    kind.read().append(
        pa.table({"id": [1], "p": [0]}, schema=pa.schema([("id", pa.int64()), ("p", pa.int32())]))
    )
    with kind.read().transaction() as edit:
        edit.set_properties({"commit.manifest.min-count-to-merge": "32"})


def out_of_bounds(head: Head) -> list[tuple[int, int]]:
    """Return the open and the sealed files of each manifest that the policy would not have written."""
    found = list[tuple[int, int]]()
    for manifest in head.manifests:
        contents = head.manifest_files.contents(manifest)
        opened = sum(not file.sort_order_id for file in contents.below(OPEN_BELOW))
        sealed = len(contents.files) - opened
        few = opened + sealed <= OPEN_ENTRIES
        pure = (not sealed and opened <= OPEN_ENTRIES) or (not opened and sealed <= SEALED_ENTRIES)
        if is_data(manifest) and not (few or pure):
            found.append((opened, sealed))
    return found


def mixed_table(kind: CatalogKind, opened: int, sealed: int) -> tuple[Table, list[DataFile]]:
    """Return a table of which another engine has merged all manifests into one, and its small files."""
    table, small = kind.create(), files(kind, opened, SMALL)
    for start in range(0, opened, 200):
        table.commit([Append(tuple(small[start : start + 200]))], open_below_bytes=OPEN_BELOW)
    table.commit([Append(tuple(files(kind, sealed, FULL)))], open_below_bytes=OPEN_BELOW)
    merge_by_another_engine(kind)
    table.refresh()
    assert len(table.head.manifests) == 1
    assert out_of_bounds(table.head) == [(opened + 1, sealed)]
    return table, small


@pytest.mark.parametrize("does", ["appends", "fills"])
def test_a_merged_manifest_is_split_by_the_first_commit_that_knows_it(kind: CatalogKind, does: str) -> None:
    table, small = mixed_table(kind, 600, 1_000)
    if does == "appends":
        table.commit([Append(tuple(files(kind, 1, SMALL)))], open_below_bytes=OPEN_BELOW)
    else:
        [merged] = files(kind, 1, FULL, rows=8)
        inputs = frozenset(it.file_path for it in small[:8])
        table.commit([Replace(inputs, (merged,))], open_below_bytes=OPEN_BELOW)
    head = kind.open().head
    assert out_of_bounds(head) == []
    assert len(list(head.live_files())) == 1_601 + (1 if does == "appends" else -7)


def test_a_process_that_has_read_nothing_of_it_splits_it_by_its_second_commit(kind: CatalogKind) -> None:
    mixed_table(kind, 600, 1_000)
    table = kind.open()
    for bounds_hold in (False, True):
        table.commit([Append(tuple(files(kind, 1, SMALL)))], open_below_bytes=OPEN_BELOW)
        assert (out_of_bounds(kind.open().head) == []) is bounds_hold
        list(table.head.files_below(OPEN_BELOW))  # as a sink counts small files after a commit


def test_a_manifest_that_is_larger_than_one_commit_merges_is_split_by_the_first_fill(
    kind: CatalogKind,
) -> None:
    table, small = mixed_table(kind, 600, SEALED_ENTRIES)
    table.commit([Append(tuple(files(kind, 1, SMALL)))], open_below_bytes=OPEN_BELOW)
    assert out_of_bounds(table.head) == [(601, SEALED_ENTRIES)]
    [merged] = files(kind, 1, FULL, rows=8)
    table.commit(
        [Replace(frozenset(it.file_path for it in small[:8]), (merged,))], open_below_bytes=OPEN_BELOW
    )
    assert out_of_bounds(kind.open().head) == []


def test_manifests_of_two_sinks_that_call_other_files_small_are_not_split_in_turns(kind: CatalogKind) -> None:
    table, _ = mixed_table(kind, 600, 1_000)
    for below in (OPEN_BELOW, 10 * FULL, OPEN_BELOW, 10 * FULL):
        table.commit([Append(tuple(files(kind, 1, SMALL)))], open_below_bytes=below)
    written = {it.added_snapshot_id for it in table.head.manifests if it.existing_files_count}
    assert len(written) == 1
