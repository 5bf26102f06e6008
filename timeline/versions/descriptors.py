"""A data file's manifest entry as JSON: all that an append needs, exact for every type of partition value."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from timeline.manifests.partition_values import read_value, spell_value

Raw = bytes
_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")
_NUMBERS = ("record_count", "file_size_in_bytes", "spec_id")


def describe_file(file: DataFile) -> dict[str, Any]:
    """Return a data file as values that JSON holds; what is not stated of it is left out."""
    described: dict[str, Any] = {
        "path": file.file_path,
        "partition": [spell_value(file.partition[position]) for position in range(len(file.partition))],
    }
    described |= {name: getattr(file, name) for name in _NUMBERS}
    described |= {name: dict(value) for name in _COUNTS if (value := getattr(file, name))}
    for name in _BOUNDS:
        if bounds := getattr(file, name):
            described[name] = {field: b64encode(bound).decode() for field, bound in bounds.items()}
    if file.split_offsets:
        described["split_offsets"] = list(file.split_offsets)
    if file.sort_order_id:
        described["sort_order_id"] = file.sort_order_id
    if file.key_metadata:
        described["key_metadata"] = b64encode(file.key_metadata).decode()
    return described


def read_descriptor(described: Mapping[str, Any]) -> DataFile:
    """Return the data file that `describe` described. KeyError, TypeError or ValueError for anything else."""
    by_field: dict[str, Any] = {name: _by_field(described.get(name, {}), int) for name in _COUNTS}
    by_field |= {name: _by_field(described.get(name, {}), b64decode) for name in _BOUNDS}
    key_metadata = described.get("key_metadata")
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=described["path"],
        file_format=FileFormat.PARQUET,
        partition=Record(*(read_value(value) for value in described["partition"])),
        record_count=int(described["record_count"]),
        file_size_in_bytes=int(described["file_size_in_bytes"]),
        **by_field,
        key_metadata=None if key_metadata is None else b64decode(key_metadata),
        split_offsets=described.get("split_offsets"),
        equality_ids=None,
        sort_order_id=described.get("sort_order_id", 0),
    )
    file.spec_id = int(described["spec_id"])
    return file


def to_json(value: object) -> str:
    """Return a value as compact JSON of one line."""
    return json.dumps(value, separators=(",", ":"))


def _by_field(stored: Mapping[str, Any], read: Callable[[Any], Any]) -> dict[int, Any]:
    return {int(field): read(value) for field, value in stored.items()}
