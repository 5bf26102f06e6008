"""What the report of a platform's day counts: the fewest items, the depth of the buffer, and lost rows."""

from __future__ import annotations

import numpy as np

from benchmarks.platform_arrivals import deliveries, fewest_items
from benchmarks.platform_report import Passage, Rows, compare_rows, depth_of


def test_deliveries_are_the_same_for_a_seed_and_have_every_file_once() -> None:
    def made(seed: int) -> list[object]:
        random = np.random.default_rng(seed)
        return list(deliveries(random, seconds=60, datasets=5, files_a_second=100, factor=20))

    assert made(3) == made(3)
    assert made(3) != made(4)
    random = np.random.default_rng(3)
    found = deliveries(random, seconds=60, datasets=5, files_a_second=100, factor=20)
    numbers = [number for each in found for number in each.files]
    assert numbers == list(range(len(numbers)))
    assert 4_000 < len(numbers) < 12_000
    assert [each.at_seconds for each in found] == sorted(each.at_seconds for each in found)
    assert {each.dataset for each in found} == set(range(5))


def test_the_fewest_items_are_made_at_the_moment_when_a_rule_is_met() -> None:
    assert fewest_items([], max_files=3, max_age_ms=100) == 0
    assert fewest_items([0, 99], max_files=3, max_age_ms=100) == 1
    assert fewest_items([0, 100], max_files=3, max_age_ms=100) == 2
    assert fewest_items([0, 1, 2, 3], max_files=3, max_age_ms=100) == 2
    assert fewest_items([150, 0, 60, 120, 210], max_files=9, max_age_ms=100) == 2


def test_the_depth_counts_a_file_from_its_arrival_to_its_commit() -> None:
    passages = [
        Passage(0, 1000, 3000, disturbed=False),
        Passage(1500, 3500, 4000, disturbed=False),
        Passage(500, None, None, disturbed=False),
    ]
    found = [(each.second, each.waiting, each.planned) for each in depth_of(passages, 4)]
    assert found == [(1.0, 1, 1), (2.0, 2, 1), (3.0, 2, 0), (4.0, 1, 0)]


def test_rows_that_are_lost_doubled_or_not_of_the_day_are_told() -> None:
    expected = np.arange(10)
    assert compare_rows(expected[::-1], expected, 0) == Rows(10, 0, 0, 0)
    assert compare_rows(np.array([*range(9), 3, 4]), expected, 0) == Rows(10, 1, 2, 0)
    assert compare_rows(np.array([*range(10), 77]), expected, 2) == Rows(10, 1, 0, 2)
