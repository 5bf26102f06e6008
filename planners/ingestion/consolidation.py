"""Consolidation: which task reads which source files of a work item, and writes which right-sized files.

The rows of every file are known, by partition, before anything is written. So no row is shuffled: a task owns
some files to write, and reads the source files whose rows they need; a source file with rows for several
tasks is read by each of them, which keeps its own.

Row groups of some source files can become part of a file as they are. A file ends where such a source does,
if it is large enough then.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise

from planners.inserts import SLACK, plan_inserts
from planners.model import Arrival, Bucket, InsertPlan, PartitionKey, TableFile, comparable, sort_key
from planners.sizing import FileSizing, FillPolicy, full_file_bytes


@dataclass(frozen=True, slots=True)
class SourceRows:
    """The rows that one source file has for one partition."""

    file: int
    """Its number in the work item."""
    partition: PartitionKey
    rows: int
    copied: bool = False
    """Whether its row groups can be part of a new file as they are: of one that holds all of them."""


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

    Sources that are copied come first in new files, and last where small files are filled, whose rows are
    decoded. A file that would end inside of one ends before it, unless it were a small one, or more files
    were needed.
    """
    by_partition: dict[PartitionKey, list[SourceRows]] = {}
    for source in sources:
        by_partition.setdefault(comparable(source.partition), []).append(source)
    arrivals = [
        Arrival(partition, sum(each.rows for each in rows)) for partition, rows in by_partition.items()
    ]
    plan = plan_inserts(arrivals, files, sizing, bytes_per_row=bytes_per_row, policy=policy, exact=True)
    least = -(-full_file_bytes(sizing) // bytes_per_row)
    buckets: dict[PartitionKey, list[tuple[int, Bucket]]] = {}
    cut: list[Bucket] = []
    for partition, planned in groupby(plan.buckets, key=lambda bucket: comparable(bucket.partition)):
        own = [*planned]
        fills, new = [it for it in own if it.inputs], [it for it in own if not it.inputs]
        rows = sorted(by_partition.get(partition, ()), key=lambda source: source.copied == bool(fills))
        new = _cut_at_ends(new, rows, sum(bucket.rows for bucket in fills), least, plan.rows_per_new_file)
        by_partition[partition] = rows
        buckets[partition] = [*enumerate((*fills, *new), len(cut))]
        cut += (*fills, *new)
    total = sum(arrival.rows for arrival in arrivals)
    most = max(1, min(-(-total // parallelism), 4 * plan.rows_per_new_file))
    pieces = [
        piece
        for partition in sorted(by_partition, key=sort_key)
        for piece in _pieces(by_partition[partition], buckets.get(partition, ()), most)
    ]
    for piece in pieces:
        if piece.buckets:  # a task knows when the last of its files is complete, and closes it then
            *_, last = piece.buckets
            more = piece.rows - sum(cut[place].rows for place in piece.buckets)
            cut[last] = replace(cut[last], rows=cut[last].rows + more, max_rows=None)
    return ConsolidationPlan(replace(plan, buckets=tuple(cut)), tuple(_packed(pieces, most)))


def _cut_at_ends(
    new: Sequence[Bucket], sources: Sequence[SourceRows], begin: int, least: int, most: int
) -> list[Bucket]:
    """Return as many new files, of `most` rows each at most, none of which ends inside of a copied source
    where it may end before or behind that, with `least` rows or more, and so may those after it. `begin`: so
    many rows of the sources come before.
    """
    ends = [*accumulate(source.rows for source in sources)]
    copied = [(end - it.rows, end) for it, end in zip(sources, ends, strict=True) if it.copied]
    *targets, last = accumulate((bucket.rows for bucket in new), initial=begin)
    cuts = targets[:1]
    for left, target in zip(range(len(new) - 1, 0, -1), targets[1:], strict=True):
        cut = min(max(target, cuts[-1] + least), cuts[-1] + most)
        before, behind = copied[bisect_left(copied, (cut,)) - 1] if copied else (cut, cut)
        if before < cut < behind:
            if before - cuts[-1] >= least and last - before <= left * most:
                cut = before
            elif behind - cuts[-1] <= most and last - behind >= left * least:
                cut = behind
        cuts.append(cut)
    sizes = [end - start for start, end in pairwise((*cuts, last))]
    return [
        replace(bucket, rows=rows, max_rows=max(most, rows + rows // SLACK))
        for bucket, rows in zip(new, sizes, strict=True)
    ]


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
