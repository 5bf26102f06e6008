"""Which table properties a sink may give to its table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streaming_sink.table.parquet_properties import parquet_settings
from timeline.properties import check_properties

_RESERVED = frozenset(
    {
        "current-schema",
        "current-snapshot-id",
        "current-snapshot-summary",
        "current-snapshot-timestamp-ms",
        "default-partition-spec",
        "default-sort-order",
        "snapshot-count",
        "uuid",
    }
)
"""Iceberg's Java library derives these from the metadata; a table that also stores them contradicts itself
(`TableProperties.RESERVED_PROPERTIES`)."""
_FIXED = {
    "encryption.key-id": "",
    "format-version": "2",
    "schema.name-mapping.default": "",
    "write.data.path": "",
    "write.folder-storage.path": "",
    "write.format.default": "parquet",
    "write.location-provider.impl": "",
    "write.metadata.compression-codec": "none",
    "write.object-storage.enabled": "false",
    "write.object-storage.path": "",
}
"""Properties that have one valid value in a table of this sink, or none (""): its format version is 2, it has
its own name mapping, its metadata is not compressed, and its data is Parquet below the table's location."""


def check_table_properties(given: Any) -> None:
    if not isinstance(given, Mapping):
        raise TypeError(f"table_properties must be a dict of text to text, not {given!r}")
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"table_properties must map text to text; {key!r} maps to {value!r}")
    check_properties(given)
    for key, value in given.items():
        _check_is_consistent(key, value)
    parquet_settings(given)


def _check_is_consistent(key: str, value: str) -> None:
    """Raise ValueError for a property that contradicts every table of this sink."""
    if key in _RESERVED:
        raise ValueError(
            f"table property {key} is reserved by Iceberg, which derives it from the metadata; leave it out"
            " of table_properties"
        )
    if key in _FIXED and value.lower() != _FIXED[key]:
        can_be = f"can only be {_FIXED[key]!r}" if _FIXED[key] else "cannot be set"
        raise ValueError(
            f"table property {key} {can_be}, and is {value!r}: a table of this sink has format version 2, a"
            " name mapping of its own, plain metadata, and Parquet files below its location; leave it out of"
            " table_properties"
        )
