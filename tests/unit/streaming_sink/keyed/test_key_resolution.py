"""A second look at keys, on a table of real files: what other writers did with delete files in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.typedef import Record

from streaming_sink.keyed.key_resolution import BatchKeys, Resolution, look, resolve_again
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.tasks.files.delete_files import write_position_deletes
from streaming_sink.tasks.job import KeyJob, ParquetSettings
from streaming_sink.tasks.keys.hashing import hash_keys
from streaming_sink.tasks.keys.scanning import KeyColumns
from tests.unit.streaming_sink.small_tables import append, append_rows, delete_rows, make_table
from tests.unit.timeline.world import change_metadata
from timeline import names
from timeline.changes.delete_merges import MergeDeletes
from timeline.errors import RowsChangedError
from timeline.manifests.entries import LiveFile, position_deletes
from timeline.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made: Table = make_table(tmp_path / "t")
    append(made, 0)
    return made


def merge(table: Table, file: LiveFile, deletes: Sequence[str], positions: Sequence[int]) -> None:
    file_id = names.ulid(table.head.metadata.last_updated_ms, 1)
    path = f"data/{names.delete_file_name(file_id, 'merged', 0, 0, 0)}"
    rows, size = write_position_deletes(
        table.store, path, file.location, pa.array(positions, pa.int64()), ParquetSettings()
    )
    merged = position_deletes(
        table.store.uri(path),
        file.location,
        rows=rows,
        size=size,
        spec_id=file.spec_id,
        partition=Record(*file.partition),
    )
    table.commit([MergeDeletes(frozenset(deletes), (merged,))])


def looked(table: Table, positions: Mapping[str, Sequence[int]]) -> tuple[Resolution, BatchKeys]:
    """A batch without keys of its own that deletes rows at these positions."""
    before = look(table.head).leaving({path: np.array(these) for path, these in positions.items()})
    job = KeyJob(("id",), None, table.head.metadata.table_uuid)
    none = np.empty(0, np.int64)
    schema = arrow_schema(table.head.schema)
    return before, BatchKeys(job, np.empty((0, 2), np.uint64), none, [], none, none, schema)


def test_rows_are_where_they_were_once_the_delete_files_were_merged(table: Table) -> None:
    """Nothing of the batch is written again: a pass beside the stream merges all the time."""
    file = next(table.head.live_files())
    known = [*delete_rows(table, {file.location: [1]}), *delete_rows(table, {file.location: [2]})]
    before, keys = looked(table, {file.location: [5, 6, 7]})
    delete_rows(table, {file.location: [6]})
    merge(table, file, known, [1, 2])
    again = resolve_again(table.store, before, table.head, keys)
    assert again.positions[file.location].tolist() == [5, 7]
    assert again.applied == {it.location for it in table.head.deletes_of(file)}


def test_a_change_that_was_withdrawn_replaces_no_row_that_came_since(table: Table) -> None:
    """What had made it late may be forgotten, and an older row have come: the key would be lost."""
    schema = arrow_schema(table.head.schema)
    job = KeyJob(("id",), "key", table.head.metadata.table_uuid)
    columns = KeyColumns(job.table_uuid, pa.schema([schema.field("id")]), schema.field("key"))
    hashes = hash_keys([pa.array([5000, 6000])], columns.seed)
    none = look(table.head)
    before = replace(none, positions={"own": np.array([3])}, withdrawn=np.array([True, False]))
    file, places = np.zeros(2, np.int64), np.array([3, 4])
    keys = BatchKeys(job, hashes, np.array([7, 7]), ["own"], file, places, schema)
    rows = [{"id": it, "p": "p0", "key": 1} for it in (5000, 6000)]
    append_rows(table, pa.Table.from_pylist(rows), 1)
    again = resolve_again(table.store, before, table.head, keys)
    (added,) = none.looked.find_added(table.head)
    assert {path: these.tolist() for path, these in again.positions.items()} == {"own": [3], added: [1]}
    assert (again.withdrawn_count, none.withdrawn_count) == (1, 0)


def test_a_delete_that_was_withdrawn_stays_so_at_a_later_look(table: Table) -> None:
    """It has no row of its own that would say so."""
    schema = arrow_schema(table.head.schema)
    job = KeyJob(("id",), "key", table.head.metadata.table_uuid)
    columns = KeyColumns(job.table_uuid, pa.schema([schema.field("id")]), schema.field("key"))
    hashes = hash_keys([pa.array([5000])], columns.seed)
    nowhere, before = np.array([-1]), look(table.head)
    keys = BatchKeys(job, hashes, np.array([7]), [], nowhere, nowhere, schema)
    for key in (9, 1):  # newer, and then older than the batch's
        append_rows(table, pa.Table.from_pylist([{"id": 5000, "p": "p0", "key": key}]), key)
        before = resolve_again(table.store, before, table.head, keys)
        assert (before.withdrawn_count, before.positions) == (1, {})


def test_a_table_that_was_set_back_after_a_change_was_withdrawn_has_the_batch_written_again(
    table: Table,
) -> None:
    """The newer row has left, and the batch would delete the older one and keep its own withdrawn."""
    first = table.head
    file = next(first.live_files())
    append_rows(table, pa.Table.from_pylist([{"id": 5000, "p": "p0", "key": 9}]), 1)
    before, keys = looked(table, {file.location: [5]})
    once = np.zeros(1, np.int64)
    keys = replace(keys, hashes=np.zeros((1, 2), np.uint64), sequences=once, files=["own"], file=once)
    keys = replace(keys, position=np.array([3]))
    with pytest.raises(RowsChangedError, match="withdrawn"):
        resolve_again(table.store, replace(before, withdrawn=np.array([True])), first, keys)
    kept = resolve_again(table.store, before, first, keys)
    assert {path: these.tolist() for path, these in kept.positions.items()} == {file.location: [5]}


def test_rows_that_are_live_again_have_the_batch_written_again(table: Table) -> None:
    file = next(table.head.live_files())
    known = [*delete_rows(table, {file.location: [1]}), *delete_rows(table, {file.location: [2]})]
    before, keys = looked(table, {file.location: [5]})
    merge(table, file, known, [1, 3])
    with pytest.raises(RowsChangedError, match="rows that were deleted are live again"):
        resolve_again(table.store, before, table.head, keys)


def test_rows_of_a_column_that_others_have_renamed_are_found_by_its_field_id(table: Table) -> None:
    before, keys = looked(table, {})
    columns = KeyColumns(keys.job.table_uuid, pa.schema([keys.schema.field("id")]))
    hashes = hash_keys([pa.array([5000])], columns.seed)
    once = np.zeros(1, np.int64)
    keys = replace(keys, hashes=hashes, sequences=once, files=["own"], file=once, position=once)
    append_rows(table, pa.Table.from_pylist([{"id": 5000, "p": "p0", "key": 1}]), 1)
    (added,) = before.looked.find_added(table.refresh())

    def rename(metadata: TableMetadataV2) -> dict[str, object]:
        fields = [each.model_copy(update={"name": f"new_{each.name}"}) for each in metadata.schema().fields]
        renamed = Schema(*fields, schema_id=metadata.current_schema_id + 1)
        return {"schemas": [*metadata.schemas, renamed], "current_schema_id": renamed.schema_id}

    change_metadata(table, rename)
    again = resolve_again(table.store, before, table.refresh(), keys)
    assert {path: these.tolist() for path, these in again.positions.items()} == {added: [0]}


def test_a_table_that_was_set_back_to_before_rows_were_deleted_has_the_batch_written_again(
    table: Table,
) -> None:
    """Also where the batch has found none of its keys in that file: the row may have one of them."""
    first = table.head
    file = next(first.live_files())
    delete_rows(table, {file.location: [1]})
    before, keys = looked(table, {})
    with pytest.raises(RowsChangedError, match="the table was set back"):
        resolve_again(table.store, before, first, keys)
