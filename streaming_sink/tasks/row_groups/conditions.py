"""Under which conditions row groups of one file can be part of another: what it has to be like."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_sink.tasks.job import ParquetSettings
from streaming_sink.tasks.leaves import leaves
from streaming_sink.tasks.row_groups.compact import I32, STRUCT, Field, Struct
from streaming_sink.tasks.row_groups.footer import Footer, StoredGroup, read_row_groups, value_width

_TESTED = ("parquet-cpp-arrow version 25.", "parquet-cpp-arrow version 26.")
"""The writers whose statistics were compared with those of a decoded merge."""

CODECS: Mapping[str, int] = {"none": 0, "snappy": 1, "gzip": 2, "brotli": 4, "zstd": 6, "lz4": 7}
"""Parquet's numbers of codecs, by the names that pyarrow takes. Its "lz4" is `LZ4_RAW`."""
_ENCODINGS = frozenset({0, 2, 3, 4, 8})
"""PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED, RLE_DICTIONARY: those that every reader decodes."""
_LARGEST_OFFSET_INDEX = 1024 * 1024
"""Some tens of thousands of pages. They take a hundred times the memory while they are decoded."""
_TYPE, _REPETITION, _NAME, _CHILDREN, _FIELD_ID = 1, 3, 4, 5, 9
_OPTIONAL, _REPEATED = 1, 2
_PATH, _VALUES, _PAGES = 3, 5, 13
_STATISTICS, _NULLS, _BOUNDS = 12, 3, (1, 2, 5, 6)
_SIZES, _TEXT_BYTES, _REPETITIONS, _DEFINITIONS = 16, 1, 2, 3
_BOOLEAN, _BYTES = 0, 6
_PLAIN = 0


class LeafColumn(NamedTuple):
    """A leaf of a schema: its element, its path, and its greatest repetition and definition levels."""

    element: Struct
    path: list[bytes]
    repeated: int
    defined: int


@dataclass(frozen=True, slots=True)
class FileLayout:
    """What the file must be like that row groups are copied into."""

    footer: Footer
    """Of a file of the same writer."""
    columns: tuple[LeafColumn, ...]
    """The leaves of its schema."""
    codec: int
    filtered: frozenset[int]
    """The places of the leaves that have a bloom filter."""
    by_names: bool
    """Whether the columns of a file without field ids have the names that the table's have."""

    @property
    def needs_checksums(self) -> bool:
        """Whether pages are copied only with checksums: of lists and maps no header shows that levels are
        damaged, and a list more is read as one of the next row group.
        """
        return any(column.repeated for column in self.columns)


def layout_of(schema: pa.Schema, parquet: ParquetSettings, *, by_names: bool) -> FileLayout:
    """Return what files of a table are like that its own writer writes, by one without rows. `by_names` as in
    `FileLayout`.
    """
    written = BytesIO()
    pq.ParquetWriter(written, schema, store_schema=False, store_decimal_as_integer=True).close()
    footer = read_row_groups(written).footer
    return FileLayout(
        footer=footer,
        columns=tuple(_leaves(iter(footer.schema))),
        codec=CODECS[parquet.compression],
        filtered=frozenset(
            place for place, leaf in enumerate(leaves(schema)) if leaf.field_id in parquet.bloom_filters
        ),
        by_names=by_names,
    )


def is_tested(created_by: str) -> bool:
    """Return whether the statistics of a writer are known to be those of the rows."""
    return created_by.startswith(_TESTED)


def why_none_is_copied(footer: Footer, layout: FileLayout) -> str:
    """Return why no row group of the file can be copied, "" where some may be."""
    wanted = layout.footer
    if not is_tested(footer.created_by):
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
    if len(group.chunks) != len(layout.columns):
        return f"it has {len(group.chunks):,} columns, not {len(layout.columns):,}"
    for place, (chunk, column) in enumerate(zip(group.chunks, layout.columns, strict=True)):
        leaf, path = column.element, column.path
        meta: Struct = chunk.fields[3].value
        if meta[_TYPE].value != leaf[_TYPE].value:
            return "a column chunk is of another type than its column"
        if _PATH not in meta or meta[_PATH].value.items != path:
            return "a column chunk is of another column"
        if meta[4].value != layout.codec:
            return "it is compressed otherwise than the table's files"
        if not _ENCODINGS.issuperset(meta[2].value.items) or not _are_known(meta.get(_PAGES)):
            return "a column is encoded as not every reader knows"
        if leaf[_TYPE].value == _BOOLEAN and _PLAIN not in meta[2].value.items:
            return "a column of booleans is encoded as not every reader knows"
        index = chunk.offset_index
        if index is not None and index.end - index.begin > _LARGEST_OFFSET_INDEX:
            return "it has too many pages"
        if _STATISTICS not in meta or _NULLS not in meta[_STATISTICS].value:
            return "a column has no statistics"
        if not column.repeated and meta[_VALUES].value != group.rows:
            return "a column has values of other rows than its row group"
        if not 0 <= meta[_STATISTICS].value[_NULLS].value <= meta[_VALUES].value:
            return "a column has more nulls than values"
        if not _fits(meta, column):
            return "the statistics of a column are not of its type"
        if (chunk.bloom_filter is not None) != (place in layout.filtered):
            return "it has other bloom filters than the table's files"
    return ""


def may_be_asked(footer: Footer) -> bool:
    """Return whether pyarrow may be asked for the statistics of a file: it ends the process for some that are
    not of the type of their column.
    """
    try:
        columns = tuple(_leaves(iter(footer.schema)))
        return all(
            chunk.fields[3].value[_TYPE].value == column.element[_TYPE].value
            and _fits(chunk.fields[3].value, column)
            for group in footer.groups
            for chunk, column in zip(group.chunks, columns, strict=True)
        )
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError):
        return False


def _are_known(pages: Field | None) -> bool:
    """Return whether the kinds of pages that a chunk counts are known: some readers refuse the file for one
    that is not.
    """
    if pages is None:
        return True
    known = (range(4), _ENCODINGS)  # the last kind of a page is a data page of version 2
    return pages.value.kind == STRUCT and all(
        each.keys() == {1, 2, 3}
        and all(each[at].kind == I32 and each[at].value in known[at - 1] for at in (1, 2))
        for each in pages.value.items
    )


def _leaves(
    elements: Iterator[Struct], above: tuple[bytes, ...] = (), repeated: int = 0, defined: int = 0
) -> Iterator[LeafColumn]:
    """Yield the leaves below the next element of a schema. `above`: the path of that element."""
    element = next(elements)
    kind = element[_REPETITION].value if _REPETITION in element else 0
    repeated, defined = repeated + (kind == _REPEATED), defined + (kind in (_OPTIONAL, _REPEATED))
    if _CHILDREN not in element:
        yield LeafColumn(element, [*above[1:], element[_NAME].value], repeated, defined)
        return
    for _ in range(element[_CHILDREN].value):
        yield from _leaves(elements, (*above, element[_NAME].value), repeated, defined)


def _fits(meta: Struct, column: LeafColumn) -> bool:
    """Return whether statistics are of a column's type: pyarrow ends the process on access to others."""
    leaf = column.element
    kind = leaf[_TYPE].value
    width = value_width(leaf)
    stated: Struct = meta[_STATISTICS].value if _STATISTICS in meta else {}
    if width is not None and any(len(stated[it].value) != width for it in _BOUNDS if it in stated):
        return False
    sizes: Struct = meta[_SIZES].value if _SIZES in meta else {}
    if _TEXT_BYTES in sizes and kind != _BYTES:
        return False
    return all(
        len(sizes[it].value.items) in (0, levels + 1)
        for it, levels in ((_REPETITIONS, column.repeated), (_DEFINITIONS, column.defined))
        if it in sizes
    )
