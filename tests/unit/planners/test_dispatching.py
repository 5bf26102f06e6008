"""Which zones get workers: bounds hold, and no zone waits behind a busy one."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planners.ingestion.dispatching import Demand, workers_to_start

_AMOUNT = st.integers(0, 20)
_DEMANDS = st.lists(_AMOUNT, max_size=6).flatmap(
    lambda free: st.tuples(
        *(
            st.builds(Demand, st.just(f"zone-{place}"), st.just(items), st.integers(0, 5), st.integers(0, 5))
            for place, items in enumerate(free)
        )
    )
)


@pytest.mark.parametrize(
    ("demands", "started"),
    [
        ([Demand("a", 0, 0, 0)], ()),
        ([Demand("a", 1, 0, 0)], ("a",)),
        ([Demand("a", 1, 1, 0)], ()),  # the worker that runs will take it
        ([Demand("a", 1, 1, 1)], ("a",)),
        ([Demand("a", 9, 0, 0)], ("a", "a", "a")),
        ([Demand("a", 9, 0, 0), Demand("b", 1, 0, 0)], ("a", "b", "a", "a")),
        ([Demand("a", 9, 3, 3), Demand("b", 1, 0, 0)], ("b",)),
    ],
)
def test_a_worker_starts_for_each_item_within_the_bounds(
    demands: list[Demand], started: tuple[str, ...]
) -> None:
    assert workers_to_start(demands, most_each=3, most=4) == started


@given(_DEMANDS, st.integers(1, 8), st.integers(1, 12))
def test_bounds_hold_and_what_is_started_is_needed(
    demands: tuple[Demand, ...], most_each: int, most: int
) -> None:
    started = Counter(workers_to_start(demands, most_each=most_each, most=most))
    running = sum(demand.workers for demand in demands)
    assert not started or sum(started.values()) + running <= most
    for demand in demands:
        count = started[demand.zone]
        assert count == 0 or demand.workers + count <= most_each
        assert count <= demand.free_items
        needed = demand.free_items > max(0, demand.workers - demand.claims)
        if needed and not demand.workers and not count:
            # The places were given to zones that had as few, or none was free.
            assert sum(started.values()) + running >= most
            assert all(started[other.zone] <= 1 for other in demands)
