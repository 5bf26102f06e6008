"""A batch over tasks that write what they read: nothing is filled twice, and few more tails are left."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planners import FileSizing
from planners.coalesced import has_room, plan_coalesced, tasks_that_fit
from planners.model import Arrival, FileContent, FillVerdict, InsertPlan, TableFile
from planners.routing import Routing
from planners.sizing import SMALL_FILES_AT_MOST, FillPolicy
from tests.unit.planners.test_insert_streams import MIB, SIZING, WIDTH, Partition, rows_of


def planned(rows: int, small: list[TableFile], tasks: int, sizing: FileSizing = SIZING) -> list[InsertPlan]:
    """Return the part of each task, as it sees it."""
    plan, routing = plan_coalesced([Arrival((), rows)], small, sizing, tasks, bytes_per_row=WIDTH)
    return [parts(plan, routing, task) for task in range(tasks)]


def parts(plan: InsertPlan, routing: Routing, task: int) -> InsertPlan:
    return replace(plan, buckets=tuple(plan.buckets[place] for place in routing.own_buckets[task]))


class Coalesced(Partition):
    """A partition whose batches are coalesced while there is room, and otherwise planned as a whole."""

    coalesced = 0

    def spread(self, rows_of_tasks: list[int], foreseen: int) -> None:
        if not has_room(self.small, self.sizing):
            self.batch(sum(rows_of_tasks), foreseen)
            return
        self.coalesced += 1
        merges = 0
        for rows, plan in zip(
            rows_of_tasks, planned(foreseen, self.small, len(rows_of_tasks), self.sizing), strict=True
        ):
            merges += self.write(plan, rows)
        self.settle(sum(rows_of_tasks), merges)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2_000_000)), max_size=5),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 17 * MIB)), max_size=12),
    st.integers(1, 9),
    st.sampled_from(FillPolicy),
)
def test_every_bucket_is_of_one_task_every_row_planned_once_and_no_file_filled_twice(
    arrivals: list[tuple[int, int]], files: list[tuple[int, int]], tasks: int, policy: FillPolicy
) -> None:
    small = [TableFile(f"{at}", (key,), size, size // WIDTH + 1) for at, (key, size) in enumerate(files)]
    plan, routing = plan_coalesced(
        [Arrival((key,), rows) for key, rows in arrivals],
        small,
        SIZING,
        tasks,
        bytes_per_row=WIDTH,
        policy=policy,
    )
    assert (routing.tasks, routing.shuffled, routing.hot, routing.cold_buckets) == (tasks, False, (), ())
    owned = Counter(place for own in routing.own_buckets for place in own)
    assert owned == Counter(range(len(plan.buckets)))
    filled = Counter(file.path for bucket in plan.buckets for file in bucket.inputs)
    assert max(filled.values(), default=1) == 1
    assert Counter(bucket.partition for bucket in plan.buckets for _ in range(bucket.rows > 0)).keys() == {
        (key,) for key, rows in arrivals if rows
    }
    assert sum(bucket.rows for bucket in plan.buckets) == sum(rows for _, rows in arrivals)
    decided = {it.path: it.verdict for it in plan.decisions}
    fills = {it.path for bucket in plan.buckets if bucket.fills for it in bucket.inputs}
    assert decided == {
        file.path: FillVerdict.FILLED if file.path in fills else FillVerdict.KEPT for file in small
    }
    loads = [sum(bucket.rows for bucket in parts(plan, routing, task).buckets) for task in range(tasks)]
    assert max(loads) - min(loads) <= len(arrivals)


def test_impossible_widths_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 task: 0"):
        planned(1, [], 0)


@pytest.mark.parametrize(
    ("files", "tasks"),
    [(0, 1), (0.24, 1), (0.5, 2), (0.79, 3), (0.8, 1), (1, 1), (1.9, 1), (2, 2), (7.5, 7)],
)
def test_a_task_has_a_full_file_or_a_quarter_of_one(files: float, tasks: int) -> None:
    assert tasks_that_fit(int(files * 1000), 1000, 800) == tasks


def test_a_partition_with_eight_small_files_has_no_room() -> None:
    small = [TableFile(f"{at}", (at % 2,), MIB, 9) for at in range(15)]
    assert has_room(small[:14], SIZING)
    assert not has_room(small, SIZING)
    others = [
        TableFile("full", (0,), SIZING.small_file_bytes, 9),
        TableFile("deletes", (0,), MIB, 9, content=FileContent.POSITION_DELETES),
    ]
    assert has_room([*small[:14], *others], SIZING)


@pytest.mark.parametrize("files", [0.3, 0.6, 0.9, 1.1, 1.6, 2.1, 2.6, 3.3, 3.7, 4.5, 6])
@pytest.mark.parametrize("cores", [2, 4, 8])
def test_as_many_tasks_as_fit_write_less_than_half_of_the_bytes_once_more(files: float, cores: int) -> None:
    rows = rows_of(16 * files)
    tasks = min(cores, tasks_that_fit(rows, rows_of(16), rows_of(13)))
    whole, spread = Partition(), Coalesced()
    dice = random.Random(5)
    for _ in range(200):
        whole.batch(rows, rows)
        even = [rows // tasks] * (tasks - 1)
        spread.spread([each - dice.randint(0, each // 20) for each in [*even, rows - sum(even)]], rows)
    assert spread.coalesced > 130
    assert spread.written_per_byte < whole.written_per_byte + 0.5
    assert spread.in_full_files >= 0.97 * spread.ingested


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 900_000), min_size=4, max_size=4), min_size=1, max_size=6),
    st.lists(st.integers(0, 2_000_000), min_size=1, max_size=4),
    st.integers(2, 4),
)
def test_however_rows_fall_on_tasks_few_more_tails_are_left(
    pattern: list[list[int]], foreseen: list[int], tasks: int
) -> None:
    """Idle tasks, tasks that do not run, forecasts that have nothing to do with the rows."""
    partition = Coalesced()
    for at in range(120):
        partition.spread(pattern[at % len(pattern)][:tasks], foreseen[at % len(foreseen)])
    assert partition.most_small <= SMALL_FILES_AT_MOST + tasks - 1
    assert partition.largest <= SIZING.max_file_bytes * 33 // 32
