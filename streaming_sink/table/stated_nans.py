"""How many NaNs the manifests state of files that are merged: what no footer says of their row groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyiceberg.types import DoubleType, FloatType

from streaming_sink.table.parquet_properties import leaf_names, parquet_settings
from timeline.versions.head import Head


def stated_nans(head: Head, paths: Iterable[str]) -> Mapping[str, Mapping[int, int]]:
    """Return the NaNs of those files whose row groups may be copied, by their locations and the field ids of
    columns; of no file where the table has no column that could hold one.
    """
    schema, properties = head.schema, head.properties
    kinds = {type(schema.find_type(field_id)) for _, field_id in leaf_names(schema)}
    if kinds.isdisjoint((FloatType, DoubleType)):
        return {}
    least = parquet_settings(properties).copied_from_bytes
    entries = head.find_entries(paths)
    return {
        path: dict(file.nan_value_counts or {})
        for path, file in entries.items()
        if file.file_size_in_bytes >= least
    }
