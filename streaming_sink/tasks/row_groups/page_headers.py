"""Where the pages of a column chunk are, by their headers: many writers store no index that says so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from streaming_sink.tasks.row_groups.compact import I32, CompactError, Field, Struct, decode_struct
from streaming_sink.tasks.row_groups.footer import (
    DataPage,
    Extent,
    FooterError,
    StoredChunk,
    StoredGroup,
    StoredGroups,
    read_exactly,
)

_KIND, _COMPRESSED = 1, 3
_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3
_ROWS_IN = {_DATA: (5, 1), _DATA_2: (8, 3)}
"""The field of a data page's own header, and there that of the number of values; in version 2, of rows."""
_VALUES, _OF_CHUNK = 1, 5
"""The field of the number of values, in a data page's own header, and in the metadata of its chunk."""
_MOST_HEADER_BYTES = 64 * 1024
_MOST_NAME_BYTES = 64
"""Of one page in an offset index. A longer header or index takes a hundred times its bytes once decoded."""


def decode_header(data: bytes, at: int) -> tuple[Struct, int, int]:
    """Return the header of a page that begins there, where it ends, and how many values the page has; 0 for a
    dictionary. CompactError, LookupError, TypeError or AttributeError for what is none.
    """
    header, size = decode_struct(data[at : at + _MOST_HEADER_BYTES])
    own = _ROWS_IN.get(_number(header[_KIND]))
    return header, at + size, 0 if own is None else _number(header[own[0]].value[_VALUES])


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
        raise FooterError(f"the pages of a column have {values:,} values, and its footer says otherwise")
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
        try:
            header, body, values = decode_header(data, at - begin)
            kind, place = _number(header[_KIND]), Extent(at, begin + body + _number(header[_COMPRESSED]))
            is_dictionary = kind == _DICTIONARY and place.begin == begin and place.end == first
            own, number = _ROWS_IN[_DATA if is_dictionary else kind]
            count = 0 if is_dictionary else _number(header[own].value[number])
        except (CompactError, LookupError, TypeError, AttributeError) as damage:
            raise FooterError(f"a page has no header: {damage}") from damage
        if not begin + body - at <= place.size <= end - at or count < 0:
            raise FooterError(f"a page ends at {place.end:,}, and its column at {end:,}")
        if not is_dictionary:
            yield count, values, place
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
