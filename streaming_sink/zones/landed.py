"""What became of work items: a note for each that has landed, derived from the table.

A note is found by the number of its item, and by the snapshot that the item has made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from pyiceberg.table.snapshots import Snapshot

from planners.ingestion.buffering import PlannedItem
from planners.percentiles import percentiles
from planners.printing import span_text
from planners.sizing import count_text, size_text
from timeline.retention.policy import snapshot_version
from timeline.stores.base import Store
from timeline.versions.head import Head
from timeline.versions.staged import wap_id_of
from timeline.versions.version_file import stated_by

ITEM = "streaming-sink.ingest.item"
"""The key in a snapshot's summary that names the work item: the zone's application and the item's number."""
_FILES_IN = "streaming-sink.ingest.files-in"
_BYTES_IN = "streaming-sink.ingest.bytes-in"
_REGISTERED = "streaming-sink.ingest.registered"
_REJECTED = "streaming-sink.ingest.rejected"
_REJECTED_IN = "streaming-sink.ingest.rejected-in"
_OLDEST = "streaming-sink.ingest.oldest-ms"
_EVENT_TIME = "streaming-sink.ingest.event-time-ms"
_EXPECTED = "streaming-sink.ingest.rows-expected"
_REJECTIONS = "rejected"
_ITEM_OF_SNAPSHOT = "landed/by-snapshot"


@dataclass(frozen=True)
class Landed:
    """What became of a work item. `published_before` where another worker, or an earlier try, was first."""

    number: int
    published_before: bool
    version: int
    """The version that holds the item; of one that was published before, a later one, where its snapshot has
    expired.
    """
    snapshot_id: int | None = None
    files_in: int = 0
    bytes_in: int = 0
    rows: int = 0
    files_out: int = 0
    bytes_out: int = 0
    merged_files: int = 0
    """Small files of the table that were filled."""
    registered: int = 0
    """New files that have the bytes of a source file, which was large enough and fitted as it was."""
    partitions: int = 0
    quarantined: int = 0
    """Rows that went into the quarantine."""
    dropped: int = 0
    oldest_ms: int = 0
    """When the first of its files was announced, and so the start of its lag."""
    planned_ms: int = 0
    landed_ms: int = 0
    lags_ms: Mapping[str, int] = field(default_factory=dict)
    """From a file's announcement to the commit, over the item's files: p50, p95, max."""
    event_time_ms: Sequence[int] = ()
    """The earliest and the latest event time of the new rows; () where the table is not partitioned by time.
    """
    rejected: Mapping[str, str] = field(default_factory=dict)
    """Path of a source file that did not land → why."""
    rejected_places: Sequence[int] = ()
    """Of these files among those of the work item: several versions of a file may be in one."""
    rejected_in: str = ""
    """The file of the zone that says so, written before the commit; "" where none was rejected."""
    milliseconds: Mapping[str, int] = field(default_factory=dict)

    @property
    def waited_ms(self) -> int:
        """From the first announcement to the plan: what a rule's `max_age` promises."""
        return max(0, self.planned_ms - self.oldest_ms)

    @property
    def lag_ms(self) -> int:
        """From the first announcement to the commit, by the clocks of the producer and of the worker."""
        return max(0, self.landed_ms - self.oldest_ms)

    def reason(self, place: int, path: str) -> str | None:
        """Return why a file of the item was rejected, by its place among them; None where it landed."""
        return self.rejected.get(path, "") if place in self.rejected_places else None

    def line(self) -> str:
        """Return one line for people."""
        if self.published_before:
            return f"work item {self.number} was published before, by version {self.version} at the latest"
        took = ", ".join(f"{name} {span_text(spent)}" for name, spent in self.milliseconds.items())
        refused = f", {len(self.rejected):,} rejected" if self.rejected else ""
        refused += f", {count_text(self.quarantined, 'row')} quarantined" if self.quarantined else ""
        refused += f", {count_text(self.dropped, 'row')} dropped" if self.dropped else ""
        filled = f", {self.registered:,} registered as they came" if self.registered else ""
        filled += f", {count_text(self.merged_files, 'small file')} filled" if self.merged_files else ""
        return (
            f"work item {self.number}: {count_text(self.files_in, 'file')} became {self.files_out:,} in"
            f" {count_text(self.partitions, 'partition')}, {count_text(self.rows, 'row')},"
            f" {size_text(self.bytes_out)}"
            f"{filled}{refused}; version {self.version}, visible {span_text(self.lag_ms)} after"
            f" the first arrival ({took})"
        )


def note_path(number: int) -> str:
    return f"landed/{number:012}.json"


def write_landed(store: Store, landed: Landed) -> None:
    """Write the note of an item that has landed. One that is there stays: it says the same, or more."""
    if landed.snapshot_id is not None:
        store.create(_pointer(landed.snapshot_id), str(landed.number).encode())
    store.create(note_path(landed.number), json.dumps(asdict(landed), sort_keys=True).encode())


def noted_item(store: Store, snapshot_id: int) -> int | None:
    """Return the work item that has made a snapshot, by the notes; None where they do not say."""
    try:
        return int(store.read(_pointer(snapshot_id)).data)
    except (FileNotFoundError, ValueError):
        return None


def _pointer(snapshot_id: int) -> str:
    return f"{_ITEM_OF_SNAPSHOT}/{snapshot_id}"


def with_arrivals(landed: Landed, item: PlannedItem) -> Landed:
    """Return what became of an item, with what its plan knows of the arrival of its files."""
    arrived = [file.arrived_ms for file in item.files]
    if not landed.landed_ms:
        return replace(landed, oldest_ms=min(arrived))
    lags = percentiles([max(0, landed.landed_ms - each) for each in arrived])
    return replace(landed, oldest_ms=min(arrived), lags_ms=lags)


def read_landed(store: Store, number: int) -> Landed | None:
    """Return what became of an item; None where it has no note, or one that cannot be read."""
    try:
        return Landed(**json.loads(store.read(note_path(number)).data))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def keep_rejections(store: Store, landed: Landed, rejection_id: str) -> Landed:
    """Write which files of an item do not land, before it is published: a worker that dies after its commit
    takes no reasons with it.
    """
    if not landed.rejected:
        return landed
    path = f"{_prefix(landed.number)}{rejection_id}.json"
    kept = {"rejected": dict(landed.rejected), "rejected_places": list(landed.rejected_places)}
    store.overwrite(path, json.dumps(kept, sort_keys=True).encode())
    return replace(landed, rejected_in=path)


def with_rejections(store: Store, landed: Landed) -> Landed:
    """Return what a head knows of an item, with the files that the zone knows to be rejected. Where the item
    has no snapshot (any more), what its last try found.
    """
    path = landed.rejected_in
    if not path and landed.snapshot_id is None:
        tries = (each.path for each in store.list_folder(_REJECTIONS))
        path = max((it for it in tries if it.startswith(_prefix(landed.number))), default="")
    if landed.rejected or not path:
        return landed
    try:
        return replace(landed, **json.loads(store.read(path).data), rejected_in=path)
    except (FileNotFoundError, ValueError, TypeError):
        return landed


def _prefix(number: int) -> str:
    return f"{_REJECTIONS}/{number:012}-"


def summary_of(app_id: str, landed: Landed) -> dict[str, str]:
    """Return the entries of the snapshot that publishes the item."""
    known = {
        _REJECTED_IN: landed.rejected_in,
        _EVENT_TIME: "/".join(map(str, landed.event_time_ms)),
        _REGISTERED: str(landed.registered or ""),
    }
    return {key: text for key, text in known.items() if text} | {
        ITEM: f"{app_id}/{landed.number}",
        _FILES_IN: str(landed.files_in),
        _BYTES_IN: str(landed.bytes_in),
        _OLDEST: str(landed.oldest_ms),
        _REJECTED: str(len(landed.rejected)),
        _EXPECTED: str(landed.rows),
    }


def item_of_snapshot(head: Head, app_id: str, snapshot_id: int) -> int | None:
    """Return the work item that has made a snapshot which the head still has; None for any other one."""
    snapshot = head.metadata.snapshot_by_id(snapshot_id)
    app, _, number = ("" if snapshot is None else stated_by(snapshot).get(ITEM, "")).rpartition("/")
    return int(number) if app == app_id and number.isdecimal() else None


def expected_rows(snapshot: Snapshot) -> int:
    """Return how many rows the files of an item have by the footers of its source files."""
    return int(stated_by(snapshot).get(_EXPECTED, 0))


def landed_in(head: Head, app_id: str, number: int) -> Landed:
    """Return what the head knows of an item that it holds: much while its snapshot is there, little after."""
    wanted = f"{app_id}/{number}"
    for snapshot in reversed(head.metadata.snapshots):
        counts = stated_by(snapshot)
        if counts.get(ITEM) == wanted and wap_id_of(snapshot) is None:
            return Landed(
                number,
                published_before=True,
                version=snapshot_version(snapshot) or snapshot.sequence_number or head.number,
                snapshot_id=snapshot.snapshot_id,
                files_in=int(counts.get(_FILES_IN, 0)),
                bytes_in=int(counts.get(_BYTES_IN, 0)),
                rows=int(counts.get("added-records", 0)),
                files_out=int(counts.get("added-data-files", 0)),
                bytes_out=int(counts.get("added-files-size", 0)),
                registered=int(counts.get(_REGISTERED, 0)),
                oldest_ms=int(counts.get(_OLDEST, 0)),
                partitions=int(counts.get("changed-partition-count", 1)),
                rejected_in=str(counts.get(_REJECTED_IN, "")),
                event_time_ms=[int(each) for each in str(counts.get(_EVENT_TIME, "")).split("/") if each],
                landed_ms=snapshot.timestamp_ms,
            )
    return Landed(number, published_before=True, version=head.number)
