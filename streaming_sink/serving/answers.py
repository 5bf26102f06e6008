"""What the catalog answers, as values. Snapshot ids are text: JavaScript's numbers would round them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from streaming_sink.zones.landed import Landed
from streaming_sink.zones.ledger import LedgerEntry
from streaming_sink.zones.status import OpenItemStatus, Waiting, ZoneStatus

_LAST_MS = 60 * 60 * 1000
_MOST_REJECTED = 50


@dataclass(frozen=True)
class Error:
    """Why a request is not answered."""

    error: Annotated[str, Field(description="What is wrong, and what to do.")]


@dataclass(frozen=True)
class Commit:
    """A work item that has landed: one commit of the table."""

    item: int
    version: int
    snapshot_id: str | None
    landed_ms: int
    files_in: int
    bytes_in: int
    files_out: int
    bytes_out: int
    rows: int
    partitions: int
    merged_files: int
    registered: int
    """Of the files out: those that have the bytes of a file that came."""
    rejected: int
    waited_ms: int
    """From the first announcement of its files to the plan."""
    lag_ms: Mapping[str, int]
    """From a file's announcement to the commit, over its files: p50, p95, max."""
    event_time_ms: Sequence[int]
    """The earliest and the latest event time; empty where it is not known."""


@dataclass(frozen=True)
class Failure:
    """A file that did not land, or a work item that was set apart or held."""

    item: int
    path: str
    """Of the file; "" for a whole work item."""
    why: str
    landed_ms: int


@dataclass(frozen=True)
class Throughput:
    """What landed in the last hour, among the last 100 commits."""

    commits: int = 0
    files_in: int = 0
    files_out: int = 0
    rows: int = 0
    bytes_in: int = 0
    milliseconds: int = 0
    """From the first of these commits' announcements to now."""


@dataclass(frozen=True)
class Dataset:
    """A table, and the buffer zone that fills it, at `as_of_ms`."""

    name: str
    zone: str
    table: str = ""
    as_of_ms: int = 0
    """When this was read; 0 where it was never read."""
    stale: bool = True
    """Whether the store has not answered since, in time."""
    error: str = ""
    """Why it is stale, and what to do."""
    rules: Mapping[str, int | bool] = field(default_factory=dict)
    waiting: Sequence[Waiting] = ()
    open_items: Sequence[OpenItemStatus] = ()
    """The first 20 that are not in the table, and the first 20 that are set apart."""
    open_count: int = 0
    landed_items: int = 0
    lag_ms: Mapping[str, int] = field(default_factory=dict)
    """Of the oldest file of each of the last 100 commits: p50, p95, max."""
    kept: int = 0
    """How many of these were planned within the rules' time."""
    throughput: Throughput = Throughput()
    commits: Sequence[Commit] = ()
    """The last 100, newest first."""
    failures: Sequence[Failure] = ()


@dataclass(frozen=True)
class File:
    """One version of one source file."""

    path: str
    identity: str
    bytes: int
    arrived_ms: int
    item: int
    state: str
    why: str
    version: int | None
    snapshot_id: str | None


@dataclass(frozen=True)
class Files:
    """Source files of a dataset."""

    total: int
    files: Sequence[File]
    """The first of them."""


def dataset_of(name: str, found: ZoneStatus, as_of_ms: int) -> Dataset:
    """Return a dataset as the status of its zone shows it."""
    apart = [Failure(it.number, "", f"{it.state}: {it.reason}", 0) for it in found.open_items if it.reason]
    return Dataset(
        name,
        found.location,
        found.table,
        as_of_ms,
        stale=False,
        rules=found.rules,
        waiting=found.waiting,
        open_items=found.open_items,
        open_count=found.open_count,
        landed_items=found.landed_items,
        lag_ms=found.lag_ms,
        kept=found.kept,
        throughput=_throughput(found.last_landed, as_of_ms),
        commits=[_commit(landed) for landed in found.last_landed],
        failures=[*apart, *_rejected(found.last_landed)],
    )


def list_files_of(entries: Sequence[LedgerEntry], limit: int) -> Files:
    """Return the first of some entries of the ledger."""
    return Files(
        len(entries),
        [
            File(
                it.path,
                it.identity,
                it.bytes,
                it.arrived_ms,
                it.item,
                it.state,
                it.why,
                it.version,
                None if it.snapshot_id is None else str(it.snapshot_id),
            )
            for it in entries[:limit]
        ],
    )


def _commit(landed: Landed) -> Commit:
    return Commit(
        item=landed.number,
        version=landed.version,
        snapshot_id=None if landed.snapshot_id is None else str(landed.snapshot_id),
        landed_ms=landed.landed_ms,
        files_in=landed.files_in,
        bytes_in=landed.bytes_in,
        files_out=landed.files_out,
        bytes_out=landed.bytes_out,
        rows=landed.rows,
        partitions=landed.partitions,
        merged_files=landed.merged_files,
        registered=landed.registered,
        rejected=len(landed.rejected),
        waited_ms=landed.waited_ms,
        lag_ms=landed.lags_ms,
        event_time_ms=landed.event_time_ms,
    )


def _throughput(last: Sequence[Landed], now_ms: int) -> Throughput:
    recent = [landed for landed in last if now_ms - landed.landed_ms <= _LAST_MS and landed.oldest_ms]
    if not recent:
        return Throughput()
    return Throughput(
        len(recent),
        sum(it.files_in for it in recent),
        sum(it.files_out for it in recent),
        sum(it.rows for it in recent),
        sum(it.bytes_in for it in recent),
        max(1, now_ms - min(it.oldest_ms for it in recent)),
    )


def _rejected(last: Sequence[Landed]) -> list[Failure]:
    every = (
        Failure(landed.number, path, why, landed.landed_ms)
        for landed in last
        for path, why in landed.rejected.items()
    )
    return [failure for failure, _ in zip(every, range(_MOST_REJECTED), strict=False)]
