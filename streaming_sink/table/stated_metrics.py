"""What manifests state of files that are merged: NaNs, of which no footer says anything, and bounds, by which
a footer is checked before its row groups are copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streaming_sink.table.parquet_properties import parquet_settings
from streaming_sink.tasks.files.metrics import ColumnMetrics
from timeline.versions.head import Head


def stated_metrics(head: Head, paths: Iterable[str]) -> Mapping[str, ColumnMetrics]:
    """Return the NaNs and bounds of those files whose row groups may be copied, by their locations."""
    least = parquet_settings(head.properties).copied_from_bytes
    return {
        path: ColumnMetrics(
            nans=dict(file.nan_value_counts or {}),
            lower=dict(file.lower_bounds or {}),
            upper=dict(file.upper_bounds or {}),
        )
        for path, file in head.find_entries(paths).items()
        if file.file_size_in_bytes >= least
    }
