"""What the driver sends to the task of one clustering group, and what the task reports: plain values that
pickle."""

from __future__ import annotations

from dataclasses import dataclass

from planners.clustering.sort_fields import SortField
from planners.model import InputFile, PartitionKey
from streaming_sink.tasks.clustering.row_strategy import RowStrategy
from streaming_sink.tasks.job import SortedBy, WorkerJob
from streaming_sink.tasks.results import WrittenFile


@dataclass(frozen=True, slots=True)
class Input(InputFile):
    """One file of a group, as the table knows it."""

    encrypted: bool = False
    sorted_by: tuple[SortedBy, ...] = ()
    """The order of its rows by its entry in the manifest."""


@dataclass(frozen=True, slots=True)
class GroupJob:
    """Everything a task needs to rewrite one group. All its rows are of one partition."""

    index: int
    """The group's place in the plan."""
    worker: WorkerJob
    inputs: tuple[Input, ...]
    partition: PartitionKey
    sort_by: tuple[SortField, ...]
    strategy_name: str
    strategy: RowStrategy
    rows_per_file: int
    memory_bytes: int
    """Arrow bytes that the task may hold; further rows are spilled to the worker's disk."""
    checksum: bool
    """Whether to read the new files, and compare them with the inputs as multisets of rows."""
    order: str | None = None
    """The order of the rows, which the files' names state; None if files are only joined."""
    level: int = 0
    has_remainder: bool = False
    """The last file of the group takes the remaining rows; otherwise files are of equal size."""
    range_ends: tuple[float, ...] = ()
    """The parts of the group's rows, ascending, at which the ranges of its tasks end, except the last range;
    () for a single task."""
    part: int = 0
    """The number of this task's range of the order, of `len(range_ends) + 1`."""
    sorted_by: tuple[SortedBy, ...] = ()
    """The order of the rows, which the footers state."""
    file_by_file: bool = False
    """Each input becomes one file of the same order, by its footer and its name."""

    @property
    def rows(self) -> int:
        """Live rows, by the table."""
        return sum(each.live_rows for each in self.inputs)


@dataclass(frozen=True, slots=True)
class GroupWritten:
    """What one task wrote of a group: closed and durable files, of as many rows as it took of the inputs."""

    files: tuple[WrittenFile, ...]
    seconds: float
    cpu_seconds: float
    """Processor time of the Python worker process, all its threads, while it rewrote the group."""
    spilled_bytes: int
    ranges: bytes = b""
    """A digest of the rows where the ranges of the group meet: its tasks must agree."""
    deleted_rows: int = 0
    """How many rows the delete files of all inputs delete, by their content: of these too."""

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


@dataclass(frozen=True, slots=True)
class GroupFailed:
    """Why a group has no new files. Those that it had are deleted."""

    reason: str


GroupResult = GroupWritten | GroupFailed
