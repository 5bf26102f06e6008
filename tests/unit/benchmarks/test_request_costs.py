"""The sum of a day's requests is that which a run of the real parts makes, and its price is the list's."""

from __future__ import annotations

import pytest

from benchmarks.request_costs import counted_run, counted_steps
from benchmarks.request_prices import DayShape, Requests, platform_day, requests_of, uploads


def test_the_sum_of_the_steps_is_what_a_run_of_other_files_counts() -> None:
    steps = counted_steps()
    assert (steps.message.puts, steps.file, steps.worker_poll.lists) == (1, Requests(gets=2), 1)
    counted, data_files = counted_run(files=60, messages=3)
    small = DayShape(60, 60_000, 3, 1, data_files, data_files * 1000, polls=0, worker_polls=0)
    assert sum(requests_of(small, steps).values(), Requests()) == counted


def test_a_file_above_a_part_takes_its_parts_and_two_requests_more() -> None:
    assert uploads(3, 3 * 8 * 1024 * 1024) == Requests(puts=3)
    assert uploads(2, 2 * 20 * 1024 * 1024) == Requests(puts=2 * 5)


def test_a_million_requests_cost_the_list_price() -> None:
    assert Requests(puts=1_000_000).dollars == pytest.approx(5)
    assert Requests(lists=1_000_000).dollars == pytest.approx(5)
    assert Requests(gets=1_000_000).dollars == pytest.approx(0.4)


def test_a_day_of_twenty_datasets_has_an_item_each_every_five_minutes() -> None:
    day = platform_day(poll_seconds=2)
    assert (day.items, day.polls, day.messages) == (20 * 288, 20 * 43_200, 35_000)
    assert day.data_files == -(-3_000_000_000_000 // (120 * 1024 * 1024)) + day.items
