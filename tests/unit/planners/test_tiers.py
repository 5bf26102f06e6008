"""Size-tiered merges: few are left in each tier, and a row is written again once for each tier."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from planners.tiers import merges_of_tiers, tier_of

FAN_OUT, FIRST, TIERS = 4, 10, 3
SIZES = st.lists(st.integers(1, 2000), max_size=60)


def test_tiers_are_each_as_many_times_as_large() -> None:
    assert [tier_of(size, 4, 10) for size in (0, 9, 10, 39, 40, 159, 160)] == [0, 0, 1, 1, 2, 2, 3]


@given(SIZES)
def test_no_place_is_merged_twice_and_merges_are_of_several(sizes: list[int]) -> None:
    groups = merges_of_tiers(sizes, FAN_OUT, FIRST, TIERS)
    places = [place for group in groups for place in group]
    assert len(places) == len(set(places))
    assert all(len(group) >= FAN_OUT and list(group) == sorted(group) for group in groups)


@given(SIZES)
def test_once_merged_no_tier_that_is_merged_has_too_many(sizes: list[int]) -> None:
    groups = merges_of_tiers(sizes, FAN_OUT, FIRST, TIERS)
    merged = {place for group in groups for place in group}
    left = [size for place, size in enumerate(sizes) if place not in merged]
    left += [sum(sizes[place] for place in group) for group in groups]
    tiers = [tier_of(size, FAN_OUT, FIRST) for size in left]
    assert all(tiers.count(tier) < FAN_OUT for tier in range(TIERS))


def test_a_stream_of_ones_writes_each_once_for_each_tier() -> None:
    sizes: list[int] = []
    written = 0
    for _ in range(1000):
        sizes.append(1)
        for group in merges_of_tiers(sizes, FAN_OUT, FAN_OUT, 10):
            written += sum(sizes[place] for place in group)
            kept = [size for place, size in enumerate(sizes) if place not in group]
            sizes = [*kept, sum(sizes[place] for place in group)]
    assert sum(sizes) == 1000
    assert written <= 5 * 1000
    assert len(sizes) <= 5 * (FAN_OUT - 1)


def test_the_earliest_of_a_tier_are_merged() -> None:
    assert merges_of_tiers([5, 1, 5, 5, 5, 5], FAN_OUT, FIRST, TIERS) == [(0, 1, 2, 3)]
    assert merges_of_tiers([2000] * 9, FAN_OUT, FIRST, TIERS) == []
