"""Halving finds the files that make a work item fail, and no others, in few tries."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planners.ingestion.halving import Halving, halve


def run(count: int, fails: Callable[[tuple[int, ...]], bool]) -> tuple[Halving, list[tuple[int, ...]]]:
    halving, tried = halve(range(count)), []
    while (part := halving.next) is not None:
        tried.append(part)
        halving = halving.after(fails=fails(part))
    return halving, tried


@given(st.data(), st.integers(2, 300))
def test_the_files_that_fail_are_found_within_the_bound_of_tries(data: st.DataObject, count: int) -> None:
    most = min(count - 1, 15)
    bad = data.draw(st.frozensets(st.integers(0, count - 1), min_size=1, max_size=most))
    halving, tried = run(count, lambda part: not bad.isdisjoint(part))
    assert halving.at_fault == tuple(sorted(bad))
    assert len(tried) <= 2 * len(bad) * ceil(log2(count))


@given(st.integers(2, 300))
def test_every_file_of_a_part_that_passes_was_tried_once_after_it_failed_with_others(count: int) -> None:
    halving, tried = run(count, lambda part: 0 in part)
    assert halving.at_fault == (0,)
    passed = [file for part in tried if 0 not in part for file in part]
    assert sorted(passed) == list(range(1, count))


@pytest.mark.parametrize("count", [1, 2, 16, 1000])
def test_no_file_is_at_fault_where_none_passes(count: int) -> None:
    halving, tried = run(count, lambda part: True)
    assert halving.at_fault == ()
    assert len(tried) <= 2 * 16 + ceil(log2(count))


def test_no_file_is_at_fault_where_they_fail_together_alone() -> None:
    halving, tried = run(8, lambda part: len(part) > 4)
    assert (halving.at_fault, len(tried)) == ((), 2)


def test_files_that_fail_after_one_has_passed_are_found_however_many_they_are() -> None:
    halving, _ = run(64, lambda part: part != (0,))
    assert halving.at_fault == tuple(range(1, 64))
