"""A data file whose pages have other rows than its footer states is damaged: its rows are not taken for all.

One flipped bit makes a page one of a kind that pyarrow passes over without a word.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from planners.model import InputFile
from streaming_sink.tasks.errors import DataFileError
from streaming_sink.tasks.files.data_file_reader import open_data_file
from streaming_sink.tasks.job import WorkerJob
from streaming_sink.tasks.results import WrittenFile
from streaming_sink.tasks.row_groups.compact import I64, Field, encode_struct
from streaming_sink.tasks.row_groups.footer import read_row_groups
from streaming_sink.tasks.row_groups.page_headers import with_pages
from streaming_sink.tasks.rows.fill_task import Fill, FillSkipped, execute_fill
from tests.unit.streaming_sink.ingest.lying_footers import footer_of
from tests.unit.streaming_sink.tasks.row_groups.joined_files import DECODES, job_of, written


def _field(name: str, number: int) -> pa.Field:
    return pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(number)})


SCHEMA = pa.schema([_field("id", 1), _field("x", 2)])
PLACES = [(group, column, page) for group in (0, 1) for column in (0, 1) for page in (0, 1, 2)]


def rows(first: int) -> pa.Table:
    ids = range(first, first + 30)
    return pa.table({"id": ids, "x": ids}, SCHEMA)


@pytest.fixture
def job() -> WorkerJob:
    return job_of(SCHEMA, page_rows=10, compression="none", copied_from_bytes=DECODES)


def damaged(job: WorkerJob, place: tuple[int, int, int]) -> WrittenFile:
    """A file of two row groups, with three pages a column; one of these is of a kind that nobody knows."""
    file: WrittenFile = written(job, rows(0), rows(30))
    path = job.store.relative(file.path)
    with job.store.open_input(path) as source:
        stored: Any = with_pages(read_row_groups(source))
    group, column, page = place
    data = bytearray(job.store.read(path).data)
    data[stored.footer.groups[group].chunks[column].pages[page].place.begin + 1] ^= 1
    job.store.overwrite(path, bytes(data))
    return file


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("batch_rows", [7, 1000])
@pytest.mark.parametrize("columns", [[0], [1], [0, 1]])
def test_a_page_that_is_passed_over_is_damage(
    job: WorkerJob, place: tuple[int, int, int], batch_rows: int, columns: list[int]
) -> None:
    file, schema = damaged(job, place), pa.schema([SCHEMA.field(at) for at in columns])

    def read(groups: list[int] | None) -> int:
        with open_data_file(job.store, file.path, "a file") as reader:
            return sum(batch.num_rows for batch in reader.read(schema, batch_rows, groups))

    assert read([1 - place[0]]) == 30
    if place[1] not in columns:
        assert read(None) == 60
        return
    for groups in (None, [place[0]]):
        with pytest.raises(DataFileError, match=r"its pages have \d+ rows|the same size|expected length"):
            read(groups)


@pytest.mark.parametrize("columns", [[0], [1], [0, 1]])
@pytest.mark.parametrize("place", PLACES)
def test_rows_at_positions_are_not_taken_from_beside_it(
    job: WorkerJob, place: tuple[int, int, int], columns: list[int]
) -> None:
    file, schema = damaged(job, place), pa.schema([SCHEMA.field(at) for at in columns])

    def read(position: int) -> list[dict[str, int]]:
        with open_data_file(job.store, file.path, "a file") as reader:
            positions = np.array([position])
            return [row for batch in reader.read_at(schema, positions) for row in batch.to_pylist()]

    other, own = 30 * (1 - place[0]) + 5, 30 * place[0] + 5
    assert read(other) == [dict.fromkeys(schema.names, other)]
    if place[1] in columns:
        with pytest.raises(DataFileError):
            read(own)


@pytest.mark.parametrize("bit", range(6))
def test_row_groups_that_state_other_rows_are_damage(job: WorkerJob, bit: int) -> None:
    """A row group with fewer would lose its last rows, and shift those of the next one."""
    file: WrittenFile = written(job, rows(0), rows(30))
    path = job.store.relative(file.path)
    data = job.store.read(path).data
    length, footer = int.from_bytes(data[-8:-4], "little"), footer_of(data)
    group = footer[4].value.items[0]
    group[3] = Field(I64, group[3].value ^ 1 << bit)
    spoiled = encode_struct(footer)
    job.store.overwrite(path, data[: -8 - length] + spoiled + struct.pack("<I", len(spoiled)) + b"PAR1")
    with (
        pytest.raises(DataFileError, match="its footer states 60 rows"),
        open_data_file(job.store, file.path, "a file"),
    ):
        pass


def test_a_position_beyond_the_rows_of_a_file_is_damage(job: WorkerJob) -> None:
    file = written(job, rows(0))
    with (
        pytest.raises(DataFileError, match="it has 30 rows, and one at 99"),
        open_data_file(job.store, file.path, "a file") as reader,
    ):
        list(reader.read_at(SCHEMA, np.array([3, 99])))


@pytest.mark.parametrize("place", PLACES)
def test_a_merge_leaves_such_a_file_alone(job: WorkerJob, place: tuple[int, int, int]) -> None:
    file, other = damaged(job, place), written(job, rows(60))
    inputs = tuple(InputFile(it.path, it.rows) for it in (file, other))
    done = execute_fill(replace(job, stated={}), Fill(0, (), (), inputs, ()), attempt=0)
    assert isinstance(done, FillSkipped)
    assert done.culprit == file.path
