"""What a strategy that rewrites file by file has to change in a file: all others are left alone."""

from __future__ import annotations

from collections.abc import Callable

from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema

from planners.clustering.plan import Strategy
from streaming_sink.table.parquet_properties import leaf_names
from streaming_sink.tasks.clustering.encrypting import Encrypt

Outdated = Callable[[DataFile], str | None]
"""Says in words what there is to change in a file; None for nothing."""


def outdated(strategy: Strategy, schema: Schema) -> Outdated:
    """Return what tells the files that a strategy of `FILE_BY_FILE` has to rewrite.

    ValueError for parameters that do not fit the table.
    """
    if strategy.name == "drop_columns":
        return _with_dropped_columns(schema)
    return _under_other_keys(Encrypt(dict(strategy.parameters)), schema)


def _with_dropped_columns(schema: Schema) -> Outdated:
    """A manifest tells the columns of a file by the statistics that it has of them, whatever their mode."""
    current = schema.field_ids

    def said(file: DataFile) -> str | None:
        gone = sorted({*(file.column_sizes or {}), *(file.value_counts or {})} - current)
        return f"hold columns that the table dropped, fields {', '.join(map(str, gone))}" if gone else None

    return said


def _under_other_keys(encrypt: Encrypt, schema: Schema) -> Outdated:
    wanted = encrypt.key_names(leaf_names(schema)).to_bytes()

    def said(file: DataFile) -> str | None:
        if file.key_metadata == wanted:
            return None
        return "are not encrypted" if file.key_metadata is None else "are encrypted under other keys"

    return said
