"""Under which conditions row groups of one file can be part of another: what it has to be like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streaming_sink.tasks.row_groups.compact import Struct
from streaming_sink.tasks.row_groups.footer import Footer, StoredGroup

_TESTED = ("parquet-cpp-arrow version 25.", "parquet-cpp-arrow version 26.")
"""The writers whose statistics were compared with those of a decoded merge."""

CODECS: Mapping[str, int] = {"none": 0, "snappy": 1, "gzip": 2, "brotli": 4, "zstd": 6, "lz4": 7}
"""Parquet's numbers of codecs, by the names that pyarrow takes. Its "lz4" is `LZ4_RAW`."""
_ENCODINGS = frozenset({0, 2, 3, 4, 8})
"""PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED, RLE_DICTIONARY: those that every reader decodes."""
_TYPE, _NAME, _CHILDREN, _FIELD_ID = 1, 4, 5, 9
_STATISTICS, _NULLS = 12, 3


@dataclass(frozen=True, slots=True)
class FileLayout:
    """What the file must be like that row groups are copied into."""

    footer: Footer
    """Of a file of the same writer."""
    codec: int
    filtered: frozenset[int]
    """The places of the leaves that have a bloom filter."""
    by_names: bool
    """Whether the columns of a file without field ids have the names that the table's have."""


def why_none_is_copied(footer: Footer, layout: FileLayout) -> str:
    """Return why no row group of the file can be copied, "" where some may be."""
    wanted = layout.footer
    if not footer.created_by.startswith(_TESTED):
        return "its writer's statistics were not tested"
    if footer.column_orders != wanted.column_orders:
        return "its statistics are of another order"
    columns, expected = _columns(footer), _columns(wanted)
    if columns == expected:
        return ""
    if layout.by_names and columns == [_without(it, _FIELD_ID) for it in expected]:
        return ""
    return "its schema is another one"


def _columns(footer: Footer) -> list[Struct]:
    """Return the elements of the schema in their order. Of the first one, the name says nothing."""
    return [_without(it, _NAME) if place == 0 else it for place, it in enumerate(footer.schema)]


def _without(fields: Struct, number: int) -> Struct:
    return {key: value for key, value in fields.items() if key != number}


def why_not_copied(group: StoredGroup, layout: FileLayout) -> str:
    """Return why a row group of a file with the right schema cannot be copied, "" where it can."""
    leaves = [it for it in layout.footer.schema if _CHILDREN not in it]
    if len(group.chunks) != len(leaves):
        return f"it has {len(group.chunks):,} columns, not {len(leaves):,}"
    for place, (chunk, leaf) in enumerate(zip(group.chunks, leaves, strict=True)):
        meta: Struct = chunk.fields[3].value
        if meta[_TYPE].value != leaf[_TYPE].value:
            return "a column chunk is of another type than its column"
        if meta[4].value != layout.codec:
            return "it is compressed otherwise than the table's files"
        if not _ENCODINGS.issuperset(meta[2].value.items):
            return "a column is encoded as not every reader knows"
        if chunk.offset_index is None:
            return "it does not say where its pages are"
        if _STATISTICS not in meta or _NULLS not in meta[_STATISTICS].value:
            return "a column has no statistics"
        if (chunk.bloom_filter is not None) != (place in layout.filtered):
            return "it has other bloom filters than the table's files"
    return ""
