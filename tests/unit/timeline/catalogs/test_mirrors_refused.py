"""Catalogs that refuse a mirror, and mirrors that are forgotten: what of them stays in the table (R36)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.exceptions import ForbiddenError, UnauthorizedError

from tests.unit.timeline.catalogs.pointers import AFTER, BEFORE, PointersInMemory
from tests.unit.timeline.catalogs.test_mirrors import NAME, TABLE, THEIRS, a_mirror, commit, named, noted
from tests.unit.timeline.world import Lake
from timeline import features, properties
from timeline.catalogs.mirrors.forgetting import forget_mirror
from timeline.catalogs.mirrors.mirroring import Mirror
from timeline.errors import (
    CommitStateUnknownError,
    MirrorForkedError,
    StoreUnavailableError,
    UnsupportedTableError,
)
from timeline.features import required_features
from timeline.versions.mirrors import mirrors_of


def _raising(error: Exception) -> Callable[..., Any]:
    def refuse(*_: Any) -> Any:
        raise error

    return refuse


def _is_stated(lake: Lake) -> bool:
    """Return whether the table requires of writers that they know mirrors; it does where it has one."""
    stated = lake.open().head.properties
    assert bool(mirrors_of(stated)) == ("mirror" in required_features(stated))
    return "mirror" in required_features(stated)


# before anything was named ------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ForbiddenError("403"), UnauthorizedError("401"), ConnectionError("down")])
def test_a_catalog_that_answers_no_look_leaves_the_table_as_it_is(error: Exception) -> None:
    lake, catalog = Lake(), PointersInMemory()
    catalog.read_pointer = _raising(error)  # type: ignore[method-assign]
    with pytest.raises((CommitStateUnknownError, StoreUnavailableError)):
        a_mirror(catalog).bring_up(lake.table)
    assert lake.open().head.number == 1
    assert not _is_stated(lake)


def test_a_fork_at_the_first_call_is_stated_so_that_the_doctor_finds_it() -> None:
    lake, catalog = Lake(), PointersInMemory()
    catalog.places[TABLE] = THEIRS
    with pytest.raises(MirrorForkedError):
        a_mirror(catalog).bring_up(lake.table)
    assert _is_stated(lake)


@pytest.mark.parametrize("error", [NotImplementedError("405"), UnsupportedTableError("no overwrite")])
def test_a_catalog_that_cannot_have_mirrors_leaves_none_and_is_asked_once(error: Exception) -> None:
    lake, catalog = Lake(), PointersInMemory()
    catalog.begin_pointer = _raising(error)  # type: ignore[method-assign]
    mirror = a_mirror(catalog)
    with pytest.raises(UnsupportedTableError):
        mirror.bring_up(lake.table)
    assert not _is_stated(lake)
    assert noted(lake) == []
    at, asked = lake.open().head.number, len(catalog.requests)
    with pytest.raises(UnsupportedTableError, match=str(error)):
        mirror.bring_up(lake.table)
    assert (lake.open().head.number, len(catalog.requests)) == (at, asked)


def test_what_a_refused_call_could_not_take_back_the_next_one_does() -> None:
    lake, catalog = Lake(), PointersInMemory()
    catalog.begin_pointer = _raising(NotImplementedError("405"))  # type: ignore[method-assign]
    mirror, delete = a_mirror(catalog), lake.store.delete
    lake.store.delete = _raising(StoreUnavailableError("cut off"))  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailableError):
        mirror.bring_up(lake.table)
    assert noted(lake) == [2]
    lake.store.delete = delete  # type: ignore[method-assign]
    with pytest.raises(UnsupportedTableError):
        mirror.bring_up(lake.table)
    assert noted(lake) == []
    assert not _is_stated(lake)


def test_a_catalog_that_moves_no_mirror_leaves_what_is_held_for_the_one_that_is_there() -> None:
    lake, catalog = Lake(), PointersInMemory()
    a_mirror(catalog).bring_up(lake.table)
    commit(lake.table)
    catalog.move_pointer = _raising(UnsupportedTableError("no overwrite"))  # type: ignore[method-assign]
    with pytest.raises(UnsupportedTableError):
        a_mirror(catalog).bring_up(lake.table)
    assert _is_stated(lake)
    assert named(lake, catalog) in noted(lake)


# access that is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ForbiddenError("403"), UnauthorizedError("401")])
@pytest.mark.parametrize("verb", ["read_pointer", "move_pointer"])
def test_access_that_is_refused_is_said_to_be(error: Exception, verb: str) -> None:
    lake, catalog = Lake(), PointersInMemory()
    a_mirror(catalog).bring_up(lake.table)
    commit(lake.table)
    setattr(catalog, verb, _raising(error))
    with pytest.raises(StoreUnavailableError, match=r"refuses access to the mirror lake:db\.t.* give"):
        a_mirror(catalog).bring_up(lake.table)
    assert named(lake, catalog) == 2
    delattr(catalog, verb)
    assert a_mirror(catalog).bring_up(lake.table).moved


@pytest.mark.parametrize("lost", [BEFORE, AFTER])
def test_a_move_without_an_answer_stays_unknown_though_access_is_refused_then(lost: str) -> None:
    lake, catalog = Lake(), PointersInMemory()
    a_mirror(catalog).bring_up(lake.table)
    commit(lake.table)

    def refuse_from_now_on() -> None:
        catalog.read_pointer = _raising(ForbiddenError("403"))  # type: ignore[method-assign]

    look = catalog.read_pointer
    catalog.meets.extend([refuse_from_now_on, lost])
    with pytest.raises(CommitStateUnknownError, match="it is not known which version"):
        a_mirror(catalog).bring_up(lake.table)
    catalog.read_pointer = look  # type: ignore[method-assign]
    a_mirror(catalog).bring_up(lake.table)
    assert named(lake, catalog) == 3


# forgetting ---------------------------------------------------------------------------------------


def test_the_feature_leaves_with_the_last_mirror_and_no_other_does() -> None:
    lake, catalog = Lake(), PointersInMemory()
    lake.change_metadata(
        lambda it: {"properties": {**it.properties, properties.REQUIRED_FEATURES: "keys>=0.1, rollback"}}
    )
    other = Mirror("lake:db.u", ("db", "u"), catalog)
    a_mirror(catalog).bring_up(lake.table)
    other.bring_up(lake.table)
    forget_mirror(lake.table, NAME)
    assert _is_stated(lake)
    forget_mirror(lake.table, "lake:db.u")
    assert not _is_stated(lake)
    assert lake.open().head.properties[properties.REQUIRED_FEATURES] == "keys>=0.1, rollback"
    a_mirror(catalog).bring_up(lake.table)
    assert _is_stated(lake)


def test_a_table_that_requires_nothing_else_is_as_before_once_its_mirror_is_forgotten() -> None:
    lake, catalog = Lake(), PointersInMemory()
    before = lake.table.head.properties
    a_mirror(catalog).bring_up(lake.table)
    forget_mirror(lake.table, NAME)
    assert lake.table.head.properties.keys() == before.keys()
    assert features.required_features(lake.table.head.properties) == {}


def test_a_name_that_is_no_mirror_is_a_mistake_that_is_told() -> None:
    lake, catalog = Lake(), PointersInMemory()
    with pytest.raises(ValueError, match=r"has no mirror lake:db\.t; it has none"):
        forget_mirror(lake.table, NAME)
    a_mirror(catalog).bring_up(lake.table)
    at = lake.table.head.number
    with pytest.raises(ValueError, match=r"has no mirror lake:db\.typo; it has lake:db\.t: "):
        forget_mirror(lake.table, "lake:db.typo")
    assert lake.open().head.number == at
    assert noted(lake) == [at]


def test_a_call_that_was_cut_off_before_it_deleted_the_notes_is_completed() -> None:
    lake, catalog = Lake(), PointersInMemory()
    a_mirror(catalog).bring_up(lake.table)
    delete = lake.store.delete
    lake.store.delete = _raising(StoreUnavailableError("cut off"))  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailableError):
        forget_mirror(lake.table, NAME)
    lake.store.delete = delete  # type: ignore[method-assign]
    assert not _is_stated(lake)
    forget_mirror(lake.table, NAME)
    assert noted(lake) == []
    with pytest.raises(ValueError, match="has no mirror"):
        forget_mirror(lake.table, NAME)
