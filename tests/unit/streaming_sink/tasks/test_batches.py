"""Arrow batches in the shape of the table."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_sink.tasks.batches import conform, conform_valid, match_field_id
from streaming_sink.tasks.errors import RowsDoNotFitError


def _field(name, kind, number, nullable=True):
    return pa.field(name, kind, nullable=nullable, metadata={"PARQUET:field_id": str(number)})


NOON_UTC = dt.datetime(2026, 1, 2, 12, tzinfo=dt.timezone.utc)
NESTED = pa.schema(
    [
        _field("s", pa.struct([_field("x", pa.int64(), 2), _field("y", pa.string(), 3)]), 1),
        _field("l", pa.list_(_field("element", pa.struct([_field("z", pa.float64(), 6)]), 5)), 4),
        _field("m", pa.map_(_field("key", pa.string(), 8, False), _field("value", pa.int64(), 9)), 7),
    ]
)
ROWS = [
    {"s": {"x": 1, "y": "a"}, "l": [{"z": 1.5}, None], "m": [("k", 1), ("j", None)]},
    {"s": None, "l": None, "m": None},
    {"s": {"x": None, "y": None}, "l": [], "m": []},
    {"s": {"x": 4, "y": "d"}, "l": [{"z": None}], "m": [("k", 2)]},
]


def _narrow():
    return pa.schema(
        {
            "m": pa.map_(pa.string(), pa.int32()),
            "l": pa.list_(pa.struct([("z", pa.float32())])),
            "s": pa.struct([("y", pa.string()), ("x", pa.int32())]),
        }
    )


def test_columns_are_matched_by_name_ordered_and_widened_at_every_depth():
    made = conform(pa.RecordBatch.from_pylist(ROWS, schema=_narrow()), NESTED)
    assert made.schema.equals(NESTED, check_metadata=True)
    assert made.to_pylist() == ROWS


@pytest.mark.parametrize(("start", "length"), [(1, 3), (0, 2), (3, 1)])
def test_a_slice_of_a_batch_conforms_to_its_own_rows(start, length):
    batch = pa.RecordBatch.from_pylist(ROWS, schema=_narrow()).slice(start, length)
    made = conform(batch, NESTED)
    made.validate(full=True)
    assert made.to_pylist() == ROWS[start : start + length]


def test_a_column_that_is_missing_at_any_depth_is_null():
    batch = pa.RecordBatch.from_pydict({"s": pa.array([{"x": 1}], pa.struct([("x", pa.int64())]))})
    assert conform(batch, NESTED).to_pylist() == [{"s": {"x": 1, "y": None}, "l": None, "m": None}]


def test_columns_of_a_file_are_matched_by_field_id():
    old = pa.schema([_field("was", pa.struct([_field("old", pa.int32(), 2)]), 1)])
    batch = pa.RecordBatch.from_pylist([{"was": {"old": 7}}], schema=old)
    assert conform(batch, NESTED, match_field_id).column("s").to_pylist() == [{"x": 7, "y": None}]


def test_a_column_that_fits_already_is_not_copied():
    batch = pa.RecordBatch.from_pydict({"a": pa.array([1, 2])})
    made = conform(batch, pa.schema([_field("a", pa.int64(), 1)]))
    assert made.column(0).buffers()[1].address == batch.column(0).buffers()[1].address


def test_a_null_in_a_required_column_does_not_fit():
    with pytest.raises(RowsDoNotFitError, match="holds nulls: a"):
        conform(pa.RecordBatch.from_pydict({"a": [1, None]}), pa.schema([_field("a", pa.int64(), 1, False)]))


@pytest.mark.parametrize(("name", "value"), [("s", [1]), ("l", {"x": 1}), ("m", [1]), ("m", 1)])
def test_a_value_of_another_nesting_does_not_fit(name, value):
    with pytest.raises(RowsDoNotFitError, match=f"does not fit the table's column {name} of"):
        conform(pa.RecordBatch.from_pylist([{name: value}]), NESTED)


def test_a_null_in_a_required_field_does_not_fit_unless_its_whole_struct_is_null():
    table = pa.schema([_field("s", pa.struct([_field("x", pa.int64(), 2, False)]), 1)])
    loose = pa.struct([("x", pa.int64())])
    conform(pa.RecordBatch.from_pydict({"s": pa.array([{"x": 1}, None], loose)}), table)
    with pytest.raises(RowsDoNotFitError, match="holds nulls: x"):
        conform(pa.RecordBatch.from_pydict({"s": pa.array([{"x": 1}, {"x": None}], loose)}), table)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int32(), 7), (pa.float64(), 1.5), (pa.string(), "a"), (pa.binary(), b"a"), (pa.binary(3), b"abc"),
        (pa.bool_(), True), (pa.date32(), dt.date(2026, 1, 2)), (pa.time64("us"), dt.time(1)),
        (pa.timestamp("us"), NOON_UTC.replace(tzinfo=None)), (pa.timestamp("us", "UTC"), NOON_UTC),
        (pa.decimal128(9, 2), Decimal("1.50")), (pa.decimal128(38, 0), Decimal(10**37)),
        (pa.list_(_field("element", pa.int32(), 5, False)), [1, 2]),
        (pa.map_(_field("key", pa.string(), 5, False), _field("value", pa.int32(), 6)), [("k", 1)]),
        (pa.struct([_field("y", pa.string(), 5, False)]), {"y": "deep"}),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("rows", ["some", "none"])
def test_a_required_field_is_written_beside_structs_that_are_null(kind, value, rows):
    table = pa.schema([_field("s", pa.struct([_field("x", kind, 2, False)]), 1)])
    column = [None, {"x": value}, None] if rows == "some" else [None, None]
    loose = pa.struct([("x", kind)])
    made = conform(pa.RecordBatch.from_arrays([pa.array(column, loose)], ["s"]), table)
    written = io.BytesIO()
    pq.write_table(pa.Table.from_batches([made]), written)
    assert pq.read_table(written)["s"].to_pylist() == made.column(0).to_pylist() == column
    statistics = pq.ParquetFile(written).metadata.row_group(0).column(0).statistics
    assert statistics.null_count == column.count(None)
    listed = pa.schema([_field("l", pa.list_(_field("element", table.field("s").type, 9)), 8)])
    in_lists = pa.RecordBatch.from_arrays([pa.array([column, None], pa.list_(loose))], ["l"])
    pq.write_table(pa.Table.from_batches([conform(in_lists, listed)]), written := io.BytesIO())
    assert pq.read_table(written)["l"].to_pylist() == [column, None]


def test_a_required_uuid_is_written_beside_structs_that_are_null():
    table = pa.schema([_field("s", pa.struct([_field("x", pa.uuid(), 2, False)]), 1)])
    column = pa.array([None, {"x": str(UUID(int=7))}], pa.struct([("x", pa.string())]))
    pq.write_table(
        pa.Table.from_batches([conform(pa.RecordBatch.from_arrays([column], ["s"]), table)]),
        written := io.BytesIO(),
    )
    assert pq.read_table(written)["s"].to_pylist() == [None, {"x": UUID(int=7)}]


def test_a_string_becomes_a_uuid_and_one_that_spells_none_does_not_fit():
    table = pa.schema([_field("u", pa.uuid(), 1)])
    text = "f79c3e09-677c-4bbd-a479-3f349cb785e7"
    made = conform(pa.RecordBatch.from_pydict({"u": [text, None]}), table)
    assert made.column(0).storage.to_pylist() == [UUID(text).bytes, None]
    with pytest.raises(RowsDoNotFitError, match="does not spell a uuid"):
        conform(pa.RecordBatch.from_pydict({"u": ["f79c"]}), table)


def test_an_empty_nested_array_without_its_offset_can_be_measured():
    # As Spark's writer sends a column of nulls; reading the offset that is not there ends the process.
    lists = pa.ListArray.from_buffers(
        pa.list_(pa.string()), 0, [None, pa.foreign_buffer(0, 0)], children=[pa.nulls(0, pa.string())]
    )
    entries = pa.StructArray.from_arrays([pa.nulls(0, pa.int32()), lists], ["key", "value"])
    kind = pa.map_(pa.int32(), pa.list_(pa.string()))
    offsets = pa.array([0, 0, 0], pa.int32()).buffers()[1]
    empty = pa.Array.from_buffers(kind, 2, [None, offsets], children=[entries])
    found = conform(pa.RecordBatch.from_arrays([empty], ["m"]), pa.schema([("m", kind)]))
    assert found.column(0).to_pylist() == [[], []]
    assert found.nbytes > 0


INVALID = pa.array(["a", None, "\U0001f600", "z"]).cast(pa.binary()).fill_null(b"\xe9t\xe9").view(pa.string())
"""Neither the least nor the largest is invalid."""


@pytest.mark.parametrize(
    "column",
    [
        INVALID,
        INVALID.cast(pa.large_binary()).view(pa.large_string()),
        pa.StructArray.from_arrays([INVALID], ["x"]),
        pa.ListArray.from_arrays(pa.array([0, 4], pa.int32()), INVALID),
        pa.MapArray.from_arrays(pa.array([0, 4], pa.int32()), INVALID, pa.array(range(4))),
        pa.MapArray.from_arrays(pa.array([0, 4], pa.int32()), pa.array(range(4)), INVALID),
    ],
    ids=["text", "large text", "struct", "list", "key of a map", "value of a map"],
)
def test_text_that_is_not_valid_utf8_does_not_fit_at_any_depth(column):
    schema = pa.schema([_field("n", pa.int64(), 1), _field("t", column.type, 2)])
    batch = pa.RecordBatch.from_arrays([pa.array(range(len(column))), column], names=["n", "t"])
    with pytest.raises(RowsDoNotFitError, match=r"not valid UTF-8; is_valid_utf8.*quarantine.*: t \("):
        conform_valid(batch, schema)
    assert conform_valid(batch.slice(0, 0), schema).num_rows == 0
    assert conform(batch, schema).num_rows == len(column), "rows of data files are taken as they are"


_ID = UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
_STRUCT = pa.struct([_field("x", pa.int32(), 3, False)])
_PAIRS = pa.array([[("a", None), ("b", [1])]], pa.map_(pa.string(), pa.list_(pa.int32())))


@pytest.mark.parametrize(
    ("element", "given"),
    [
        (_STRUCT, pa.array([[{"x": 5}, None]])),
        (pa.int32(), pa.array([[1, None]])),
        (pa.list_(pa.int32()), pa.array([[None]], pa.list_(pa.list_(pa.int32())))),
        (pa.list_(pa.int32()), _PAIRS),
    ],
    ids=str,
)
def test_a_null_among_required_elements_does_not_fit_and_behind_a_null_list_it_does(element, given):
    """It would be written as a value."""
    required = pa.field("value", element, nullable=False)
    is_map = pa.types.is_map(given.type)
    schema = pa.schema([pa.field("l", pa.map_(pa.string(), required) if is_map else pa.list_(required))])
    with pytest.raises(RowsDoNotFitError, match=r"a value is required by the table but is null: l\."):
        conform(pa.RecordBatch.from_arrays([given], ["l"]), schema)
    inside = (given.keys, given.items) if is_map else (given.values,)
    hidden = type(given).from_arrays(given.offsets, *inside, mask=pa.array([True]))
    assert conform(pa.RecordBatch.from_arrays([hidden], ["l"]), schema)["l"].to_pylist() == [None]


@pytest.mark.parametrize("given", [{"id": [1, 2]}, {"id": [1, 2], "s": pa.nulls(2)}])
@pytest.mark.parametrize("inside", [pa.int32(), pa.list_(pa.uuid()), pa.struct([("u", pa.uuid())])])
def test_an_optional_struct_that_is_missing_is_written_as_null_whatever_it_requires(given, inside):
    kind = pa.struct([pa.field("x", inside, nullable=False)])
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("s", kind)])
    rows = pa.Table.from_batches([conform(pa.RecordBatch.from_pydict(given), schema)])
    out = io.BytesIO()
    pq.write_table(rows, out)
    assert pq.read_table(out)["s"].to_pylist() == [None, None]


@pytest.mark.parametrize("inside", [pa.list_(pa.uuid()), pa.struct([("u", pa.uuid())])])
def test_a_required_field_with_uuids_in_it_is_written_beside_null_structs(inside):
    kind = pa.struct([pa.field("x", inside, nullable=False)])
    one = _ID.bytes
    value = [one] if pa.types.is_list(inside) else {"u": one}
    plain = pa.list_(pa.binary(16)) if pa.types.is_list(inside) else pa.struct([("u", pa.binary(16))])
    given = pa.array([{"x": value}, None], pa.struct([("x", plain)]))
    rows = conform(pa.RecordBatch.from_pydict({"s": given}), pa.schema([pa.field("s", kind)]))
    out = io.BytesIO()
    pq.write_table(pa.Table.from_batches([rows]), out)
    assert pq.read_table(out)["s"].null_count == 1


def test_text_of_a_dictionary_or_a_view_becomes_a_uuid_as_other_text_does():
    schema = pa.schema([pa.field("u", pa.uuid())])
    text = pa.array([str(_ID), None])
    for given in (text.dictionary_encode(), text.cast(pa.string_view())):
        assert conform(pa.RecordBatch.from_pydict({"u": given}), schema)["u"].to_pylist() == [_ID, None]
    with pytest.raises(RowsDoNotFitError, match="does not spell a uuid"):
        conform(pa.RecordBatch.from_pydict({"u": pa.array(["0123456789abcdef"]).dictionary_encode()}), schema)
