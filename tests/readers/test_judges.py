"""The judges on a table of pyiceberg's: time travel, streams, increments and metadata tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from tests.readers import judges
from tests.readers.canonical import canonical
from tests.readers.reference_tables import write_reference_table

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.jar]

_SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
_COLUMNS = ["id", "name"]
_BATCHES = [
    pa.Table.from_pylist(rows, schema=schema_to_pyarrow(_SCHEMA, include_field_ids=False))
    for rows in (
        [{"id": 1, "name": "a"}, {"id": 2, "name": None}],
        [{"id": 3, "name": "c"}, {"id": 3, "name": "c"}],
        [{"id": 4, "name": "d"}],
    )
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("judges") / "table"
    write_reference_table(folder, _SCHEMA, _BATCHES)
    return folder


@pytest.mark.parametrize("reader", judges.READERS)
def test_each_reader_travels_in_time(reader: str, table: Path) -> None:
    """At every snapshot each reader sees the rows up to it."""
    for count, snapshot in enumerate(judges.snapshots(table), start=1):
        expected = pa.concat_tables(_BATCHES[:count])
        judges.assert_reader_agrees(reader, table, expected, snapshot_id=snapshot.snapshot_id)


@pytest.mark.parametrize("reader", judges.READERS)
def test_a_row_too_few_is_noticed(reader: str, table: Path) -> None:
    """A duplicate that is missing from the expectation fails the comparison: rows are counted."""
    expected = pa.concat_tables([_BATCHES[0], _BATCHES[1].slice(1), _BATCHES[2]])
    with pytest.raises(AssertionError, match="1 too many"):
        judges.assert_reader_agrees(reader, table, expected)


def test_a_stream_brings_each_row_once(table: Path) -> None:
    """Spark's stream over the table brings every row exactly as often as the table holds it."""
    expected = canonical(pa.concat_tables(_BATCHES), _SCHEMA, _COLUMNS)
    judges.assert_same_rows(judges.stream_rows(table), expected, "the stream")


def test_a_stream_resumes_from_its_checkpoint(table: Path, tmp_path: Path) -> None:
    """A stream that has caught up brings nothing more when it is started again."""
    judges.stream_rows(table, checkpoint=tmp_path)
    assert not judges.stream_rows(table, checkpoint=tmp_path)


def test_increments_hold_the_rows_between_two_snapshots(table: Path) -> None:
    """An incremental read brings what was appended after one snapshot, up to and with another."""
    first, second, _third = (snapshot.snapshot_id for snapshot in judges.snapshots(table))
    between = canonical(_BATCHES[1], _SCHEMA, _COLUMNS)
    judges.assert_same_rows(judges.incremental_rows(table, first, second), between, "the increment")
    after = canonical(pa.concat_tables(_BATCHES[1:]), _SCHEMA, _COLUMNS)
    judges.assert_same_rows(judges.incremental_rows(table, first), after, "the increment")


def test_metadata_tables_agree(table: Path) -> None:
    """Iceberg's metadata tables of pyiceberg's table load, and their totals agree."""
    judges.assert_metadata_tables_agree(table)
