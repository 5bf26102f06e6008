"""Processes that race for one table on a real disk, killed and frozen at random.

What was acknowledged is in the lineage once, and no reader ever saw what was not committed.
"""

from __future__ import annotations

import pytest

from tests.processes.race import check, race
from tests.processes.writers import Plan
from tests.tiers import SEED, count, longer_in_soak

pytestmark = [pytest.mark.slow, longer_in_soak]

COMMITS = count(12, 60)
KILLS = count(5, 30)


@pytest.fixture
def plan(tmp_path):
    """Call it for the plan of a race in this test's folder."""

    def made(race="0", **options):
        (tmp_path / race).mkdir()
        return Plan(str(tmp_path / race / "table"), tmp_path / race / "notes", **options)

    return made


def test_writers_that_are_killed_lose_and_double_nothing(plan):
    killed = plan(commits=COMMITS)
    after_a_commit = race(killed, kills=KILLS, seed=SEED)
    assert 2 * sum(after_a_commit) >= len(after_a_commit) == KILLS, after_a_commit
    assert check(killed)["versions"] == 8 * COMMITS + 1


def test_writers_that_are_frozen_past_retention_lose_and_double_nothing(plan):
    frozen = plan(commits=COMMITS, kept=5, freezes=0.1)
    race(frozen, seed=SEED)
    happened = check(frozen)
    assert happened["deleted"] > 0
    assert happened["forks"] > 0, "nobody created a number that had been deleted: freeze more"


def test_clusterers_that_are_killed_among_writers_lose_and_double_nothing(plan):
    """A plan whose executor died is finished by the other one, and no plan is completed twice."""
    for tries in range(3):
        clustered = plan(str(tries), writers=3, clusterers=2, commits=2 * COMMITS, fill_every=4)
        race(clustered, kills=2 * KILLS, seed=SEED + tries)
        happened = check(clustered)
        if happened["completed"] and happened["taken_over"]:
            return
    pytest.fail("in no race did a plan complete, and an executor have one when it was killed: kill more")


# -------------------------------------------------------- each rule broken: the judgement must show it


def test_an_acknowledgement_without_a_listing_loses_commits(plan):
    """R1: the frozen create a number that was deleted, and take it for the head."""
    broken = plan(writers=4, commits=8, kept=3, freezes=0.2, broken="confirm")
    race(broken, seed=SEED)
    with pytest.raises(AssertionError, match=r"acknowledged|went from"):
        check(broken)


def test_a_create_that_looks_and_then_renames_loses_commits(plan):
    """R9: two look, and the second replaces what the first has acknowledged; a writer may see it first."""
    broken = plan(writers=4, commits=8, broken="link")

    def race_and_check():
        race(broken, seed=SEED)
        check(broken)

    with pytest.raises(AssertionError, match=r"acknowledged|went from|names a parent|writer \d ended with"):
        race_and_check()
