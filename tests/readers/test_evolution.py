"""Tables whose schema has evolved under the sink, before five readers that we did not write."""

from __future__ import annotations

from collections import Counter
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyiceberg.types as it
import pytest
from pyiceberg.table import StaticTable

from streaming_sink import FileSizing, IcebergSink, SchemaContract
from tests.readers import judges
from tests.readers.canonical import canonical
from tests.readers.equality import counts_equal
from tests.sinks import flat_sink
from timeline.table import open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.jar]

_POINT = pa.struct([("lat", pa.float32())])
_WIDE_POINT = pa.struct([("lat", pa.float64()), ("lon", pa.float64())])
STEPS: list[dict[str, pa.DataType]] = [
    {"p": pa.int32(), "n": pa.int32(), "price": pa.decimal128(9, 2), "point": _POINT},
    {"p": pa.int32(), "n": pa.int32(), "price": pa.decimal128(9, 2), "point": _POINT, "note": pa.string()},
    {"p": pa.int32(), "n": pa.int64(), "price": pa.decimal128(20, 2), "point": _WIDE_POINT},
    {"p": pa.int32(), "tags": pa.list_(pa.struct([("k", pa.int32())]))},
    {"p": pa.int64(), "tags": pa.list_(pa.struct([("k", pa.int64()), ("v", pa.string())]))},
    {"p": pa.int32(), "n": pa.int32(), "extra": pa.map_(pa.string(), pa.float32())},
]
"""The columns of each batch: new ones, wider ones, missing ones, narrower ones again."""


def _value(kind: pa.DataType, number: int) -> Any:
    if pa.types.is_struct(kind):
        return {field.name: _value(field.type, number) for field in kind}
    if pa.types.is_list(kind):
        return [_value(kind.value_type, number), _value(kind.value_type, number + 1)]
    if pa.types.is_map(kind):
        return [(f"k{number}", _value(kind.item_type, number))]
    if pa.types.is_string(kind):
        return f"text {number}"
    if pa.types.is_decimal(kind):
        return Decimal(number) / 4
    if pa.types.is_floating(kind):
        return number / 2
    return number + (2**40 if kind == pa.int64() else 0)


def _batch(step: int) -> pa.Table:
    kinds = STEPS[step]
    rows = [
        {name: _value(kind, 10 * step + row) if name != "p" else row % 2 for name, kind in kinds.items()}
        for row in range(10)
    ]
    return pa.Table.from_pylist(rows, schema=pa.schema(list(kinds.items())))


@pytest.fixture(scope="module", params=["filled", "partitioned, never filled", "never filled"])
def landed(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: Any) -> str:
    """Return the location of a table into which the steps have gone twice, and stay apart or were merged."""
    location = str(tmp_path_factory.mktemp("evolved") / "table")
    sink = flat_sink(
        location,
        app_id="app",
        partition_by=["p"] if "partitioned" in request.param else [],
        **{"fill_policy": "never"} if "never" in request.param else {"fill": "inline"},
        schema=SchemaContract.evolving(),
        table_properties={
            f"write.parquet.bloom-filter-enabled.column.{name}": "true" for name in ("n", "p", "price")
        },
        sizing=FileSizing(max_file_bytes="64KiB", small_file_bytes="48KiB"),
    )
    for number in range(2 * len(STEPS)):
        batch = _batch(number % len(STEPS))
        sink(spark.createDataFrame(batch), number)
    assert any(report.merged_files for report in sink.reports) == (request.param == "filled")
    return location


def _expected(location: str, batches: int) -> pa.Table:
    schema = pa.schema({name: kind for step in reversed(STEPS) for name, kind in step.items()})
    every = [row for number in range(batches) for row in _batch(number % len(STEPS)).to_pylist()]
    widest = {
        "p": pa.int64(),
        "n": pa.int64(),
        "price": pa.decimal128(20, 2),
        "point": _WIDE_POINT,
        "tags": STEPS[4]["tags"],
    }
    return pa.Table.from_pylist(
        every, schema=pa.schema([(field.name, widest.get(field.name, field.type)) for field in schema])
    )


@pytest.mark.parametrize("reader", judges.READERS)
def test_every_reader_sees_every_row_of_every_schema(landed: str, reader: str) -> None:
    judges.assert_reader_agrees(reader, landed, _expected(landed, 2 * len(STEPS)))


@pytest.mark.parametrize("reader", judges.READERS)
def test_time_travel_shows_the_schema_of_its_snapshot(landed: str, reader: str) -> None:
    table = StaticTable.from_metadata(str(judges.metadata_file(landed)))
    first = judges.snapshots(landed)[0]
    schema = table.scan(snapshot_id=first.snapshot_id).projection()
    assert [field.name for field in schema.fields] == list(STEPS[0])
    columns = [field.name for field in schema.fields]
    seen = judges.read(reader, landed, columns, snapshot_id=first.snapshot_id)
    assert canonical(seen, schema, columns) == canonical(_batch(0), schema, columns)


def test_each_schema_is_one_version_and_two_columns_never_share_an_id(landed: str) -> None:
    metadata = open_table(landed).head.metadata
    assert len(metadata.schemas) == 6
    ids = Counter(name for schema in metadata.schemas for name in _names_of_ids(schema).items())
    assert len({number for number, _ in ids}) == len(ids)
    assert metadata.last_column_id == max(number for number, _ in ids)


def _names_of_ids(schema: Any) -> dict[int, str]:
    return {number: schema.find_column_name(number) for number in schema.field_ids}


def _asked(expected: pa.Table) -> list[tuple[str, it.IcebergType, Any]]:
    """Return values of widened columns that rows of narrower and wider files hold."""
    rows = expected.to_pylist()
    return [
        *(("n", it.LongType(), rows[place]["n"]) for place in (0, 25, 59)),
        *(("p", it.LongType(), value) for value in (0, 1)),
        *(("price", it.DecimalType(20, 2), rows[place]["price"]) for place in (3, 21)),
        *(("point.lat", it.DoubleType(), rows[place]["point"]["lat"]) for place in (3, 21)),
    ]


@pytest.mark.parametrize("reader", judges.READERS)
def test_every_reader_finds_rows_by_widened_columns(landed: str, reader: str) -> None:
    expected = _expected(landed, 2 * len(STEPS))
    asked = _asked(expected)
    if reader == "chdb":  # it raises, for a field of a struct that has got more fields
        asked = [each for each in asked if "." not in each[0]]
    wanted = [
        sum(
            (row[name] if inside == "" else (row[name] or {}).get(inside)) == value
            for row in expected.to_pylist()
        )
        for (name, _, inside), value in ((column.partition("."), value) for column, _, value in asked)
    ]
    assert min(wanted) > 0
    assert counts_equal(reader, landed, asked) == wanted


_ODD = [
    (0, None, None, None),
    (1, "17", "2024-02-29", None),
    (2, "x", "soon", {"a": [1, None]}),
    (3, "1.5", None, None),
]


def test_every_reader_sees_what_was_rescued(spark: SparkSession, tmp_path: Any) -> None:
    """Rows of three kinds in one table: from before the column, all of which fit, and with rescued values."""
    location = str(tmp_path / "table")
    contract = SchemaContract(new_columns="rescue", mismatch="rescue")
    sink = IcebergSink(location, app_id="app", contract=contract)
    sink(spark.createDataFrame([(9, 9, None)], "k int, n int, day date"), 0)
    sink(spark.createDataFrame(_ODD, "k int, n string, day string, extra struct<a: array<int>>"), 1)
    rescued = [None, None, None, '{"n":"x","day":"soon","extra":{"a":[1,null]}}', '{"n":"1.5"}']
    expected = pa.table(
        {
            "k": pa.array([9, 0, 1, 2, 3], pa.int32()),
            "n": pa.array([9, None, 17, None, None], pa.int32()),
            "day": pa.array([None, None, date(2024, 2, 29), None, None], pa.date32()),
            "_rescued": rescued,
        }
    )
    for reader in judges.READERS:
        judges.assert_reader_agrees(reader, location, expected)
