"""Shared delete files: one for many data files of a partition, where rows leave many data files at once.

A batch that deletes from n data files writes n delete files as long as n <= N = 128. Above that it writes
N + p at most for the p partitions that rows leave: each of data files that follow one another by path, so
that the ranges of paths of one batch are apart, and one of them may apply to a data file. These are a *run*.

Once a partition has more than four runs, the smallest are merged into one, size-tiered as the delete files of
one data file (`planners/folds.py`), so that four are left. A merge leaves out the data files that have left
the table. A data file of which it has k positions or more gets a delete file of its own, with k = 1,024, or a
quarter of the share f (`fold_above`) of its rows where that is less: how worn a file is, is known from these
alone. All others share N files again.

What that bounds:

* Delete files of a batch: N + p.
* Shared delete files that may apply to a data file, once a pass has ended: four; sixteen where pending plans
  have read files of the partition, and so their deletes. Beyond these they are merged all the same, or plan
  after plan would put the merge off for ever. It costs a plan the groups that they apply to, once in a dozen
  batches at most; and each of these batches has deleted rows of the partition, too.
* Rows of a data file that are deleted, and not counted in its wear: those in four runs at most; of a merged
  one, less than f/4 of its rows.
* Delete files that merges write: N + p each, and one for k positions, of which each goes to a delete file of
  one data file once.
* Positions written by merges per deleted row: 1 + log2(n / x) * (n / x) ** (1/4), where n rows are in runs,
  and the smallest run has x.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from planners.model import FileContent, PositionDeletes, TableFile, TablePartition, partition_of, sort_key
from planners.tiers import best_repaid

DELETE_FILES_A_BATCH = 128
"""16 are written at once: at 30 ms a request they take a quarter of a second."""
SHARED_RUNS_AT_MOST = 4
"""The bound on the runs of a partition, once a pass has ended."""
SHARED_RUNS_AT_REST = 1
"""The same, once passes over a stream at rest have ended (`planners/folds.py`)."""
RUNS_BESIDE_PLANS = 4 * SHARED_RUNS_AT_MOST
"""The bound where pending plans have reserved data files of the partition."""
OWN_POSITIONS = 1024
"""So many positions of a data file are worth a delete file: about 2 KiB, as much as its footer."""

_Partition = TypeVar("_Partition")


@dataclass(frozen=True, slots=True)
class PlannedRunMerge:
    """Runs of shared delete files of one partition that become one; its data files stay as they are."""

    partition: TablePartition
    deletes: tuple[PositionDeletes, ...]
    into: int
    """The most shared files that they become: as many as the largest of the runs has."""
    runs: int
    """The runs of the partition, before."""
    most: int
    """The runs that may stay."""

    @property
    def reason(self) -> str:
        return f"{self.runs} runs of shared delete files, more than {self.most}"


def share_delete_files(
    data_files: Mapping[str, _Partition], at_most: int = DELETE_FILES_A_BATCH
) -> list[tuple[str, ...]]:
    """Return which of these data files, each with its partition, get a delete file together: a group for each
    of them, or, where these are more, `at_most` and one for each partition at most. A group is of one
    partition, in the order of paths, and no other is in between.
    """
    if len(data_files) <= at_most:
        return [(path,) for path in sorted(data_files)]
    by_partition: dict[_Partition, list[str]] = defaultdict(list)
    for path in sorted(data_files):
        by_partition[data_files[path]].append(path)
    groups = []
    for paths in by_partition.values():
        count = max(1, at_most * len(paths) // len(data_files))
        cuts = [len(paths) * number // count for number in range(count + 1)]
        groups += [tuple(paths[start:end]) for start, end in pairwise(cuts)]
    return groups


def own_from(rows: int, fold_above: float) -> int:
    """Return how many positions of a data file of so many rows are worth a delete file of its own."""
    return max(1, min(OWN_POSITIONS, int(rows * fold_above / 4)))


def runs_of(files: Iterable[TableFile]) -> dict[TablePartition, dict[int, set[PositionDeletes]]]:
    """Return the shared delete files that may apply to these data files, by partition and run."""
    found: dict[TablePartition, dict[int, set[PositionDeletes]]] = defaultdict(lambda: defaultdict(set))
    for file in files:
        for deletes in file.deletes:
            if deletes.run is not None:
                found[partition_of(file)][deletes.run].add(deletes)
    return found


def merges_of_runs(files: Sequence[TableFile], *, at_rest: bool = False) -> Iterator[PlannedRunMerge]:
    """Yield the merges of the partitions that have too many runs. A plan has read those that may apply to a
    data file that it has reserved: they stay as long as they are few enough. `files`: all that shared delete
    files may apply to.
    """
    shared = [file for file in files if any(it.run is not None for it in file.deletes)]
    closed = {partition_of(it) for it in shared if it.content is not FileContent.DATA}
    planned = {partition_of(it) for it in shared if it.reserved_by}
    every, most = runs_of(shared), SHARED_RUNS_AT_REST if at_rest else SHARED_RUNS_AT_MOST
    for partition in sorted(every.keys() - closed, key=lambda it: (it.spec_id, sort_key(it.values))):
        runs = sorted(every[partition].values(), key=lambda run: (_rows(run), min(it.path for it in run)))
        if len(runs) > (RUNS_BESIDE_PLANS if partition in planned else most):
            rows = [_rows(run) for run in runs]
            count = best_repaid(rows, sum(rows), most - 1)
            assert count is not None  # there is no limit to one
            merged = sorted((each for run in runs[:count] for each in run), key=lambda it: it.path)
            yield PlannedRunMerge(partition, tuple(merged), max(map(len, runs[:count])), len(runs), most)


def reached_by(merges: Iterable[PlannedRunMerge], files: Sequence[TableFile]) -> Iterator[str]:
    """Yield the paths of the data files to which a shared delete file of these merges may apply once they are
    executed: all between the first and the last one to which a delete file that is merged applies now.
    """
    for merge in merges:
        merged, same = set(merge.deletes), [it for it in files if partition_of(it) == merge.partition]
        now = [file.path for file in same if not merged.isdisjoint(file.deletes)]
        yield from (file.path for file in same if min(now) <= file.path <= max(now))


def _rows(run: Iterable[PositionDeletes]) -> int:
    return sum(each.rows for each in run)
