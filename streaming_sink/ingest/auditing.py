"""Audits what is staged of a work item: expectations of its rows, and the user's function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from planners.ingestion.buffering import PlannedItem
from streaming_sink.reading.changes import changes_of
from streaming_sink.table.sql_names import quoted
from streaming_sink.tasks.files.change_task import ChangedRows
from streaming_sink.zones.audit import Audit, StagedItem
from streaming_sink.zones.errors import AuditFailedError
from streaming_sink.zones.stored_zone import StoredZone
from streaming_sink.zones.zone_options import KEPT
from timeline.errors import CommitStateUnknownError, StoreUnavailableError
from timeline.retention.policy import snapshot_version
from timeline.table import Table
from timeline.versions.staged import staged_files


def auditor_of(zone: StoredZone) -> Auditor | None:
    """Return what audits the items of a zone here; None for nothing. ValueError for a function that has no
    import.
    """
    stored, given = zone.definition.audit, zone.given_audit
    return None if stored is None else Auditor.of(stored, None if given is KEPT else given)


@dataclass(frozen=True)
class Auditor:
    """Audits the items of a zone in this process."""

    conditions: tuple[str, ...]
    function: Callable[[StagedItem], object] | None

    @classmethod
    def of(cls, stored: Mapping[str, Any], given: Audit | None) -> Auditor:
        """Return what audits as the zone's own file says; `given` is the audit that this process has given.

        ValueError for a function that this process cannot import: no item may pass without it.
        """
        own = None if given is None else given.function
        function = None if own is None or isinstance(own, str) else own
        if function is None and stored["function"]:
            function = _imported(stored["function"])
        return cls(tuple(stored["conditions"]), function)

    def audit(self, session: SparkSession, table: Table, item: PlannedItem, staged: Snapshot) -> None:
        """Raise AuditFailedError where the rows of a staged item meet not what they must."""
        if not self.conditions and self.function is None:
            return
        rows = rows_of(session, table, staged)
        try:
            for text, count in _unmet(rows, self.conditions).items():
                rows_do = "1 row does" if count == 1 else f"{count:,} rows do"
                raise AuditFailedError(f"{rows_do} not meet {text}")
            if self.function is not None:
                sources = tuple(file.path for file in item.files)
                seen = StagedItem(item.number, table.store.location, staged.snapshot_id, rows, sources)
                if self.function(seen) is False:
                    raise AuditFailedError("the audit function has returned False")
        except (AuditFailedError, StoreUnavailableError, CommitStateUnknownError):
            raise
        except Exception as failure:
            raise AuditFailedError(
                f"{type(failure).__name__}: {' '.join(str(failure).split())[:500]}"
            ) from failure


def rows_of(session: SparkSession, table: Table, staged: Snapshot) -> DataFrame:
    """Return the rows that a staged snapshot has added, in the table's columns."""
    added = [
        ChangedRows(
            snapshot_version(staged),
            staged.snapshot_id,
            staged.timestamp_ms,
            file.file_path,
            added=True,
            deletes=(),
            rows=file.record_count,
        )
        for file in staged_files(table.head, staged)
    ]
    return changes_of(session, table, added).select(*_columns(table))


def _columns(table: Table) -> list[str]:
    return [quoted(field.name) for field in table.head.schema.fields]


def _unmet(rows: DataFrame, conditions: Sequence[str]) -> dict[str, int]:
    """Return how many rows do not meet an expectation, of those that are not met by all. One Spark job."""
    if not conditions:
        return {}
    counted = rows.select(*(sf.count_if(~sf.expr(text)) for text in conditions)).first()
    assert counted is not None
    return {text: count for text, count in zip(conditions, counted, strict=True) if count}


def _imported(name: str) -> Callable[[StagedItem], object]:
    module, _, path = name.partition(":")
    try:
        if module == "__main__":
            raise ImportError("it was given by another program")
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as failure:
        raise ValueError(
            f"the zone's audit is the function {name}, which this process cannot import, so it lands nothing:"
            f" put its module on the path, or give BufferZone(audit=...) the function: {failure}"
        ) from failure
    if not callable(found) or isinstance(found, type):  # what a class makes is no verdict
        raise ValueError(f"the zone's audit is no function: {name}")
    checked: Callable[[StagedItem], object] = found
    return checked
