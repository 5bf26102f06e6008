"""Plans where a batch's rows go, from the table's head and the last batches: translates between `timeline`
and `planners`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from pyiceberg.table.snapshots import Operation, Snapshot

from planners.coalesced import has_room, plan_coalesced, tasks_that_fit
from planners.forecast import HISTORY_BATCHES, forecast
from planners.inserts import plan_inserts
from planners.model import Arrival, InsertPlan, PartitionKey, TableFile, TablePartition, comparable
from planners.routing import Routing, route_shuffled, route_single
from planners.sizing import HISTORY_COMMITS, CommitSize, FillPolicy, bytes_per_row
from streaming_sink.options.table_options import SinkOptions
from streaming_sink.reports.batch_report import FILL
from streaming_sink.table.foreign_rewrites import ForeignRewrites
from streaming_sink.table.planned_files import small_files
from streaming_sink.tasks.rows.count_task import RowCounts
from streaming_sink.writing.change_tasks import ChangeTasks
from streaming_sink.writing.writer import WriteResult
from timeline.retention.policy import snapshot_version
from timeline.versions.head import Head
from timeline.versions.version_file import stated_by

ONE_TASK_SECONDS = 1.0
"""A coalesced batch gets a task for each of these that the recent ones cost all tasks together. A coalesced
stage runs everything upstream at its width too, and a batch's DataFrame states no size, so only experience
can say.
"""

_RECENT = 3
_SHARES_OF_A_FILE = 16
"""A task is planned for at least a sixteenth of a file's rows, so that tiny batches make few tasks."""
_PATIENCE = 2
"""How often a second a task may take where more tasks would only cut full files into small ones."""
_NO_CUT = 1 << 62
_ARRIVALS = (Operation.APPEND, Operation.OVERWRITE)
"""The operations of snapshots that bring rows."""
NOTHING_RESERVED: Mapping[str, str] = {}


@dataclass
class Experience:
    """What the last batches of one run brought and cost. Lost with the process: it is only a guess at the
    next one.
    """

    batches: deque[dict[PartitionKey, int]] = field(default_factory=lambda: deque(maxlen=HISTORY_BATCHES))
    task_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    """At most what all tasks of a batch took together, reading and writing."""
    spec_id: int = 0
    """The partition spec of all `batches`: under another one, nothing is known of what comes."""
    changes: ChangeTasks = field(default_factory=ChangeTasks)
    unfit: set[str] = field(default_factory=set)
    """Files that cannot be merged, by their locations."""
    rewrites: ForeignRewrites = field(default_factory=ForeignRewrites)

    def add(
        self, result: WriteResult, planned: Planned, spec_id: int, seconds: float, parallelism: int
    ) -> None:
        """Remember a batch that was written under a spec in `seconds` of wall time by `parallelism` cores."""
        if spec_id != self.spec_id:
            self.spec_id = spec_id
            self.batches.clear()
        rows: dict[PartitionKey, int] = {}
        for file in result.new:
            key = comparable(file.partition)
            rows[key] = rows.get(key, 0) + file.rows
        self.batches.append(rows)
        self.unfit.update(each.culprit for each in result.skipped if each.culprit is not None)
        self.task_seconds.append(_task_seconds(result, planned, seconds * parallelism))
        if result.changes is not None:
            self.changes.add(result.tasks, seconds, parallelism)

    def expected(self, spec_id: int) -> tuple[Arrival, ...] | None:
        return forecast(tuple(self.batches)) if spec_id == self.spec_id else None

    def tasks(self) -> int:
        """Return how many tasks, of a second each, the next batch asks for if it is coalesced."""
        # The least of the last ones: a machine that was busy for a moment says nothing of the next batch.
        return max(1, ceil(min(self.task_seconds, default=0.0) / ONE_TASK_SECONDS))


def _task_seconds(result: WriteResult, planned: Planned, all_cores: float) -> float:
    writing = sum(task.seconds for task in result.tasks)
    if planned.routing is not None and not planned.routing.shuffled:
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
    """"forecast", "profile", "size" or "bulk_insert"."""
    counting_seconds: float | None = None
    """What all tasks together took to count the batch, where it was counted."""
    fingerprint: int | None = None
    """Of the rows that were counted."""

    @property
    def route(self) -> str:
        """ "one task", "2 tasks" (or more), "shuffle", or "as read"."""
        if self.routing is None:
            return "as read"
        if self.routing.shuffled:
            return "shuffle"
        return "one task" if self.routing.tasks == 1 else f"{self.routing.tasks} tasks"


def bulk_plan(options: SinkOptions) -> Planned:
    """Return the plan of a bulk insert: tasks write what they read, and cut files by their size alone."""
    return Planned(_cut_by_size(options, _NO_CUT), None, "bulk_insert")


def needs_counting(expected: tuple[Arrival, ...] | None, head: Head | None, options: SinkOptions) -> bool:
    """Return whether a batch is counted: nothing says what to expect, and there are small files to fill.
    Reads no file but manifests.
    """
    if expected is not None or head is None or not options.fills_inline:
        return False
    return any(True for _ in head.files_below(options.sizing.small_file_bytes, fillable=True))


def uncounted_plan(options: SinkOptions, partitioned: bool, parallelism: int) -> Planned:
    """Return the plan of a batch of which nothing is known, for a table with no small file: files are cut by
    their size, and the rows of a table partition come to one task, so that it gets one tail.
    """
    plan = _cut_by_size(options, options.sizing.rows_per_new_file or _NO_CUT)
    routing = Routing(
        tasks=parallelism, cold_tasks=parallelism, hot=(), cold_buckets=(), shuffled=partitioned
    )
    return Planned(plan, routing, "size")


def _cut_by_size(options: SinkOptions, rows_per_new_file: int) -> InsertPlan:
    return InsertPlan(
        (),
        (),
        bytes_per_row=1,
        rows_per_new_file=rows_per_new_file,
        max_file_bytes=options.sizing.max_file_bytes,
    )


def plan_batch(
    head: Head | None,
    spec_id: int,
    expected: Iterable[Arrival] | RowCounts,
    options: SinkOptions,
    parallelism: int,
    experience: Experience,
    reserved: Mapping[str, str] = NOTHING_RESERVED,
) -> Planned:
    """Return where the rows of a batch go, which are written under the spec of this id: as it is `expected`,
    or as it was counted.

    `head` is None while the table does not exist. `reserved`: file → the clustering plan that has it.
    Reads no file but manifests.
    """
    profile = expected if isinstance(expected, RowCounts) else None
    arrivals = (
        tuple(Arrival(key, rows) for key, rows in expected.rows.items())
        if isinstance(expected, RowCounts)
        else tuple(expected)
    )
    partitions = {TablePartition(spec_id, comparable(arrival.partition)) for arrival in arrivals}
    sizing = options.sizing
    sizes = () if head is None else commit_sizes(head)
    width = bytes_per_row(sizes, max_file_bytes=sizing.max_file_bytes)
    files: tuple[TableFile, ...] = ()
    if head is not None and options.fills_inline:
        below = sizing.small_file_bytes
        fillable = partitions - experience.rewrites.room(head, below).waiting
        small = small_files(head, fillable, below, reserved)
        files = tuple(file for file in small if file.path not in experience.unfit)
    policy = options.fill_policy if options.fills_inline else FillPolicy.NEVER
    plan = plan_inserts(
        arrivals, files, sizing, bytes_per_row=width, policy=policy, exact=profile is not None
    )
    tasks = _coalesced_tasks(
        arrivals, profile, parallelism, plan.rows_per_new_file, sizing.small_file_bytes // width, experience
    )
    if tasks == 1:
        routing = route_single(plan)
    elif tasks is not None and has_room(files, sizing):
        plan, routing = plan_coalesced(arrivals, files, sizing, tasks, bytes_per_row=width, policy=policy)
    else:
        rows_per_task = max(1, plan.rows_per_new_file // _SHARES_OF_A_FILE)
        routing = route_shuffled(plan, parallelism=parallelism, rows_per_task=rows_per_task)
    if profile is None:
        return Planned(plan, routing, "forecast")
    return Planned(plan, routing, "profile", profile.seconds, profile.fingerprint)


def _coalesced_tasks(
    arrivals: Sequence[Arrival],
    profile: RowCounts | None,
    parallelism: int,
    rows_per_file: int,
    full_rows: int,
    experience: Experience,
) -> int | None:
    """Return how many tasks write the batch without a shuffle, or None if it must be shuffled.

    Several tasks each leave a tail in every partition, so only an unpartitioned batch has more than one. Rows
    that were counted are persisted, so that nothing upstream runs at the width of the tasks.
    """
    wanted = experience.tasks()
    if any(arrival.partition != () for arrival in arrivals):
        return 1 if wanted == 1 and profile is None else None
    rows = sum(arrival.rows for arrival in arrivals)
    most = min(parallelism, tasks_that_fit(rows, rows_per_file, full_rows))
    if profile is not None:
        return most
    tasks = min(wanted, most)
    # Rows that fill files need as many tasks after a shuffle too, which costs as much as reading them. And
    # the time of a first batch is that of starting workers: it does not say that computing rows is slow.
    patience = _PATIENCE if rows >= full_rows else 1
    fast = wanted <= patience * tasks or len(experience.batches) == 1
    return tasks if fast or tasks == parallelism else None


def commit_sizes(head: Head) -> tuple[CommitSize, ...]:
    """Return the sizes of the table's latest ordinary commits, oldest first, from the summaries of its
    snapshots.

    A fill's merged files count as a commit of their own: they are the ordinary rows again, in larger files.
    Other replaces are clusterings, and do not.
    """
    sizes: list[CommitSize] = []
    snapshots = list(head.main_snapshots())[::-1]
    for position in range(len(snapshots) - 1, -1, -1):
        if len(sizes) == HISTORY_COMMITS:
            break
        summary = snapshots[position].summary
        if summary is None or not (summary.operation in _ARRIVALS or _is_fill(snapshots, position)):
            continue
        counts = summary.additional_properties
        rows, size, files = (
            int(counts.get(key, 0)) for key in ("added-records", "added-files-size", "added-data-files")
        )
        sizes.append(CommitSize(rows, size, files))
    return tuple(reversed(sizes))


def _is_fill(snapshots: Sequence[Snapshot], position: int) -> bool:
    """Return whether a replace filled: beside the stream, or in one version with the append before it."""
    if FILL in stated_by(snapshots[position]):
        return True
    version = snapshot_version(snapshots[position])
    return position > 0 and version > 0 and snapshot_version(snapshots[position - 1]) == version
