"""Buckets over tasks: each to one task, balanced, and few names in the shuffle's expression."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planners import FileSizing
from planners.inserts import plan_inserts
from planners.model import Arrival, Bucket, InsertPlan, TableFile
from planners.routing import SLOTS, Routing, route_shuffled, route_single

SIZING = FileSizing(max_file_bytes="120MB", small_file_bytes="100MB")


def planned(rows: dict[int, int], files: list[TableFile] | None = None) -> InsertPlan:
    arrivals = [Arrival((key,), count) for key, count in rows.items()]
    return plan_inserts(arrivals, files or [], SIZING, bytes_per_row=1_000, exact=True)


def planned_rows(plan: InsertPlan, routing: Routing) -> list[int]:
    """The rows planned for each task, the cold ones spread evenly over the cold tasks."""
    loads = [0] * routing.tasks
    for route in routing.hot:
        for (_, task), places in zip(route.slots, route.buckets, strict=True):
            loads[task] += sum(plan.buckets[place].rows for place in places)
    cold = sum(plan.buckets[place].rows for place in routing.cold_buckets)
    for task in range(routing.cold_tasks):
        loads[task] += cold // routing.cold_tasks
    return loads


def buckets_of(routing: Routing, task: int) -> tuple[int, ...]:
    """Return the places in the plan of all buckets that this task may have to write."""
    hot = [
        place
        for route in routing.hot
        for (_, owner), places in zip(route.slots, route.buckets, strict=True)
        if owner == task
        for place in places
    ]
    return tuple(sorted([*(routing.cold_buckets if task < routing.cold_tasks else ()), *hot]))


def test_the_single_route_gives_one_task_all_buckets_in_order() -> None:
    plan = planned({1: 300_000, 2: 5})
    routing = route_single(plan)
    assert (routing.tasks, routing.cold_tasks, routing.hot, routing.shuffled) == (1, 1, (), False)
    assert buckets_of(routing, 0) == tuple(range(len(plan.buckets)))


def test_few_rows_are_shuffled_to_one_task() -> None:
    routing = route_shuffled(planned({1: 300, 2: 5}), parallelism=8, rows_per_task=100_000)
    assert (routing.tasks, routing.shuffled) == (1, True)
    assert buckets_of(routing, 0) == (0, 1)


def test_an_empty_plan_has_one_task_for_rows_that_were_not_foreseen() -> None:
    routing = route_shuffled(planned({}), parallelism=8, rows_per_task=100_000)
    assert (routing.tasks, routing.cold_tasks, buckets_of(routing, 0)) == (1, 1, ())


def test_a_hot_partition_is_spread_by_slots_in_proportion_to_its_rows() -> None:
    """Three full files and a quarter: 120,000 120,000 120,000 30,000 rows over four tasks."""
    routing = route_shuffled(planned({7: 390_000, 1: 9}), parallelism=4, rows_per_task=120_000)
    (route,) = routing.hot
    bounds = [upto for upto, _ in route.slots]
    widths = [upto - start for start, upto in zip([0, *bounds], bounds, strict=False)]
    assert route.partition == (7,)
    assert bounds[-1] == SLOTS
    assert widths == pytest.approx([SLOTS * share / 390 for share in (120, 120, 120, 30)], abs=1)
    assert sorted(task for _, task in route.slots) == [0, 1, 2, 3]


def test_more_tasks_than_the_parallelism_come_in_full_waves() -> None:
    plan = planned(dict.fromkeys(range(100), 10_000))
    assert route_shuffled(plan, parallelism=4, rows_per_task=200_000).tasks == 8
    assert route_shuffled(plan, parallelism=8, rows_per_task=200_000).tasks == 5


def test_one_hot_partition_and_ten_thousand_cold_ones() -> None:
    """Neither explodes the tasks, the buckets or the names, and none is starved: within twice the share."""
    plan = planned({0: 2_400_000, **dict.fromkeys(range(1, 10_001), 50)})
    assert len(plan.buckets) == 10_000 + 20
    routing = route_shuffled(plan, parallelism=8, rows_per_task=400_000)
    assert routing.tasks == 8
    assert [route.partition for route in routing.hot] == [(0,)]
    assert len(routing.cold_buckets) == 10_000
    loads = planned_rows(plan, routing)
    share = sum(loads) / routing.tasks
    assert share / 2 <= min(loads) <= max(loads) <= 2 * share


def test_a_partition_of_more_than_a_quarter_of_a_share_is_hot() -> None:
    """The share is 100,000 rows."""
    rows = {1: 74_999, 2: 25_001, 3: 25_000, 4: 75_000}
    routing = route_shuffled(planned(rows), parallelism=2, rows_per_task=100_000)
    assert [route.partition for route in routing.hot] == [(1,), (2,), (4,)]


def test_the_heaviest_partition_finds_a_task_of_its_own() -> None:
    plan = planned({0: 20_000, 1: 20_000, 2: 20_000, 3: 20_000, 4: 79_990, 5: 1})
    routing = route_shuffled(plan, parallelism=2, rows_per_task=80_000)
    assert max(planned_rows(plan, routing)) <= 80_001


def test_a_task_with_almost_no_rows_of_a_hot_partition_still_has_a_slot() -> None:
    buckets = (Bucket((), 1), Bucket((), 200_000), Bucket((), 200_000))
    routing = route_shuffled(InsertPlan(buckets, (), 1, 200_000, 200_000), parallelism=3, rows_per_task=9)
    (route,) = routing.hot
    assert route.slots[0][0] == 1
    assert route.buckets == ((0,), (1,), (2,))


def test_the_routing_names_partitions_in_a_stable_order() -> None:
    rows = dict.fromkeys(range(6), 200_000)
    turned = dict(reversed(rows.items()))
    one = route_shuffled(planned(rows), parallelism=4, rows_per_task=100_000)
    assert one == route_shuffled(planned(turned), parallelism=4, rows_per_task=100_000)


def test_impossible_wishes_are_refused() -> None:
    with pytest.raises(ValueError, match="parallelism=0, rows_per_task=5"):
        route_shuffled(planned({}), parallelism=0, rows_per_task=5)


@given(
    st.dictionaries(st.integers(0, 60), st.one_of(st.integers(1, 300), st.integers(1, 10**6)), max_size=40),
    st.integers(1, 16),
    st.integers(1, 10**6),
    st.booleans(),
)
def test_any_routing_keeps_its_promises(
    rows: dict[int, int], parallelism: int, rows_per_task: int, with_files: bool
) -> None:
    files = [TableFile(f"{key}", (key,), 70_000_000, 70_000) for key in rows if with_files]
    plan = planned(rows, files)
    routing = route_shuffled(plan, parallelism=parallelism, rows_per_task=rows_per_task)
    assert 1 <= routing.cold_tasks <= routing.tasks <= max(1, len(plan.buckets))
    assert len(routing.hot) < 4 * routing.tasks

    named = Counter(place for route in routing.hot for places in route.buckets for place in places)
    named.update(routing.cold_buckets)
    assert named == Counter(range(len(plan.buckets)))

    for route in routing.hot:
        bounds = [upto for upto, _ in route.slots]
        assert bounds == sorted(set(bounds))
        assert (bounds[0] > 0, bounds[-1]) == (True, SLOTS)
        tasks = [task for _, task in route.slots]
        assert len(tasks) == len(set(tasks))
        for task, places in zip(tasks, route.buckets, strict=True):
            assert set(places) <= set(buckets_of(routing, task))
            assert {plan.buckets[place].partition for place in places} == {route.partition}
            assert list(places) == sorted(places)

    share = -(-sum(rows.values()) // routing.tasks)
    largest = max((bucket.rows for bucket in plan.buckets), default=0)
    assert max(planned_rows(plan, routing)) <= share + max(share, largest)
