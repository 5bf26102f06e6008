"""Fills beside the stream: which small files are merged with each other, after their batches have committed,
and which files are rewritten because many of their rows are deleted (`planners/folds.py`).

Nothing arrives, so a plan is a function of the files alone. Per partition, with M the maximum, T the small
limit, and the aim an eighth of M - T above T:

* *Seal.* Files that have the aim or more together, and fit into one file, become a full one.
* *Crowded.* Where more than eight (**amortized**) or one (**always**) are left, one merge takes all that are
  too many. If they have less than the aim together, it takes those that repay it best: ordered by size, x1 >=
  x2 >= ..., the files from xi on, for the i with the least xi / (x(i+1) + x(i+2) + ...). Else files of more
  than M are cut into full ones and a tail: no two of them fit beside each other, and waiting cannot help.

What that bounds, for files that come out as estimated, if T <= 15/16 M:

* A plan that is executed leaves at most eight small files (**always**: one) of each partition whose files are
  all considered. A plan considers `FILES_A_PASS`, so a partition that comes with more loses at least 24.
  Every merge makes one small file at most of two or more, so a part of a plan is progress too.
* Bytes written per byte ingested under **amortized**, the batches' own files included, for a stream whose
  smallest file has x bytes (an arrival, or a tail): at most

      3 + log2(T / x) * (M / x) ** (1/8)

  An arrival costs 1. A byte is sealed once: for 1 where the files fit, for at most 2 where a tail is
  rewritten with it, since what is sealed is M or more, and the tail less. In a crowded merge the bytes of
  x(i+1)... pay for themselves and for xi. Their file at least doubles, so a byte pays log2(T / x) times at
  most; and it pays 1 + xi / (x(i+1) + ...), whose product over the eight or more choices is at most the
  bytes of all files over x, so that the least is at most the eighth root.

Sizes are live bytes. A worn file (`planners/folds.py`) is folded under both policies: where it is small, by
one of the merges above, else with the other small ones that are worn; where it is full or sorted, alone.

Of other files that have too many delete files, some of these are merged, and so are shared delete files
(`planners/shared_deletes.py`). Under **never** nothing is merged or folded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from planners.folds import (
    PlannedDeleteMerge,
    has_open_deletes,
    is_worn,
    merges_of_deletes,
    why_worn,
)
from planners.model import TableFile, TablePartition, partition_of, sort_key
from planners.shared_deletes import PlannedRunMerge, merges_of_runs, reached_by
from planners.sizing import (
    FOLD_ABOVE,
    SMALL_FILES_AT_MOST,
    FileSizing,
    FillPolicy,
    aim_bytes,
    by_size,
    largest_that_fit,
    refusal,
    why_untouchable,
)
from planners.tiers import best_repaid

FILES_A_PASS = 4 * SMALL_FILES_AT_MOST
"""The files of a partition that one plan considers, the smallest ones, so that a pass over a partition that
comes with thousands ends soon. No less than a stream leaves while a pass runs."""
FILES_AFTER_A_WAIT = 9 * SMALL_FILES_AT_MOST
"""The same in a table of which merging leaves partitions alone for a while (`planners/room.py`)."""

_SLACK = 32
"""A tail below one part in this many of a file joins the full files before it, beyond the maximum."""

_REASONS = 3
"""A fill of worn files says of so many why."""

_LEFT_AT_MOST = {FillPolicy.AMORTIZED: SMALL_FILES_AT_MOST, FillPolicy.ALWAYS: 1}


@dataclass(frozen=True, slots=True)
class PlannedFill:
    """Files of one partition, whose live rows go together into new files."""

    partition: TablePartition
    inputs: tuple[TableFile, ...]
    """Small ones, the smallest first; or one that is folded alone."""
    cuts: tuple[int, ...]
    """After so many live rows of the inputs, in their order, a new file ends; the last one has what is left.
    """
    reason: str

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.inputs)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.inputs)


@dataclass(frozen=True, slots=True)
class FillPlan:
    """The merges of a pass, by partition; no file is in two of them."""

    fills: tuple[PlannedFill, ...]
    most_small_files: int
    """The small files that may be merged, of the partition with most of them, before the pass."""
    delete_merges: tuple[PlannedDeleteMerge, ...] = ()
    most_delete_files: int = 0
    """The delete files of the data file with most of them, before the pass."""
    run_merges: tuple[PlannedRunMerge, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.fills and not self.delete_merges and not self.run_merges


def plan_fills(
    files: Iterable[TableFile],
    sizing: FileSizing,
    policy: FillPolicy = FillPolicy.AMORTIZED,
    fold_above: float = FOLD_ABOVE,
    files_a_pass: int = FILES_A_PASS,
    *,
    at_rest: bool = False,
) -> FillPlan:
    """Return which of these live files are merged or folded, each at most once, where the new files end, and
    which delete files of the others are merged: more of them `at_rest`, when nothing follows soon. Of a
    partition it takes so many files, the smallest ones.

    Files that are reserved, encrypted, with deletes by value, or neither small nor worn, are left alone;
    sorted ones are not merged, nor files of two partition specs. No new file is planned above
    `max_file_bytes` but by one part in 32, or where it was above it before. The same files in any order give
    the same plan.
    """
    if policy is FillPolicy.NEVER:
        return FillPlan((), 0)
    files = list(files)
    free: dict[TablePartition, list[TableFile]] = {}
    alone: dict[TablePartition, list[TableFile]] = {}
    for file in files:
        worn = is_worn(file, fold_above) and why_untouchable(file) is None
        if worn and (file.sorted or file.bytes >= sizing.small_file_bytes):
            alone.setdefault(partition_of(file), []).append(file)
        elif worn or refusal(file, sizing.small_file_bytes) is None:
            free.setdefault(partition_of(file), []).append(file)
    fills: list[PlannedFill] = []
    for partition in sorted(free.keys() | alone.keys(), key=lambda it: (it.spec_id, sort_key(it.values))):
        small = sorted(free.get(partition, ()), key=by_size)[:files_a_pass]
        fills += _fills(small, sizing, _LEFT_AT_MOST[policy], fold_above)
        most_worn = sorted(alone.get(partition, ()), key=lambda it: (-it.deleted_bytes, it.path))
        fills += [PlannedFill(partition, (it,), (), why_worn(it)) for it in most_worn[:files_a_pass]]
    taken = {file.path for fill in fills for file in fill.inputs}
    deleted_from = [file for file in files if file.deletes]
    run_merges = tuple(merges_of_runs(deleted_from, at_rest=at_rest))
    shared = set(reached_by(run_merges, deleted_from))
    return FillPlan(
        tuple(fills),
        max((len(small) for small in free.values()), default=0),
        tuple(merges_of_deletes(deleted_from, taken, shared, at_rest=at_rest)),
        max((len(file.deletes) for file in deleted_from if has_open_deletes(file)), default=0),
        run_merges,
    )


def _fills(
    small: Sequence[TableFile], sizing: FileSizing, left_at_most: int, fold_above: float
) -> list[PlannedFill]:
    fills = []
    left, aim = list(small), aim_bytes(sizing)
    while True:
        together, have = largest_that_fit(left, sizing.max_file_bytes)
        if have < aim:
            break
        fills.append(_fill(together, sizing, f"a full file: {have:,} bytes, merged from {aim:,} on"))
        left = [file for file in left if file not in together]
    if len(left) > left_at_most:
        reason = f"{len(left)} small files, more than {left_at_most}"
        merged = _too_many(left, together, sizing, left_at_most)
        fills.append(_fill(merged, sizing, reason))
        left = [file for file in left if file not in merged]
    if worn := [file for file in left if is_worn(file, fold_above)]:
        fills.append(_fill(worn, sizing, "; ".join(map(why_worn, worn[:_REASONS]))))
    return fills


def _too_many(
    left: Sequence[TableFile], fitting: Sequence[TableFile], sizing: FileSizing, left_at_most: int
) -> Sequence[TableFile]:
    """Return the files that a crowded partition merges into full ones and at most one small one, so that no
    more than `left_at_most` small ones are left. `fitting` are those of `left` that go into one file.
    """
    if sum(file.bytes for file in left) < aim_bytes(sizing):
        count = best_repaid([file.bytes for file in left], sizing.max_file_bytes, left_at_most - 1)
        assert count is not None  # all of them fit
        return left[:count]
    others = [file for file in left if file not in fitting]  # each is too large to fit beside `fitting`
    return [*fitting, *others[: max(1, len(left) - left_at_most + 1 - len(fitting))]]


def _fill(inputs: Sequence[TableFile], sizing: FileSizing, reason: str) -> PlannedFill:
    size = sum(file.bytes for file in inputs)
    full = max(1, size // sizing.max_file_bytes)
    tail_joins = size * _SLACK <= full * sizing.max_file_bytes * (_SLACK + 1)
    ordered = tuple(sorted(inputs, key=by_size))
    cuts = _cuts(ordered, -(-size // full) if tail_joins else sizing.max_file_bytes)
    return PlannedFill(partition_of(ordered[0]), ordered, cuts, reason)


def _cuts(files: Iterable[TableFile], bytes_per_file: int) -> tuple[int, ...]:
    """Return after which rows a new file has so many bytes, which no input has alone. Rows of one input are
    taken for equal; those of two may differ by any factor, as where a stream has got a wide column since.
    """
    cuts: list[int] = []
    rows = have = 0
    for file in files:
        end = bytes_per_file * (len(cuts) + 1)
        if have + file.bytes > end:
            cuts.append(rows + file.rows * (end - have) // file.bytes)
        rows += file.rows
        have += file.bytes
    return tuple(cuts)
