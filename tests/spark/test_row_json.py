"""Spark's `from_json` reads quarantined rows back exactly, whatever is in them."""

from __future__ import annotations

from decimal import Context, Decimal
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as sf

from streaming_sink.tasks.rows.row_json import rows_as_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

_DAYS = (-719_162 - 400_000, 10_000_000)
_MICROS = tuple(days * 86_400_000_000 for days in _DAYS)


def _integers(kind):
    bits = kind.bit_width - 1
    return st.integers(-(2**bits), 2**bits - 1)


def _decimals(precision, scale):
    return st.integers(1 - 10**precision, 10**precision - 1).map(
        lambda number: Decimal(number).scaleb(-scale, Context(precision))  # without, rounded to 28 digits
    )


# Type → its values; for temporal types the numbers that Arrow stores, since Python lacks some of them.
_LEAVES = {
    pa.bool_(): st.booleans(),
    **{kind: _integers(kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.string(): st.text(),
    pa.binary(): st.binary(),
    pa.decimal128(9, 2): _decimals(9, 2),
    pa.decimal128(38, 10): _decimals(38, 10),
    pa.date32(): st.integers(*_DAYS),
    pa.timestamp("us", "UTC"): st.integers(*_MICROS),
    pa.timestamp("us"): st.integers(*_MICROS),
}


def _types(depth):
    leaves = st.sampled_from(list(_LEAVES))
    if not depth:
        return leaves
    inner = _types(depth - 1)
    names = st.text("aZ _`é\"'", min_size=1, max_size=3)
    structs = st.lists(st.tuples(names, inner), min_size=1, max_size=2, unique_by=lambda it: it[0].lower())
    return (
        leaves | inner.map(pa.list_) | structs.map(pa.struct) | inner.map(lambda it: pa.map_(pa.string(), it))
    )


def _values(kind):
    if pa.types.is_struct(kind):
        values = st.fixed_dictionaries({field.name: _values(field.type) for field in kind})
    elif pa.types.is_list(kind):
        values = st.lists(_values(kind.value_type), max_size=3)
    elif pa.types.is_map(kind):
        entries = st.dictionaries(st.text(max_size=3), _values(kind.item_type), max_size=3)
        values = entries.map(lambda it: list(it.items()))
    else:
        values = _LEAVES[kind]
    return st.none() | values


def _stored(kind):
    """Return the type of the numbers that Arrow stores."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_stored(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_stored(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), _stored(kind.item_type))
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else kind


@st.composite
def _batches(draw):
    kinds = draw(st.lists(_types(2), min_size=1, max_size=5))
    size = draw(st.integers(1, 4))
    columns = {}
    for place, kind in enumerate(kinds):
        stored = pa.array([draw(_values(kind)) for _ in range(size)], _stored(kind))
        columns[f"c{place}"] = _viewed(stored, kind)
    return pa.RecordBatch.from_pydict(columns)


def _viewed(array, kind):
    """Return an array of numbers as the dates and times that they are, at any depth."""
    if pa.types.is_struct(kind):
        fields = [_viewed(array.field(place), kind.field(place).type) for place in range(kind.num_fields)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())
    if pa.types.is_list(kind):
        values = _viewed(array.values, kind.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=array.is_null())
    if pa.types.is_map(kind):
        items = _viewed(array.items, kind.item_type)
        return pa.MapArray.from_arrays(array.offsets, array.keys, items, type=kind, mask=array.is_null())
    return array.cast(kind)


def _plain(array):
    """Return values that compare: what Arrow stores of dates, times and floats, at any depth."""
    kind = array.type
    if not len(array):
        return []
    if pa.types.is_struct(kind):
        children = [_plain(child) for child in array.flatten()]
        rows = [list(row) for row in zip(*children, strict=True)]
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        values = array.values if pa.types.is_list(kind) else array.items
        keys = None if pa.types.is_list(kind) else array.keys.to_pylist()
        inner, ends = _plain(values), array.offsets.to_pylist()
        pairs = inner if keys is None else list(zip(keys, inner, strict=True))
        rows = [pairs[begin:end] for begin, end in pairwise(ends)]
        if keys is not None:
            rows = [sorted(row, key=lambda it: it[0]) for row in rows]
    elif pa.types.is_floating(kind):
        rows = [None if it is None else str(it) for it in array.to_pylist()]
    elif pa.types.is_date32(kind):
        rows = array.cast(pa.int32()).to_pylist()
    elif pa.types.is_timestamp(kind):
        rows = array.cast(pa.int64()).to_pylist()
    else:
        rows = array.to_pylist()
    return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]


@settings(max_examples=25)
@given(_batches())
def test_every_value_comes_back(spark: SparkSession, rows: pa.RecordBatch) -> None:
    texts, schemas = rows_as_json(rows)
    read = spark.createDataFrame([(place, text) for place, text in enumerate(texts)], "place int, row string")
    back = read.select("place", sf.from_json("row", schemas[0]).alias("row")).select("place", "row.*")
    found = back.toArrow().sort_by("place").drop_columns("place")
    assert found.column_names == rows.schema.names
    for name in rows.schema.names:
        column = found[name].combine_chunks()
        assert _plain(column) == _plain(rows.column(name)), (name, texts)


def test_what_from_json_lacks_comes_back_by_the_detour_that_the_schema_shows(spark: SparkSession) -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            "m": pa.array([[(1, "a"), (2, None)]], pa.map_(pa.int32(), pa.string())),
            "t": pa.array([86_399_999_999], pa.int64()).cast(pa.time64("us")),
            "s": pa.array([b"\xff\x00"]).view(pa.string()),
        }
    )
    (text,), (schema,) = rows_as_json(rows)
    row = spark.createDataFrame([(text,)], "row string").select(sf.from_json("row", schema).alias("r"))
    (found,) = row.selectExpr(
        "map_from_entries(transform(r.m, e -> struct(e.key, cast(e.value AS STRING))))",
        "r.t = '23:59:59.999999'",
        "hex(CAST(r.s AS STRING)) = 'FF00'",
    ).collect()
    assert tuple(found) == ({1: "a", 2: None}, True, True)
