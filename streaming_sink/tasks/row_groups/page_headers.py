"""Where the pages of a column chunk are, by their headers: many writers store no index that says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from streaming_sink.tasks.row_groups.compact import I32, CompactError, Field, Struct, decode_struct
from streaming_sink.tasks.row_groups.footer import (
    DamagedPagesError,
    DataPage,
    Extent,
    FooterError,
    StoredChunk,
    StoredGroup,
    StoredGroups,
    read_exactly,
)

_KIND, _PLAIN_BYTES, _BYTES, _CHECKSUM = 1, 2, 3, 4
_DATA, DICTIONARY, _DATA_2 = 0, 2, 3
_OWN: Mapping[int, tuple[int, int, int]] = {_DATA: (5, 1, 2), DICTIONARY: (7, 1, 2), _DATA_2: (8, 3, 4)}
"""Of each kind of page the field of its own header, and there those of its rows, in version 1 of its values,
and of its encoding."""
_VALUES, _LEVELS, _RLE = 1, (3, 4), 3
_OF_CHUNK = 5
"""The field of the number of values in the metadata of a chunk."""
_MOST_HEADER_BYTES = 64 * 1024
_FIRST_HEADER_BYTES = 1024
"""Of a header without statistics of values, which writers of an index leave out."""
_MOST_NAME_BYTES = 64
"""Of one page in an offset index. A longer header or index takes a hundred times its bytes once decoded."""


class PageHeader(NamedTuple):
    """What the header of a page says."""

    kind: int
    encoding: int
    rows: int
    """In version 1 the number of its values, where rows may have several."""
    values: int
    """None of a dictionary."""
    entries: int
    """Of a dictionary."""
    bytes: int
    """Behind the header."""
    plain_bytes: int
    """The same, once they are decompressed."""
    checksum: int | None
    end: int
    """Where the header ends, and its page begins."""


def decode_header(data: bytes, at: int) -> PageHeader:
    """Return the header that begins there. FooterError where none does."""
    try:
        header, size = decode_struct(data[at : at + _MOST_HEADER_BYTES])
        kind = _number(header[_KIND])
        own_number, rows, encoding = _OWN[kind]
        own: Struct = header[own_number].value
        values, is_data = _number(own[_VALUES]), kind != DICTIONARY
        if kind == _DATA and {_number(own[each]) for each in _LEVELS} != {_RLE}:
            raise FooterError("the levels of a page are encoded as not every reader knows")
        return PageHeader(
            kind=kind,
            encoding=_number(own[encoding]),
            rows=_number(own[rows]) if is_data else 0,
            values=values if is_data else 0,
            entries=0 if is_data else values,
            bytes=_number(header[_BYTES]),
            plain_bytes=_number(header[_PLAIN_BYTES]),
            checksum=_number(header[_CHECKSUM]) if _CHECKSUM in header else None,
            end=at + size,
        )
    except (CompactError, LookupError, TypeError, AttributeError) as damage:
        raise FooterError(f"a page has no header: {damage}") from damage


def has_checksums(stored: StoredGroups) -> bool:
    """Return whether the first page of a file has a checksum: its writer gives all pages one, or none."""
    extent = stored.footer.groups[0].extent
    stored.source.seek(extent.begin)
    try:
        first = decode_header(read_exactly(stored.source, min(extent.size, _FIRST_HEADER_BYTES)), 0)
    except FooterError:
        return False
    return first.checksum is not None


def with_pages(stored: StoredGroups) -> StoredGroups:
    """Return row groups whose column chunks know their pages, by headers that were read. Pages of version 1
    count values: where rows have more than one it is not said how many rows a page has, and such a chunk
    knows no pages.

    FooterError where headers do not lead from page to page up to the end of a chunk, or say otherwise than
    an index that it has.
    """

    def of(group: StoredGroup) -> StoredGroup:
        return replace(group, chunks=tuple(_with_pages(stored, group, chunk) for chunk in group.chunks))

    return replace(
        stored, footer=replace(stored.footer, groups=tuple(of(group) for group in stored.footer.groups))
    )


def _with_pages(stored: StoredGroups, group: StoredGroup, chunk: StoredChunk) -> StoredChunk:
    pages, rows, values = list[DataPage](), 0, 0
    for count, held, place in _data_pages(stored, chunk):
        pages.append(DataPage(place, rows))
        rows, values = rows + count, values + held
    if values != chunk.fields[3].value[_OF_CHUNK].value:
        stated = chunk.fields[3].value[_OF_CHUNK].value
        raise DamagedPagesError(
            f"the pages of a column have {values:,} values, and its footer states {stated:,}"
        )
    if chunk.offset_index is not None:
        begin = chunk.offset_index.begin - stored.footer.indexes.begin
        _check_names(stored.indexes[begin : begin + chunk.offset_index.size], pages, rows == group.rows)
    return replace(chunk, pages=tuple(pages)) if rows == group.rows else chunk


def _data_pages(stored: StoredGroups, chunk: StoredChunk) -> Iterator[tuple[int, int, Extent]]:
    """Yield the data pages of a chunk, one after the other, up to its end: rows or values, values, place."""
    begin, end = chunk.extent.begin, chunk.extent.end
    stored.source.seek(begin)
    data = read_exactly(stored.source, chunk.extent.size)
    at, first = begin, chunk.fields[3].value[9].value
    while at < end:
        header = decode_header(data, at - begin)
        place = Extent(at, begin + header.end + header.bytes)
        is_dictionary = header.kind == DICTIONARY
        if is_dictionary and (place.begin, place.end) != (begin, first):
            raise FooterError(f"a dictionary is not before its data pages: at {place.begin:,}")
        if not begin + header.end - at <= place.size <= end - at or header.rows < 0:
            raise FooterError(f"a page ends at {place.end:,}, and its column at {end:,}")
        if not is_dictionary:
            yield header.rows, header.values, place
        at = place.end


def _number(field: Field) -> int:
    """Return a number of a header. TypeError for a field of another type."""
    if field.kind != I32:
        raise TypeError(f"a field of type {field.kind}")
    value: int = field.value
    return value


def _check_names(index: bytes, pages: Sequence[DataPage], knows_rows: bool) -> None:
    """Check that an offset index names these pages, and their rows where these are known."""
    if len(index) > _MOST_NAME_BYTES * (len(pages) + 1):
        raise FooterError(f"an offset index of {len(pages):,} pages has {len(index):,} bytes")
    try:
        items = decode_struct(index)[0][1].value.items
        named = [(it[1].value, it[2].value, it[3].value if knows_rows else 0) for it in items]
    except (CompactError, LookupError, TypeError, AttributeError) as damage:
        raise FooterError(f"an offset index cannot be read: {damage}") from damage
    there = [(it.place.begin, it.place.size, it.first_row if knows_rows else 0) for it in pages]
    if named != there:
        raise FooterError("an offset index names other pages than there are")
