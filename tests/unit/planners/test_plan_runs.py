"""Runs of the plan index: eight neighbours become one, so that many plans have few runs."""

from __future__ import annotations

import pytest

from planners.ingestion.plan_runs import FAN_OUT, MERGED_BYTES, PlanRun, due_merge, is_run, uncovered, widest


def runs_after(plans: int, size: int = 1) -> tuple[PlanRun, ...]:
    runs: tuple[PlanRun, ...] = ()
    for number in range(1, plans + 1):
        runs = (*runs, PlanRun(number, number, size))
        while merged := due_merge(runs):
            runs = (*runs, PlanRun(merged[0].first, merged[-1].last, sum(run.bytes for run in merged)))
            runs = widest(runs)
    return runs


def test_every_plan_is_in_one_run_and_runs_are_few() -> None:
    runs = runs_after(1000)
    assert [number for run in runs for number in range(run.first, run.last + 1)] == [*range(1, 1001)]
    assert [run.plans for run in runs] == [512, *[64] * 7, *[8] * 5]
    assert all(is_run(run.first, run.last) for run in runs)


def test_runs_that_are_large_together_stay_apart() -> None:
    runs = runs_after(64, MERGED_BYTES // FAN_OUT)
    assert [run.plans for run in runs] == [8] * 8


def test_plans_that_no_run_covers_are_named() -> None:
    runs = [PlanRun(1, 8, 1), PlanRun(10, 10, 1)]
    assert uncovered(runs, 12) == (9, 11, 12)
    assert uncovered([], 0) == ()


def test_a_run_inside_of_another_is_not_needed() -> None:
    inner, outer = PlanRun(3, 3, 1), PlanRun(1, 8, 8)
    assert widest([inner, outer, PlanRun(9, 9, 1)]) == (outer, PlanRun(9, 9, 1))


@pytest.mark.parametrize(("first", "last"), [(1, 2), (2, 9), (0, 0), (5, 4), (1, 16)])
def test_other_ranges_are_no_runs(first: int, last: int) -> None:
    assert not is_run(first, last)
