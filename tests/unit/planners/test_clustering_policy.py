"""What a clustering policy accepts, and how it refuses the rest."""

from __future__ import annotations

from typing import Any

import pytest

from planners import ByOverlap, ClusteringPolicy, RecentPartitions, SortField, Strategy, plan_strategy


def test_a_plan_strategy_is_made_from_its_name() -> None:
    assert plan_strategy("recent_partitions", look_back=3) == RecentPartitions(3)
    with pytest.raises(ValueError, match="unknown plan strategy 'by_overlaps'; did you mean 'by_overlap'"):
        plan_strategy("by_overlaps")
    with pytest.raises(ValueError, match=r"'lookback'; did you mean 'look_back'\?"):
        plan_strategy("recent_partitions", lookback=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_file_bytes": "600MiB"}, "target_file_bytes must be above small_file_bytes.*629,145,600"),
        ({"small_file_bytes": -1}, "small_file_bytes must not be negative"),
        ({"max_group_bytes": "1000MiB"}, "max_group_bytes must reach target_file_bytes"),
        ({"max_group_files": 1}, "max_group_files must be an integer of at least 2: max_group_files=1"),
        ({"max_groups": 0}, "max_groups must be an integer of at least 1"),
        ({"overlap_at_least": "4"}, "overlap_at_least must be an integer of at least 2"),
        ({"strategy": "hilber", "sort_by": ["a"]}, "strategy 'hilber'; did you mean 'hilbert'"),
        ({"strategy": "quux"}, "known are: bin_pack, drop_columns, encrypt, hilbert, sort, zorder"),
        ({"strategy": "zorder"}, "strategy 'zorder' needs columns to sort by"),
        ({"strategy": "bin_pack", "sort_by": ["a"]}, "'bin_pack' does not sort"),
        ({"sort_by": ["a", "b", "a desc"]}, "sort_by names a column twice: a"),
        ({"sort_by": "a"}, "must be a list of columns"),
        ({"sort_by": [" "]}, "a sort column needs a name"),
        ({"strategy": Strategy("own"), "parameters": {"a": "b"}}, "belong in the Strategy"),
        ({"target_file_bytes": "much"}, "not a size in bytes: 'much'"),
    ],
)  # fmt: skip
def test_an_impossible_policy_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClusteringPolicy(**options)


@pytest.mark.parametrize(
    "made", [lambda: RecentPartitions(0), lambda: RecentPartitions(1, -1), lambda: ByOverlap(0)]
)
def test_an_impossible_plan_strategy_is_refused(made: Any) -> None:
    with pytest.raises(ValueError, match="at least"):
        made()


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("a", SortField("a")),
        (" a  DESC ", SortField("a", descending=True, nulls_first=False)),
        ("a asc nulls last", SortField("a", nulls_first=False)),
        ("a desc nulls first", SortField("a", descending=True)),
        ("a b", SortField("a b")),
    ],
)
def test_a_sort_field_is_read_from_text_and_reads_its_own(text: str, field: SortField) -> None:
    assert SortField.parse(text) == field
    assert SortField.parse(str(field)) == field
