"""What the driver tells the task of one group and what it answers: plain values that pickle."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import cast

from planners.clustering.sort_fields import SortField
from planners.model import PartitionKey
from streaming_sink.tasks.clustering.row_strategy import RowStrategy
from streaming_sink.tasks.job import SortedBy, WorkerJob, WrittenFile


@dataclass(frozen=True, slots=True)
class Input:
    """One file of a group, as the table knows it."""

    path: str
    rows: int
    encrypted: bool = False
    sorted_by: tuple[SortedBy, ...] = ()
    """The order of its rows that the table tells of."""


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
    """Arrow bytes that the task may hold; rows beyond it wait on the worker's disk."""
    checksum: bool
    """Whether to read what was written, and compare it with the inputs as multisets of rows."""
    order: str | None = None
    """The order of the rows, for the names of the files to tell; None where they are only joined."""
    level: int = 0
    has_remainder: bool = False
    """The last file of the group stays small; without, files come out equal."""
    cuts: tuple[float, ...] = ()
    """Parts of the group's rows, ascending, behind which further tasks take over; () for one task alone."""
    part: int = 0
    """Which of the `len(cuts) + 1` ranges of the order this task takes."""
    sorted_by: tuple[SortedBy, ...] = ()
    """The order of the rows, for the footers to tell."""
    file_by_file: bool = False
    """Each input becomes one file, with its order: by its footer, and by its name."""

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.inputs)


@dataclass(frozen=True, slots=True)
class GroupWritten:
    """What one task wrote of a group, closed and durable: exactly as many rows as it took of the inputs."""

    files: tuple[WrittenFile, ...]
    seconds: float
    cpu_seconds: float
    """Of the whole Python worker process, all its threads, while the group was rewritten."""
    spilled_bytes: int
    ranges: bytes = b""
    """A digest of where the ranges of the group meet: its tasks must agree."""

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


@dataclass(frozen=True, slots=True)
class GroupFailed:
    """Why a group has no new files. What was written of it is deleted."""

    reason: str


GroupResult = GroupWritten | GroupFailed


def encode(result: GroupResult) -> bytes:
    """Return the bytes in which a task hands `result` to the driver."""
    return pickle.dumps(result, protocol=pickle.HIGHEST_PROTOCOL)


def decode(data: bytes) -> GroupResult:
    """Return the result that `encode` made. The bytes come from our own tasks, over Spark's own channel."""
    return cast(GroupResult, pickle.loads(data))
