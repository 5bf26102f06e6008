"""Row groups that are copied into a file: their bytes, and the file's footer that names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO

from streaming_sink.tasks.row_groups.checked_pages import (
    PageTotals,
    check_dictionary,
    check_page,
    stated_totals,
)
from streaming_sink.tasks.row_groups.compact import (
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    CompactError,
    Field,
    Struct,
    Values,
    decode_struct,
    encode_struct,
)
from streaming_sink.tasks.row_groups.footer import (
    MAGIC,
    DataPage,
    Extent,
    Footer,
    FooterError,
    StoredChunk,
    StoredGroup,
    read_exactly,
    value_width,
)
from streaming_sink.tasks.row_groups.page_headers import DICTIONARY

_PIECE_BYTES = 16 * 1024 * 1024
"""Bytes that are read, by one request, and held at once: fewer than a row group takes that is decoded."""
_MOST_ORDINALS = 0x7FFF
_CHUNKS, _ROWS, _SORTED, _OFFSET, _SIZE, _ORDINAL = 1, 3, 4, 5, 6, 7
_CODEC, _VALUES, _CHILDREN = 4, 5, 5


@dataclass(frozen=True, slots=True)
class _Indexes:
    """What a column chunk has behind the row groups, by the names of its offset and its length."""

    column_index: bytes | None
    offset_index: bytes | None
    bloom_filter: bytes | None


@dataclass(frozen=True, slots=True)
class CopiedGroup:
    """A row group whose bytes are in the new file."""

    begin: int
    fields: Struct
    indexes: tuple[_Indexes, ...]
    pages: tuple[Extent, ...]
    """Where all of its bytes are in the file that they are copied from."""
    rows: tuple[int | None, ...]
    """How many rows each page has; None of a dictionary, and where rows have several values."""
    kinds: tuple[tuple[int, int], ...]
    """Codec, and bytes of a value, of each column that has a dictionary; 0 of texts."""
    stated: PageTotals
    """What the pages have together, by the footer."""
    checked: bool
    """Whether each of the pages is known to begin with its header, and to have its values."""


def moved_group(group: StoredGroup, footer: Footer, indexes: bytes, begin: int) -> CopiedGroup:
    """Return a row group as it is once its bytes begin at this offset of another file. `indexes`: what
    that file has behind its row groups. FooterError where they are damaged.
    """
    shift = begin - group.extent.begin

    def stored(extent: Extent | None) -> bytes | None:
        at = footer.indexes.begin
        return None if extent is None else indexes[extent.begin - at : extent.end - at]

    chunks, found, pages, rows = [], [], list[Extent](), list[int | None]()
    for chunk in group.chunks:
        chunks.append(_moved_chunk(chunk, shift))
        index = stored(chunk.offset_index)
        if index is not None:
            own, first, moved = _moved_pages(index, shift, group.rows)
        elif chunk.pages is not None:
            own, first = [page.place for page in chunk.pages], [page.first_row for page in chunk.pages]
            moved = _new_index(chunk.pages, shift)
        else:
            raise FooterError("it does not say where its pages are")
        if chunk.has_dictionary:
            pages.append(Extent(chunk.extent.begin, own[0].begin))
            rows.append(None)
        pages += own
        is_flat = chunk.fields[3].value[_VALUES].value == group.rows
        rows += [b - a if is_flat else None for a, b in pairwise([*first, group.rows])]
        column_index = stored(chunk.column_index)
        if column_index is not None and not _is_sound(column_index, len(own), chunk):
            column_index = None
        found.append(_Indexes(column_index, moved, stored(chunk.bloom_filter)))
    _check_are_all(pages, group.extent)
    fields = {key: value for key, value in group.fields.items() if key not in (_SORTED, _ORDINAL)}
    fields[_CHUNKS] = Field(LIST, Values(STRUCT, chunks))
    fields[_OFFSET] = Field(I64, begin)
    fields[_SIZE] = Field(I64, group.extent.end - group.extent.begin)
    checked = all(chunk.pages is not None for chunk in group.chunks)
    totals = stated_totals(group)
    kinds = tuple(_kinds_of_dictionaries(group, footer))
    return CopiedGroup(begin, fields, tuple(found), tuple(pages), tuple(rows), kinds, totals, checked)


def _kinds_of_dictionaries(group: StoredGroup, footer: Footer) -> Iterator[tuple[int, int]]:
    leaves = [element for element in footer.schema if _CHILDREN not in element]
    try:
        for chunk, leaf in zip(group.chunks, leaves, strict=True):
            if chunk.has_dictionary:
                yield chunk.fields[3].value[_CODEC].value, value_width(leaf) or 0
    except (LookupError, ValueError) as other:
        raise FooterError(f"a row group has other columns than the schema: {other}") from other


def _moved_chunk(chunk: StoredChunk, shift: int) -> Struct:
    fields, meta = dict(chunk.fields), dict(chunk.fields[3].value)
    for number in (9, 11):
        if number in meta:
            meta[number] = Field(I64, meta[number].value + shift)
    for number in (4, 5, 6, 7):  # of indexes, whose places are not known yet
        fields.pop(number, None)
    fields[3] = Field(STRUCT, meta)
    fields[2] = Field(I64, 0)  # deprecated, and what pyarrow writes; others wrote one of three places
    return fields


def _moved_pages(data: bytes, shift: int, rows: int) -> tuple[list[Extent], list[int], bytes]:
    """Return the pages that an offset index of so many rows names, the first row of each, and the index once
    they have moved.
    """
    try:
        fields, _ = decode_struct(data)
        named = fields[1].value.items
        if not named or any((page[1].kind, page[2].kind) != (I64, I32) for page in named):
            raise FooterError("an offset index names no pages")
        if not fields.keys() <= {1, 2} or any(page.keys() != {1, 2, 3} for page in named):
            raise FooterError("an offset index has a field that is not known")  # it may be an offset
        first = [page[3].value for page in named]
        if first[0] != 0 or any(a >= b for a, b in pairwise([*first, rows])):
            raise FooterError("the pages of an offset index do not begin at rows that follow each other")
        pages = [Extent(page[1].value, page[1].value + page[2].value) for page in named]
        moved = [{**page, 1: Field(I64, page[1].value + shift)} for page in named]
        return pages, first, encode_struct({**fields, 1: Field(LIST, Values(STRUCT, moved))})
    except (CompactError, LookupError, AttributeError, TypeError) as damage:
        raise FooterError(f"an offset index cannot be read: {damage}") from damage


def _is_sound(column_index: bytes, pages: int, chunk: StoredChunk) -> bool:
    """Return whether a column index is of so many pages, and has the nulls of its chunk. Readers skip pages
    by it, and none needs it.
    """
    try:
        fields, _ = decode_struct(column_index)
        empty, least, greatest = (fields[number].value.items for number in (1, 2, 3))
        nulls = fields[5].value.items if 5 in fields else [int(it) for it in empty]
        counts = chunk.fields[3].value[12].value[3].value
        return (
            fields.keys() <= {1, 2, 3, 4, 5, 6, 7}
            and {len(empty), len(least), len(greatest), len(nulls)} == {pages}
            and all(count >= is_empty for count, is_empty in zip(nulls, empty, strict=True))
            and (5 not in fields or sum(nulls) == counts)
        )
    except (CompactError, LookupError, TypeError, AttributeError):
        return False


def _new_index(pages: Sequence[DataPage], shift: int) -> bytes:
    """Return an offset index of these pages, once they have moved."""
    places: list[Struct] = [
        {
            1: Field(I64, page.place.begin + shift),
            2: Field(I32, page.place.size),
            3: Field(I64, page.first_row),
        }
        for page in pages
    ]
    return encode_struct({1: Field(LIST, Values(STRUCT, places))})


def _check_are_all(pages: Sequence[Extent], group: Extent) -> None:
    """Check that pages lie next to each other, and are all that is in a row group."""
    end = group.begin
    for page in pages:
        if page.begin != end or page.end <= page.begin:
            raise FooterError(f"a page is not where the one before it ends: {page.begin:,}, {end:,}")
        end = page.end
    if end != group.end:
        raise FooterError(f"the pages of a row group end at {end:,}, and it ends at {group.end:,}")


def copy_pages(
    source: BinaryIO, group: CopiedGroup, write: Callable[[bytes], object], *, needs_checksums: bool = False
) -> None:
    """Write the bytes of a row group's pages, some at a time. FooterError where the file ends before, or has
    no header of a page where one is to begin, or other values than its footer says, or a page that is not
    that of its checksum, or has none where it needs one.
    """
    source.seek(group.pages[0].begin)
    found, rows, kinds = PageTotals(), iter(group.rows), iter(group.kinds)
    for pages in _pieces(group.pages):
        begin = pages[0].begin
        data = read_exactly(source, pages[-1].end - begin)
        if not group.checked:
            for page in pages:
                header = check_page(data, page.begin - begin, page.size, next(rows), needs_checksums)
                found.add(header, page.size)
                if header.kind == DICTIONARY:
                    stored = memoryview(data)[page.end - begin - header.bytes : page.end - begin]
                    check_dictionary(stored, header, *next(kinds, (0, 0)))
        write(data)
    if not group.checked and found != group.stated:
        raise FooterError(f"the pages of a row group are others than it states: {found}, not {group.stated}")


def _pieces(pages: Sequence[Extent]) -> Iterator[list[Extent]]:
    """Yield pages that are read at once."""
    held: list[Extent] = []
    for page in pages:
        if held and page.end - held[0].begin > _PIECE_BYTES:
            yield held
            held = []
        held.append(page)
    yield held


def joined_end(tail: bytes, begin: int, copied: Sequence[CopiedGroup]) -> bytes:
    """Return the end of a file that pyarrow has written, and row groups were copied into: indexes and footer.

    `tail` is what pyarrow has written behind its row groups, from the offset `begin` on.
    """
    length = int.from_bytes(tail[-8:-4], "little")
    written, _ = decode_struct(tail[-8 - length : -8])
    out = bytearray(tail[: -8 - length])
    groups = [(_begin(fields), fields) for fields in written[4].value.items]
    groups += [(it.begin, fields) for it, fields in zip(copied, _placed(copied, out, begin), strict=True)]
    ordered = [
        {**fields, _ORDINAL: Field(I16, place)} if place <= _MOST_ORDINALS else fields
        for place, (_, fields) in enumerate(sorted(groups, key=lambda it: it[0]))
    ]
    rows = sum(fields[_ROWS].value for fields in ordered)
    footer = encode_struct({**written, 3: Field(I64, rows), 4: Field(LIST, Values(STRUCT, ordered))})
    return bytes(out) + footer + len(footer).to_bytes(4, "little") + MAGIC


def _begin(fields: Struct) -> int:
    meta: Struct = fields[_CHUNKS].value.items[0][3].value
    begin: int = meta.get(11, meta[9]).value
    return begin


def _placed(copied: Sequence[CopiedGroup], out: bytearray, begin: int) -> Iterator[Struct]:
    """Append the indexes of row groups, filters first, and yield their fields with the offsets of these."""
    places: list[list[dict[str, tuple[int, int]]]] = [[{} for _ in group.indexes] for group in copied]
    for name in ("bloom_filter", "column_index", "offset_index"):
        for group, chunks in zip(copied, places, strict=True):
            for indexes, place in zip(group.indexes, chunks, strict=True):
                data: bytes | None = getattr(indexes, name)
                if data is not None:
                    place[name] = begin + len(out), len(data)
                    out += data
    for group, chunks in zip(copied, places, strict=True):
        stored = group.fields[_CHUNKS].value.items
        yield {
            **group.fields,
            _CHUNKS: Field(
                LIST, Values(STRUCT, [_with_places(*each) for each in zip(stored, chunks, strict=True)])
            ),
        }


def _with_places(chunk: Struct, places: dict[str, tuple[int, int]]) -> Struct:
    fields, meta = dict(chunk), dict(chunk[3].value)
    for name, into, numbers in (
        ("offset_index", fields, (4, 5)),
        ("column_index", fields, (6, 7)),
        ("bloom_filter", meta, (14, 15)),
    ):
        if name in places:
            offset, length = places[name]
            into[numbers[0]], into[numbers[1]] = Field(I64, offset), Field(I32, length)
    fields[3] = Field(STRUCT, meta)
    return fields
