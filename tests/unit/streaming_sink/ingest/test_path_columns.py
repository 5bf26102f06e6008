"""Columns that the folders of a source file state: which, with which types, and what is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest

from streaming_sink.tasks.ingest.path_columns import path_columns, with_columns, with_fields
from streaming_sink.tasks.ingest.reading import SourceFileError

NAIVE = datetime.fromisoformat("2026-11-23T10:00:00")


def test_a_new_table_gets_whole_numbers_days_and_text() -> None:
    found = path_columns(
        "/drop/n=-7/code=007/day=2026-11-23/no=2026-13-01/big=12345678901234567890/f.parquet", (), None
    )
    assert {name: value.as_py() for name, value in found.items()} == {
        "n": -7,
        "code": "007",
        "day": date(2026, 11, 23),
        "no": "2026-13-01",
        "big": "12345678901234567890",
    }


def test_names_and_values_are_unescaped_as_spark_and_hive_escape_them() -> None:
    found = path_columns("s3://lake/drop/a%20b=x%2Fy%3Dz/c=__HIVE_DEFAULT_PARTITION__/f.json", (), None)
    assert {name: value.as_py() for name, value in found.items()} == {"a b": "x/y=z", "c": None}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.string(), "7", "7"),
        (pa.int32(), "7", 7),
        (pa.float64(), "7", 7.0),
        (pa.bool_(), "true", True),
        (pa.date32(), "2026-11-23", date(2026, 11, 23)),
        (pa.decimal128(10, 2), "1.5", Decimal("1.50")),
        (
            pa.timestamp("us"),
            "2026-11-23 10%3A00%3A00",
            NAIVE,
        ),
        (pa.timestamp("us", "UTC"), "2026-11-23 10%3A00%3A00", datetime(2026, 11, 23, 10, tzinfo=UTC)),
        (pa.timestamp("us", "UTC"), "2026-11-23T10:00:00+02:00", datetime(2026, 11, 23, 8, tzinfo=UTC)),
        (pa.int32(), "__HIVE_DEFAULT_PARTITION__", None),
    ],
)
def test_a_column_of_the_table_keeps_its_type(kind: pa.DataType, text: str, value: object) -> None:
    found = path_columns(f"/drop/other=1/c={text}/f.parquet", ("own",), pa.schema([("c", kind)]))
    assert [(name, each.type, each.as_py()) for name, each in found.items()] == [("c", kind, value)]


def test_a_uuid_is_text_which_the_column_takes() -> None:
    text = str(UUID(int=7))
    found = path_columns(f"/drop/c={text}/f.parquet", (), pa.schema([("c", pa.uuid())]))
    assert found["c"].as_py() == text


def test_a_column_that_the_table_does_not_get_is_read_where_the_options_name_it() -> None:
    schema = pa.schema([("id", pa.int64()), ("n", pa.string())])
    found = path_columns("/drop/op=D/n=7/other=1/f.parquet", ("id",), schema, ("op", "n"))
    assert {name: value.as_py() for name, value in found.items()} == {"op": "D", "n": "7"}


def test_what_the_file_has_is_the_files() -> None:
    assert path_columns("/drop/day=1/f.parquet", ("day",), None) == {}


def test_a_value_of_another_type_is_refused() -> None:
    with pytest.raises(SourceFileError, match=r"does not fit the column c of int32.*seven"):
        path_columns("/drop/c=seven/f.parquet", (), pa.schema([("c", pa.int32())]))


@pytest.mark.parametrize(
    ("path", "kind", "message"),
    [
        ("c=10:00:00", pa.time64("us"), r"column c of time64\[us\]: Unsupported cast"),
        ("c=16777217", pa.float32(), "16777217 would be rounded"),
        ("c=12345678901234567891", pa.float64(), "12345678901234567891 would be rounded"),
        ("C=7", pa.int32(), "its path has the table's column c in another case: C=7"),
    ],
)
def test_what_would_be_lost_rejects_the_file(path: str, kind: pa.DataType, message: str) -> None:
    with pytest.raises(SourceFileError, match=message):
        path_columns(f"/drop/{path}/f.parquet", ("own",), pa.schema([("c", kind)]))


def test_a_column_of_the_file_counts_though_a_folder_has_its_name_in_another_case() -> None:
    assert path_columns("/drop/C=7/f.parquet", ("c",), pa.schema([("c", pa.int32())])) == {}


def test_rows_and_fields_get_the_same_columns() -> None:
    constants = path_columns("/drop/day=2026-11-23/f.parquet", ("id",), None)
    rows = with_columns(pa.table({"id": [1, 2]}), constants)
    assert rows.schema == with_fields(pa.schema([("id", pa.int64())]), constants)
    assert rows["day"].to_pylist() == [date(2026, 11, 23)] * 2
