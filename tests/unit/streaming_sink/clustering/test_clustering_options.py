"""Options of clustering of another kind than they have to be are told where the sink is made."""

from __future__ import annotations

import re

import pytest

from planners import All, Strategy
from planners.clustering.selection import plan_strategy
from planners.clustering.sort_fields import SortField
from streaming_sink import Clustering


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sort_by": [None]}, "sort_by must be a list of columns"),
        ({"sort_by": [5]}, "sort_by must be a list of columns"),
        ({"sort_by": 5}, "sort_by must be a list of columns"),
        ({"strategy": 5}, "strategy must be the name of a strategy"),
        ({"parameters": "x"}, "parameters must be a mapping of names to texts"),
        ({"parameters": {"a": 1}}, "parameters must be a mapping of names to texts"),
        ({"strategies": 5}, "strategies must be a mapping"),
        ({"strategies": {"mine": 5}}, "strategies must be a mapping"),
        ({"select": "by_size"}, "select must be one or several plan strategies, such as planners.All()"),
        ({"select": [5]}, "select must be one or several plan strategies"),
        ({"select": []}, "select must be one or several plan strategies"),
        ({"checksum": "yes"}, "checksum must be True or False: checksum='yes'"),
        ({"max_groups": True}, "max_groups must be a whole number: max_groups=True"),
        ({"max_group_files": 2.5}, "max_group_files must be a whole number"),
        ({"target_file_bytes": 1.5}, "target_file_bytes must be a number of bytes"),
        ({"memory_bytes": None}, "memory_bytes must be a number of bytes"),
    ],
)
def test_an_option_of_another_kind_is_refused_with_what_it_must_be(options, said):
    with pytest.raises(TypeError, match=re.escape(said)):
        Clustering(**options)


def test_every_kind_that_is_documented_is_taken():
    Clustering(sort_by=["a", SortField("b")], strategy="zorder", select=[All()], checksum=True)
    Clustering(sort_by=("a",), strategy=Strategy("sort"), select=All(), memory_bytes="64MiB")
    Clustering(strategy="mine", strategies={"mine": dict}, parameters={"a": "b"}, max_groups=3)


def test_more_columns_than_a_curve_goes_through_are_refused():
    Clustering(strategy="hilbert", sort_by=list("abcde"))
    with pytest.raises(ValueError, match="a curve goes through 5 columns at most, not 6"):
        Clustering(strategy="hilbert", sort_by=list("abcdef"))


def test_what_a_plan_strategy_needs_is_named():
    with pytest.raises(ValueError, match="'recent_partitions' needs look_back="):
        plan_strategy("recent_partitions", skip_latest=1)
