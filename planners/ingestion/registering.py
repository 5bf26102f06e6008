"""Registering: which Parquet files become data files of a table as they are, by what their footers say.

All others are consolidated: read, and written again in the table's own way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planners.sizing import FileSizing, full_file_bytes

_CODECS = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"})
_ENCODINGS = frozenset({"PLAIN", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "RLE", "BIT_PACKED"})
"""Those of format version 1, which every reader decodes; Iceberg's vectorised reader stops at others."""
_LEAST_GROUP_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of the table, as its own writer encodes it."""

    name: str
    kind: str
    """Its physical and logical type; "" for a nested one."""
    field_id: int
    required: bool


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column of a Parquet file, over all its row groups."""

    name: str
    kind: str
    """As `TableColumn.kind`."""
    field_id: int | None
    nulls: int | None
    """None where the footer does not say."""
    codecs: frozenset[str]
    encodings: frozenset[str]


@dataclass(frozen=True, slots=True)
class FileFooter:
    """What is known of a file before its rows are read."""

    bytes: int
    partitions: int
    """Of how many partitions of the table its rows are."""
    group_rows: tuple[int, ...]
    columns: tuple[FileColumn, ...]
    absent: tuple[str, ...] = ()
    """Columns whose values its path states, and columns of the table's partitions, that the file lacks."""


def is_large_enough(size: int, sizing: FileSizing) -> bool:
    """Return whether a file has the size of a full one; all others are rewritten."""
    return full_file_bytes(sizing) <= size <= sizing.max_file_bytes


def why_rewritten(file: FileFooter, table: Sequence[TableColumn], sizing: FileSizing) -> str | None:
    """Return why a file cannot be registered as it is; None where it can.

    A file is registered where it is as large as a full file, and no larger than the maximum; where all its
    rows are of one partition; and where every reader of Iceberg finds each of its columns by the table's name
    mapping, in the type that the table's own writer would have written. Columns of the table that it lacks
    are null in its rows.
    """
    if not is_large_enough(file.bytes, sizing):
        return "its size is not that of a full file"
    if file.partitions != 1:
        return f"its rows are of {file.partitions} partitions"
    if file.absent:
        return f"it lacks a column by which it is partitioned: {file.absent[0]}"
    if not file.group_rows or min(file.group_rows) <= 0:
        return "it has row groups without rows"
    if len(file.group_rows) > max(1, file.bytes // _LEAST_GROUP_BYTES):
        return f"it has {len(file.group_rows)} row groups, of less than a megabyte each"
    names = [column.name for column in file.columns]
    if len(set(names)) < len(names):
        return "two of its columns have one name"
    known = {column.name: column for column in table}
    for column in file.columns:
        why = _why_column_is_rewritten(column, known.get(column.name))
        if why is not None:
            return f"{why}: {column.name}"
    for wanted in table:
        if wanted.required and wanted.name not in names:
            return f"it lacks a required column: {wanted.name}"
    ids = {column.name: column.field_id for column in file.columns if column.field_id is not None}
    if ids and ids != {name: known[name].field_id for name in names}:
        return "its columns have other field ids than the table's"
    return None


def _why_column_is_rewritten(column: FileColumn, wanted: TableColumn | None) -> str | None:
    if wanted is None:
        return "the table does not have a column of it"
    if not wanted.kind or column.kind != wanted.kind:
        return f"a column is stored as {column.kind or 'nested values'}, and the table's is not"
    if column.nulls is None:
        return "a column has no statistics"
    if wanted.required and column.nulls:
        return "a required column has nulls"
    if not column.codecs <= _CODECS:
        return f"a column is compressed by {', '.join(sorted(column.codecs - _CODECS))}"
    if not column.encodings <= _ENCODINGS:
        return f"a column is encoded as {', '.join(sorted(column.encodings - _ENCODINGS))}"
    if column.kind.startswith("BOOLEAN") and "PLAIN" not in column.encodings:
        return "a column of booleans is encoded as RLE"
    return None
