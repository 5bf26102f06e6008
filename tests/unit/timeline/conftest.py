"""Fixtures of the timeline's suites."""

from __future__ import annotations

import pytest

from tests.unit.timeline.plans import MERGING
from timeline.plans.clustering import CLUSTERING
from timeline.plans.kinds import PlanKind
from timeline.plans.registry import KINDS


@pytest.fixture(params=[CLUSTERING, MERGING], ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> PlanKind:
    """Each kind in turn; both are known."""
    monkeypatch.setitem(KINDS, MERGING.name, MERGING)
    parameter: PlanKind = request.param
    return parameter
