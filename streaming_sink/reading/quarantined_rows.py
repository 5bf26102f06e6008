"""What is quarantined of a table: rows by check and by application, how many were replayed, and samples."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streaming_sink.checks.quarantine_table import check_has_no_deletes
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.tasks.files.data_file_reader import open_data_file
from timeline.outbox import undelivered_files
from timeline.table import Table

_COUNTED = (
    "row_id",
    "quarantined_at",
    "table_uuid",
    "app_id",
    "check",
    "column",
    "reason",
    "replayed_row_id",
)
_SAMPLE_LETTERS = 500


@dataclass(frozen=True, kw_only=True)
class FailedCheck:
    """A check and the rows that failed it first, and wait."""

    check: str
    column: str | None
    """The column at fault, where it is one."""
    rows: int
    reason: str
    """That of one of these rows."""


@dataclass(frozen=True, kw_only=True)
class FailingApplication:
    """An application whose rows wait."""

    app_id: str
    rows: int
    newest_ms: int


@dataclass(frozen=True, kw_only=True)
class QuarantinedRow:
    """A row that waits."""

    row_id: str
    quarantined_ms: int
    reason: str
    row: str
    """JSON; its first 500 letters."""


@dataclass(frozen=True, kw_only=True)
class QuarantineDetails:
    """The quarantine of one table. A row waits until it is replayed."""

    location: str
    """The quarantine's own."""
    waiting: int
    replayed: int
    """Rows that are in the table since, or that failed again, and were quarantined again as other rows."""
    of_other_tables: int
    """Waiting rows of other tables that share the quarantine."""
    undelivered: int
    """Rows and marks that commits of the table have named, and that are not in the quarantine yet."""
    oldest_ms: int | None
    newest_ms: int | None
    """Of the rows that wait."""
    checks: tuple[FailedCheck, ...]
    """Most rows first."""
    applications: tuple[FailingApplication, ...]
    samples: tuple[QuarantinedRow, ...]
    """The newest."""


def quarantine_of(main: Table, quarantine: Table, samples: int) -> QuarantineDetails:
    """Return what the known heads of a table and its quarantine say. Reads all files of the quarantine, in
    memory of about a hundred bytes a row.

    ValueError where another writer has deleted rows of the quarantine, DataFileError for a damaged file.
    """
    check_has_no_deletes(quarantine.head)
    own = str(main.head.metadata.table_uuid)
    marks = {mark for (mark,) in _rows(quarantine, "replayed_row_id") if mark is not None}
    replayed = others = 0
    checks: Counter[tuple[str, str | None]] = Counter()
    reasons: dict[tuple[str, str | None], str] = {}
    applications: dict[str, list[int]] = defaultdict(list)
    newest: list[tuple[int, str]] = []
    for row_id, at, table_uuid, app_id, check, column, reason, mark in _rows(quarantine, *_COUNTED):
        if mark is not None:
            continue
        if table_uuid != own:
            others += row_id not in marks
            continue
        if row_id in marks:
            replayed += 1
            continue
        at_ms = at // 1000
        checks[check, column] += 1
        reasons.setdefault((check, column), reason)
        applications[app_id].append(at_ms)
        newest = sorted([*newest, (-at_ms, row_id)])[:samples]
    times = [at for each in applications.values() for at in each]
    return QuarantineDetails(
        location=quarantine.store.location,
        waiting=len(times),
        replayed=replayed,
        of_other_tables=others,
        undelivered=sum(file.record_count for file in undelivered_files(main, quarantine)),
        oldest_ms=min(times, default=None),
        newest_ms=max(times, default=None),
        checks=tuple(
            FailedCheck(check=key[0], column=key[1], rows=rows, reason=reasons[key])
            for key, rows in sorted(checks.items(), key=lambda it: (-it[1], it[0][0], it[0][1] or ""))
        ),
        applications=tuple(
            FailingApplication(app_id=app_id, rows=len(at), newest_ms=max(at))
            for app_id, at in sorted(applications.items(), key=lambda it: (-len(it[1]), it[0]))
        ),
        samples=_samples(quarantine, [row_id for _, row_id in newest]),
    )


def _samples(quarantine: Table, row_ids: list[str]) -> tuple[QuarantinedRow, ...]:
    wanted, found = set(row_ids), {}
    for row_id, at, reason, row in _rows(quarantine, "row_id", "quarantined_at", "reason", "row"):
        if row_id in wanted:
            found[row_id] = QuarantinedRow(
                row_id=row_id, quarantined_ms=at // 1000, reason=reason, row=row[:_SAMPLE_LETTERS]
            )
        if len(found) == len(wanted):
            break
    return tuple(found[row_id] for row_id in row_ids)


def _rows(table: Table, *names: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table's files in some columns; times are microseconds."""
    schema = pa.schema([arrow_schema(table.head.schema).field(name) for name in names])
    for file in table.head.live_files():
        with open_data_file(table.store, file.location, "a file of the quarantine") as reader:
            for batch in reader.read(schema):
                columns = (
                    (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
                    for column in batch.columns
                )
                yield from zip(*columns, strict=True)
