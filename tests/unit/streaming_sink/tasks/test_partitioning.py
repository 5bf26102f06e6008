# ruff: noqa: DTZ001 - Arrow's timestamps without a zone are Python's naive datetimes
"""Transforms, keys and folders of table partitions, judged by pyiceberg's own transforms."""

from __future__ import annotations

import string
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from streaming_sink.table.spec import partition_sources
from streaming_sink.tasks.errors import RowsDoNotFitError
from streaming_sink.tasks.files.data_paths import partition_path
from streaming_sink.tasks.job import PartitionSource
from streaming_sink.tasks.partitioning import apply_transform, key_text, key_texts, source_columns, split

_EPOCH = datetime(1970, 1, 1)
_TIMES = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
_SIZED = ["bucket[1]", "bucket[16]", "bucket[1000]"]
_WIDTHS = ["truncate[1]", "truncate[3]", "truncate[10]"]
_DECIMALS = st.decimals(Decimal("-9999999.99"), Decimal("99999999.99"), places=2)

CASES = [
    ("int", pa.int32(), IntegerType(), st.integers(-(2**31) + 10, 2**31 - 1), [*_SIZED, *_WIDTHS]),
    ("long", pa.int64(), LongType(), st.integers(-(2**63) + 10, 2**63 - 1), [*_SIZED, *_WIDTHS]),
    (
        "string",
        pa.string(),
        StringType(),
        st.text(st.characters(exclude_categories=["Cs"])),
        [*_SIZED, *_WIDTHS],
    ),
    ("binary", pa.binary(), BinaryType(), st.binary(), [*_SIZED, *_WIDTHS]),
    ("decimal", pa.decimal128(10, 2), DecimalType(10, 2), _DECIMALS, [*_SIZED, *_WIDTHS]),
    ("fixed", pa.binary(4), FixedType(4), st.binary(min_size=4, max_size=4), _SIZED),
    ("date", pa.date32(), DateType(), _TIMES.map(lambda at: at.date()), [*_SIZED, "year", "month", "day"]),
    ("timestamp", pa.timestamp("us"), TimestampType(), _TIMES, [*_SIZED, "year", "month", "day", "hour"]),
    (
        "timestamptz",
        pa.timestamp("us", tz="UTC"),
        TimestamptzType(),
        _TIMES,
        [*_SIZED, "year", "month", "day", "hour"],
    ),
    ("time", pa.time64("us"), TimeType(), _TIMES.map(lambda at: at.time()), _SIZED),
]


def _internal(array: pa.Array) -> list[object]:
    if pa.types.is_date32(array.type):
        return array.cast(pa.int32()).to_pylist()
    if pa.types.is_timestamp(array.type) or pa.types.is_time64(array.type):
        return array.cast(pa.int64()).to_pylist()
    return array.to_pylist()


@pytest.mark.parametrize(
    ("name", "kind", "iceberg", "values", "transforms"), CASES, ids=[case[0] for case in CASES]
)
@given(data=st.data())
def test_every_transform_is_the_one_that_pyiceberg_computes(name, kind, iceberg, values, transforms, data):
    """Dates before 1970, negative numbers, nulls and any unicode included."""
    array = pa.array(data.draw(st.lists(st.none() | values, max_size=20)), kind)
    for transform in transforms:
        expected = list(map(parse_transform(transform).transform(iceberg), _internal(array)))
        assert _internal(apply_transform(array, transform)) == expected, transform


def test_a_uuid_is_bucketed_by_its_bytes():
    value = UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
    array = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([value.bytes, None], pa.binary(16)))
    expected = list(map(parse_transform("bucket[16]").transform(UUIDType()), [value, None]))
    assert apply_transform(array, "bucket[16]").to_pylist() == expected


def test_an_hour_before_1970_is_below_zero():
    assert apply_transform(pa.array([datetime(1969, 12, 31, 23, 59)]), "hour").to_pylist() == [-1]


@given(st.lists(st.tuples(st.none() | st.integers(-3, 3), st.none() | st.sampled_from("ab")), max_size=60))
def test_every_row_comes_to_the_part_of_its_key_in_order(rows):
    fields = (PartitionSource("n", ("n",), "identity"), PartitionSource("t", ("t",), "identity"))
    batch = pa.RecordBatch.from_pydict(
        {
            "n": pa.array([row[0] for row in rows], pa.int32()),
            "t": pa.array([row[1] for row in rows], pa.string()),
            "at": pa.array(range(len(rows)), pa.int32()),
        }
    )
    parts = list(split(batch, fields))
    assert len({key for key, _ in parts}) == len(parts)
    for key, part in parts:
        expected = [position for position, row in enumerate(rows) if row == key]
        assert part.column("at").to_pylist() == expected
    assert sum(part.num_rows for _, part in parts) == len(rows)


def test_many_fields_of_many_values_stay_apart():
    """The combined code of a row must not overflow."""
    count = 2000
    fields = tuple(PartitionSource(name, (name,), "identity") for name in string.ascii_lowercase[:8])
    batch = pa.RecordBatch.from_pydict({field.name: pa.array(range(count)) for field in fields})
    assert sorted(key for key, _ in split(batch, fields)) == [(each,) * 8 for each in range(count)]


def test_an_unpartitioned_batch_is_not_copied():
    batch = pa.RecordBatch.from_pydict({"a": [1, 2]})
    assert [(key, part is batch) for key, part in split(batch, ())] == [((), True)]


def test_a_part_does_not_keep_the_whole_batch_alive():
    batch = pa.RecordBatch.from_pydict({"a": [1, 2] * 5000})
    parts = list(split(batch, (PartitionSource("a", ("a",), "identity"),)))
    assert [part.column(0).get_total_buffer_size() < 60_000 for _, part in parts] == [True, True]


def test_nan_is_one_partition_over_batches():
    fields = (PartitionSource("x", ("x",), "identity"),)
    keys = {
        key
        for _ in range(2)
        for key, _ in split(pa.RecordBatch.from_pydict({"x": [float("nan"), 1.0]}), fields)
    }
    assert len(keys) == 2


def test_zero_is_one_partition_whatever_its_sign():
    """A file named after one of them held both, and a reader that compares by bits missed one."""
    batch = pa.RecordBatch.from_pydict({"x": [-0.0, 0.0, -0.0]})
    keys = [key for key, _ in split(batch, (PartitionSource("x", ("x",), "identity"),))]
    assert {str(value) for key in keys for value in key} == {"0.0"}


def test_a_nested_source_is_null_where_its_struct_is():
    batch = pa.RecordBatch.from_pydict({"s": pa.array([{"x": 1}, None], pa.struct([("x", pa.int32())]))})
    assert {key for key, _ in split(batch, (PartitionSource("s_x", ("s", "x"), "identity"),))} == {
        (1,),
        (None,),
    }


@pytest.mark.parametrize("transform", ["void", "identity", "day", "bucket[4]"])
def test_a_field_whose_column_was_dropped_is_null_in_each_row(transform):
    """Another engine has dropped the column, and left the field."""
    batch = pa.RecordBatch.from_pydict({"a": [1, 2, 1]})
    gone, by_a = PartitionSource("x", (), transform), PartitionSource("a", ("a",), "identity")
    assert [(key, part is batch) for key, part in split(batch, (gone,))] == [((None,), True)]
    assert sorted((key[1], part.num_rows) for key, part in split(batch, (gone, by_a))) == [(1, 2), (2, 1)]
    assert key_texts(batch, gone).to_pylist() == [None] * 3
    assert source_columns((gone, by_a, by_a)) == ["a"]


SCHEMA = pa.schema(
    {
        "d": pa.date32(),
        "t": pa.timestamp("us"),
        "z": pa.timestamp("us", tz="UTC"),
        "s": pa.string(),
        "b": pa.binary(),
        "n": pa.int32(),
        "m": pa.decimal128(10, 2),
        "o": pa.bool_(),
    }
)
_MICROS = int((datetime(2024, 5, 6, 7, 8, 9, 10) - _EPOCH) / timedelta(microseconds=1))


@pytest.mark.parametrize(
    ("source", "transform", "value", "text"),
    [
        ("d", "day", -1, "f=1969-12-31"),
        ("d", "identity", 0, "f=1970-01-01"),
        ("d", "month", -1, "f=1969-12"),
        ("d", "year", -970, "f=1000"),
        ("t", "hour", -1, "f=1969-12-31-23"),
        ("t", "identity", _MICROS, "f=2024-05-06T07%3A08%3A09.000010"),
        ("z", "identity", _MICROS, "f=2024-05-06T07%3A08%3A09.000010%2B00%3A00"),
        ("s", "identity", "a/b=c é", "f=a%2Fb%3Dc+%C3%A9"),
        ("s", "identity", None, "f=null"),
        ("s", "truncate[3]", "..", "f=.."),
        ("b", "identity", b"\xff", "f=%2Fw%3D%3D"),
        ("n", "bucket[16]", 3, "f=3"),
        ("m", "truncate[10]", Decimal("-1.30"), "f=-1.30"),
        ("o", "identity", True, "f=true"),
        # Another engine has dropped the column: the type of an identity's value is not known.
        ("", "day", 0, "f=1970-01-01"),
        ("", "identity", True, "f=true"),
        ("", "identity", "a", "f=a"),
        ("", "void", None, "f=null"),
    ],
)
def test_a_partition_folder_is_spelled_as_iceberg_spells_it(source, transform, value, text):
    field = PartitionSource("f", (source,) if source else (), transform)
    assert partition_path((value,), (field,), SCHEMA) == text


def test_a_field_without_a_transform_needs_no_column():
    """Another engine has removed the field; a stream of keys to delete may lack the column."""
    columns = Schema(NestedField(1, "a", LongType()))
    fields = (PartitionField(1, 1000, parse_transform(it), it) for it in ("void", "identity"))
    sources = partition_sources(columns, PartitionSpec(*fields))
    assert [(it.source, it.transform) for it in sources] == [((), "void"), (("a",), "identity")]


def test_a_value_too_long_for_a_file_name_is_cut_and_stays_distinct():
    field = (PartitionSource("s", ("s",), "identity"),)
    paths = {partition_path(("x" * 5000 + end,), field, SCHEMA) for end in "ab"}
    assert len(paths) == 2
    assert max(map(len, paths)) <= 200


@pytest.mark.parametrize(
    ("array", "transform"),
    [
        (
            pa.array([Decimal("1.28"), Decimal("-1.28"), Decimal("0.00"), None], pa.decimal128(10, 2)),
            "truncate[10]",
        ),
        (pa.array([Decimal("1E-10"), Decimal("0E-10")], pa.decimal128(20, 10)), "identity"),
        (pa.array([1, None, 7]), "bucket[4]"),
        (pa.array([date(1969, 1, 1), None]), "identity"),
        (pa.array([datetime(1969, 1, 1, tzinfo=timezone.utc)], pa.timestamp("us", tz="UTC")), "identity"),
    ],
)
def test_a_key_as_text_is_the_same_on_driver_and_worker(array, transform):
    batch = pa.RecordBatch.from_pydict({"c": array})
    field = PartitionSource("f", ("c",), transform)
    texts = key_texts(batch, field).to_pylist()
    for key, part in split(batch, (field,)):
        assert key_text(key[0]) in texts
        assert set(key_texts(part, field).to_pylist()) == {key_text(key[0])}


@pytest.mark.parametrize("transform", ["bucket[4]", "truncate[10]"])
@pytest.mark.parametrize("rows", [1, 2, 3, 9])
def test_decimals_need_not_be_aligned_as_rust_wants_them(transform, rows):
    """Spark's Arrow stream aligns buffers to 8 bytes only."""
    usual = pa.array([Decimal(n) for n in range(rows)], pa.decimal128(10, 2))
    shifted = pa.py_buffer(b"\0" * 8 + usual.buffers()[1].to_pybytes()).slice(8)
    array = pa.Array.from_buffers(usual.type, rows, [None, shifted])
    assert array.buffers()[1].address % 16 == 8
    assert apply_transform(array, transform).equals(apply_transform(usual, transform))


_FAR = 1_700_000_000_000_000 * 1000  # milliseconds taken for microseconds: the year 55,840


@pytest.mark.parametrize("transform", ["year", "month"])
def test_times_that_python_cannot_spell_have_a_folder_all_the_same(transform):
    schema = pa.schema([pa.field("t", pa.timestamp("us", tz="UTC"))])
    field = PartitionSource("t", ("t",), transform)
    batch = pa.record_batch([pa.array([_FAR], schema.field("t").type)], schema=schema)
    [(key, _)] = split(batch, [field])
    assert key != (None,)
    assert partition_path(key, [field], schema).startswith("t=")


_DAY = 24 * 3600 * 1_000_000
_FIRST, _LAST = -719_162, 2_932_896  # days of the years 1 to 9999


@pytest.mark.parametrize(
    ("kind", "unit", "transforms"),
    [(pa.timestamp("us"), _DAY, ["day", "hour", "identity"]), (pa.date32(), 1, ["day", "identity"])],
)
def test_a_partition_that_no_summary_can_name_is_refused(kind, unit, transforms):
    """pyiceberg names the partitions of each snapshot that is built, and Python has no such days."""
    storage = pa.int32() if kind == pa.date32() else pa.int64()
    for transform in transforms:
        ends = pa.array([_FIRST * unit, None, (_LAST + 1) * unit - 1], storage).cast(kind)
        named = [
            parse_transform(transform).to_human_string(
                DateType() if kind == pa.date32() or transform == "day" else TimestampType(), value
            )
            for value in _internal(apply_transform(ends, transform))
        ]
        assert (named[0][:10], named[2][:10]) == ("0001-01-01", "9999-12-31")
        for far in (_FIRST * unit - 1, (_LAST + 1) * unit):
            with pytest.raises(
                RowsDoNotFitError, match=f"too far out for the partition transform {transform}"
            ):
                apply_transform(pa.array([0, far], storage).cast(kind), transform)


@pytest.mark.parametrize(
    ("value", "kind", "transform"),
    [
        (2**63 - 1, pa.timestamp("us"), "year"),
        (2**63 - 1, pa.timestamp("us"), "month"),
        (2**63 - 1, pa.timestamp("us"), "hour"),
        (2**31 - 1, pa.date32(), "year"),
        (-(2**31), pa.int32(), "truncate[10]"),
        (-(2**63), pa.int64(), "truncate[10]"),
        (Decimal(-95), pa.decimal128(2, 0), "truncate[10]"),
    ],
)
def test_a_value_that_a_transform_cannot_express_is_refused_not_misplaced(value, kind, transform):
    storage = pa.int32() if kind in (pa.date32(), pa.int32()) else pa.int64()
    storage = kind if pa.types.is_decimal(kind) else storage
    array = pa.array([value], storage).cast(kind) if kind != storage else pa.array([value], kind)
    with pytest.raises(RowsDoNotFitError, match=r"too far out for the partition transform"):
        apply_transform(array, transform)
