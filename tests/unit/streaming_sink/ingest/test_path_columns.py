"""Columns that the folders of a source file state: which, with which types, and what is refused."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest

from streaming_sink.tasks.ingest.path_columns import path_columns, with_columns, with_fields
from streaming_sink.tasks.ingest.reading import SourceFileError
from streaming_sink.tasks.ingest.sources import Sources, folder_values


def columns_of(path: str, given: Iterable[str], schema: pa.Schema | None) -> dict[str, pa.Scalar]:
    return path_columns(folder_values(path), given, schema)


NAIVE = datetime.fromisoformat("2026-11-23T10:00:00")


def test_a_new_table_gets_whole_numbers_days_and_text() -> None:
    found = columns_of(
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
    found = columns_of("s3://lake/drop/a%20b=x%2Fy%3Dz/c=__HIVE_DEFAULT_PARTITION__/f.json", (), None)
    assert {name: value.as_py() for name, value in found.items()} == {"a b": "x/y=z", "c": None}


@pytest.mark.parametrize("schema", [None, pa.schema([("a", pa.string())])])
def test_text_that_is_not_valid_utf8_is_refused(schema: pa.Schema | None) -> None:
    with pytest.raises(SourceFileError, match="not valid UTF-8: a=x%FF"):
        columns_of("/drop/a=x%FF/f.parquet", (), schema)


def test_a_number_too_large_for_its_column_is_refused() -> None:
    with pytest.raises(SourceFileError, match=r"column f of float: a number would be infinite.*1e39"):
        columns_of("/drop/f=1e39/f.parquet", (), pa.schema([("f", pa.float32())]))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.string(), "7", "7"),
        (pa.int32(), "7", 7),
        (pa.float64(), "7", 7.0),
        (pa.bool_(), "true", True),
        (pa.date32(), "2026-11-23", date(2026, 11, 23)),
        (pa.time64("us"), "10:00:00", time(10)),
        (pa.binary(), "eHl6", b"xyz"),
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
    found = columns_of(f"/drop/c={text}/f.parquet", ("own",), pa.schema([("c", kind)]))
    assert [(name, each.type, each.as_py()) for name, each in found.items()] == [("c", kind, value)]


def test_a_uuid_is_text_which_the_column_takes() -> None:
    text = str(UUID(int=7))
    found = columns_of(f"/drop/c={text}/f.parquet", (), pa.schema([("c", pa.uuid())]))
    assert found["c"].as_py() == text


def test_a_column_that_the_table_lacks_is_for_the_contract_as_one_of_a_file_is() -> None:
    """It was left out without a word, while the same column in a file was refused."""
    schema = pa.schema([("id", pa.int64()), ("n", pa.string())])
    found = columns_of("/drop/op=D/n=7/zz=1/f.parquet", ("id",), schema)
    assert {name: value.as_py() for name, value in found.items()} == {"op": "D", "n": "7", "zz": 1}


def test_what_the_file_has_is_the_files() -> None:
    assert columns_of("/drop/day=1/f.parquet", ("day",), None) == {}


def test_a_value_of_another_type_is_refused() -> None:
    with pytest.raises(SourceFileError, match=r"does not fit the column c of int32.*seven"):
        columns_of("/drop/c=seven/f.parquet", (), pa.schema([("c", pa.int32())]))


@pytest.mark.parametrize(
    ("path", "kind", "message"),
    [
        ("c=25:00:00", pa.time64("us"), r"column c of time64\[us\]: .*25:00:00"),
        ("c=2026-11-23T10:00:00Z", pa.timestamp("us"), "expected no zone offset"),
        ("c=7", pa.struct([("x", pa.int32())]), "does not fit the column c"),
        ("c=16777217", pa.float32(), "16777217 would be rounded"),
        ("c=12345678901234567891", pa.float64(), "12345678901234567891 would be rounded"),
        ("C=7", pa.int32(), "its path has the table's column c in another case: C=7"),
    ],
)
def test_what_would_be_lost_rejects_the_file(path: str, kind: pa.DataType, message: str) -> None:
    with pytest.raises(SourceFileError, match=message):
        columns_of(f"/drop/{path}/f.parquet", ("own",), pa.schema([("c", kind)]))


def test_a_column_of_the_file_counts_though_a_folder_has_its_name_in_another_case() -> None:
    assert columns_of("/drop/C=7/f.parquet", ("c",), pa.schema([("c", pa.int32())])) == {}


def test_rows_and_fields_get_the_same_columns() -> None:
    constants = columns_of("/drop/day=2026-11-23/f.parquet", ("id",), None)
    rows = with_columns(pa.table({"id": [1, 2]}), constants)
    assert rows.schema == with_fields(pa.schema([("id", pa.int64())]), constants)
    assert rows["day"].to_pylist() == [date(2026, 11, 23)] * 2


def test_folders_above_a_source_say_nothing_of_its_rows() -> None:
    """A zone below env=prod has the staged files of streams, which have no such column."""
    sources = Sources(("/", "/lake/env=prod/drop", "/lake/env=prod/zone"))
    assert sources.stated("/lake/env=prod/zone/staged/7.parquet") == {}
    assert sources.stated("/lake/env=prod/drop/day=1/7.parquet") == {"day": "1"}
    assert sources.stated("/other/env=prod/7.parquet") == {"env": "prod"}
