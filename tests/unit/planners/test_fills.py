"""Fills beside the stream: what one plan merges, and the bounds over streams of thousands of batches."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planners import FileSizing
from planners.fills import FILES_A_PASS, FillPlan, plan_fills
from planners.model import TableFile
from planners.sizing import SMALL_FILES_AT_MOST, FillPolicy

MIB = 1024**2
WIDTH = 46
SIZING = FileSizing(max_file_bytes="16MiB", small_file_bytes="13MiB")
AIM = 13 * MIB + 3 * MIB // 8


def files(*sizes: int, **told: object) -> list[TableFile]:
    return [TableFile(f"{at:03d}", (), size, size // WIDTH + 1, **told) for at, size in enumerate(sizes)]  # type: ignore[arg-type]


def inputs(plan: FillPlan) -> list[list[int]]:
    """The sizes of the files that each merge takes."""
    return [sorted(file.bytes for file in fill.inputs) for fill in plan.fills]


# ----------------------------------------------------------------------------------------- one plan


def test_files_wait_until_together_they_make_a_full_one() -> None:
    assert plan_fills(files(6 * MIB, 7 * MIB), SIZING).fills == ()
    [fill] = plan_fills(files(6 * MIB, 7 * MIB, AIM - 13 * MIB), SIZING).fills
    assert fill.bytes == AIM
    assert fill.cuts == (), "one file"
    assert fill.reason == "a full file: 14,024,704 bytes, merged from 14,024,704 on"


def test_files_that_are_enough_for_two_full_ones_make_two_at_once() -> None:
    assert inputs(plan_fills(files(*[7 * MIB] * 5), SIZING)) == [[7 * MIB] * 2] * 2


def test_where_nine_wait_those_are_merged_that_repay_it_best() -> None:
    large, small = [2 * MIB] * 2, [10_000] * 7
    assert inputs(plan_fills(files(*large, *small), SIZING)) == [small]
    assert plan_fills(files(*large, *small[1:]), SIZING).fills == (), "eight may wait"


def test_of_files_that_do_not_fit_beside_each_other_some_are_cut_into_a_full_one_and_a_tail() -> None:
    """Five sixteenths too large for two to fit: they would wait for ever."""
    [fill] = plan_fills(files(*[10 * MIB] * 9), SIZING).fills
    assert [file.bytes for file in fill.inputs] == [10 * MIB] * 2
    assert fill.cuts == (fill.rows * 16 // 20,)


def test_a_tail_that_would_be_tiny_joins_the_full_file() -> None:
    [fill] = plan_fills(files(*[8 * MIB + MIB // 8] * 9), SIZING).fills
    assert len(fill.inputs) == 2
    assert fill.cuts == ()


def test_far_too_many_files_of_which_no_two_fit_become_eight_in_one_plan() -> None:
    [fill] = plan_fills(files(*[10 * MIB] * 20), SIZING).fills
    assert 20 - len(fill.inputs) + 1 == SMALL_FILES_AT_MOST


@given(
    st.lists(st.tuples(st.integers(1, 13 * MIB - 1), st.integers(1, 1_000)), min_size=9, max_size=32),
    st.sampled_from([FillPolicy.AMORTIZED, FillPolicy.ALWAYS]),
)
def test_files_of_narrow_and_of_wide_rows_make_none_beyond_the_maximum(
    known: list[tuple[int, int]], policy: FillPolicy
) -> None:
    """As in a table that has got a wide column since its older files were written."""
    small = [TableFile(f"{at:03d}", (), size, rows) for at, (size, rows) in enumerate(known)]
    for fill in plan_fills(small, SIZING, policy).fills:
        widths = [file.bytes / file.rows for file in fill.inputs for _ in range(file.rows)]
        ends = [0, *fill.cuts, fill.rows]
        assert all(begin < end for begin, end in pairwise(ends))
        for begin, end in pairwise(ends):
            most = SIZING.max_file_bytes * 33 // 32 + widths[begin]
            assert sum(widths[begin:end]) <= most + 1


def test_always_leaves_one_small_file() -> None:
    assert inputs(plan_fills(files(5, 6), SIZING, FillPolicy.ALWAYS)) == [[5, 6]]
    assert plan_fills(files(5), SIZING, FillPolicy.ALWAYS).fills == ()
    [fill] = plan_fills(files(10 * MIB, 12 * MIB), SIZING, FillPolicy.ALWAYS).fills
    assert len(fill.cuts) == 1


def test_never_merges_nothing() -> None:
    assert plan_fills(files(*[1] * 50), SIZING, FillPolicy.NEVER) == FillPlan((), 0)


@pytest.mark.parametrize(
    "told",
    [
        {"reserved_by": "a plan"},
        {"sorted": True},
        {"encryption": "a key"},
        {"has_deletes_by_value": True},
    ],
)
def test_files_that_no_fill_may_take_are_left_alone_and_are_no_crowd(told: dict[str, object]) -> None:
    plan = plan_fills([*files(*[7 * MIB] * 9, **told), *files(1, 2)], SIZING)
    assert plan == FillPlan((), 2)


def test_files_of_two_specs_are_never_merged_though_their_partitions_have_equal_values() -> None:
    mixed = [replace(it, spec_id=at % 2) for at, it in enumerate(files(*[7 * MIB] * 4))]
    plan = plan_fills(mixed, SIZING)
    assert [(fill.partition, {it.spec_id for it in fill.inputs}) for fill in plan.fills] == [
        ((0, ()), {0}),
        ((1, ()), {1}),
    ]


def test_partitions_are_planned_each_for_itself() -> None:
    here, there = files(*[7 * MIB] * 2), [replace(it, partition=("eu",)) for it in files(*[1] * 9)]
    plan = plan_fills([*here, *there], SIZING)
    assert [(fill.partition, len(fill.inputs)) for fill in plan.fills] == [
        ((0, ()), 2),
        ((0, ("eu",)), 9),
    ]
    assert plan.most_small_files == 9


@given(st.lists(st.integers(1, 13 * MIB - 1), max_size=40), st.randoms(use_true_random=False))
def test_the_order_of_the_files_does_not_matter_and_no_file_is_taken_twice(
    sizes: list[int], dice: random.Random
) -> None:
    known = files(*sizes)
    plan = plan_fills(known, SIZING)
    dice.shuffle(known)
    assert plan_fills(known, SIZING) == plan
    taken = [file.path for fill in plan.fills for file in fill.inputs]
    assert len(set(taken)) == len(taken)
    assert all(len(fill.inputs) >= 2 for fill in plan.fills)


# ------------------------------------------------------------------------------------------ streams


@dataclass
class Partition:
    """A partition of a stream that only appends, and what the passes beside it do to its files."""

    sizing: FileSizing = SIZING
    policy: FillPolicy = FillPolicy.AMORTIZED
    width: int = WIDTH
    small: list[TableFile] = field(default_factory=list)
    written: int = 0
    ingested: int = 0
    files_made: int = 0
    largest: int = 0
    smallest: int = 2**60

    def append(self, rows: int) -> None:
        self.ingested += rows * self.width
        a_file = max(1, self.sizing.max_file_bytes // self.width)
        self.add(rows, range(a_file, rows, a_file))

    def add(self, rows: int, cuts: Sequence[int]) -> int:
        """Write files, and return how many of them are small."""
        small_before = len(self.small)
        for begin, end in pairwise([0, *cuts, rows]):
            taken = end - begin
            size = taken * self.width
            self.written += size
            self.files_made += 1
            self.largest = max(self.largest, size)
            if size < self.sizing.small_file_bytes:
                self.smallest = min(self.smallest, size)
                self.small.append(TableFile(f"{self.files_made:09d}", (), size, taken))
        return len(self.small) - small_before

    def plan(self) -> FillPlan:
        return plan_fills(self.small, self.sizing, self.policy)

    def carry_out(self, plan: FillPlan) -> None:
        for fill in plan.fills:
            taken = {file.path for file in fill.inputs}
            self.small = [file for file in self.small if file.path not in taken]
            assert self.add(fill.rows, fill.cuts) <= 1, "at least two small files become at most one"

    @property
    def bound(self) -> float:
        """The formula of the module's docstring, from the smallest file of this stream."""
        largest, limit, least = self.sizing.max_file_bytes, self.sizing.small_file_bytes, self.smallest
        return 3 + math.log2(max(1, limit / least)) * max(1, largest / least) ** (1 / 8)


def run(
    arrivals: Sequence[int], pass_takes: Callable[[int], int] = lambda at: 0, **made: object
) -> Partition:
    """Append batch after batch. A pass is planned when one is needed and none runs, and its merges take the
    place of their inputs so many batches later. At the end the stream is quiet, and passes end.
    """
    partition = Partition(**made)  # type: ignore[arg-type]
    running, ends_at = None, 0
    for at, rows in enumerate(arrivals):
        partition.append(rows)
        if running is not None and at >= ends_at:
            partition.carry_out(running)
            running = None
        if running is None and (plan := partition.plan()).fills:
            running, ends_at = plan, at + pass_takes(at)
            if ends_at == at:
                partition.carry_out(plan)
                running = None
                assert len(partition.small) <= SMALL_FILES_AT_MOST
    if running is not None:
        partition.carry_out(running)
    partition.carry_out(partition.plan())
    return partition


def streams(seed: int, batches: int = 1_200) -> dict[str, list[int]]:
    """Arrivals in rows; a full file has some 365,000."""
    dice = random.Random(seed)
    return {
        "equal": [int(2.2 * MIB / WIDTH)] * batches,
        "random": [dice.randint(1, 400_000) for _ in range(batches)],
        "log-normal": [1 + int(dice.lognormvariate(9, 2)) for _ in range(batches)],
        "tiny": [dice.randint(1, 2_000) for _ in range(batches)],
        "bursty": [dice.choice([1, 1, 1, 10, 100, 1_000_000]) for _ in range(batches)],
        "large": [dice.randint(200_000, 2_000_000) for _ in range(batches)],
        "most of a file": [330_000] * batches,
    }


@pytest.mark.parametrize("pass_takes", [0, 1, 5, 15])
@pytest.mark.parametrize("kind", streams(0, 1))
def test_eight_small_files_once_a_stream_is_quiet_and_bytes_within_the_bound(
    kind: str, pass_takes: int
) -> None:
    """However long a pass takes: each batch adds one small file, and a pass starts at nine."""
    partition = run(streams(1)[kind], lambda at: pass_takes)
    assert len(partition.small) <= SMALL_FILES_AT_MOST
    assert partition.written / partition.ingested <= partition.bound
    assert partition.largest <= SIZING.max_file_bytes * 33 // 32


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(st.integers(1, 50), st.integers(1, 400_000), st.just(1_000_000)), min_size=1, max_size=8
    ),
    st.lists(st.integers(0, 15), min_size=1, max_size=5),
    st.integers(1, 15),
)
def test_any_repeating_stream_keeps_the_bounds(pattern: list[int], takes: list[int], limit: int) -> None:
    """Any small limit of up to 15/16 of the maximum."""
    sizing = FileSizing(max_file_bytes="16MiB", small_file_bytes=f"{limit}MiB")
    partition = run(pattern * (240 // len(pattern)), lambda at: takes[at % len(takes)], sizing=sizing)
    assert len(partition.small) <= SMALL_FILES_AT_MOST
    assert partition.written / partition.ingested <= partition.bound


def test_ten_thousand_tiny_arrivals() -> None:
    """10 KB a batch under the default sizes."""
    partition = run([100] * 10_000, sizing=FileSizing(), width=102)
    assert partition.written / partition.ingested <= 9 <= partition.bound


@pytest.mark.parametrize("fill_a_file", [3, 4, 5, 6, 7, 8])
def test_where_eight_arrivals_or_fewer_fill_a_file_two_bytes_are_written_per_byte(fill_a_file: int) -> None:
    partition = run([int(SIZING.max_file_bytes / fill_a_file / WIDTH)] * 3_000)
    assert partition.written / partition.ingested <= 2


@pytest.mark.parametrize("policy", [FillPolicy.AMORTIZED, FillPolicy.ALWAYS])
def test_a_partition_that_comes_with_thousands_of_small_files_loses_24_or_more_a_pass(
    policy: FillPolicy,
) -> None:
    dice = random.Random(3)
    small = [TableFile(f"old{at}", (), dice.randint(1_000, 4 * MIB), 9) for at in range(1_000)]
    partition = Partition(small=small, policy=policy, width=1)
    while len(partition.small) > FILES_A_PASS:
        before = len(partition.small)
        for fill in partition.plan().fills:
            taken = {file.path for file in fill.inputs}
            partition.small = [file for file in partition.small if file.path not in taken]
            if fill.bytes < SIZING.small_file_bytes:
                partition.small.append(TableFile(f"new{before}", (), fill.bytes, fill.rows))
        assert len(partition.small) <= before - 24
