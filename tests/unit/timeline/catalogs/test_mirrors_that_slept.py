"""A process that sleeps between its look at a mirror and its move, and what it finds when it wakes (R36)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.timeline.catalogs.pointers import PointersInMemory
from tests.unit.timeline.catalogs.test_mirrors import NAME, a_mirror, commit, named, noted
from tests.unit.timeline.world import Lake
from timeline import properties
from timeline.catalogs.mirrors.forgetting import forget_mirror
from timeline.catalogs.mirrors.mirroring import Mirrored
from timeline.table import Table
from timeline.versions.mirrors import mirrors_of


def _a_mirror_to_move(*, compares: bool) -> tuple[Lake, PointersInMemory]:
    """Return a table whose mirror names version 2, and a catalog."""
    lake, catalog = Lake(), PointersInMemory(compares=compares)
    a_mirror(catalog).bring_up(lake.table)
    commit(lake.table)
    return lake, catalog


def _sleep(lake: Lake, other: Table, versions: int, minutes: float, then: Callable[[], object]) -> None:
    """Let a process sleep, by all of its clocks, while another one commits."""
    for _ in range(versions):
        lake.clock.now_ms += int(minutes * 60_000)
        lake.clock.seconds += minutes * 60
        commit(other)
    then()


def test_one_that_was_overtaken_while_it_slept_sets_right_what_it_has_set_back() -> None:
    """Where nothing is compared, it has named a version whose note is gone, long after its patience ended."""
    lake, catalog = _a_mirror_to_move(compares=False)
    other = lake.open()

    def be_overtaken() -> None:
        # The first round of the other one ends at version 3, of which it finds the note.
        _sleep(lake, other, 140, 1, lambda: a_mirror(catalog).bring_up(other))

    catalog.meets.extend([None, be_overtaken])
    assert a_mirror(catalog).bring_up(lake.table) == Mirrored(143, moved=True)
    assert named(lake, catalog) == 143
    assert noted(lake) == [143]


@pytest.mark.parametrize("compares", [True, False])
def test_one_that_slept_alone_leaves_no_version_named_whose_day_is_over(compares: bool) -> None:
    lake, catalog = _a_mirror_to_move(compares=compares)
    other = lake.open()
    catalog.meets.extend([None, lambda: _sleep(lake, other, 300, 12, lambda: None)])
    assert a_mirror(catalog).bring_up(lake.table) == Mirrored(303, moved=True)
    assert named(lake, catalog) == 303
    assert noted(lake) == [303]


@pytest.mark.parametrize("before", [0, 1])
def test_a_mirror_that_is_forgotten_while_it_is_moved_is_stated_anew(before: int) -> None:
    """So what the catalog names when a call returns has a note for which cleaners look."""
    lake, catalog = _a_mirror_to_move(compares=True)
    other = lake.open()
    catalog.meets.extend([*[None] * before, lambda: forget_mirror(other, NAME)])
    a_mirror(catalog).bring_up(lake.table)
    head = lake.open().head
    assert mirrors_of(head.properties) == (NAME,), head.properties[properties.MIRRORS]
    assert named(lake, catalog) == head.number
    assert noted(lake) == [head.number]
