"""The protocol's models hold in every state that they can reach, and each rule is needed."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tests.models.catalogue import BROKEN, SOUND, Broken, Sound
from tests.models.checker import explore


@pytest.mark.parametrize("case", SOUND, ids=str)
def test_with_all_rules_no_state_is_wrong(case: Sound) -> None:
    found = explore(case.model)
    assert found.violation is None, str(found)
    assert found.states == case.states


@pytest.mark.parametrize("case", BROKEN, ids=str)
def test_without_a_rule_something_goes_wrong(case: Broken) -> None:
    """In so many steps and no fewer: the search is breadth first."""
    found = explore(case.model)
    assert case.violation in str(found.violation), str(found)
    assert len(found.path) == case.steps, str(found)


def test_every_rule_of_every_model_is_taken_away_once() -> None:
    rules = {(type(s.model), f.name) for s in SOUND for f in fields(s.model) if f.default is True}
    assert rules - {(type(b.whole), b.without) for b in BROKEN} == set()
