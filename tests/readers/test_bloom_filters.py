"""A bloom filter hides no row: every reader finds each value of every type, by equality, as without filters;
in files of one row group, and in a file into which these row groups were copied.

In each file the value that is looked for lies between others, so that bounds do not answer first.
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyiceberg.types as it
import pytest
from pyiceberg.schema import Schema

from streaming_sink.table.arrow_types import arrow_schema
from tests.readers.equality import counts_equal
from tests.readers.reference_tables import every_type
from tests.tiers import IN_SOAK, only_in_soak
from tests.unit.streaming_sink.small_tables import append_rows, merge_all
from timeline.properties import COPIED_FROM_BYTES
from timeline.stores import LocalStore
from timeline.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable

_UTC = dt.timezone.utc
_MOMENTS = [
    dt.datetime(1900, 1, 1, 1, 2, 3, 4, tzinfo=_UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=_UTC),
    dt.datetime(1970, 1, 1, tzinfo=_UTC),
    dt.datetime(2262, 4, 11, 1, 2, 3, 4, tzinfo=_UTC),
]
_INF, _NAN = math.inf, math.nan

_VALUES: dict[str, tuple[it.PrimitiveType, list[Any]]] = {
    "a_boolean": (it.BooleanType(), [False, True]),
    "an_int": (it.IntegerType(), [-(2**31), -7, 0, 1, 2**31 - 1]),
    "a_long": (it.LongType(), [-(2**63), -7, 0, 1, 2**40, 2**63 - 1]),
    "a_float": (it.FloatType(), [-_INF, -1.5, -0.0, 0.0, _NAN, 2.0**-149, _INF]),
    "a_double": (it.DoubleType(), [-_INF, -1.1, -0.0, 0.0, _NAN, 5e-324, _INF]),
    "a_decimal9": (it.DecimalType(9, 2), [*map(Decimal, ("-9999999.99", "-1.23", "0.00", "9999999.99"))]),
    "a_decimal18": (
        it.DecimalType(18, 4),
        [*map(Decimal, ("-99999999999999.9999", "-0.0001", "0.0000", "1.5000", "99999999999999.9999"))],
    ),
    "a_decimal38": (
        it.DecimalType(38, 10),
        [
            Decimal(f"-{'9' * 28}.{'9' * 10}"),
            Decimal("-0.0000000001"),
            Decimal("0E-10"),
            Decimal("1.5000000000"),
            Decimal(f"{'9' * 28}.{'9' * 10}"),
        ],
    ),
    "a_date": (
        it.DateType(),
        [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(9999, 12, 31)],
    ),
    "a_time": (it.TimeType(), [dt.time(0), dt.time(0, 0, 0, 1), dt.time(12, 30), dt.time.max]),
    "a_timestamp": (it.TimestampType(), [each.replace(tzinfo=None) for each in _MOMENTS]),
    "a_timestamptz": (it.TimestamptzType(), _MOMENTS),
    "a_string": (it.StringType(), ["", "\x00", "a", "a\x00", "grüße\n'\"", "\U0010ffff"]),
    # Iceberg's Java code takes halves of uuids for signed numbers, and statistics that span the sign hide
    # rows from it whether there are filters or not.
    "a_uuid": (it.UUIDType(), [uuid.UUID(int=0), uuid.UUID(int=5), uuid.UUID(int=2**127 - 1)]),
    "a_high_uuid": (it.UUIDType(), [uuid.UUID(int=2**127 + 5), uuid.UUID(int=2**128 - 1)]),
    "a_fixed": (
        it.FixedType(5),
        [b"\0" * 5, b"abcde", b"\x7f" + b"\xff" * 4, b"\x80" + b"\0" * 4, b"\xff" * 5],
    ),
    "a_binary": (it.BinaryType(), [b"", b"\0", b"a", "grüße".encode(), b"\x7f", b"\x80", b"\xff"]),
}

_NAMES = [*_VALUES, *(f"inside.{name}" for name in ("a_long", "a_double", "a_string", "a_binary"))]
_CANNOT_TELL = {"chdb": (it.TimeType,)}
"""Types that a reader does not compare: ClickHouse reads times in whole seconds."""
_USED_BY = {
    "pyiceberg": set[str](),
    "polars": set[str](),
    "duckdb": {"an_int", "a_long", "a_string"},
    "chdb": {"an_int", "a_long", "a_string"},
    "spark": set(_VALUES) - {"a_boolean", "a_float", "a_double", "a_time", "a_fixed", "a_binary"},
}
"""Columns whose filters a reader looks into; elsewhere it does not judge them."""

_SPARK = pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.jar])
_OTHERS = ["pyiceberg", "duckdb", "chdb", "polars"]
_LAYOUTS = [(False, "many files"), (True, "one joined")]
_QUICK = ("duckdb",)
"""Reads many files, by their filters, in a second."""
_use_none = [pytest.param(name, marks=only_in_soak) for name in ("pyiceberg", "polars")]


@dataclass(frozen=True)
class Made:
    """Three tables of the same rows: with a filter for every column, of many files and of one that was merged
    of them without decoding, and without any.
    """

    filtered: str
    joined: str
    plain: str
    names: list[str]


@pytest.fixture(scope="module")
def with_time(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return _made(tmp_path_factory.mktemp("with-time"), _NAMES)


@pytest.fixture(scope="module")
def without_time(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return _made(
        tmp_path_factory.mktemp("without-time"), [name for name in _NAMES if not name.endswith("a_time")]
    )


@pytest.fixture
def tables(reader: str, request: pytest.FixtureRequest) -> Made:
    """Spark refuses a table that has a time."""
    made: Made = request.getfixturevalue("without_time" if reader == "spark" else "with_time")
    return made


@pytest.mark.parametrize(
    ("reader", "of_one"),
    [
        *(
            pytest.param(it, one, id=f"{it}-{what}", marks=[] if one or it in _QUICK else [only_in_soak])
            for it in _OTHERS
            for one, what in _LAYOUTS
        ),
        pytest.param("spark", True, id="spark-one joined", marks=_SPARK.marks),
        pytest.param("spark", False, id="spark-many files", marks=[*_SPARK.marks, only_in_soak]),
    ],
)
def test_every_value_is_found(reader: str, tables: Made, of_one: bool) -> None:
    """Each value is found in every row that holds it, but for what the reader cannot find without filters."""
    step = 3 if reader == "spark" and not IN_SOAK else 1  # Spark takes half a minute for all
    asked = [
        (name, *each)
        for name in tables.names
        for each in _asked(name)[::step]
        if not isinstance(each[0], _CANNOT_TELL.get(reader, ()))
    ]
    found = counts_equal(reader, tables.joined if of_one else tables.filtered, asked)
    short = [
        (each, count) for each, count in zip(asked, found, strict=True) if count != _rows_that_hold(*each)
    ]
    plain = counts_equal(reader, tables.plain, [each for each, _ in short])
    hidden = [
        (*each, count, there) for (each, count), there in zip(short, plain, strict=True) if count != there
    ]
    assert not hidden
    assert {repr(value) for (_, _, value), _ in short} <= _NOT_FOUND_WITHOUT_FILTERS.get(reader, set())


_NOT_FOUND_WITHOUT_FILTERS = {
    "pyiceberg": {"inf", "-inf"},  # floats: it takes the literal for one out of range
    "duckdb": {"nan"},  # NaN is in no bounds, and equal to itself
    "chdb": {"nan"},  # NaN is not equal to itself
}


@pytest.mark.parametrize("reader", ["duckdb", "chdb", _SPARK, *_use_none])
def test_readers_look_into_the_filters_that_are_theirs(reader: str, tables: Made, tmp_path: Path) -> None:
    """Emptied filters hide rows from exactly the readers and columns that are said to use them."""
    made = _made(tmp_path, tables.names)
    for path in chain(Path(made.filtered, "data").iterdir(), Path(made.joined, "data").iterdir()):
        _empty_the_filters(path)
    names = [name for name in tables.names if name in _VALUES and name != "a_time"]
    asked = [(name, *_asked(name)[1]) for name in names]
    for emptied in (made.filtered, made.joined):
        found = counts_equal(reader, emptied, asked)
        used = {name for name, count in zip(names, found, strict=True) if not count}
        assert used == _USED_BY[reader] & set(names)


def test_every_type_is_judged() -> None:
    """No type that a table may have is left out."""
    kinds = {str(field.field_type) for field in every_type().fields if field.field_type.is_primitive}
    assert {str(kind) for kind, _ in _VALUES.values()} == kinds


def _asked(name: str) -> list[tuple[it.PrimitiveType, Any]]:
    kind, values = _VALUES[name.removeprefix("inside.")]
    return [(kind, value) for value in values]


def _rows_that_hold(name: str, _kind: it.PrimitiveType, value: Any) -> int:
    """Return the count by Python's equality, but for NaN, which is equal to itself as in Spark."""
    _, values = _VALUES[name.removeprefix("inside.")]
    rows = [each for number in range(_FILES) for each in _in_file(values, number)]
    return sum(each == value or (value != value and each != each) for each in rows)


_FILES = max(len(values) for _, values in _VALUES.values())


def _in_file(values: list[Any], number: int) -> list[Any]:
    return [values[0], values[min(number, len(values) - 1)], values[-1]]


def _made(folder: Path, names: list[str]) -> Made:
    places = []
    filters = {f"write.parquet.bloom-filter-enabled.column.{name}": "true" for name in names}
    for place, properties in (
        ("filtered", filters),
        ("joined", {**filters, COPIED_FROM_BYTES: "1"}),
        ("plain", {}),
    ):
        store = LocalStore(str(folder / place))
        schema = _schema(names)
        table = Table.create(store, schema, table_properties=properties, store_is_checked=True)
        for number in range(_FILES):
            append_rows(table, _rows(arrow_schema(table.head.schema), number), number)
        if place == "joined":
            merge_all(table)
            [joined] = table.head.live_files()
            assert pq.read_metadata(joined.location).num_row_groups == _FILES
        places.append(str(folder / place))
    return Made(*places, names)


def _schema(names: list[str]) -> Schema:
    top, inside = (
        [
            it.NestedField(first + place, name, kind, required=False)
            for place, (name, (kind, _)) in enumerate(_VALUES.items())
            if prefix + name in names
        ]
        for first, prefix in ((1, ""), (101, "inside."))
    )
    return Schema(*top, it.NestedField(100, "inside", it.StructType(*inside), required=False))


def _rows(schema: pa.Schema, number: int) -> pa.Table:
    *top, inside = schema
    columns = [_column(field, number) for field in top]
    fields = list(inside.type)
    columns.append(pa.StructArray.from_arrays([_column(each, number) for each in fields], fields=fields))
    return pa.Table.from_arrays(columns, schema=schema)


def _column(field: pa.Field, number: int) -> pa.Array:
    values = _in_file(_VALUES[field.name][1], number)
    stored = [each.bytes if isinstance(each, uuid.UUID) else each for each in values]
    return pa.array(stored, field.type)


def _empty_the_filters(path: Path) -> None:
    """Clear the bits of all filters of a file, as if none of its values had been there."""
    stored = bytearray(path.read_bytes())
    for chunk in _chunks(path):
        if chunk.bloom_filter_offset:
            end = chunk.bloom_filter_offset + chunk.bloom_filter_length
            stored[end - _BLOCK_BYTES : end] = bytes(_BLOCK_BYTES)  # few values: one block
    path.write_bytes(stored)


_BLOCK_BYTES = 32


def _chunks(path: Path) -> Iterable[pq.ColumnChunkMetaData]:
    footer = pq.read_metadata(path)
    groups = map(footer.row_group, range(footer.num_row_groups))
    return (group.column(index) for group in groups for index in range(group.num_columns))
