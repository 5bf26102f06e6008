"""One registry of clustering strategies: each row has its class, and a new class needs one row."""

from __future__ import annotations

from pkgutil import resolve_name

import pytest

from planners import ClusteringPolicy
from planners.clustering.planner import plan_clustering
from planners.clustering.strategies import BUILT_IN, SortColumns, Strategy, Traits, traits
from planners.model import TableFile
from streaming_sink.clustering.options import pass_of
from streaming_sink.tasks.clustering.strategies import Sort, make_strategy


class Backwards(Sort):
    """A strategy that somebody adds: a class, and one row."""


ROW = Traits(f"{__name__}:Backwards", SortColumns.REQUIRED, parameters=frozenset({"step"}))


@pytest.mark.parametrize("name", BUILT_IN)
def test_each_row_names_a_class_that_does_what_the_row_says(name):
    needs = traits(name)
    made = resolve_name(needs.implementation)
    assert callable(made.rewrite)
    assert hasattr(made, "stale_reason") is needs.file_by_file
    assert hasattr(made, "key_names") is needs.sets_keys
    assert getattr(made, "in_ranges", False) is (needs.sort_columns is SortColumns.REQUIRED)
    assert needs.makes_order is (needs.sort_columns is not SortColumns.REFUSED)


def test_a_row_is_all_that_a_new_class_needs(monkeypatch):
    monkeypatch.setitem(BUILT_IN, "backwards", ROW)
    monkeypatch.setattr("streaming_sink.tasks.clustering.strategies.resolve_name", lambda _: Backwards)
    planned = pass_of(sort_by=["id"], strategy="backwards", parameters={"step": "2"})
    assert planned.policy.order == 'backwards(id asc nulls first, {"step": "2"})'
    assert isinstance(make_strategy(planned.policy.strategy, {}), Backwards)
    files = [TableFile(str(number), ("p",), 10, 1) for number in range(3)]
    (group,) = plan_clustering(files, 0, planned.policy).groups
    assert (group.strategy.name, group.order) == ("backwards", planned.policy.order)
    with pytest.raises(ValueError, match="'backwards' needs columns to sort by"):
        ClusteringPolicy(strategy="backwards")
    with pytest.raises(ValueError, match="parameter of strategy 'backwards' 'stop'; did you mean 'step'"):
        pass_of(sort_by=["id"], strategy="backwards", parameters={"stop": "2"})
    with pytest.raises(ValueError, match="did you mean 'backwards'"):
        pass_of(sort_by=["id"], strategy="backward")


def test_a_custom_strategy_checks_its_own_parameters_and_has_an_order_of_its_own():
    custom = {"by_domain": lambda parameters: Sort(parameters)}
    planned = pass_of(strategy="by_domain", parameters={"anything": "1"}, strategies=custom)
    assert planned.policy.order == 'by_domain({"anything": "1"})'
    assert isinstance(make_strategy(Strategy("by_domain"), custom), Sort)
    with pytest.raises(ValueError, match="strategies has a built-in name, choose another: sort"):
        make_strategy(Strategy("sort"), {"sort": Sort})
