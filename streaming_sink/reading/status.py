"""The status of a table: when each application last committed, how fast, and what needs attention.

It is known from the table alone. A batch that failed left nothing in it but the age of the last commit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from planners.sizing import WARN_SMALL_FILES
from streaming_sink.reading.files import PartitionDetails, list_partitions
from streaming_sink.reading.mirrors import MirrorDetails, list_mirrors, warn_of_mirrors
from streaming_sink.reading.plans import PlanDetails
from streaming_sink.reading.snapshots import SnapshotDetails, list_snapshots
from streaming_sink.reports.batch_report import reports_of
from timeline import names
from timeline.diagnosis.state import applications
from timeline.outbox import find_delivered
from timeline.plans.instants import State
from timeline.versions.head import Head
from timeline.versions.outbox import mains_of
from timeline.versions.transactions import TransactionState

RECENT_BATCHES = 20
"""The number of an application's last batches that its rates are taken from."""


@dataclass(frozen=True, kw_only=True)
class ApplicationStatus:
    """One application that has committed batches."""

    app_id: str
    delivers_from: str | None
    """The location of the table that delivers rows of this application here, into a quarantine; its uuid if
    it is retired. None for an application that commits batches here.
    """
    query_id: str | None
    batch_id: int | None
    """The last one; None for a delivery, and where what the table remembers of the application cannot be
    read."""
    committed_ms: int | None
    age_seconds: int | None
    """Since its last commit. A batch without rows commits nothing."""
    batches_per_minute: float | None
    """Over its last 20 batches that the table keeps snapshots of; None for fewer than two."""
    rows_per_minute: float | None
    last_remark: str
    """The newest remark on a batch that the table still has (of a fill that was dropped, for instance), with
    the batch; "" for none.
    """


@dataclass(frozen=True, kw_only=True)
class TableStatus:
    """One table and its applications."""

    location: str
    version: int
    files: int
    small_files: int
    most_small_files: int
    """In one partition."""
    pending_plans: int
    mirrors: tuple[MirrorDetails, ...]
    warnings: tuple[str, ...]
    applications: tuple[ApplicationStatus, ...]
    """The one that committed last comes first."""


def status_of(head: Head, plans: Sequence[PlanDetails], small_below: int, now_ms: int) -> TableStatus:
    """Return the status at a time, by the caller's clock, in milliseconds since the epoch."""
    states, partitions = applications(head.version), list_partitions(head, small_below)
    mirrors = list_mirrors(head)
    return TableStatus(
        location=head.metadata.location,
        version=head.number,
        files=sum(it.files for it in partitions),
        small_files=sum(it.small_files for it in partitions),
        most_small_files=max((it.small_files for it in partitions), default=0),
        pending_plans=sum(it.pending for it in plans),
        mirrors=mirrors,
        warnings=(*_warnings(states, plans, partitions, small_below), *warn_of_mirrors(mirrors)),
        applications=_applications(head, states, now_ms),
    )


def _applications(
    head: Head, states: Mapping[str, TransactionState | None], now_ms: int
) -> tuple[ApplicationStatus, ...]:
    appends: dict[str, list[SnapshotDetails]] = defaultdict(list)
    for snapshot in list_snapshots(head):
        if snapshot.app_id is not None and snapshot.added_rows and snapshot.operation == "append":
            appends[snapshot.app_id].append(snapshot)
    remarks = {it.app_id: f"batch {it.batch_id}: {it.why}" for it in reports_of(head) if it.why}
    mains = mains_of(head.properties)
    found = []
    for name, state in states.items():
        committed_ms = None if state is None else names.ulid_time_ms(state.commit)
        batches, rows = _rates(appends[name][:RECENT_BATCHES])
        delivered = find_delivered(name, mains)
        main_uuid, app_id = delivered or (None, name)
        own = None if delivered else state
        found.append(
            ApplicationStatus(
                app_id=app_id,
                delivers_from=None if main_uuid is None else mains[main_uuid] or main_uuid,
                query_id=None if own is None else own.query_id,
                batch_id=None if own is None else own.batch,
                committed_ms=committed_ms,
                age_seconds=None if committed_ms is None else max(0, now_ms - committed_ms) // 1000,
                batches_per_minute=batches,
                rows_per_minute=rows,
                last_remark=remarks.get(name, ""),
            )
        )
    return tuple(sorted(found, key=lambda it: (-(it.committed_ms or 0), it.app_id, it.delivers_from or "")))


def _rates(newest_first: Sequence[SnapshotDetails]) -> tuple[float | None, float | None]:
    """Return the batches and the rows a minute, from the first of these snapshots to the last."""
    if len(newest_first) < 2:
        return None, None
    *later, first = newest_first
    minutes = (later[0].time_ms - first.time_ms) / 60_000
    return round(len(later) / minutes, 1), round(sum(it.added_rows for it in later) / minutes, 1)


def _warnings(
    states: Mapping[str, TransactionState | None],
    plans: Sequence[PlanDetails],
    partitions: Sequence[PartitionDetails],
    small_below: int,
) -> Iterator[str]:
    for app_id, state in states.items():
        if state is None:
            yield f"what the table remembers of {app_id!r} cannot be read: it cannot commit; run the doctor"
    for plan in plans:
        if plan.pending and (plan.timed_out or plan.state == State.LOST.value):
            why = "its file is lost" if plan.state == State.LOST.value else "it was not executed in time"
            yield f"plan {plan.plan_id} is void, since {why}: `cancel` it, or wait for the next scheduler"
    crowded = [it for it in partitions if it.small_files > WARN_SMALL_FILES]
    if crowded:
        yield (
            f"partitions with more than {WARN_SMALL_FILES:,} files below {small_below:,} bytes:"
            f" {len(crowded):,}, such as {crowded[0].partition or 'the table'} with"
            f" {crowded[0].small_files:,}; cluster them"
        )
