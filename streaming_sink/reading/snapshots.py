"""The snapshots that a head keeps, and what each added and removed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from streaming_sink.reports.batch_report import reports_of
from streaming_sink.reports.cluster_report import PLAN_ID
from timeline.properties import ROLLED_BACK_TO, VERSION
from timeline.versions.head import Head
from timeline.versions.staged import wap_id_of
from timeline.versions.version_file import stated_by


@dataclass(frozen=True, kw_only=True)
class SnapshotDetails:
    """One snapshot. A count that its summary does not state is 0, as Iceberg leaves out zeros."""

    snapshot_id: int
    time_ms: int
    operation: str
    version: int | None
    """The version that committed it; in a catalog its sequence number, also of another engine's. None for
    one that was made elsewhere before the table was at its location, or that has no number.
    """
    added_files: int
    removed_files: int
    added_rows: int
    removed_rows: int
    app_id: str | None
    """Of the batch whose version it belongs to: its rows, or the merges beside them. None for clustering, and
    for other writers.
    """
    batch_id: int | None
    plan_id: str | None
    """The clustering plan that was executed."""
    rolled_back_to: int | None = None
    """The snapshot whose content a rollback gave the table again."""


def list_snapshots(head: Head) -> list[SnapshotDetails]:
    """Return the snapshots of the head's metadata, newest first, without those that were staged."""
    return list(_snapshots(head))[::-1]


def _snapshots(head: Head) -> Iterator[SnapshotDetails]:
    batches = {report.version: report for report in reports_of(head)}
    for snapshot in head.metadata.snapshots:
        if wap_id_of(snapshot) is not None:
            continue
        stated, summary = stated_by(snapshot), snapshot.summary
        of_catalog = snapshot.sequence_number if head.version.is_shared else None
        version = _number(stated, VERSION) or of_catalog or None  # 0 was before a table had sequence numbers
        batch = batches.get(version) if version else None
        yield SnapshotDetails(
            snapshot_id=snapshot.snapshot_id,
            time_ms=snapshot.timestamp_ms,
            operation="" if summary is None else summary.operation.value,
            version=version,
            added_files=_number(stated, "added-data-files") or 0,
            removed_files=_number(stated, "deleted-data-files") or 0,
            added_rows=_number(stated, "added-records") or 0,
            removed_rows=_number(stated, "deleted-records") or 0,
            app_id=None if batch is None else batch.app_id,
            batch_id=None if batch is None else batch.batch_id,
            plan_id=stated.get(PLAN_ID),
            rolled_back_to=_number(stated, ROLLED_BACK_TO),
        )


def _number(stated: Mapping[str, str], key: str) -> int | None:
    text = stated.get(key, "")
    return int(text) if text.isdecimal() else None
