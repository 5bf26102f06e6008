"""What a plan knows of many files: enough where a stream touches more partitions than a plan has groups."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from planners.clustering import bound
from planners.clustering.bound import PlanBound
from planners.clustering.planner import plan_clustering
from planners.clustering.policy import All, ClusteringPolicy
from planners.model import TableFile

_LEAST = 100
_SIZES = {"target_file_bytes": 1_000, "small_file_bytes": 600, "max_group_bytes": 1_000}


def _policy(**options: object) -> ClusteringPolicy:
    return ClusteringPolicy(**{**_SIZES, "max_groups": 1, **options})


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound, "LEAST_FILES", _LEAST)


def _file(number: int, partition: int, size: int, order: str | None = None) -> TableFile:
    return TableFile(f"{number:09d}", (partition,), size, size, clustered_by=order, committed_at=number)


def _known(live: dict[str, TableFile], policy: ClusteringPolicy, enough_bytes: int) -> list[TableFile]:
    """Return the files that a plan knows: the newest come first."""
    known, limit = [], PlanBound(policy, enough_bytes)
    for path in sorted(live, reverse=True):
        known.append(live[path])
        if limit.is_enough_with(live[path]):
            break
    return known


def _left_small(policy: ClusteringPolicy, *, knows_all: bool) -> int:
    """Return how many small files a stream leaves that brings each of ten partitions four between two passes,
    of which each has fewer groups.
    """
    live, number = dict[str, TableFile](), 0
    for _ in range(60):
        for _ in range(4):
            for partition in range(10):
                number += 1
                live[f"{number:09d}"] = _file(number, partition, 10)
        known = list(live.values()) if knows_all else _known(live, policy, 1_000)
        for group in plan_clustering(known, number, policy).groups:
            inputs = [live.pop(path) for path in group.inputs]
            number += 1
            live[f"{number:09d}"] = _file(number, inputs[0].partition[0], group.bytes, group.order)
    return sum(it.bytes < policy.small_file_bytes for it in live.values())


@pytest.mark.parametrize("sort_by", [("key",), ()])
def test_a_stream_into_many_partitions_outruns_no_passes_that_keep_up_where_plans_know_all_files(
    sort_by: tuple[str, ...],
) -> None:
    policy = _policy(sort_by=sort_by, max_groups=2)
    assert _left_small(policy, knows_all=False) <= _left_small(policy, knows_all=True) < 1_000


def _spread(partitions: int, size: int, count: int) -> dict[str, TableFile]:
    """Return files of commits each of which has one file in each partition."""
    made = (_file(number, number % partitions, size) for number in range(count))
    return {file.path: file for file in made}


def test_a_plan_that_sorts_looks_past_files_that_are_alone_in_their_partitions() -> None:
    policy = _policy(sort_by=["key"], max_groups=10)
    known = _known(_spread(100, 50, 2_000), policy, 1_000)
    assert len(known) == 4 * 100, "four of each partition are as many as are joined"


@pytest.mark.parametrize(
    ("size", "options"),
    [
        pytest.param(550, {}, id="no group holds two"),
        pytest.param(700, {"select": All()}, id="full"),
        pytest.param(30, {"max_group_files": 2}, id="a group holds few"),
        pytest.param(300, {"overlap_at_least": 50}, id="a group never holds as many as overlap"),
    ],
)
def test_groups_that_cannot_grow_are_enough(size: int, options: dict[str, object]) -> None:
    policy = _policy(sort_by=["key"], **options)
    assert len(_known(_spread(2, size, 2_000), policy, 1_000)) == _LEAST


def test_a_plan_needs_no_more_than_its_groups_can_hold() -> None:
    files, policy = _spread(2, 300, 2_000), _policy(sort_by=["key"])
    assert len(_known(files, policy, 50_000)) == _LEAST, "a group of 900 bytes, where a pass may read 50,000"


def test_a_full_file_alone_in_its_partition_is_worth_a_group() -> None:
    policy = _policy(sort_by=["key"], select=All(), max_groups=10, max_group_bytes=4_000)
    assert len(_known(_spread(100, 700, 2_000), policy, 1_000)) == _LEAST


@pytest.mark.parametrize("seed", range(15))
def test_passes_of_plans_that_know_a_part_leave_nothing_that_a_plan_of_all_files_takes(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bound, "LEAST_FILES", 50)
    dice = random.Random(seed)
    policy = ClusteringPolicy(
        sort_by=dice.choice([["key"], []]),
        select=All(),
        target_file_bytes=100,
        small_file_bytes=60,
        max_group_bytes=dice.choice([100, 250, 400]),
        max_groups=dice.choice([1, 3, 10]),
        max_group_files=dice.choice([2, 5, 50]),
        overlap_at_least=dice.choice([2, 4]),
    )
    partitions, enough_bytes = dice.choice([1, 3, 40, 150]), dice.choice([400, 1_000])
    live = {}
    for number in range(dice.choice([100, 200])):
        order, size = dice.choice([policy.order, None]), dice.choice([1, 5, 20, 59, 61, 99])
        file = _file(number, dice.randrange(partitions), size, order)
        live[file.path] = file
    made = itertools.count(1_000)
    while groups := plan_clustering(_known(live, policy, enough_bytes), 0, policy).groups:
        for group in groups:
            inputs = [live.pop(path) for path in group.inputs]
            for part in range(group.output_files):
                share = group.bytes * (part + 1) // group.output_files
                share -= group.bytes * part // group.output_files
                number = next(made)
                assert number < 5_000, "the passes do not come to an end"
                file = _file(number, inputs[0].partition[0], share, group.order)
                live[file.path] = replace(file, level=group.level)
    assert not plan_clustering(live.values(), 0, policy).groups
