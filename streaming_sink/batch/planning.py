"""Plans where a batch's rows go, from the table's head and the last batches: translates between `timeline`
and `planners`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from pyiceberg.table.snapshots import Operation, Snapshot

from planners import (
    HISTORY_BATCHES,
    HISTORY_COMMITS,
    Arrival,
    CommitSize,
    FileContent,
    FillPolicy,
    InsertPlan,
    PartitionKey,
    Routing,
    TableFile,
    bytes_per_row,
    comparable,
    plan_inserts,
    route_shuffled,
    route_single,
)
from planners.forecast import forecast
from streaming_sink.batch.profile import Profile
from streaming_sink.batch.report import FILL
from streaming_sink.batch.writer import WriteResult
from streaming_sink.options import SinkOptions
from timeline.names import clustering_of
from timeline.retention.policy import snapshot_version
from timeline.versions.head import Head

ONE_TASK_SECONDS = 1.0
"""A batch goes to one task, without a shuffle, where the recent ones cost all tasks together no more than
this. A coalesced stage runs everything upstream at its width too, and a batch's DataFrame states no size, so
only experience can say.
"""

_RECENT = 3
_SHARES_OF_A_FILE = 16
"""A shuffled task is planned for at least a sixteenth of a file's rows, so that tiny batches do not make many
tasks.
"""
_NO_CUT = 1 << 62
_NOTHING_RESERVED: Mapping[str, str] = {}


@dataclass
class Experience:
    """What the last batches of one run brought and cost. Lost with the process: it is only a guess at the
    next one.
    """

    batches: deque[dict[PartitionKey, int]] = field(default_factory=lambda: deque(maxlen=HISTORY_BATCHES))
    task_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    """At most what all tasks of a batch took together, reading and writing."""

    def add(self, result: WriteResult, planned: Planned, seconds: float, parallelism: int) -> None:
        """Remember a batch that was written in `seconds` of wall time by `parallelism` cores."""
        rows: dict[PartitionKey, int] = {}
        for file in result.new:
            key = comparable(file.partition)
            rows[key] = rows.get(key, 0) + file.rows
        self.batches.append(rows)
        self.task_seconds.append(_task_seconds(result, planned, seconds * parallelism))

    def expected(self) -> tuple[Arrival, ...] | None:
        return forecast(tuple(self.batches))

    def fits_one_task(self) -> bool:
        # The least of the last ones: a machine that was busy for a moment says nothing of the next batch.
        return bool(self.task_seconds) and min(self.task_seconds) <= ONE_TASK_SECONDS


def _task_seconds(result: WriteResult, planned: Planned, all_cores: float) -> float:
    writing = sum(task.seconds for task in result.tasks)
    if planned.route == "one task":
        return writing
    # What ran before the shuffle is not in the tasks' reports. Counting the batch has read it all; else the
    # cores bound it.
    return all_cores if planned.counting_seconds is None else planned.counting_seconds + writing


@dataclass(frozen=True)
class Planned:
    """A plan, how its rows travel, and what it was made from."""

    plan: InsertPlan
    routing: Routing | None
    made_from: str
    """"forecast", "profile" or "bulk_insert"."""
    counting_seconds: float | None = None
    """What all tasks together took to count the batch, where it was counted."""
    fingerprint: int | None = None
    """Of the rows that were counted."""

    @property
    def route(self) -> str:
        """ "one task", "shuffle", or "as read"."""
        if self.routing is None:
            return "as read"
        return "shuffle" if self.routing.shuffled else "one task"


def bulk_plan(options: SinkOptions) -> Planned:
    """Return the plan of a bulk insert: tasks write what they read, and cut files by their size alone."""
    plan = InsertPlan(
        (), (), bytes_per_row=1, rows_per_new_file=_NO_CUT, max_file_bytes=options.sizing.max_file_bytes
    )
    return Planned(plan, None, "bulk_insert")


def plan_batch(
    head: Head | None,
    expected: Iterable[Arrival] | Profile,
    options: SinkOptions,
    parallelism: int,
    one_task: bool,
    reserved: Mapping[str, str] = _NOTHING_RESERVED,
) -> Planned:
    """Return where the rows of a batch go: as it is `expected`, or as it was counted; then always by a
    shuffle.

    `head` is None while the table does not exist. `reserved`: file → the clustering plan that has it.
    Reads no file but manifests.
    """
    profile = expected if isinstance(expected, Profile) else None
    arrivals = (
        tuple(Arrival(key, rows) for key, rows in expected.rows.items())
        if isinstance(expected, Profile)
        else tuple(expected)
    )
    partitions = {comparable(arrival.partition) for arrival in arrivals}
    sizes = () if head is None else commit_sizes(head)
    plan = plan_inserts(
        arrivals,
        ()
        if head is None or options.fills_beside
        else small_files(head, partitions, options.sizing.small_file_bytes, reserved),
        options.sizing,
        bytes_per_row=bytes_per_row(sizes, max_file_bytes=options.sizing.max_file_bytes),
        policy=FillPolicy.NEVER if options.fills_beside else options.fill_policy,
        exact=profile is not None,
    )
    if profile is None and one_task:
        return Planned(plan, route_single(plan), "forecast")
    rows_per_task = max(1, plan.rows_per_new_file // _SHARES_OF_A_FILE)
    routing = route_shuffled(plan, parallelism=parallelism, rows_per_task=rows_per_task)
    if profile is None:
        return Planned(plan, routing, "forecast")
    return Planned(plan, routing, "profile", profile.task_seconds, profile.fingerprint)


def commit_sizes(head: Head) -> tuple[CommitSize, ...]:
    """Return the sizes of the table's latest ordinary commits, oldest first, from the summaries of its
    snapshots.

    A fill's merged files count as a commit of their own: they are the ordinary rows again, in larger files.
    Other replaces are clusterings, and do not.
    """
    sizes: list[CommitSize] = []
    snapshots = head.metadata.snapshots
    for position in range(len(snapshots) - 1, -1, -1):
        if len(sizes) == HISTORY_COMMITS:
            break
        summary = snapshots[position].summary
        if summary is None or not (summary.operation == Operation.APPEND or _is_fill(snapshots, position)):
            continue
        counts = summary.additional_properties
        rows, size, files = (
            int(counts.get(key, 0)) for key in ("added-records", "added-files-size", "added-data-files")
        )
        sizes.append(CommitSize(rows, size, files))
    return tuple(reversed(sizes))


def _is_fill(snapshots: Sequence[Snapshot], position: int) -> bool:
    """Return whether a replace filled: beside the stream, or in one version with the append before it."""
    summary = snapshots[position].summary
    if summary is not None and FILL in summary.additional_properties:
        return True
    version = snapshot_version(snapshots[position])
    return position > 0 and version > 0 and snapshot_version(snapshots[position - 1]) == version


def small_files(
    head: Head, partitions: set[PartitionKey], below_bytes: int, reserved: Mapping[str, str]
) -> Iterator[TableFile]:
    """Yield the files of these partitions that are small by their live bytes, and their delete files."""
    for file in chain(head.files_below(below_bytes), head.shrunk_below(below_bytes), head.delete_files()):
        if comparable(file.partition) in partitions:
            yield TableFile(
                path=file.location,
                partition=file.partition,
                bytes=head.live_bytes(file),
                rows=file.rows,
                content=FileContent(file.content.value),
                sorted=file.sort_order_id != 0 or clustering_of(file.location) is not None,
                has_deletes=head.has_deletes(file),
                encryption=file.encryption,
                other_spec=file.spec_id != head.spec.spec_id,
                reserved_by=reserved.get(file.location),
            )
