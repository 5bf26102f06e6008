"""Which files are clustered together: decided on examples, and as properties of any plan."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planners import (
    All,
    ByOverlap,
    BySize,
    ClusteringPlan,
    ClusteringPolicy,
    PlanStrategy,
    RecentPartitions,
    SelectedPartitions,
    Strategy,
)
from planners.clustering.planner import plan_clustering
from planners.model import ColumnBounds, TableFile

MIB = 1024**2
ORDER = "sort(key asc nulls first)"
SORTED = ClusteringPolicy(sort_by=["key"], select=All())


def file(size_mib: float, path: str, keys: tuple[Any, Any] | None = None, **known: Any) -> TableFile:
    bounds = (ColumnBounds("key", *keys),) if keys else ()
    size = int(size_mib * MIB)
    return TableFile(path, known.pop("partition", ()), size, size // 100, bounds=bounds, **known)


def clustered(size_mib: float, path: str, keys: tuple[Any, Any] | None = None, **known: Any) -> TableFile:
    return file(size_mib, path, keys, clustered_by=ORDER, sorted=True, **known)


def plan(files: Sequence[TableFile], policy: ClusteringPolicy | None = None) -> ClusteringPlan:
    return plan_clustering(files, 1_000, policy or ClusteringPolicy())


def shape(answer: ClusteringPlan) -> list[tuple[str, ...]]:
    return [tuple(sorted(group.inputs)) for group in answer.groups]


def reason(answer: ClusteringPlan, path: str) -> str:
    (found,) = [it.reason for it in answer.left_out if it.path == path]
    return found


# -------------------------------------------------------------------------------- which files, grouped how


def test_small_files_are_joined_up_to_the_target_where_nothing_is_to_be_sorted() -> None:
    answer = plan([file(300, "a"), file(400, "b"), file(700, "large")])
    (group,) = answer.groups
    assert (shape(answer), group.output_files, group.sort_by) == ([("a", "b")], 1, ())
    assert (group.strategy, group.order) == (Strategy("bin_pack"), None)
    assert reason(answer, "large") == "at or above the small limit of 629,145,600 bytes"


def test_files_of_two_partitions_are_never_joined() -> None:
    answer = plan([file(500, "a", partition=(1,)), file(500, "b", partition=("1",))])
    assert shape(answer) == []
    assert reason(answer, "a") == "waits: 1 small files, joined from 4 on"


def test_a_partition_of_nan_is_one_partition() -> None:
    files = [file(500, path, partition=(float("nan"),)) for path in ("a", "b")]
    assert shape(plan(files)) == [("a", "b")]


def test_a_lone_file_is_rewritten_only_to_sort_it() -> None:
    assert shape(plan([file(300, "a")])) == []
    assert shape(plan([file(300, "a")], SORTED)) == [("a",)]
    assert shape(plan([clustered(300, "a")], SORTED)) == []


def test_files_too_large_for_one_group_together_are_left_alone() -> None:
    answer = plan([file(590, "a"), file(590, "b")], ClusteringPolicy(max_group_bytes="1GiB"))
    assert shape(answer) == []
    assert reason(answer, "a") == "alone: nothing to join it with"


def test_all_files_that_are_not_in_the_order_yet_are_sorted_together() -> None:
    files = [file(500, "c", (5, 9)), file(500, "a", (0, 9)), file(1_000, "b", (2, 3), clustered_by="sort(x)")]
    (group,) = plan(files, SORTED).groups
    assert (group.inputs, group.output_files, group.order) == (("a", "b", "c"), 2, ORDER)
    assert group.sort_by == ("key asc nulls first",)
    assert group.reasons == ("3 files not in this order", "a key may be in 2 files")


def test_files_with_keys_near_each_other_are_in_one_group_where_one_does_not_hold_all() -> None:
    policy = ClusteringPolicy(sort_by=["key"], max_group_bytes="1GiB")
    files = [file(500, f"{at}", (at * 7 % 4, at * 7 % 4 + 0.5)) for at in range(4)]
    assert sorted(shape(plan(files, policy))) == [("0", "3"), ("1", "2")]


def test_groups_are_whole_multiples_of_the_target_and_the_rest_is_named_a_remainder() -> None:
    policy = ClusteringPolicy(sort_by=["key"], target_file_bytes="100MiB", small_file_bytes="90MiB",
                              max_group_bytes="400MiB")  # fmt: skip
    files = [file(10, f"{at:02}", (at, at)) for at in range(75)]
    answer = plan(files, policy)
    groups = sorted(answer.groups, key=lambda group: group.inputs)
    assert [(group.bytes // MIB, group.output_files, group.remainder) for group in groups] == [
        (400, 4, False), (300, 3, False), (50, 1, True),
    ]  # fmt: skip
    assert groups[2].reasons[-1] == "remainder: 52,428,800 bytes are no multiple of 104,857,600"


def test_a_little_more_than_a_multiple_makes_no_remainder() -> None:
    policy = ClusteringPolicy(sort_by=["key"], target_file_bytes="100MiB", small_file_bytes="90MiB")
    (group,) = plan([file(10, f"{at:02}") for at in range(22)], policy).groups
    assert (group.output_files, group.remainder) == (2, False)


def test_a_file_above_a_group_s_bytes_is_left_alone() -> None:
    answer = plan([file(5_000, "a"), file(100, "b")], SORTED)
    assert shape(answer) == [("b",)]
    assert reason(answer, "a") == "above the 4,294,967,296 bytes of a group"


def test_a_group_holds_so_many_files_at_most() -> None:
    policy = ClusteringPolicy(sort_by=["key"], max_group_files=3)
    assert [len(group.inputs) for group in plan([file(1, f"{at}") for at in range(7)], policy).groups] == [
        3,
        3,
        1,
    ]


@pytest.mark.parametrize(
    ("known", "why"),
    [
        ({"reserved_by": "p7"}, "reserved by plan p7"),
        ({"has_deletes_by_value": True}, "carries deletes by value"),
    ],
)
def test_such_a_file_is_left_alone(known: dict[str, Any], why: str) -> None:
    answer = plan([file(300, "a", **known), file(300, "b"), file(300, "c")])
    assert shape(answer) == [("b", "c")]
    assert reason(answer, "a") == why


# ------------------------------------------------------------------------------ files already in the order


def test_small_files_of_the_order_wait_until_joining_them_is_repaid() -> None:
    """Of 100 40 3 2 MiB and one new MiB, those of 3 and 2 join: 40 is more than all of these."""
    files = [clustered(size, f"{size}") for size in (100, 40, 3, 2)]
    assert shape(plan(files[2:], SORTED)) == []
    answer = plan([*files, file(2, "new")], SORTED)
    assert shape(answer) == [("2", "3", "new")]
    assert reason(answer, "40") == "joining it would not be repaid"


def test_small_files_of_the_order_join_where_a_full_file_is_made() -> None:
    assert shape(plan([clustered(500, "a"), clustered(110, "b")], SORTED)) == [("a", "b")]


def test_full_files_of_the_order_wait_until_four_share_keys() -> None:
    files = [clustered(1_000, f"{at}", (at, at + 10)) for at in range(4)]
    apart = clustered(1_000, "apart", (13, 99))
    three = plan([*files[:3], apart], SORTED)
    assert shape(three) == []
    assert reason(three, "0") == "in this order, and overlaps too little"
    four = plan([*files, apart], SORTED)
    assert shape(four) == [("0", "1", "2", "3")]
    assert four.groups[0].level == 1
    assert four.groups[0].reasons == ("4 full files share keys, round 1", "a key may be in 4 files")


def test_full_files_whose_keys_only_touch_are_left_alone() -> None:
    """The same key at the end of one and at the start of the next, and files of that key alone."""
    files = [clustered(1_000, "low", (0, 5)), clustered(1_000, "high", (5, 9))]
    files += [clustered(1_000, f"only{at}", (5, 5)) for at in range(9)]
    assert shape(plan(files, SORTED)) == []


def test_full_files_over_each_other_are_cut_into_groups_within_the_limits() -> None:
    files = [clustered(200, f"{at}", (0, 9)) for at in range(10)]
    limits = {"sort_by": ["key"], "select": All(), "small_file_bytes": "100MiB"}
    few = plan(files, ClusteringPolicy(**limits, max_group_files=5))
    assert [len(group.inputs) for group in few.groups] == [5, 5]
    small = plan(files, ClusteringPolicy(**limits, target_file_bytes="500MiB", max_group_bytes="1000MiB"))
    assert [len(group.inputs) for group in small.groups] == [5, 5]


def test_full_files_of_different_levels_are_not_sorted_together() -> None:
    files = [clustered(1_000, f"{at}", (0, 10), level=at // 2) for at in range(4)]
    assert shape(plan(files, SORTED)) == []


def test_full_files_are_sorted_no_more_often_than_their_number_needs() -> None:
    files = [clustered(1_000, f"{at}", (0, 10), level=3) for at in range(4)]
    assert (
        reason(plan(files, SORTED), "0") == "sorted 3 times against its neighbours, as often as 4 files need"
    )
    assert len(plan([clustered(1_000, f"{at}", (0, 10), level=2) for at in range(4)], SORTED).groups) == 1


def test_bounds_of_a_second_column_tell_files_with_one_first_key_apart() -> None:
    policy = ClusteringPolicy(sort_by=["key", "time"], select=All())

    def of_one_key(at: int, times: tuple[int, int]) -> TableFile:
        bounds = (ColumnBounds("key", "k", "k"), ColumnBounds("time", *times))
        return TableFile(f"{at}", (), 1_000 * MIB, 9, bounds=bounds, clustered_by=policy.order)

    assert shape(plan([of_one_key(at, (at, at + 1)) for at in range(8)], policy)) == []
    assert len(plan([of_one_key(at, (0, 9)) for at in range(8)], policy).groups) == 2


def test_along_a_curve_files_overlap_where_they_do_in_every_column() -> None:
    policy = ClusteringPolicy(sort_by=["x", "y"], strategy="hilbert", select=All())

    def tile(path: str, x: tuple[int, int], y: tuple[int, int]) -> TableFile:
        bounds = (ColumnBounds("x", *x), ColumnBounds("y", *y))
        return TableFile(path, (), 1_000 * MIB, 9, bounds=bounds, clustered_by=policy.order)

    grid = [tile(f"{x}-{y}", (x, x + 1), (y, y + 1)) for x in range(16) for y in range(16)]
    assert shape(plan(grid, policy)) == []
    heap = [tile(f"over{at}", (3, 5), (2, 9)) for at in range(8)]
    taken = {path for paths in shape(plan([*grid, *heap], policy)) for path in paths}
    assert len(taken) == 8
    assert len(taken & {it.path for it in heap}) >= 7


# ----------------------------------------------------------------------------------------- plan strategies


def test_recent_partitions_are_those_that_new_rows_came_to_last() -> None:
    """Not the greatest values, and not what clustering itself wrote."""
    select = (RecentPartitions(look_back=2, skip_latest=1), BySize())
    files = [
        file(300, "late data", partition=("2020",), committed_at=50),
        file(300, "b", partition=("2023",), committed_at=40),
        file(300, "c", partition=("2024",), committed_at=30),
        file(300, "d", partition=("2022",), committed_at=20),
        clustered(300, "e", partition=("2021",), committed_at=99),
    ]
    answer = plan(files, ClusteringPolicy(sort_by=["key"], select=select))
    assert sorted(shape(answer)) == [("b",), ("c",)]
    assert reason(answer, "late data") == "its partition is one of the 1 written last"
    assert "before the 2 that are looked back on" in reason(answer, "d")


def test_selected_partitions_are_those_that_the_filter_holds_for() -> None:
    files = [file(300, "a", partition=(1,)), file(300, "b", partition=(2,))]

    def selected(least: int) -> ClusteringPlan:
        chosen = SelectedPartitions(lambda values: values[0] >= least, f"day >= {least}")  # type: ignore[operator]
        return plan(files, ClusteringPolicy(sort_by=["key"], select=chosen))

    assert shape(selected(2)) == [("b",)]
    assert reason(selected(2), "a") == "its partition does not match day >= 2"
    assert reason(selected(3), "a") == "the filter day >= 3 matches no partition at all"


def test_selected_partitions_of_a_table_of_several_specs_have_a_predicate_each() -> None:
    files = [
        file(300, "a", partition=(1,)),
        file(300, "b", partition=(1,), spec_id=1),
        file(300, "c", partition=("eu",), spec_id=2),
    ]
    chosen = SelectedPartitions({1: lambda values: values == (1,), 2: lambda values: values == ("us",)}, "x")
    answer = plan(files, ClusteringPolicy(sort_by=["key"], select=chosen))
    assert shape(answer) == [("b",)]
    assert reason(answer, "a") == "its partition does not match x"
    alone = SelectedPartitions(lambda values: values == (1,), "x")
    with pytest.raises(ValueError, match=r"a predicate for each, \{spec id: predicate\}.*: 0, 1, 2"):
        plan(files, ClusteringPolicy(sort_by=["key"], select=alone))


def test_files_of_two_specs_are_in_no_group_together_though_their_partitions_have_equal_values() -> None:
    specs = {"a": 0, "b": 1, "c": 0, "d": 1}
    files = [file(300, name, partition=(1,), spec_id=spec_id) for name, spec_id in specs.items()]
    assert sorted(shape(plan(files))) == [("a", "c"), ("b", "d")]


def test_by_overlap_takes_the_files_that_share_keys() -> None:
    policy = ClusteringPolicy(sort_by=["key"], select=ByOverlap(others=2))
    files = [
        file(1, "a", ("a", "m")),
        file(1, "b", ("b", "f")),
        file(1, "c", ("e", "z")),
        file(1, "d", ("x", "z")),
    ]
    answer = plan(files, policy)
    assert shape(answer) == [("a", "b", "c")]
    assert reason(answer, "d") == "shares keys with 1 other files, below 2"
    assert len(plan([*files, file(1, "unknown", (None, "q"))], policy).groups[0].inputs) == 5


def test_a_strategy_of_one_s_own_has_three_members() -> None:
    class WrittenBefore:
        name = "written_before"

        def __init__(self, time: int) -> None:
            self.time = time
            self.parameters = {"time": str(time)}

        def refused(
            self, files: Sequence[TableFile], policy: ClusteringPolicy, now: int, /
        ) -> Mapping[str, str]:
            return {it.path: "too young" for it in files if it.committed_at >= self.time}

    own: PlanStrategy = WrittenBefore(5)
    answer = plan(
        [file(300, "old"), file(300, "young", committed_at=5)], ClusteringPolicy(sort_by=["key"], select=own)
    )
    assert shape(answer) == [("old",)]
    assert reason(answer, "young") == "too young"
    assert answer.selected_by == (Strategy("written_before", (("time", "5"),)),)


# ---------------------------------------------------------------------------------------- order and limits


def test_what_saves_most_files_per_byte_comes_first_in_a_bounded_plan() -> None:
    files = [file(500, f"large{at}", partition=(1,)) for at in range(2)]
    files += [file(1, f"tiny{at}", partition=(2,)) for at in range(4)]
    files += [file(50, f"mid{at}", partition=(3,)) for at in range(4)]
    assert [group.partition for group in plan(files).groups] == [("2",), ("3",), ("1",)]
    bounded = plan(files, ClusteringPolicy(max_groups=1))
    assert [group.partition for group in bounded.groups] == [("2",)]
    assert reason(bounded, "mid0") == "beyond the 1 groups of a plan"


def test_files_over_each_other_come_before_as_many_that_are_apart() -> None:
    policy = ClusteringPolicy(sort_by=["key"])
    files = [file(9, f"apart{at}", (at, at + 1), partition=(1,)) for at in range(5)]
    files += [file(9, f"over{at}", (0, 9), partition=(2,)) for at in range(5)]
    assert [group.partition for group in plan(files, policy).groups] == [("2",), ("1",)]


def test_bounds_that_cannot_be_compared_name_their_column() -> None:
    with pytest.raises(ValueError, match="bounds of column 'key' cannot be compared"):
        plan([file(1, "a", (1, 2)), file(1, "b", ("x", "y"))], SORTED)


# ---------------------------------------------------------------------------------- properties of any plan

values = st.sampled_from([None, 0, 1, "a", "1", float("nan")])
keys = st.one_of(
    st.none(),
    st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda it: (min(it), max(it))),
    st.sampled_from([(None, 4), (float("nan"), 4.0)]),
)
rarely = st.sampled_from([False] * 9 + [True])
table_files = st.lists(
    st.builds(
        file,
        st.one_of(st.integers(1, 50), st.integers(1, 1_500)),
        st.text("abc", min_size=1, max_size=6),
        keys,
        partition=st.tuples(values),
        has_deletes_by_value=rarely,
        spec_id=st.sampled_from([0, 0, 1]),
        reserved_by=st.sampled_from([None] * 9 + ["x"]),
        clustered_by=st.sampled_from([None, ORDER, "zorder(x)"]),
        level=st.integers(0, 2),
        committed_at=st.integers(0, 9),
    ),
    max_size=60,
    unique_by=lambda it: it.path,
)
policies = st.builds(
    ClusteringPolicy,
    sort_by=st.sampled_from([[], ["key"], ["key desc", "other"]]),
    select=st.sampled_from([All(), BySize(), ByOverlap(2), (RecentPartitions(2, 1), BySize())]),
    small_file_bytes=st.sampled_from(["0", "100MiB", "600MiB", "1000MiB"]),
    max_group_bytes=st.sampled_from(["1GiB", "1500MiB", "4GiB"]),
    max_group_files=st.integers(2, 20),
    max_groups=st.sampled_from([1, 100]),
    overlap_at_least=st.integers(2, 5),
)


@settings(deadline=None)
@given(table_files, policies, st.randoms())
def test_any_plan_keeps_its_promises(files: list[TableFile], policy: ClusteringPolicy, shuffler: Any) -> None:
    """Each file once, none that must be left alone, nothing above the limits, in any order, as saved."""
    answer = plan(files, policy)
    by_path = {it.path: it for it in files}
    named = [path for group in answer.groups for path in group.inputs] + [it.path for it in answer.left_out]
    assert sorted(named) == sorted(by_path)
    assert len(answer.groups) <= policy.max_groups
    benefits = [group.files_saved / group.bytes for group in answer.groups]
    assert benefits == sorted(benefits, reverse=True)
    for group in answer.groups:
        inputs = [by_path[path] for path in group.inputs]
        assert len({(it.spec_id, repr(it.partition)) for it in inputs}) == 1
        assert not any(it.has_deletes_by_value or it.reserved_by for it in inputs)
        assert (group.bytes, group.rows) == (sum(it.bytes for it in inputs), sum(it.rows for it in inputs))
        assert group.bytes <= policy.max_group_bytes
        assert len(inputs) <= policy.max_group_files
        assert group.reasons
        assert 1 <= group.output_files <= max(1, -(-group.bytes // policy.target_file_bytes))
        assert group.remainder or group.bytes >= group.output_files * policy.small_file_bytes
        assert group.remainder == any(it.startswith("remainder") for it in group.reasons)
        changed = [it for it in inputs if policy.order and it.clustered_by != policy.order]
        assert changed or group.level or group.output_files < len(inputs)
    assert all(it.reason for it in answer.left_out)

    shuffler.shuffle(files)
    assert plan(files, policy) == answer
    assert ClusteringPlan.from_dict(json.loads(json.dumps(answer.to_dict()))) == answer
    assert answer.explain().count("\n") < 400


def test_a_saved_plan_is_read_with_fields_that_are_not_known_yet_and_without_the_files_left_out() -> None:
    answer = plan([file(300, "a"), file(300, "b"), file(700, "c")])
    saved = {**answer.to_dict(), "new": 1}
    saved["groups"] = [{**group, "new": 1} for group in saved["groups"]]
    del saved["left_out"]
    assert ClusteringPlan.from_dict(saved).groups == answer.groups


def test_explain_says_what_each_group_does_and_why_each_file_was_left_out() -> None:
    files = [file(400, "a", (0, 5), partition=("d1",)), file(800, "b", (1, 9), partition=("d1",))]
    files += [file(9, f"r{at}", reserved_by="p1") for at in range(2)]
    lines = plan(files, SORTED).explain().splitlines()
    assert lines[0] == "clustering plan: 1 group, 2 files -> 2, 1.2 GiB, 2 files left out"
    assert lines[1] == "selected by: all(); target 1.0 GiB a file"
    assert lines[4].split()[:4] == ["d1", "0", "2", "2"]
    assert lines[4].endswith(f"{ORDER}  2 files not in this order; a key may be in 2 files")
    assert "  2 files: reserved by plan p1" in lines
    assert lines[-1].split(maxsplit=3) == ["-", "r1", "9,437,184", "reserved by plan p1"]


def test_explain_of_nothing_has_no_tables() -> None:
    assert plan([]).explain().splitlines() == [
        "clustering plan: 0 groups, 0 files -> 0, 0 B, 0 files left out",
        "selected by: by_size(); target 1.0 GiB a file",
    ]


def test_explain_of_thousands_of_files_stays_short_and_says_so() -> None:
    files = [file(1, f"{at}", partition=(at,)) for at in range(3_000)]
    text = plan(files).explain()
    assert len(text.splitlines()) < 120
    assert "... and 2,900 files more, not listed" in text
