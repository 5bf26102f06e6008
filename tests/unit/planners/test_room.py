"""Room for other engines: merging waits where they rewrite, within its bounds of time and of files."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from planners.model import TablePartition
from planners.room import (
    DELETE_FILES_WHILE_WAITING,
    DISTANCES,
    FIRST_DISTANCE_MS,
    LONGEST_WAIT_MS,
    SMALL_FILES_WHILE_WAITING,
    Crowding,
    ForeignRewrite,
    partitions_that_wait,
)
from planners.sizing import SMALL_FILES_AT_MOST

PARTITIONS = [TablePartition(0, (place,)) for place in range(3)]
A, B, _ = PARTITIONS
rewrites = st.lists(
    st.builds(
        ForeignRewrite, st.integers(0, 2 * LONGEST_WAIT_MS), st.frozensets(st.sampled_from(PARTITIONS))
    ),
    max_size=8,
)
crowding = st.dictionaries(
    st.sampled_from(PARTITIONS),
    st.builds(Crowding, st.integers(0, 2 * SMALL_FILES_WHILE_WAITING), st.integers(0, 40)),
)


def at(*times: int, partition: TablePartition = A) -> list[ForeignRewrite]:
    return [ForeignRewrite(time, frozenset({partition})) for time in times]


@given(rewrites, st.integers(0, 4 * LONGEST_WAIT_MS), crowding)
def test_a_partition_waits_only_where_others_rewrite_and_within_both_bounds(
    found: list[ForeignRewrite], now: int, full: dict[TablePartition, Crowding]
) -> None:
    for partition in partitions_that_wait(found, now, full):
        last = max(it.time_ms for it in found if partition in it.partitions)
        assert now - last < LONGEST_WAIT_MS
        has = full.get(partition, Crowding())
        assert has.small_files <= SMALL_FILES_WHILE_WAITING
        assert has.delete_files <= DELETE_FILES_WHILE_WAITING


@given(rewrites, st.integers(0, 4 * LONGEST_WAIT_MS), crowding)
def test_a_partition_depends_on_its_own_rewrites_alone_and_on_no_order(
    found: list[ForeignRewrite], now: int, full: dict[TablePartition, Crowding]
) -> None:
    waiting = partitions_that_wait(found, now, full)
    for partition in PARTITIONS:
        own = [ForeignRewrite(it.time_ms, it.partitions & {partition}) for it in reversed(found)]
        assert partitions_that_wait(own, now, full) == waiting & {partition}


def test_it_waits_for_twice_the_distance_of_the_last_commits() -> None:
    times = at(0, 50_000, 60_000, 70_000)
    assert partitions_that_wait(times, 70_000 + DISTANCES * 50_000 - 1, {}) == {A}
    assert not partitions_that_wait(times, 70_000 + DISTANCES * 50_000, {})
    more = [*times, *at(80_000)]  # the fifty seconds are no longer among the last three
    assert partitions_that_wait(more, 80_000 + DISTANCES * 10_000 - 1, {}) == {A}
    assert not partitions_that_wait(more, 80_000 + DISTANCES * 10_000, {})


def test_after_a_first_commit_it_waits_for_a_minute_and_never_longer_than_ten() -> None:
    assert partitions_that_wait(at(0), DISTANCES * FIRST_DISTANCE_MS - 1, {}) == {A}
    assert not partitions_that_wait(at(0), DISTANCES * FIRST_DISTANCE_MS, {})
    daily = at(0, 24 * 3600 * 1000)
    assert partitions_that_wait(daily, daily[-1].time_ms + LONGEST_WAIT_MS - 1, {}) == {A}
    assert not partitions_that_wait(daily, daily[-1].time_ms + LONGEST_WAIT_MS, {})


def test_nothing_waits_without_others_or_where_files_pile_up() -> None:
    assert not partitions_that_wait([], 0, {})
    assert partitions_that_wait(at(0), 1, {A: Crowding(SMALL_FILES_WHILE_WAITING)}) == {A}
    assert not partitions_that_wait(at(0), 1, {A: Crowding(SMALL_FILES_WHILE_WAITING + 1)})
    assert not partitions_that_wait(at(0), 1, {A: Crowding(0, DELETE_FILES_WHILE_WAITING + 1)})
    assert partitions_that_wait([*at(0), *at(0, partition=B)], 1, {A: Crowding(99)}) == {B}


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=60),
    st.integers(1, 3),
    st.integers(0, 2),
)
def test_a_stream_beside_jobs_that_never_pause_stays_within_three_times_the_bound(
    pauses: list[int], files_a_second: int, pass_seconds: int
) -> None:
    """A pass begins where the partition does not wait and has nine small files, and merges them all."""
    commits, small, most, ends = list[ForeignRewrite](), 0, 0, None
    second = 0
    for pause in pauses:
        for _ in range(pause + 1):
            second += 1
            small += files_a_second
            if ends == second:
                small, ends = files_a_second, None
            waits = partitions_that_wait(commits, 1000 * second, {A: Crowding(small)})
            if ends is None and not waits and small > SMALL_FILES_AT_MOST:
                ends = second + 1 + pass_seconds
            most = max(most, small)
        commits += at(1000 * second)
    assert most <= 9 * SMALL_FILES_AT_MOST + files_a_second
