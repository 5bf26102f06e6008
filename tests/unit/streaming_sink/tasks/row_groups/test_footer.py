"""Footers that lie: no row group of such a file is copied, and no size that they state does harm."""

from __future__ import annotations

import io
import struct
import tracemalloc
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_sink.tasks.row_groups.compact import (
    BINARY,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    Field,
    Values,
    decode_struct,
    encode_struct,
)
from streaming_sink.tasks.row_groups.copying import copy_pages, moved_group
from streaming_sink.tasks.row_groups.footer import FooterError, read_row_groups

_TABLE = pa.table({"a": [*range(40)], "s": [f"t{it % 3}" for it in range(40)]})


def _file():
    written = io.BytesIO()
    bloom = {"s": {"ndv": 10, "fpp": 0.1}}
    pq.write_table(_TABLE, written, row_group_size=20, write_page_index=True, bloom_filter_options=bloom)
    return written.getvalue()


_WHOLE = _file()
_FOOTER_BYTES = int.from_bytes(_WHOLE[-8:-4], "little")


def _with_footer(edit, whole=_WHOLE):
    """The file after `edit(footer, first group, first chunk, its metadata)` has changed these structs."""
    footer, _ = decode_struct(whole[-8 - int.from_bytes(whole[-8:-4], "little") : -8])
    group = footer[4].value.items[0]
    chunk = group[1].value.items[0]
    edit(footer, group, chunk, chunk[3].value)
    return _ended(encode_struct(footer))


def _ended(footer):
    return _WHOLE[: -8 - _FOOTER_BYTES] + footer + struct.pack("<I", len(footer)) + b"PAR1"


def _set(what, number, kind, value):
    def edit(footer, group, chunk, meta):
        {"file": footer, "group": group, "chunk": chunk, "meta": meta}[what][number] = Field(kind, value)

    return edit


def _swapped(footer, group, chunk, meta):
    footer[4].value.items[1] = footer[4].value.items[0]


def _overlapping(footer, group, chunk, meta):
    second = group[1].value.items[1][3].value
    second[11] = Field(I64, meta.get(11, meta[9]).value + 8)
    second[9] = Field(I64, second[11].value + 8)


def _moved_out(footer, group, chunk, meta):
    for each in group[1].value.items:
        fields = each[3].value
        fields.update({at: Field(I64, fields[at].value + 2**40) for at in (9, 11) if at in fields})


def _indexes_in_one_place(footer, group, chunk, meta):
    """The index of each column is what all of them have together."""
    chunks = [each for group in footer[4].value.items for each in group[1].value.items]
    begin = min(each[6].value for each in chunks)
    for each in chunks:
        each[7] = Field(I32, each[6].value + each[7].value - begin)
        each[6] = Field(I64, begin)


_LIES = {
    "a chunk far outside": (_set("meta", 7, I64, 2**63 - 1), "next to each other"),
    "a row group far outside": (_moved_out, "outside of its file"),
    "a chunk before the file": (_set("meta", 11, I64, 3), "not next to each other|outside"),
    "a negative place": (_set("meta", 9, I64, -(2**63)), "outside of its column chunk"),
    "a negative size": (_set("meta", 7, I64, -5), "outside of its column chunk"),
    "a dictionary behind its data": (_set("meta", 11, I64, 2**40), "outside of its column chunk"),
    "one row group twice": (_swapped, "overlap"),
    "overlapping chunks": (_overlapping, "next to each other"),
    "too many rows": (_set("group", 3, I64, 2**62), "values in|row groups have"),
    "no rows": (_set("group", 3, I64, 0), "has 0 rows"),
    "less than no bytes": (_set("group", 2, I64, -1), "has -1 bytes"),
    "other rows than the file": (_set("file", 3, I64, 41), "row groups have 40 rows, and the file 41"),
    "an index far outside": (_set("chunk", 4, I64, 2**62), "not behind the row groups"),
    "an index of a negative size": (_set("chunk", 5, I32, -1), "not behind the row groups"),
    "an index in the rows": (_set("chunk", 6, I64, 4), "not behind the row groups"),
    "a filter far outside": (
        lambda footer, group, chunk, meta: group[1].value.items[1][3].value.update({14: Field(I64, 2**50)}),
        "not behind the row groups",
    ),
    "indexes of the same bytes": (_indexes_in_one_place, "indexes overlap"),
    "values in another file": (_set("chunk", 1, BINARY, b"other.parquet"), "not known.*1"),
    "encrypted columns": (_set("chunk", 8, STRUCT, {}), "not known.*8"),
    "an encrypted footer": (_set("file", 8, STRUCT, {}), "not known.*8"),
    "an index page": (_set("meta", 10, I64, 50), "not known.*10"),
    "a field of the future in a chunk": (_set("chunk", 20, I64, 99), "not known.*20"),
    "a field of the future in metadata": (_set("meta", 18, I64, 99), "not known.*18"),
    "a field of the future in a row group": (_set("group", 9, I64, 99), "not known.*9"),
    "a field of the future in statistics": (_set("meta", 12, STRUCT, {30: Field(I64, 9)}), "not known.*30"),
    "a place of another type": (_set("meta", 9, BINARY, b"\xff"), "another type"),
    "row groups of another type": (_set("file", 4, LIST, Values(I16, [1, 2])), "another type"),
    "encodings of another type": (_set("meta", 2, LIST, Values(BINARY, [b"a"])), "no numbers"),
    "no columns": (_set("group", 1, LIST, Values(STRUCT, [])), "in 0 columns"),
    "no schema": (_set("file", 2, LIST, Values(STRUCT, [])), "row groups have"),
}


@pytest.mark.parametrize("lie", _LIES)
def test_a_footer_that_states_what_cannot_be_is_refused(lie):
    edit, why = _LIES[lie]
    with pytest.raises(FooterError, match=why):
        read_row_groups(io.BytesIO(_with_footer(edit)))


def test_the_file_that_the_lies_are_told_of_is_read():
    stored = read_row_groups(io.BytesIO(_with_footer(lambda *_: None)))
    assert [group.rows for group in stored.footer.groups] == [20, 20]
    assert [chunk.bloom_filter is None for chunk in stored.footer.groups[0].chunks] == [True, False]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "does not end"),
        (b"PAR1", "does not end"),
        (b"PAR1" + b"\0" * 60 + b"PARE", "does not end"),
        (b"PAR1" + b"\xff\xff\xff\x7f" + b"PAR1", "its footer has"),
        (b"PAR1" + b"\0" * 4 + b"PAR1", "its footer"),
        (_ended(b"\x19" * 3000), "nested more than"),
        (_ended(b"\x19\xfc\xff\xff\xff\xff\x07"), "elements are stated"),
        (_ended(_WHOLE[-8 - _FOOTER_BYTES : -8] + b"\0"), "ends after"),
        (_WHOLE[:-50] + _WHOLE[-40:], "its footer"),
    ],
)
def test_a_file_that_is_damaged_is_refused(data, why):
    with pytest.raises(FooterError, match=why):
        read_row_groups(io.BytesIO(data))


def _with_index(change):
    """The first row group, its footer, and the indexes of which the first offset index was changed."""
    stored = read_row_groups(io.BytesIO(_WHOLE))
    group = stored.footer.groups[0]
    at = group.chunks[0].offset_index.begin - stored.footer.indexes.begin
    index, end = decode_struct(stored.indexes, at)
    change(index[1].value.items)
    damaged = encode_struct(index)[: end - at].ljust(end - at, b"\0")
    return group, stored.footer, stored.indexes[:at] + damaged + stored.indexes[end:]


@pytest.mark.parametrize(
    ("number", "value"), [(1, 2**62), (1, -(2**62)), (1, 5), (2, 2**31 - 1), (2, 1), (2, -(2**31)), (2, 0)]
)
def test_pages_that_are_not_all_of_a_row_group_one_after_the_other_are_refused(number, value):
    def change(pages):
        pages[0][number] = Field(pages[0][number].kind, value)

    with pytest.raises(FooterError):
        moved_group(*_with_index(change), 1000)


def test_an_index_without_pages_is_refused():
    with pytest.raises(FooterError):
        moved_group(*_with_index(list.clear), 1000)


def test_bytes_that_are_not_there_are_not_copied():
    stored = read_row_groups(io.BytesIO(_WHOLE))
    moved = moved_group(stored.footer.groups[0], stored.footer, stored.indexes, 4)
    with pytest.raises(FooterError, match="10 bytes before"):
        copy_pages(io.BytesIO(_WHOLE[: moved.pages[-1].end - 10]), moved, lambda _: None)


@pytest.mark.parametrize("damage", [b"\0" * 8, b"\xff" * 8, b"\x15\x00\x15\x02\x15\x02\x00"])
@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_page_without_its_header_is_not_carried_along(damage, number):
    stored = read_row_groups(io.BytesIO(_WHOLE))
    moved = moved_group(stored.footer.groups[0], stored.footer, stored.indexes, 4)
    pages = moved.pages
    at, copied = pages[number].begin, []
    spoiled = _WHOLE[:at] + damage + _WHOLE[at + len(damage) :]
    with pytest.raises(FooterError, match="a page has"):
        copy_pages(io.BytesIO(spoiled), moved, copied.append)
    assert not copied
    copy_pages(io.BytesIO(_WHOLE), moved, copied.append)
    assert b"".join(copied) == _WHOLE[pages[0].begin : pages[-1].end]


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_a_file_with_damaged_bytes_is_refused_or_read_and_its_row_groups_lie_within_it(data):
    """Of a file that was damaged anywhere in its last part, which takes no memory that the file has not."""
    damaged = bytearray(_WHOLE)
    first = len(damaged) - _FOOTER_BYTES - 8
    for _ in range(data.draw(st.integers(1, 5))):
        damaged[data.draw(st.integers(first, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with suppress(FooterError):
        stored = read_row_groups(io.BytesIO(bytes(damaged)))
        ends = 4
        for group in sorted(stored.footer.groups, key=lambda it: it.extent.begin):
            assert ends <= group.extent.begin < group.extent.end <= first
            ends = group.extent.end
            moved = moved_group(group, stored.footer, stored.indexes, 4)
            assert moved.begin == 4


def test_a_footer_of_many_lies_takes_no_more_than_some_bytes_for_each():
    tracemalloc.start()
    try:
        with pytest.raises(FooterError):
            read_row_groups(io.BytesIO(_ended(b"\x29\xfc\x80\x80\x04" + b"\0" * (1 << 16))))
        assert tracemalloc.get_traced_memory()[1] < 160 * (1 << 16)
    finally:
        tracemalloc.stop()
