"""Strategies that rewrite file by file, and files under keys: what is taken, and what is never joined."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planners import All, BySize, ClusteringPlan, ClusteringPolicy, FileSizing
from planners.clustering.planner import plan_clustering
from planners.clustering.strategies import BUILT_IN
from planners.inserts import plan_inserts
from planners.model import Arrival, TableFile
from planners.sizing import FillPolicy

SIZES = {"target_file_bytes": 1000, "small_file_bytes": 500, "max_group_bytes": 4000}


def _file(number, size=400, partition="p", **more):
    return TableFile(f"{number:03}", (partition,), size, 10, **more)


@pytest.mark.parametrize("strategy", [name for name, it in BUILT_IN.items() if it.file_by_file])
def test_files_with_something_to_change_are_taken_and_all_others_left(strategy):
    files = [_file(0, outdated="are old"), _file(1), _file(2, 3000, outdated="are old")]
    plan = plan_clustering(files, 0, ClusteringPolicy(strategy=strategy, **SIZES))
    assert sorted(group.inputs for group in plan.groups) == [("000",), ("002",)]
    assert [(it.path, it.reason) for it in plan.left_out] == [
        ("001", f"{strategy} has nothing to change in it")
    ]
    for group in plan.groups:
        assert (group.order, group.level, group.output_files) == (None, 0, 1)
        assert group.reasons == ("1 file: are old",)
    assert ClusteringPlan.from_dict(plan.to_dict()) == plan


@given(st.lists(st.tuples(st.integers(1, 4500), st.sampled_from("ab"), st.booleans()), max_size=30))
def test_a_group_holds_about_one_target_file_of_one_partition_and_each_file_is_told_of_once(given_files):
    files = [
        _file(number, size, partition, outdated="are old" if old else None)
        for number, (size, partition, old) in enumerate(given_files)
    ]
    plan = plan_clustering(files, 0, ClusteringPolicy(strategy="drop_columns", **SIZES))
    told = [path for group in plan.groups for path in group.inputs] + [it.path for it in plan.left_out]
    assert sorted(told) == [file.path for file in files]
    known = {file.path: file for file in files}
    for group in plan.groups:
        members = [known[path] for path in group.inputs]
        assert len({file.partition for file in members}) == 1
        assert all(file.outdated for file in members)
        assert group.bytes <= 1000 or len(members) == 1
        assert group.bytes <= 4000


def test_what_other_plan_strategies_refuse_is_left_alone():
    files = [_file(0, outdated="are old"), _file(1, 900, outdated="are old")]
    plan = plan_clustering(files, 0, ClusteringPolicy(strategy="encrypt", select=BySize(), **SIZES))
    assert [group.inputs for group in plan.groups] == [("000",)]


@given(st.lists(st.sampled_from([None, "one key", "another"]), min_size=2, max_size=12))
def test_files_under_different_keys_are_never_joined(keys):
    files = [_file(number, encryption=key) for number, key in enumerate(keys)]
    for policy in (
        ClusteringPolicy(select=All(), overlap_at_least=2, **SIZES),
        ClusteringPolicy(sort_by=["id"], select=All(), overlap_at_least=2, **SIZES),
    ):
        for group in plan_clustering(files, 0, policy).groups:
            assert len({keys[int(path)] for path in group.inputs}) == 1


@pytest.mark.parametrize("policy", [FillPolicy.ALWAYS, FillPolicy.AMORTIZED])
def test_an_encrypted_file_is_never_filled_and_the_plan_says_why(policy):
    plan = plan_inserts(
        [Arrival(("p",), 10)],
        [_file(0, encryption="one key")],
        FileSizing(max_file_bytes=1000, small_file_bytes=500),
        bytes_per_row=40,
        policy=policy,
        exact=True,
    )
    assert [it.reason for it in plan.decisions] == ["is encrypted"]
    assert not any(bucket.inputs for bucket in plan.buckets)
