"""Parquet files of other writers: their types, and times that others write in 96 bits."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_sink.tasks.errors import RowsDoNotFitError
from streaming_sink.tasks.ingest.parquet import footer_columns, open_footer, plain_columns, read_all

LOCAL, INSTANT = pa.timestamp("us"), pa.timestamp("us", "UTC")
FAR = [
    *(dt.datetime.fromisoformat(time) for time in ("0001-01-01", "1969-12-31T23:59:59.999999", "9999-12-31")),
    None,
]


def written(table: pa.Table, **options: Any) -> pa.BufferReader:
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return pa.BufferReader(file.getvalue())


def columns_of(times: Sequence[dt.datetime | None]) -> pa.Table:
    """Return times at all the places that a column may have them."""
    at = pa.array(times, LOCAL)
    return pa.table(
        {
            "at": at,
            "s": pa.StructArray.from_arrays([pa.array([1] * len(at)), at], ["n", "at"]),
            "l": pa.array([[time] for time in times], pa.list_(LOCAL)),
            "m": pa.array([[("k", time)] for time in times], pa.map_(pa.string(), LOCAL)),
        }
    )


def int96(table: pa.Table) -> pa.BufferReader:
    return written(table, use_deprecated_int96_timestamps=True)


def test_times_of_96_bits_are_read_over_all_years() -> None:
    rows = columns_of(FAR)
    assert read_all(int96(rows)).to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("column", ["at", "s", "l", "m"])
def test_a_time_of_96_bits_with_nanoseconds_is_refused(column: str) -> None:
    value = pa.array([1_000_000_001, None], pa.int64()).cast(pa.timestamp("ns"))
    made: pa.Array = {
        "at": lambda: value,
        "s": lambda: pa.StructArray.from_arrays([pa.array([1, 2]), value], ["n", "at"]),
        "l": lambda: pa.ListArray.from_arrays([0, 1, 2], value),
        "m": lambda: pa.MapArray.from_arrays([0, 1, 2], pa.array(["k", "k"]), value),
    }[column]()
    with pytest.raises(RowsDoNotFitError, match=f"column {column} has a timestamp of INT96 with nanoseconds"):
        read_all(int96(pa.table({column: made})))


def test_a_time_of_96_bits_is_an_instant_and_fits_a_column_without_a_zone() -> None:
    file = open_footer(int96(columns_of(FAR)))
    new = columns_of(FAR).schema
    instants = pa.schema(
        [
            ("at", INSTANT),
            ("s", pa.struct([("n", pa.int64()), ("at", INSTANT)])),
            ("l", pa.list_(INSTANT)),
            ("m", pa.map_(pa.string(), INSTANT)),
        ]
    )
    assert [field.type for field in footer_columns(file, None)] == [field.type for field in instants]
    assert [field.type for field in footer_columns(file, instants)] == [field.type for field in instants]
    assert [field.type for field in footer_columns(file, new)] == [field.type for field in new]
    plain = open_footer(written(columns_of(FAR)))
    assert [field.type for field in footer_columns(plain, None)] == [field.type for field in new]


@pytest.mark.parametrize(
    ("kind", "known", "plain"),
    [
        (pa.uint8(), None, pa.int32()),
        (pa.uint32(), pa.int32(), pa.int64()),
        (pa.uint64(), None, pa.decimal128(20, 0)),
        (pa.uint64(), pa.int64(), pa.int64()),
        (pa.float16(), None, pa.float32()),
        (pa.string_view(), None, pa.string()),
        (pa.list_(pa.struct([("a", pa.uint16())])), None, pa.list_(pa.struct([("a", pa.int32())]))),
        (pa.time32("ms"), None, pa.time64("us")),
        (pa.uuid(), None, pa.string()),
        (pa.float64(), None, pa.float64()),
    ],
)
def test_a_type_that_spark_does_not_have_is_one_that_holds_its_values(
    kind: pa.DataType, known: pa.DataType | None, plain: pa.DataType
) -> None:
    table = None if known is None else pa.schema([("a", known)])
    assert plain_columns(pa.schema([("a", kind)]), table).field("a").type == plain


LEGACY = {"org.apache.spark.legacyDateTime": "", "org.apache.spark.version": "4.1.0"}
FIRST_DAY = dt.datetime.fromisoformat("1582-10-15")
FIRST_TIME = dt.datetime.fromisoformat("1900-01-01")
TICK = dt.timedelta(microseconds=1)


@pytest.mark.parametrize("said", [LEGACY, {"org.apache.spark.version": "2.4.8"}])
@pytest.mark.parametrize(
    ("column", "first", "step"),
    [("day", FIRST_DAY, dt.timedelta(days=1)), *((name, FIRST_TIME, TICK) for name in ("at", "s", "l", "m"))],
)
def test_an_old_date_of_the_hybrid_calendar_is_refused_and_others_are_read(
    said: dict[str, str], column: str, first: dt.datetime, step: dt.timedelta
) -> None:
    """The sentinel 0001-01-01 would be two days earlier. Until 1900 Spark also moves times by the difference
    of their zone's local mean time.
    """

    def data(times: list[dt.datetime | None]) -> pa.BufferReader:
        rows = columns_of(times).append_column("day", pa.array(times, LOCAL).cast(pa.date32()))
        return written(rows.select([column]).replace_schema_metadata(said))

    assert read_all(data([first, None])).num_rows == 2
    with pytest.raises(RowsDoNotFitError, match=f"column {column} has a .* before {first.date()}"):
        read_all(data([first, first - step]))


def test_an_old_date_of_the_usual_calendar_is_read() -> None:
    old = dt.datetime.fromisoformat("0001-01-01")
    assert read_all(written(columns_of([old]).select(["at"])))["at"].to_pylist() == [old]
