"""A second look at keys, on a table of real files: what other writers did with delete files in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.typedef import Record

from streaming_sink.batch.key_resolution import BatchKeys, Resolution, look, resolve_again
from streaming_sink.tasks.delete_files import write_position_deletes
from streaming_sink.tasks.job import KeyJob, ParquetSettings
from tests.unit.streaming_sink.small_tables import append, delete_rows, make_table
from timeline import names
from timeline.commit.delete_merges import MergeDeletes
from timeline.errors import RowsChangedError
from timeline.table import Table
from timeline.versions.entries import LiveFile, position_deletes


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
    before = replace(
        look(table.head, in_partitions=False),
        positions={path: np.array(these) for path, these in positions.items()},
    )
    job = KeyJob(("id",), None, table.head.metadata.table_uuid, ())
    none = np.empty(0, np.int64)
    return before, BatchKeys(job, np.empty((0, 2), np.uint64), none, [], none, none)


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


def test_rows_that_are_live_again_have_the_batch_written_again(table: Table) -> None:
    file = next(table.head.live_files())
    known = [*delete_rows(table, {file.location: [1]}), *delete_rows(table, {file.location: [2]})]
    before, keys = looked(table, {file.location: [5]})
    merge(table, file, known, [1, 3])
    with pytest.raises(RowsChangedError, match="rows that were deleted are live again"):
        resolve_again(table.store, before, table.head, keys)
