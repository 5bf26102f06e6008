"""Batch reports: rows, files, bytes, milliseconds and reasons; `history` reads them back from the table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar

from planners.sizing import count_text, size_text
from streaming_sink.options.values.tables import AnyTable, CatalogTable, as_table
from streaming_sink.reports.cluster_report import ClusterReport
from streaming_sink.reports.maintenance_report import FillReport, MirrorReport
from timeline.retention.policy import snapshot_version
from timeline.versions.head import Head
from timeline.versions.staged import wap_id_of
from timeline.versions.version_file import stated_by

_PREFIX = "streaming-sink.batch."
QUERY_ID = "spark.sql.streaming.queryId"
EPOCH_ID = "spark.sql.streaming.epochId"
FILL = "streaming-sink.fill"
"""In the summary of a replace that filled beside the stream: it is in no version with an append."""


@dataclass(frozen=True, kw_only=True)
class BatchReport:
    """The result of one micro-batch. Sizes in bytes, times in milliseconds."""

    kind: ClassVar[str] = "batch"
    table: str = ""
    """The table's location."""
    app_id: str
    batch_id: int
    outcome: str
    """"committed"; "skipped" (committed before, this was a replay); or "empty" (no rows, so nothing was
    published).
    """
    why: str = ""
    """Reasons: how rows were planned, and what was dropped or shortened."""
    version: int | None = None
    rows: int = 0
    """Rows that are in the table: without those that were quarantined or dropped."""
    quarantined: int = 0
    dropped: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)
    """Check → the rows that failed it, most first: the text of an expectation, for example."""
    changes: Mapping[str, int] = field(default_factory=dict)
    """What became of the changes of a batch: "inserted", "updated", "deleted", "absent" (deletes of keys that
    the table does not hold), "late", "unchanged", "superseded" (the batch has a newer one of its key), "tied"
    (of one sequence) and "repeated" (keys of which others had inserted several rows); and, counted as one of
    these already, "withdrawn" (another writer has committed a newer one before this batch). Empty where rows
    are only added.
    """
    new_files: int = 0
    new_bytes: int = 0
    filled_files: int = 0
    """Small files that the merges of this batch replaced."""
    merged_files: int = 0
    merged_bytes: int = 0
    """Bytes of merged files: what filling wrote in addition to the new rows."""
    dropped_fills: int = 0
    """Fills whose inputs another commit replaced, or that had too few rows; their rows are committed, as new
    files.
    """
    expired_snapshots: int = 0
    """Snapshots that left the metadata by age or number; their files go after the grace period."""
    deleted_files: int = 0
    """Files deleted after this commit: those of long-expired snapshots, and old version files."""
    deleted_bytes: int = 0
    small_files: int = 0
    """Live files below the small-file limit after the batch, in the partitions that it touched. The limit is
    that of filling; that of clustering where nothing is filled.
    """
    warning: str = ""
    """Set if a partition has more small files than `warn_small_files`; the log line is then a warning. Not
    stored in the table.
    """
    planned_by: str = ""
    """"forecast"; "profile" (counted); "size" (nothing was known, and nothing to fill); "bulk_insert"; or
    "files" (a work item whose files were consolidated)."""
    route: str = ""
    """"one task", "2 tasks" (or more) without a shuffle, "shuffle", or "as read"."""
    maintenance: tuple[FillReport | ClusterReport | MirrorReport, ...] = ()
    """What was done for the table since the batch before: passes of fills and of clustering, in this batch or
    beside the stream, and what became of its mirror. Not stored in the table.
    """
    problem: str = ""
    """Why maintenance after the commit failed. Not stored in the table."""
    writes: int = 0
    """How often the batch was planned and written: again after a conflict with another writer's commit."""
    attempts: int = 0
    """Attempts of the commit; each but the last lost a race to another writer, and wrote metadata again."""
    milliseconds: Mapping[str, int] = field(default_factory=dict)
    """Step → milliseconds: head, profile, plan, write, commit, cluster if a pass was due, fill if the batch
    waited for one, and total."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that `json.dumps` takes."""
        return {"kind": self.kind, **asdict(self), "maintenance": [it.to_dict() for it in self.maintenance]}

    def line(self) -> str:
        """Return the report as one line of a log."""
        steps = " ".join(f"{step}={ms}" for step, ms in self.milliseconds.items())
        if self.outcome != "committed":
            return f"batch {self.batch_id} of {self.app_id} {self.outcome}: {self.why} [ms {steps}]"
        filled = (
            f", filled {self.filled_files} into {self.merged_files} ({size_text(self.merged_bytes)})"
            if self.merged_files
            else ""
        )
        retried = f", {self.attempts} attempts" if self.attempts > 1 else ""
        expired = (
            f", expired {count_text(self.expired_snapshots, 'snapshot')}" if self.expired_snapshots else ""
        )
        deleted = (
            f", deleted {count_text(self.deleted_files, 'file')} ({size_text(self.deleted_bytes)})"
            if self.deleted_files
            else ""
        )
        maintained = "".join(f"; {it.line()}" for it in self.maintenance)
        problem = f"; {self.problem}" if self.problem else ""
        why = f": {self.why}" if self.why else ""
        warning = f"; warning: {self.warning}" if self.warning else ""
        return (
            f"batch {self.batch_id} of {self.app_id} committed as version {self.version}:"
            f" {count_text(self.rows, 'row')} in {count_text(self.new_files, 'file')}"
            f" ({size_text(self.new_bytes)}){self._changed()}{self._set_aside()}"
            f"{filled}, by {self.planned_by} and {self.route}{retried}{expired}{deleted}{maintained}"
            f"{problem} [ms {steps}]{why}{warning}"
        )

    def with_withdrawn(self, count: int) -> BatchReport:
        """Return it with so many changes that another writer's newer ones have withdrawn."""
        return replace(self, changes={**self.changes, "withdrawn": count}) if count else self

    def _changed(self) -> str:
        """Return what became of changes by key, as a part of the line; "" for rows that were only added."""
        if not self.changes:
            return ""
        return f" [{', '.join(f'{count:,} {name}' for name, count in self.changes.items())}]"

    def _set_aside(self) -> str:
        """Return what became of rows that failed checks, as a part of the line; "" where none did."""
        if not self.failed:
            return ""
        checks = ", ".join(f"{check}: {rows}" for check, rows in self.failed.items())
        return f", {count_text(self.quarantined, 'row')} quarantined and {self.dropped:,} dropped ({checks})"

    def to_summary(self) -> dict[str, str]:
        """Return the figures that are known before the commit, as entries of the snapshot's summary."""
        kept = (
            "app_id",
            "batch_id",
            "why",
            "rows",
            "new_files",
            "new_bytes",
            "filled_files",
            "merged_files",
            "merged_bytes",
            "planned_by",
            "route",
        )
        entries = {_PREFIX + name.replace("_", "-"): str(getattr(self, name)) for name in kept}
        if self.failed:
            entries[_PREFIX + "quarantined"] = str(self.quarantined)
            entries[_PREFIX + "dropped"] = str(self.dropped)
            entries[_PREFIX + "failed"] = _json(self.failed)
        if self.changes:
            entries[_PREFIX + "changes"] = _json(self.changes)
        return {**entries, _PREFIX + "milliseconds": _json(self.milliseconds)}


def history(table: AnyTable) -> list[BatchReport]:
    """Return the reports of the batches whose snapshots the table still has, oldest first. From any client,
    Spark Connect's included.

    Raises TableNotFoundError where there is no table, StoreUnavailableError where it cannot be read.
    """
    asked = as_table(table)
    found = reports_of(asked.open().head)
    if isinstance(asked, CatalogTable):  # called as the sink's own reports call it
        return [replace(report, table=asked.location) for report in found]
    return list(found)


def reports_of(head: Head) -> Iterator[BatchReport]:
    """Yield a report for every batch, and work item, whose append snapshot the table still has, oldest first;
    none of what is staged.

    Figures known only after the commit (attempts, milliseconds of the commit) are not stored, and are 0 or
    absent.
    """
    types = {each.name: each.type for each in fields(BatchReport)}
    for snapshot in head.metadata.snapshots:
        summary = stated_by(snapshot)
        stored = {
            key.removeprefix(_PREFIX).replace("-", "_"): value
            for key, value in summary.items()
            if key.startswith(_PREFIX)
        }
        if "batch_id" not in stored or wap_id_of(snapshot) is not None:
            continue
        values: dict[str, Any] = {
            name: int(text) if types[name] == "int" else text
            for name, text in stored.items()
            if name in types
        }
        for name in ("milliseconds", "failed", "changes"):
            values[name] = json.loads(stored.get(name, "{}"))
        version = snapshot_version(snapshot)
        yield BatchReport(table=head.metadata.location, outcome="committed", version=version, **values)


def _json(counts: Mapping[str, int]) -> str:
    return json.dumps(dict(counts), separators=(",", ":"))
