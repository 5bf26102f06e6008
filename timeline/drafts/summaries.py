"""Snapshot summaries, computed from the files themselves: what a stream reader trusts must be exact (R21)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotSummaryCollector, Summary

from timeline.versions.version_file import stated_by

_TOTALS = {
    "total-data-files": ("added-data-files", "deleted-data-files"),
    "total-delete-files": ("added-delete-files", "removed-delete-files"),
    "total-records": ("added-records", "deleted-records"),
    "total-files-size": ("added-files-size", "removed-files-size"),
    "total-position-deletes": ("added-position-deletes", "removed-position-deletes"),
    "total-equality-deletes": ("added-equality-deletes", "removed-equality-deletes"),
}


def summarise(
    operation: Operation,
    added: Iterable[DataFile],
    removed: Iterable[DataFile],
    previous: Snapshot | None,
    schema: Schema,
    specs: Mapping[int, PartitionSpec],
) -> dict[str, str]:
    """Return the counts of one snapshot and the totals after it.

    A total that the previous snapshot does not state stays unstated, as Iceberg does.
    """
    collector = SnapshotSummaryCollector()
    for file in added:
        collector.add_file(file, schema, specs[file.spec_id])
    for file in removed:
        collector.remove_file(file, schema, specs[file.spec_id])
    counts: dict[str, str] = {"operation": operation.value, **collector.build()}
    before: Mapping[str, str] = dict.fromkeys(_TOTALS, "0")
    if previous is not None:
        before = stated_by(previous)
    for total, (plus, minus) in _TOTALS.items():
        if (known := before.get(total)) is not None:
            counts[total] = str(int(known) + int(counts.get(plus, 0)) - int(counts.get(minus, 0)))
    return counts


def with_extra(counts: Mapping[str, str], extra: Mapping[str, str]) -> Summary:
    """Return the summary with the writer's own entries; they never replace a count."""
    merged = {**extra, **counts}
    return Summary(Operation(merged.pop("operation")), **merged)


def stating(snapshot: Snapshot, extra: Mapping[str, str]) -> Snapshot:
    """Return a snapshot whose summary has these entries too."""
    assert snapshot.summary is not None
    stated = {**snapshot.summary.additional_properties, **extra}
    return snapshot.model_copy(update={"summary": Summary(snapshot.summary.operation, **stated)})
