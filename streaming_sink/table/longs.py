"""How `parse_json` marks a column of text with whole numbers beyond an int, which the table is to hold."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import types as spark

_LONGS = "streaming-sink.longs"
"""A key of a column's metadata, which is kept where a batch is filtered, say; where it is lost, the table is
not widened, and `mismatch` decides of its numbers too."""


def with_longs(column: str, paths: Iterable[tuple[str, ...]]) -> Mapping[str, Any] | None:
    """Return the metadata of a column of a batch, whose text holds whole numbers beyond an int at those of
    the paths that are in it; None where none is.
    """
    inside = sorted(path[1:] for path in paths if path[0] == column)
    return {_LONGS: json.dumps(inside)} if inside else None


def find_longs(batch: spark.StructType) -> frozenset[tuple[str, ...]]:
    """Return the paths of a batch at which its text holds whole numbers beyond an int."""
    return frozenset(
        (field.name, *inside)
        for field in batch.fields
        for inside in json.loads(field.metadata.get(_LONGS, "[]"))
    )
