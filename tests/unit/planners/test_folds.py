"""Folds: which files are rewritten because rows are deleted, and the bounds over streams that delete."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planners import FileSizing
from planners.fills import FILES_A_PASS, FillPlan, PlannedFill, plan_fills
from planners.folds import DELETE_FILES_AT_MOST, DELETE_FILES_AT_REST, PlannedDeleteMerge
from planners.model import PositionDeletes, TableFile
from planners.sizing import SMALL_FILES_AT_MOST, FillPolicy

MIB = 1024**2
WIDTH = 1024
SIZING = FileSizing(max_file_bytes="16MiB", small_file_bytes="13MiB")


def file(path: str, rows: int, *deletes: int, **told: object) -> TableFile:
    """A file of so many rows, of which delete files delete so many each."""
    gone = sum(deletes)
    return TableFile(
        path,
        (),
        (rows - gone) * WIDTH,
        rows - gone,
        deleted_bytes=gone * WIDTH,
        deleted_rows=gone,
        deletes=tuple(PositionDeletes(f"{path}-{at}", each) for at, each in enumerate(deletes)),
        **told,  # type: ignore[arg-type]
    )


def taken(plan: FillPlan) -> list[list[str]]:
    return [[it.path for it in fill.inputs] for fill in plan.fills]


FULL = 16 * 1024


def test_a_full_file_is_folded_alone_once_more_than_a_fifth_of_its_rows_is_deleted() -> None:
    assert plan_fills([file("a", 20_000, 3_000, 1_000)], SIZING).fills == ()
    [fill] = plan_fills([file("a", 20_000, 3_000, 1_000, 1)], SIZING).fills
    assert (fill.inputs[0].path, fill.cuts) == ("a", ())
    assert fill.reason == "4,001 of 20,000 rows are deleted"


def test_the_share_is_an_option() -> None:
    known = [file("a", FULL, FULL // 2)]
    assert taken(plan_fills(known, SIZING, fold_above=0.4)) == [["a"]]
    assert plan_fills(known, SIZING, fold_above=0.5).fills == ()


@pytest.mark.parametrize("fold_above", [0.2, 1.0])
def test_a_file_without_live_rows_is_folded_whatever_the_share(fold_above: float) -> None:
    [fill] = plan_fills([file("a", FULL, FULL)], SIZING, fold_above=fold_above).fills
    assert (fill.rows, fill.cuts) == (0, ())


def test_worn_files_that_are_small_go_together_and_leave_the_other_small_ones_waiting() -> None:
    known = [file("a", FULL, FULL * 7 // 8), file("b", 1_000, 900), file("c", 1_000, 10), file("d", 1_000)]
    [fill] = plan_fills(known, SIZING).fills
    assert [it.path for it in fill.inputs] == ["b", "a"]
    assert fill.reason == "900 of 1,000 rows are deleted; 14,336 of 16,384 rows are deleted"


def test_a_worn_file_is_part_of_a_merge_that_is_made_anyway() -> None:
    known = [file("a", FULL, FULL // 2), file("b", 7 * 1024)]
    assert taken(plan_fills(known, SIZING)) == [["b", "a"]]


def test_a_full_file_that_shrank_a_little_is_no_small_file() -> None:
    """One row deleted of a file of just the small limit, and all of it would be merged again."""
    plan = plan_fills([file("a", 13 * 1024, 100), file("b", 1024)], SIZING)
    assert (plan.fills, plan.most_small_files) == ((), 1)


def test_a_sorted_file_is_folded_alone_and_joins_no_other() -> None:
    known = [file("a", 1_000, 900, sorted=True), file("b", 1_000, 900), file("c", 1_000, 1, sorted=True)]
    assert sorted(taken(plan_fills(known, SIZING))) == [["a"], ["b"]]


@pytest.mark.parametrize(
    "told", [{"reserved_by": "a plan"}, {"encryption": "a key"}, {"has_deletes_by_value": True}]
)
def test_files_that_no_fold_may_take_are_left_alone(told: dict[str, object]) -> None:
    plan = plan_fills([file("a", FULL, FULL // 2, **told), file("b", 9, 8, **told)], SIZING)
    assert (plan.fills, plan.most_small_files) == ((), 0)


def test_never_folds_nothing() -> None:
    assert plan_fills([file("a", 9, 9)], SIZING, FillPolicy.NEVER).fills == ()


def test_a_plan_folds_so_many_full_files_of_a_partition_the_most_deleted_first() -> None:
    known = [file(f"{at:03}", 2 * FULL, FULL // 2 + at) for at in range(FILES_A_PASS + 8)]
    plan = plan_fills(known, SIZING)
    assert taken(plan) == [[f"{at:03}"] for at in range(FILES_A_PASS + 7, 7, -1)]


# ----------------------------------------------------------------------------------- delete files


def test_of_nine_delete_files_those_are_merged_that_repay_it_best() -> None:
    full = file("a", FULL, 400, 90, 1, 2, 1, 1, 1, 2, 1)
    assert plan_fills([replace(full, deletes=full.deletes[:8])], SIZING).is_empty, "eight may stay"
    plan = plan_fills([full], SIZING)
    assert (plan.fills, plan.most_delete_files) == ((), 9)
    [merge] = plan.delete_merges
    assert [it.rows for it in merge.deletes] == [1] * 5, "one of 2 repays less"
    assert merge.reason == "9 delete files of one data file"


def test_equal_delete_files_are_merged_into_one() -> None:
    [merge] = plan_fills([file("a", FULL, *[1] * 30)], SIZING).delete_merges
    assert len(merge.deletes) == 30


def test_at_rest_two_delete_files_stay_and_of_three_those_are_merged_that_repay_it_best() -> None:
    assert plan_fills([file("a", FULL, 400, 20)], SIZING, at_rest=True).is_empty
    few = file("a", FULL, 400, 20, 10)
    assert plan_fills([few], SIZING).is_empty, "the stream goes on"
    [merge] = plan_fills([few], SIZING, at_rest=True).delete_merges
    assert [it.rows for it in merge.deletes] == [10, 20], "400 of them repay less"
    read = file("a", FULL, *[1] * 9, reserved_by="a plan")
    assert plan_fills([read], SIZING, at_rest=True).is_empty, "a plan has read them"


def test_the_delete_files_of_a_file_that_is_rewritten_anyway_are_not_merged() -> None:
    worn, filled = file("a", 2 * FULL, FULL, *[1] * 9), file("b", 7 * 1024, *[1] * 9)
    plan = plan_fills([worn, filled, file("c", 7 * 1024)], SIZING)
    assert sorted(path for fill in taken(plan) for path in fill) == ["a", "b", "c"]
    assert plan.delete_merges == ()


@pytest.mark.parametrize(
    ("told", "merged"),
    [
        ({"sorted": True}, True),
        ({"encryption": "a key"}, True),
        ({"has_deletes_by_value": True}, True),
        ({"reserved_by": "a plan"}, False),
    ],
)
def test_delete_files_of_a_file_that_is_not_folded_are_merged_unless_a_plan_has_read_them(
    told: dict[str, object], merged: bool
) -> None:
    plan = plan_fills([file("a", FULL, *[1] * 9, **told)], SIZING)
    assert (bool(plan.delete_merges), plan.most_delete_files) == (merged, 9 * merged)


def test_own_delete_files_are_merged_in_the_end_though_a_plan_is_pending_all_the_time() -> None:
    """The clusterer plans again as soon as a plan has ended, and each batch deletes a row of the file."""
    rows, merges, most = [1], 0, 0
    for batch in range(1, 300):
        rows.append(1)
        for merge in plan_fills([file("a", FULL, *rows, reserved_by=f"plan {batch}")], SIZING).delete_merges:
            merges += 1
            for each in merge.deletes:
                rows.remove(each.rows)
            rows.append(sum(each.rows for each in merge.deletes))
        most = max(most, len(rows))
    assert most == 4 * DELETE_FILES_AT_MOST
    assert merges <= 300 / (3 * DELETE_FILES_AT_MOST)


# ------------------------------------------------------------------------------------------ streams


@dataclass
class Partition:
    """A partition of a stream that appends and deletes rows, and what the passes beside it do."""

    fold_above: float = 0.2
    files: list[TableFile] = field(default_factory=list)
    ingested: int = 0
    deleted: int = 0
    folded: int = 0
    """Bytes written by merges of worn files alone."""
    positions: int = 0
    """Positions written, by deletes and by merges of delete files."""
    fewest: int = 2**60
    """The rows of the smallest delete file."""
    written: int = 0
    smallest: int = 2**60
    made: int = 0
    rested: bool = False

    def append(self, rows: int) -> None:
        self.ingested += rows
        for start in range(0, rows, FULL):
            self.add(min(FULL, rows - start))

    def add(self, rows: int) -> None:
        self.made += 1
        self.written += rows
        self.smallest = min(self.smallest, rows)
        self.files.append(file(f"{self.made:09d}", rows))

    def delete(self, dice: random.Random, files: int, most: int) -> None:
        for at in dice.sample(range(len(self.files)), min(files, len(self.files))):
            old = self.files[at]
            if old.rows:
                gone = dice.randint(1, min(most, old.rows))
                self.deleted += gone
                self.positions += gone
                self.fewest = min(self.fewest, gone)
                self.smallest = min(self.smallest, max(1, old.rows - gone))
                self.files[at] = file(
                    old.path, old.rows + old.deleted_rows, *(it.rows for it in old.deletes), gone
                )

    def run_pass(self, *, at_rest: bool = False) -> None:
        self.rested |= at_rest
        plan = plan_fills(self.files, SIZING, fold_above=self.fold_above, at_rest=at_rest)
        for fill in plan.fills:
            gone = {it.path for it in fill.inputs}
            self.files = [it for it in self.files if it.path not in gone]
            if "are deleted" in fill.reason:
                self.folded += fill.rows
            self.write(fill)
        for merge in plan.delete_merges:
            self.merge(merge)
        most = DELETE_FILES_AT_REST if at_rest else DELETE_FILES_AT_MOST
        assert max((len(it.deletes) for it in self.files), default=0) <= most
        worn = [it for it in self.files if it.deleted_rows > self.fold_above * (it.rows + it.deleted_rows)]
        assert worn == [] or len(plan.fills) >= FILES_A_PASS
        assert sum(it.bytes + it.deleted_bytes < 13 * MIB for it in self.files) <= SMALL_FILES_AT_MOST

    def merge(self, merge: PlannedDeleteMerge) -> None:
        [at] = [at for at, it in enumerate(self.files) if it.path == merge.file.path]
        old, rows = self.files[at], sum(it.rows for it in merge.deletes)
        self.positions += rows
        self.made += 1
        left = [it for it in old.deletes if it not in merge.deletes]
        self.files[at] = replace(old, deletes=(*left, PositionDeletes(f"merged-{self.made}", rows)))

    def write(self, fill: PlannedFill) -> None:
        ends = [*fill.cuts, fill.rows]
        for start, end in zip([0, *ends], ends, strict=False):
            if end > start:
                self.add(end - start)

    def check(self) -> None:
        """The formulas of the two modules' docstrings."""
        per_deleted = 1 / self.fold_above - 1
        assert self.folded <= per_deleted * self.deleted
        wide, narrow = max(1, FULL / self.smallest), max(1, 13 * 1024 / self.smallest)
        crowd = wide ** (1 / 8)
        per_ingested = 3 + math.log2(narrow) * crowd
        allowed = per_ingested * self.ingested + (3 * per_deleted + 1.45 * crowd) * self.deleted
        assert self.written <= allowed
        most = max(1, FULL / self.fewest)
        root = DELETE_FILES_AT_REST if self.rested else DELETE_FILES_AT_MOST
        assert self.positions <= (1 + math.log2(most) * most ** (1 / root)) * self.deleted


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.sampled_from([1, 50, 700, 5_000, 40_000]), min_size=1, max_size=5),
    st.integers(0, 6),
    st.sampled_from([1, 30, 4_000, FULL]),
    st.sampled_from([0.05, 0.2, 0.5, 1.0]),
    st.sampled_from([0, 0.1, 1]),
    st.integers(0, 2**32),
)
def test_any_stream_of_rows_and_deletes_keeps_the_bounds(
    arrivals: Sequence[int], files: int, most: int, fold_above: float, rests: float, seed: int
) -> None:
    partition, dice = Partition(fold_above), random.Random(seed)
    for at in range(120):
        partition.append(arrivals[at % len(arrivals)])
        partition.delete(dice, files, most)
        partition.run_pass(at_rest=dice.random() < rests)
    partition.check()


def test_a_few_rows_at_a_time_of_a_full_file_rewrite_nothing_until_the_share_is_reached() -> None:
    partition, dice = Partition(), random.Random(1)
    partition.append(FULL)
    while partition.deleted <= FULL // 5:
        assert partition.folded == 0
        partition.delete(dice, 1, 30)
        partition.run_pass()
    assert partition.folded == FULL - partition.deleted
    assert partition.positions < 5 * partition.deleted


@given(
    st.lists(
        st.tuples(st.integers(1, 3 * FULL), st.integers(0, 100), st.booleans(), st.integers(0, 1)),
        max_size=30,
    ),
    st.randoms(use_true_random=False),
)
def test_the_order_of_the_files_does_not_matter_and_no_file_is_taken_twice(
    known: list[tuple[int, int, bool, int]], dice: random.Random
) -> None:
    files = [
        replace(file(f"{at:03}", rows, rows * percent // 100), sorted=is_sorted, spec_id=spec)
        for at, (rows, percent, is_sorted, spec) in enumerate(known)
    ]
    plan = plan_fills(files, SIZING)
    dice.shuffle(files)
    assert plan_fills(files, SIZING) == plan
    paths = [path for fill in taken(plan) for path in fill]
    assert len(set(paths)) == len(paths)
    assert all(it.sorted is False for fill in plan.fills if len(fill.inputs) > 1 for it in fill.inputs)
