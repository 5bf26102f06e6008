"""Consolidation: which task reads which source files of a work item, and writes which right-sized files.

The rows of every file are known, by partition, before anything is written. So no row is shuffled: a task owns
some files to write, and reads the source files whose rows they need; a source file with rows for several
tasks is read by each of them, which keeps its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from planners.inserts import SLACK, plan_inserts
from planners.model import Arrival, Bucket, InsertPlan, PartitionKey, TableFile, comparable, sort_key
from planners.sizing import FileSizing, FillPolicy


@dataclass(frozen=True, slots=True)
class SourceRows:
    """The rows that one source file has for one partition."""

    file: int
    """Its number in the work item."""
    partition: PartitionKey
    rows: int


@dataclass(frozen=True, slots=True)
class TaskShare:
    """What one task does: the rows that it reads, and the files that it writes, in this order."""

    sources: tuple[SourceRows, ...]
    buckets: tuple[int, ...]
    """Places in the plan."""

    @property
    def rows(self) -> int:
        return sum(source.rows for source in self.sources)


@dataclass(frozen=True, slots=True)
class ConsolidationPlan:
    """The files that a work item becomes, and the shares of the tasks that write them."""

    plan: InsertPlan
    tasks: tuple[TaskShare, ...]


def plan_consolidation(
    sources: Iterable[SourceRows],
    files: Iterable[TableFile],
    sizing: FileSizing,
    *,
    bytes_per_row: int,
    policy: FillPolicy,
    parallelism: int,
) -> ConsolidationPlan:
    """Return the files that these rows become, and what each task reads and writes.

    Files are cut, and small ones of the table filled, as `plan_inserts` says for rows that were counted: full
    files, and one remainder in a partition. There are about `parallelism` tasks, or more where a share would
    otherwise be more than four full files. A partition is divided among tasks where a file ends, if a source
    file ends there too, within the slack of a file. Each row is in exactly one share, and each bucket.
    """
    by_partition: dict[PartitionKey, list[SourceRows]] = {}
    for source in sources:
        by_partition.setdefault(comparable(source.partition), []).append(source)
    arrivals = [
        Arrival(partition, sum(each.rows for each in rows)) for partition, rows in by_partition.items()
    ]
    plan = plan_inserts(arrivals, files, sizing, bytes_per_row=bytes_per_row, policy=policy, exact=True)
    buckets: dict[PartitionKey, list[tuple[int, Bucket]]] = {}
    for place, bucket in enumerate(plan.buckets):
        buckets.setdefault(comparable(bucket.partition), []).append((place, bucket))
    total = sum(arrival.rows for arrival in arrivals)
    most = max(1, min(-(-total // parallelism), 4 * plan.rows_per_new_file))
    pieces = [
        piece
        for partition in sorted(by_partition, key=sort_key)
        for piece in _pieces(by_partition[partition], buckets.get(partition, ()), most)
    ]
    return ConsolidationPlan(plan, tuple(_packed(pieces, most)))


def _pieces(
    sources: Sequence[SourceRows], buckets: Sequence[tuple[int, Bucket]], most: int
) -> list[TaskShare]:
    """Divide a partition where a share is full, and a source file ends where a file of the plan does."""
    pieces: list[TaskShare] = []
    own: list[int] = []
    waiting = list(reversed(sources))
    taken: list[SourceRows] = []
    planned = have = cut_at = 0  # rows of the partition: differences do not add up over its pieces
    for place, bucket in buckets:
        own.append(place)
        planned += bucket.rows
        while waiting and have + waiting[-1].rows // 2 < planned:
            taken.append(waiting.pop())
            have += taken[-1].rows
        fits = abs(have - planned) <= bucket.rows // SLACK
        if planned - cut_at >= most and fits and waiting:
            pieces.append(TaskShare(tuple(taken), tuple(own)))
            taken, own, cut_at = [], [], planned
    taken += reversed(waiting)
    if taken or own:
        pieces.append(TaskShare(tuple(taken), tuple(own)))
    return pieces


def _packed(pieces: Sequence[TaskShare], most: int) -> Iterable[TaskShare]:
    """Join pieces that follow one another into shares of about `most` rows: neighbouring partitions come from
    the same source files.
    """
    joined: list[TaskShare] = []
    for piece in pieces:
        if joined and joined[-1].rows + piece.rows // 2 <= most:
            last = joined.pop()
            piece = TaskShare(last.sources + piece.sources, last.buckets + piece.buckets)
        joined.append(piece)
    return joined


def partitions_of_shared_files(
    share: TaskShare, tasks: Sequence[TaskShare]
) -> Mapping[int, frozenset[PartitionKey]]:
    """Return the source files of a share whose other rows belong to other tasks, by number, with the
    partitions of the rows that belong to this one.
    """
    readers: dict[int, int] = {}
    for task in tasks:
        for number in {source.file for source in task.sources}:
            readers[number] = readers.get(number, 0) + 1
    own: dict[int, set[PartitionKey]] = {}
    for source in share.sources:
        if readers[source.file] > 1:
            own.setdefault(source.file, set()).add(comparable(source.partition))
    return {number: frozenset(partitions) for number, partitions in own.items()}
