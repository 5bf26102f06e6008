"""What the report of a platform's day counts: items by the rules, the buffer's depth, lost rows, the aims."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from benchmarks.platform_arrivals import Delivery, deliveries, items_without_delay
from benchmarks.platform_day import rows_of
from benchmarks.platform_passages import Passage, Rows, compare_rows, depths
from benchmarks.platform_report import Day, aims, tables_of


def _arriving(seed: int) -> list[Delivery]:
    random = np.random.default_rng(seed)
    return deliveries(random, seconds=60, datasets=5, files_a_second=100, factor=20)


def test_deliveries_are_the_same_for_a_seed_and_have_every_file_once() -> None:
    assert _arriving(3) == _arriving(3)
    assert _arriving(3) != _arriving(4)
    found = _arriving(3)
    numbers = [number for each in found for number in each.files]
    assert numbers == list(range(len(numbers)))
    assert 4_000 < len(numbers) < 12_000
    assert [each.at_seconds for each in found] == sorted(each.at_seconds for each in found)
    assert {each.dataset for each in found} == set(range(5))


def test_a_planner_without_delay_makes_an_item_at_the_moment_when_a_rule_is_met() -> None:
    assert items_without_delay([], max_files=3, max_age_ms=100) == 0
    assert items_without_delay([0, 99], max_files=3, max_age_ms=100) == 1
    assert items_without_delay([0, 100], max_files=3, max_age_ms=100) == 2
    assert items_without_delay([0, 1, 2, 3], max_files=3, max_age_ms=100) == 2
    assert items_without_delay([150, 0, 60, 120, 210], max_files=9, max_age_ms=100) == 2


def test_the_depth_counts_a_file_from_its_arrival_to_its_commit() -> None:
    passages = [Passage([0, 500], 1000, 3000), Passage([1500], 3500, 4500), Passage([500], 4600, None)]
    waiting, planned = depths(passages)
    assert waiting == [1, 1, 2, 2, 1]  # at 0, 1, 2, 3 and 4 s
    assert planned == [0, 2, 2, 0, 1]
    assert depths([]) == ([], [])


def test_rows_that_are_lost_doubled_or_not_as_delivered_are_told() -> None:
    expected = rows_of(3)
    backwards = expected.take(list(reversed(range(200))))
    assert compare_rows(backwards, expected) == Rows(200)
    assert compare_rows(expected.slice(1), expected) == Rows(200, lost=1)
    assert compare_rows(pa.concat_tables([expected, expected.slice(7, 2)]), expected) == Rows(200, doubled=2)
    assert compare_rows(pa.concat_tables([expected, rows_of(4).slice(0, 3)]), expected) == Rows(
        200, changed=3
    )
    other = expected.set_column(2, "amount", pa.array(np.where(np.arange(200) < 5, -1.0, expected["amount"])))
    assert compare_rows(other, expected) == Rows(200, changed=5)


def _day() -> Day:
    spread = {"p50": 1_000, "p95": 2_000, "max": 41_500}
    return Day(
        files=10,
        landed=10,
        seconds=60.0,
        late_seconds=0.0,
        kills=1,
        disturbed_items=1,
        max_age_ms=40_000,
        items=3,
        items_without_delay=3,
        commits=3,
        table_files=2,
        fewest_table_files=2,
        planned_in_time=1.0,
        visible_in_time=1.0,
        percentiles=dict.fromkeys(["wait", "lag", "disturbed lag", "worker", "waiting", "planned"], spread),
        rows=Rows(2_000),
        left=(),
    )


def test_a_day_meets_its_aims_or_says_what_is_left() -> None:
    assert all(aim.met for aim in aims(_day()))
    assert "41.5" in tables_of(_day())[0]
    left = replace(_day(), landed=9, left=["zone 4: item 7 of worker-2"])
    assert [aim.measured for aim in aims(left) if not aim.met] == [1]
    assert tables_of(left)[-1].endswith("zone 4: item 7 of worker-2")
    late = replace(_day(), percentiles=_day().percentiles | {"lag": {"p50": 1, "p95": 1, "max": 42_500}})
    assert [aim.measured for aim in aims(late) if not aim.met] == [2.5]
    doubled = replace(_day(), rows=Rows(2_000, doubled=1))
    assert [aim.measured for aim in aims(doubled) if not aim.met] == [1]
