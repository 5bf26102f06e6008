"""Thrift's compact protocol: bytes that pyarrow has written come back as they were, and no bytes do harm."""

from __future__ import annotations

import io
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_sink.tasks.row_groups.compact import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    MAP,
    SET,
    STRUCT,
    TRUE,
    UUID,
    CompactError,
    Field,
    Pairs,
    Values,
    decode_struct,
    encode_struct,
)

_COLUMNS = {
    "i": pa.int32(),
    "l": pa.int64(),
    "d": pa.float64(),
    "s": pa.string(),
    "b": pa.bool_(),
    "n": pa.list_(pa.int32()),
    "t": pa.timestamp("us", tz="UTC"),
}
_VALUES = {
    "i": st.integers(-(2**31), 2**31 - 1),
    "l": st.integers(-(2**63), 2**63 - 1),
    "d": st.floats(),
    "s": st.text(max_size=40),
    "b": st.booleans(),
    "n": st.lists(st.none() | st.integers(0, 9), max_size=3),
    "t": st.integers(0, 2**50),
}
_ROWS = st.lists(st.fixed_dictionaries({name: st.none() | it for name, it in _VALUES.items()}), max_size=30)


def _stored(rows, group_rows):
    written = io.BytesIO()
    table = pa.Table.from_pylist(rows, pa.schema([pa.field(*each) for each in _COLUMNS.items()]))
    pq.write_table(table, written, row_group_size=group_rows, write_page_index=True)
    data = written.getvalue()
    return data, data[-8 - int.from_bytes(data[-8:-4], "little") : -8]


@settings(deadline=None, max_examples=60)
@given(_ROWS, st.integers(1, 9))
def test_a_footer_of_pyarrow_is_read_as_pyarrow_reads_it_and_comes_back_byte_by_byte(rows, group_rows):
    data, footer = _stored(rows, group_rows)
    read, end = decode_struct(footer)
    assert end == len(footer)
    assert encode_struct(read) == footer
    known = pq.read_metadata(io.BytesIO(data))
    assert (read[3].value, read[6].value.decode()) == (known.num_rows, known.created_by)
    groups = read[4].value.items
    assert [it[3].value for it in groups] == [
        known.row_group(at).num_rows for at in range(known.num_row_groups)
    ]
    for at, group in enumerate(groups):
        for place, chunk in enumerate(group[1].value.items):
            meta, column = chunk[3].value, known.row_group(at).column(place)
            assert [meta[number].value for number in (5, 6, 7, 9)] == [
                column.num_values,
                column.total_uncompressed_size,
                column.total_compressed_size,
                column.data_page_offset,
            ]
            assert ".".join(it.decode() for it in meta[3].value.items) == column.path_in_schema
            if column.statistics is not None:
                assert meta[12].value[3].value == column.statistics.null_count
            if column.has_offset_index:
                pages, _ = decode_struct(data, chunk[4].value)
                stored = data[chunk[4].value : chunk[4].value + chunk[5].value]
                assert encode_struct(pages) == stored
    names = [it[4].value.decode() for it in read[2].value.items if 5 not in it]
    assert names == [known.schema.column(place).name for place in range(len(known.schema))]


def _integers(bits):
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _of_kind(inner):
    plain = {
        TRUE: st.booleans(),
        BYTE: _integers(8),
        I16: _integers(16),
        I32: _integers(32),
        I64: _integers(64),
        DOUBLE: st.binary(min_size=8, max_size=8),
        BINARY: st.binary(max_size=20),
        UUID: st.binary(min_size=16, max_size=16),
    }
    return {**plain, STRUCT: _fields(inner)} if inner else plain


def _fields(kinds):
    fields = st.sampled_from(sorted(kinds)).flatmap(lambda kind: kinds[kind].map(lambda it: Field(kind, it)))
    named = st.dictionaries(_integers(16), fields, max_size=6)
    return named.map(lambda it: {key: _spelled(field) for key, field in it.items()})


def _spelled(field):
    return Field(TRUE if field.value else FALSE, field.value) if field.kind == TRUE else field


def _deeper(kinds):
    lists = st.sampled_from(sorted(kinds)).flatmap(
        lambda kind: st.lists(kinds[kind], max_size=20).map(lambda items: Values(kind, items))
    )
    pairs = st.tuples(st.sampled_from(sorted(kinds)), st.sampled_from(sorted(kinds))).flatmap(
        lambda two: st.lists(st.tuples(kinds[two[0]], kinds[two[1]]), max_size=4).map(
            lambda items: Pairs(two[0], two[1], items) if items else Pairs(0, 0, [])
        )
    )
    return {**kinds, LIST: lists, SET: lists, MAP: pairs, STRUCT: _fields(kinds)}


@settings(deadline=None, max_examples=200)
@given(_fields(_deeper(_deeper(_of_kind({})))))
def test_any_struct_with_fields_that_nothing_knows_comes_back(struct):
    data = encode_struct(struct)
    read, end = decode_struct(data)
    assert (read, end) == (struct, len(data))
    assert list(read) == list(struct)


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=300))
def test_bytes_that_are_no_struct_are_refused_and_nothing_else_is_raised(data):
    try:
        read, end = decode_struct(data)
    except CompactError:
        return
    assert end <= len(data)
    assert decode_struct(encode_struct(read))[0] == read


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_a_damaged_footer_is_refused_or_read_and_nothing_else_is_raised(data):
    footer = bytearray(_FOOTER)
    for _ in range(data.draw(st.integers(1, 4))):
        footer[data.draw(st.integers(0, len(footer) - 1))] = data.draw(st.integers(0, 255))
    with suppress(CompactError):
        decode_struct(bytes(footer[: data.draw(st.integers(0, len(footer)))]))


_FOOTER = _stored([{"i": 1, "s": "a", "n": [1]}, {"i": 2}], 1)[1]


def _varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "cut off"),
        (b"\x15", "cut off"),
        (b"\x19\xfc" + _varint(2**31) + b"\x00", "elements are stated"),
        (b"\x19\xfc" + _varint(2**62), "elements are stated"),
        (b"\x1b" + _varint(2**40) + b"\x55", "elements are stated"),
        (b"\x18" + _varint(2**63) + b"abc\x00", "bytes are stated"),
        (b"\x16" + b"\xff" * 11 + b"\x00", "more than 10 bytes"),
        (b"\x15" + _varint(2**32) + b"\x00", "does not fit into 32 bits"),
        (b"\x16" + _varint(2**64) + b"\x00", "does not fit into 64 bits"),
        (b"\x1c" * 1000, "nested more than"),
        (b"\x19" + b"\x19" * 1000, "nested more than"),
        (b"\x1f\x00", "no type 15"),
        (b"\x1e\x00", "no type 14"),
        (b"\x15\x02\x05\x02\x02\x00", "a field twice"),
    ],
)
def test_hostile_bytes_are_refused_with_the_reason(data, why):
    with pytest.raises(CompactError, match=why):
        decode_struct(data)
