"""Work items land in any order, each once, and the table remembers their numbers for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.timeline.world import Lake
from timeline import properties
from timeline.changes.changes import Append, SetProperties
from timeline.changes.intent import Intent
from timeline.commit.attempts import Attempts
from timeline.commit.log import Standing
from timeline.commit.standing import judge_standing
from timeline.errors import CorruptTableError
from timeline.table import AlreadyCommitted, Committed
from timeline.versions.work_items import NumberSet, WorkItem, published_items


@given(st.lists(st.integers(0, 40)))
def test_a_number_set_is_a_set_in_any_order_of_arrival(numbers: list[int]) -> None:
    made = NumberSet.of(numbers)
    assert [number for number in range(42) if number in made] == sorted(set(numbers))
    assert len(made) == len(set(numbers))
    assert NumberSet.parse(made.to_text()) == made == NumberSet.of(sorted(numbers))


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_what_is_left_without_others_is_a_set(numbers: set[int], others: set[int]) -> None:
    left = NumberSet.of(numbers).without(NumberSet.of(others))
    assert left == NumberSet.of(numbers - others)


def test_numbers_that_follow_one_another_are_one_range() -> None:
    assert NumberSet.of([3, 0, 1, 2, 7]).to_text() == "0-3,7"


@pytest.mark.parametrize("text", ["1-", "a", "3,1", "0-3,4", "0-3,2-5", "5-3", "-1", "1,,2"])
def test_a_text_that_is_no_number_set_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a set of numbers"):
        NumberSet.parse(text)


def test_items_land_in_any_order_and_each_once() -> None:
    lake = Lake()
    others = lake.open(lake.store)
    for number in (2, 0):
        assert isinstance(
            lake.table.commit([Append((lake.file(),))], transaction=WorkItem("z", number)), Committed
        )
    before = lake.live_rows()
    stale = others.commit([Append((lake.file(),))], transaction=WorkItem("z", 2))  # its head knows of no item
    assert stale == AlreadyCommitted(3)
    assert lake.live_rows() == before
    assert published_items(lake.open().head.properties, "z").to_text() == "0,2"


def test_items_of_another_application_do_not_count() -> None:
    lake = Lake()
    for app in ("a", "b"):
        lake.table.commit([Append((lake.file(),))], transaction=WorkItem(app, 0))
    assert published_items(lake.open().head.properties, "b").to_text() == "0"


def test_an_item_that_the_table_has_is_not_declared_lost_once_its_snapshot_has_left() -> None:
    """A fill has replaced its file, and the snapshot has expired: the file may be in others that are kept."""
    lake = Lake()
    file, item = lake.file(1), WorkItem("z", 0)
    intent = Intent((Append((file,)),), 0, str(lake.table.head.metadata.table_uuid), transaction=item)
    attempts = Attempts(intent, lake.table.log.manifest_files, lake.clock.environment(99))
    attempts.prepare(lake.table.head)
    candidate = attempts.build(lake.table.head, None)
    assert candidate is not None
    assert judge_standing(intent, lake.table.head, candidate) is Standing.LOST
    lake.table.commit([Append((lake.file(1),))], transaction=item)
    assert judge_standing(intent, lake.table.head, candidate) is Standing.UNKNOWN


def test_an_item_without_rows_is_published_too() -> None:
    lake = Lake()
    assert isinstance(lake.table.commit([], transaction=WorkItem("z", 0)), Committed)
    assert isinstance(lake.table.commit([], transaction=WorkItem("z", 0)), AlreadyCommitted)


def test_a_user_cannot_set_the_numbers() -> None:
    with pytest.raises(ValueError, match="belongs to the commit protocol"):
        Lake().table.commit([SetProperties({f"{properties.WORK_ITEMS_PREFIX}z": "0"})])


def test_damaged_numbers_stop_the_items_and_nothing_else() -> None:
    lake = Lake()
    lake.table.commit([Append((lake.file(),))], transaction=WorkItem("z", 0))
    with pytest.raises(CorruptTableError, match="which work items of 'z' are in the table cannot be read"):
        WorkItem("z", 1).check({WorkItem("z", 1).key: "0-"})
