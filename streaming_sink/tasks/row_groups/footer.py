"""The footer of a Parquet file, as far as copying its row groups needs it: where their bytes are, and why
they cannot be copied. No place that it states is believed before it was compared with the size of the file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO

from streaming_sink.tasks.row_groups.compact import (
    BINARY,
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    CompactError,
    Field,
    Struct,
    decode_struct,
)

MAGIC = b"PAR1"
_TAIL_BYTES = 64 * 1024
"""Read at once from the end of a file: the footer of most, and the indexes before it."""
_LARGEST_FOOTER = 4 * 1024 * 1024
_LARGEST_INDEXES = 32 * 1024 * 1024
"""What is larger is not copied, since it is held in memory. Files that are merged have some kilobytes."""

_TRUTH = (TRUE, FALSE)
_Kinds = Mapping[int, tuple[int, ...]]
_FILE: _Kinds = {1: (I32,), 2: (LIST,), 3: (I64,), 4: (LIST,), 5: (LIST,), 6: (BINARY,), 7: (LIST,)}
_GROUP: _Kinds = {1: (LIST,), 2: (I64,), 3: (I64,), 4: (LIST,), 5: (I64,), 6: (I64,), 7: (I16,)}
_CHUNK: _Kinds = {2: (I64,), 3: (STRUCT,), 4: (I64,), 5: (I32,), 6: (I64,), 7: (I32,)}
_META: _Kinds = {
    **dict.fromkeys((1, 4, 15), (I32,)),
    **dict.fromkeys((5, 6, 7, 9, 11, 14), (I64,)),
    **dict.fromkeys((2, 3, 13), (LIST,)),
    **dict.fromkeys((12, 16), (STRUCT,)),
}
"""The fields that are known, by their ids, and their types. Left out on purpose: what is encrypted, chunks in
other files, metadata of single chunks, index pages, and statistics of places on a map. What is not known may
hold an offset."""
_STATISTICS: _Kinds = {
    **dict.fromkeys((1, 2, 5, 6), (BINARY,)),
    **dict.fromkeys((3, 4, 9), (I64,)),
    **dict.fromkeys((7, 8), _TRUTH),
}
_SIZES: _Kinds = {1: (I64,), 2: (LIST,), 3: (LIST,)}
_TYPE, _LENGTH, _FIXED = 1, 2, 7
_WIDTHS: Mapping[int, int] = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
"""Bytes of a value of each physical type that has a width."""
_SCHEMA, _ROWS, _GROUPS, _CREATED_BY, _ORDERS = 2, 3, 4, 6, 7


class FooterError(ValueError):
    """A footer that is damaged, states what its file cannot hold, or says more than is understood here."""


class DamagedPagesError(FooterError):
    """Pages have other values than their column states: what is decoded of them may be anything."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes of a file, from `begin` up to `end`."""

    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class DataPage:
    """One page of values in a column chunk."""

    place: Extent
    first_row: int
    """In the row group."""


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """The values of one column in a row group, and what belongs to them behind the row groups."""

    fields: Struct
    extent: Extent
    column_index: Extent | None
    offset_index: Extent | None
    bloom_filter: Extent | None
    pages: tuple[DataPage, ...] | None = None
    """Where their headers were read, and say how many rows each has."""

    @property
    def has_dictionary(self) -> bool:
        return 11 in self.fields[3].value


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """One row group of a file."""

    fields: Struct
    rows: int
    extent: Extent
    """Of its column chunks, which lie next to each other."""
    chunks: tuple[StoredChunk, ...]


@dataclass(frozen=True, slots=True)
class Footer:
    """A footer that was compared with its file."""

    fields: Struct
    rows: int
    groups: tuple[StoredGroup, ...]
    indexes: Extent
    """What is between the row groups and the footer."""

    @property
    def created_by(self) -> str:
        """The name and version of its writer, "" where it does not say."""
        stated = self.fields.get(_CREATED_BY)
        return "" if stated is None else stated.value.decode(errors="replace")

    @property
    def schema(self) -> list[Struct]:
        """The elements of its schema, in their order."""
        return _structs(self.fields[_SCHEMA])

    @property
    def column_orders(self) -> Field | None:
        """By which order its statistics are the least and the greatest values."""
        return self.fields.get(_ORDERS)


@dataclass(frozen=True, slots=True)
class StoredGroups:
    """The row groups of an open file."""

    source: BinaryIO
    footer: Footer
    indexes: bytes
    """What is between the row groups and the footer."""


def value_width(leaf: Struct) -> int | None:
    """Return the bytes of a value of a leaf of the schema; None where each value has its own."""
    kind = leaf[_TYPE].value
    return _WIDTHS.get(kind) if kind != _FIXED or _LENGTH not in leaf else leaf[_LENGTH].value


def read_row_groups(source: BinaryIO) -> StoredGroups:
    """Return the row groups of an open file. FooterError."""
    size = source.seek(0, 2)
    tail = _read_end(source, size, min(size, _TAIL_BYTES))
    if size < 2 * len(MAGIC) + 4 or tail[-4:] != MAGIC:
        raise FooterError("it does not end as a Parquet file does")
    length = int.from_bytes(tail[-8:-4], "little")
    if length > min(size - 3 * 4, _LARGEST_FOOTER):
        raise FooterError(f"its footer has {length:,} bytes, and the file {size:,}")
    if length + 8 > len(tail):
        tail = _read_end(source, size, length + 8)
    begin = size - 8 - length
    footer = parse_footer(tail[-8 - length : -8], begin)
    if begin - footer.indexes.begin > _LARGEST_INDEXES:
        raise FooterError(f"{begin - footer.indexes.begin:,} bytes are between its row groups and its footer")
    if size - footer.indexes.begin > len(tail):
        tail = _read_end(source, size, size - footer.indexes.begin)
    start = len(tail) - (size - footer.indexes.begin)
    return StoredGroups(source, footer, tail[start : start + begin - footer.indexes.begin])


def _read_end(source: BinaryIO, size: int, count: int) -> bytes:
    source.seek(size - count)
    return read_exactly(source, count)


def read_exactly(source: BinaryIO, count: int) -> bytes:
    """Return so many bytes of a file. FooterError where it ends before."""
    try:
        data = source.read(count)
    except OSError as failure:
        raise FooterError(f"it cannot be read: {failure}") from failure
    if len(data) != count:
        raise FooterError(f"it ends {count - len(data):,} bytes before its footer says")
    return data


def parse_footer(data: bytes, begin: int) -> Footer:
    """Return the footer that begins at this offset of its file. FooterError."""
    try:
        fields, end = decode_struct(data)
    except CompactError as damage:
        raise FooterError(f"its footer cannot be read: {damage}") from damage
    if end != len(data):
        raise FooterError(f"its footer ends after {end:,} of {len(data):,} bytes")
    _check_known("its footer", fields, _FILE, needs=(_SCHEMA, _ROWS, _GROUPS))
    groups = tuple(_group(each, begin) for each in _structs(fields[_GROUPS]))
    rows = sum(group.rows for group in groups)
    if rows != fields[_ROWS].value or not _structs(fields[_SCHEMA]):
        raise FooterError(f"its row groups have {rows:,} rows, and the file {fields[_ROWS].value:,}")
    behind = Extent(_end_of(groups), begin)
    room = behind.end - behind.begin
    for chunk in (chunk for group in groups for chunk in group.chunks):
        for extent in (chunk.column_index, chunk.offset_index, chunk.bloom_filter):
            if extent is not None:
                if not behind.begin <= extent.begin < extent.end <= behind.end:
                    raise FooterError(f"an index is not behind the row groups: at {extent.begin:,}")
                room -= extent.end - extent.begin
    if room < 0:
        raise FooterError(f"its indexes overlap: they have {-room:,} bytes more than there are")
    return Footer(fields, rows, groups, behind)


def _check_known(what: str, fields: Struct, known: _Kinds, needs: Collection[int] = ()) -> None:
    """Check that a struct has these fields of known types, and has no others."""
    for number, field in fields.items():
        if field.kind not in known.get(number, ()):
            raise FooterError(f"{what} has a field that is not known, or is of another type: {number}")
    if missing := sorted({*needs} - fields.keys()):
        raise FooterError(f"{what} lacks fields: {', '.join(map(str, missing))}")


def _structs(field: Field) -> list[Struct]:
    items: list[Struct] = field.value.items
    if items and field.value.kind != STRUCT:
        raise FooterError(f"a list of structs has elements of another type: {field.value.kind}")
    return items


def _end_of(groups: Sequence[StoredGroup]) -> int:
    """Return where the last row group ends. FooterError for two that overlap."""
    end = len(MAGIC)
    for group in sorted(groups, key=lambda it: it.extent.begin):
        if group.extent.begin < end:
            raise FooterError(f"its row groups overlap at {group.extent.begin:,}")
        end = group.extent.end
    return end


def _group(fields: Struct, begin: int) -> StoredGroup:
    """Return a row group of a file whose footer begins at `begin`."""
    _check_known("a row group", fields, _GROUP, needs=(1, 2, 3))
    rows = fields[3].value
    chunks = tuple(_chunk(each, rows) for each in _structs(fields[1]))
    if rows <= 0 or not chunks:
        raise FooterError(f"a row group has {rows:,} rows in {len(chunks):,} columns")
    if fields[2].value < 0:
        raise FooterError(f"a row group has {fields[2].value:,} bytes")
    for before, after in pairwise(chunks):
        if before.extent.end != after.extent.begin:
            raise FooterError(f"column chunks are not next to each other at {after.extent.begin:,}")
    extent = Extent(chunks[0].extent.begin, chunks[-1].extent.end)
    if not len(MAGIC) <= extent.begin < extent.end <= begin:
        raise FooterError(f"a row group is outside of its file: {extent.begin:,} to {extent.end:,}")
    return StoredGroup(fields, rows, extent, chunks)


def _chunk(fields: Struct, rows: int) -> StoredChunk:
    _check_known("a column chunk", fields, _CHUNK, needs=(3,))
    meta: Struct = fields[3].value
    _check_known("the metadata of a column chunk", meta, _META, needs=(1, 2, 4, 5, 7, 9))
    for number, known in ((12, _STATISTICS), (16, _SIZES)):
        if number in meta:
            _check_known("a statistic", meta[number].value, known)
    if meta[2].value.kind != I32:
        raise FooterError("its encodings are no numbers")
    first = meta.get(11, meta[9]).value
    extent = Extent(first, first + meta[7].value)
    if not extent.begin <= meta[9].value < extent.end:
        raise FooterError(f"a data page is outside of its column chunk: {meta[9].value:,}")
    if meta[5].value < rows:
        raise FooterError(f"a column has {meta[5].value:,} values in {rows:,} rows")
    if (14 in meta) != (15 in meta) or (4 in fields) != (5 in fields) or (6 in fields) != (7 in fields):
        raise FooterError("an index has a place without a length")
    return StoredChunk(fields, extent, _extent(fields, 6, 7), _extent(fields, 4, 5), _extent(meta, 14, 15))


def _extent(fields: Struct, offset: int, length: int) -> Extent | None:
    if offset not in fields:
        return None
    begin = fields[offset].value
    return Extent(begin, begin + fields[length].value)
