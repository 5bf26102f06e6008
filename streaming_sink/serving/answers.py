"""What the catalog answers, as values. Snapshot ids are text: JavaScript's numbers would round them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, TypeVar, cast

from pydantic import Field

from streaming_sink.zones.landed import Landed
from streaming_sink.zones.ledger import LedgerEntry
from streaming_sink.zones.status import OpenItemStatus, Waiting, ZoneStatus

_LAST_MS = 60 * 60 * 1000
_MOST_REJECTED = 50
_Answer = TypeVar("_Answer")


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
    return _taken_from(
        found,
        Dataset,
        name=name,
        zone=found.location,
        as_of_ms=as_of_ms,
        stale=False,
        error="",
        throughput=_throughput(found.last_landed, as_of_ms),
        commits=[_commit(landed) for landed in found.last_landed],
        failures=[*apart, *_rejected(found.last_landed)],
    )


def list_files_of(entries: Sequence[LedgerEntry], limit: int) -> Files:
    """Return the first of some entries of the ledger."""
    return Files(
        len(entries),
        [_taken_from(it, File, snapshot_id=_id_text(it.snapshot_id)) for it in entries[:limit]],
    )


def _commit(landed: Landed) -> Commit:
    return _taken_from(
        landed,
        Commit,
        item=landed.number,
        snapshot_id=_id_text(landed.snapshot_id),
        rejected=len(landed.rejected),
        lag_ms=landed.lags_ms,
    )


def _id_text(snapshot_id: int | None) -> str | None:
    return None if snapshot_id is None else str(snapshot_id)


def _taken_from(read: object, kind: type[_Answer], **others: Any) -> _Answer:
    """Return an answer that has the fields of what was read, by their names, and `others`."""
    own = {each.name for each in fields(cast("Any", kind))} - others.keys()
    return kind(**{name: getattr(read, name) for name in own}, **others)


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
