"""The forecast follows the last batches and knows when it is worthless."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from planners.forecast import forecast, forecast_error
from planners.model import Arrival

A, B, NEW = ("a",), ("b",), ("new",)
NAN = float("nan")


def test_the_second_batch_is_expected_as_the_first_one_and_the_first_is_not_forecast() -> None:
    assert forecast([]) is None
    assert forecast([{A: 10}]) == (Arrival(A, 10),)


def test_a_partition_is_expected_at_its_median() -> None:
    history = [{A: 10, B: 5}, {A: 12, B: 5}, {A: 900, B: 5}, {A: 11, B: 5}, {A: 13, B: 5}]
    assert forecast(history) == (Arrival(A, 12), Arrival(B, 5))


def test_only_the_last_five_batches_count() -> None:
    assert forecast([{A: 1}] * 9 + [{A: 8}] * 5) == (Arrival(A, 8),)


def test_a_new_partition_is_expected_from_its_first_batch_on() -> None:
    assert forecast([{A: 100}] * 4 + [{A: 100, NEW: 30}]) == (Arrival(A, 100), Arrival(NEW, 30))


def test_a_partition_that_stays_away_is_dropped_by_the_third_batch() -> None:
    history = [{A: 100, B: 40}] * 5
    gone = [len(forecast([*history, *[{A: 100}] * batches]) or ()) for batches in range(4)]
    assert gone == [2, 2, 2, 1]


def test_forecasts_that_were_worthless_twice_give_up() -> None:
    history = [{A: 100}] * 4
    assert forecast([*history, {B: 100}]) is not None
    assert forecast([*history, {B: 100}, {NEW: 100}]) is None


def test_a_right_forecast_ends_the_giving_up() -> None:
    chaos = [{(at,): 100} for at in range(5)]
    assert forecast(chaos) is None
    assert forecast([*chaos, *[{A: 100}] * 3]) is not None


def test_a_partition_of_nan_is_one_partition() -> None:
    history = [{(float("nan"),): 7} for _ in range(3)]
    answer = forecast(history)
    assert answer is not None
    assert [arrival.rows for arrival in answer] == [7]


def test_the_error_runs_from_right_to_nothing_in_common() -> None:
    assert forecast_error((Arrival(A, 5),), {A: 5}) == 0
    assert forecast_error((Arrival(A, 5),), {B: 5}) == 1
    assert forecast_error((Arrival(A, 5),), {A: 10}) == Fraction(1, 2)
    assert forecast_error((), {}) == 0


batches = st.dictionaries(st.sampled_from([(None,), (1,), ("x",), (True, "y")]), st.integers(1, 10**6))


@given(st.lists(batches, max_size=12))
def test_a_forecast_never_leaves_the_range_of_what_was_seen(history: list[dict]) -> None:
    for arrival in forecast(history) or ():
        seen = [batch.get(arrival.partition, 0) for batch in history]
        assert 0 < arrival.rows <= max(seen)


@given(st.lists(batches, min_size=2, max_size=8))
def test_the_order_inside_a_batch_does_not_matter(history: list[dict]) -> None:
    turned = [dict(reversed(batch.items())) for batch in history]
    assert forecast(turned) == forecast(history)
