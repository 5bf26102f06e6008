"""Compares what a Parquet file states of the values of its columns with the rows that were read of it.
Readers pass over row groups and pages by what is stated.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from decimal import Context
from itertools import pairwise
from math import isnan
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming_sink.tasks.leaves import Leaf, as_integers, leaf_values
from streaming_sink.tasks.row_groups.compact import CompactError, Struct, decode_struct
from streaming_sink.tasks.row_groups.footer import StoredChunk, StoredGroup, StoredGroups

_PLAIN: Mapping[int, str] = {0: "<?", 1: "<i", 2: "<q", 4: "<f", 5: "<d"}
"""How Parquet stores a bound of its physical types; that of others is bytes already."""
_ALL_DIGITS = Context(prec=80)
_TYPE, _EMPTY, _LEAST, _GREATEST, _NULLS = 1, 1, 2, 3, 5


class ValueRange(NamedTuple):
    """The least and the greatest of some values, as Parquet stores them; of decimals the unscaled integer."""

    least: Any
    greatest: Any


class _Part(NamedTuple):
    """Some values of a column, one after the other."""

    rows: int
    nulls: int
    range: ValueRange | None
    """None where all are null or no numbers."""


class GroupValues:
    """What the rows of a row group hold in some columns. Lists and maps are not looked into."""

    def __init__(self, columns: Sequence[Leaf]) -> None:
        self._columns = columns
        self._rows = 0
        self._parts: list[list[_Part]] = [[] for _ in columns]

    def add(self, batch: pa.RecordBatch) -> None:
        """Take note of rows, which are in the table's schema."""
        self._rows += batch.num_rows
        for leaf, parts in zip(self._columns, self._parts, strict=True):
            if not leaf.repeated:
                parts.append(_part_of(leaf_values(pa.chunked_array([batch.column(leaf.path[0])]), leaf)))

    def add_pages(self, rows: pa.Table, group: StoredGroup) -> None:
        """Take note of all rows of a row group, by page where it is known where pages begin."""
        self._rows += rows.num_rows
        for chunk, leaf, parts in zip(group.chunks, self._columns, self._parts, strict=True):
            if not leaf.repeated:
                values = leaf_values(rows.column(leaf.path[0]), leaf)
                first = [page.first_row for page in chunk.pages or ()] or [0]
                cuts = pairwise([*first, len(values)])
                parts += [_part_of(values.slice(begin, end - begin)) for begin, end in cuts]

    def why_misstated(self, group: pq.RowGroupMetaData) -> str:
        """Return what the footer states of the row group that is not so, "" where all is. Its columns are
        those that were given, in their order.
        """
        if group.num_rows != self._rows:
            return f"a row group states {group.num_rows:,} rows, and holds {self._rows:,}"
        for place, leaf in enumerate(self._columns):
            chunk, name, parts = group.column(place), leaf.parquet_path, self._parts[place]
            stated = None if leaf.repeated else chunk.statistics
            if stated is None:
                continue
            if chunk.num_values != self._rows:
                return f"{name} states {chunk.num_values:,} values in {self._rows:,} rows"
            nulls, found = sum(part.nulls for part in parts), _united(part.range for part in parts)
            if stated.has_null_count and stated.null_count != nulls:
                return f"{name} states {stated.null_count:,} nulls, and has {nulls:,}"
            bounds = ValueRange(stated.min_raw, stated.max_raw) if stated.has_min_max else None
            if bounds is not None and not _bounds(_typed(bounds, leaf.type), found, leaf.type):
                values = "none" if found is None else f"{found.least!r} to {found.greatest!r}"
                return f"{name} states values from {bounds.least!r} to {bounds.greatest!r}, and has {values}"
        return ""

    def misstates_a_page(self, stored: StoredGroups, group: StoredGroup) -> bool:
        """Return whether a column index of a row group does not hold for its pages, which were added."""
        return any(
            chunk.column_index is not None and not _are_stated(stored, chunk, parts, leaf)
            for chunk, leaf, parts in zip(group.chunks, self._columns, self._parts, strict=True)
            if not leaf.repeated
        )


def _are_stated(stored: StoredGroups, chunk: StoredChunk, pages: Sequence[_Part], leaf: Leaf) -> bool:
    assert chunk.column_index is not None
    try:
        index, _ = decode_struct(stored.indexes, chunk.column_index.begin - stored.footer.indexes.begin)
        kind = chunk.fields[3].value[_TYPE].value
        return all(_is_stated(index, place, page, leaf, kind) for place, page in enumerate(pages))
    except (CompactError, LookupError, TypeError, AttributeError, struct.error):
        return False


def _is_stated(index: Struct, place: int, page: _Part, leaf: Leaf, kind: int) -> bool:
    if _NULLS in index and index[_NULLS].value.items[place] != page.nulls:
        return False
    if index[_EMPTY].value.items[place]:
        return page.nulls == page.rows
    least, greatest = (
        struct.unpack(_PLAIN[kind], data)[0] if kind in _PLAIN else data
        for data in (bytes(index[number].value.items[place]) for number in (_LEAST, _GREATEST))
    )
    return _bounds(_typed(ValueRange(least, greatest), leaf.type), page.range, leaf.type)


def _part_of(values: pa.ChunkedArray) -> _Part:
    return _Part(len(values), values.null_count, _range_of(values))


def _range_of(values: pa.ChunkedArray) -> ValueRange | None:
    found = pc.min_max(as_integers(values))
    least, greatest = found["min"].as_py(), found["max"].as_py()
    if least is None or (isinstance(least, float) and isnan(least)):
        return None
    if pa.types.is_decimal(values.type):
        scale = values.type.scale
        return ValueRange(*(int(_ALL_DIGITS.scaleb(each, scale)) for each in (least, greatest)))
    if pa.types.is_string(values.type):
        return ValueRange(least.encode(), greatest.encode())
    return ValueRange(least, greatest)


def _united(ranges: Iterable[ValueRange | None]) -> ValueRange | None:
    known = [each for each in ranges if each is not None]
    if not known:
        return None
    return ValueRange(min(each.least for each in known), max(each.greatest for each in known))


def _typed(stated: ValueRange, kind: pa.DataType) -> ValueRange:
    """Return bounds with decimals as integers: in some files these are bytes."""
    if pa.types.is_decimal(kind) and isinstance(stated.least, bytes):
        return ValueRange(*(int.from_bytes(each, "big", signed=True) for each in stated))
    return stated


def _bounds(stated: ValueRange, found: ValueRange | None, kind: pa.DataType) -> bool:
    """Return whether bounds are those of values. Writers may cut off texts and bytes; other bounds have to be
    exact, since engines answer MIN and MAX by them.
    """
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return found is None or (stated.least <= found.least and stated.greatest >= found.greatest)
    if pa.types.is_floating(kind) and any(map(isnan, stated)):
        return True  # NaN, of another writer: it bounds nothing
    return found is not None and stated == found
