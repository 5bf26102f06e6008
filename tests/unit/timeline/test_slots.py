"""Slots: what is created once and decides; the slot tells what a create did, not its answer."""

from __future__ import annotations

import pytest

from tests.unit.timeline.world import Clock
from timeline.errors import StoreUnavailableError
from timeline.slots.numbered import NumberedLog
from timeline.slots.settling import create_settled
from timeline.stores import Created, CreateOutcome, MemoryStore, Unknown
from timeline.stores.base import Exists


class _Doubtful(MemoryStore):
    """A store whose creates end as they are told to."""

    def __init__(self, name: str, *outcomes: str) -> None:
        super().__init__(name)
        self.outcomes = list(outcomes)

    def create(self, path: str, data: bytes) -> CreateOutcome:
        outcome = self.outcomes.pop(0) if self.outcomes else "created"
        if outcome in ("created", "applied"):
            done = super().create(path, data)
            return done if outcome == "created" else Unknown("the reply was lost")
        if outcome == "exists":
            return Exists()
        return Unknown("the request was lost")


def log_of(store: MemoryStore) -> NumberedLog:
    return NumberedLog(store, "log", "avro", Clock().environment())


@pytest.mark.parametrize("outcome", ["created", "applied", "lost", "exists"])
def test_the_slot_decides_what_a_create_did(outcome: str) -> None:
    store = _Doubtful(f"slot-{outcome}", outcome)
    log = log_of(store)
    assert log.create(1, b"mine") is True
    assert log.read(1) == b"mine"
    assert log.create(1, b"other") is False


def test_a_slot_that_stays_silent_is_unknown() -> None:
    log = log_of(_Doubtful("silent", *["lost"] * 20))
    with pytest.raises(StoreUnavailableError, match="whether a file was written is not known"):
        log.create(1, b"mine")


def test_entries_are_appended_after_those_of_others() -> None:
    store = MemoryStore("appended")
    mine, theirs = log_of(store), log_of(store)
    assert [mine.append(b"1"), theirs.append(b"2"), mine.append(b"3")] == [1, 2, 3]
    assert [data for _, data in theirs.read_after(1)] == [b"2", b"3"]
    assert log_of(store).last() == 3
    assert isinstance(store.create("log/other.txt", b""), Created)
    assert log_of(store).last() == 3


def test_the_content_of_others_is_told_and_whether_the_store_said_so_at_once() -> None:
    store = _Doubtful("told")
    store.create("slot", b"theirs")
    told = create_settled(store, "slot", b"mine", Clock().environment())
    assert (told.stored.data, told.is_own, told.was_refused) == (b"theirs", False, True)
    store.outcomes = ["lost"]
    doubtful = create_settled(store, "slot", b"mine", Clock().environment())
    assert (doubtful.stored.data, doubtful.is_own, doubtful.was_refused) == (b"theirs", False, False)


def test_the_same_bytes_of_another_writer_are_its_own() -> None:
    store = _Doubtful("same")
    store.create("slot", b"mine")
    assert create_settled(store, "slot", b"mine", Clock().environment()).is_own


def test_a_create_that_stored_nothing_for_certain_raises_at_once_and_a_later_one_is_tried_again() -> None:
    class Refusing(_Doubtful):
        def create(self, path: str, data: bytes) -> CreateOutcome:
            if self.outcomes[:1] == ["refused"]:
                self.outcomes.pop(0)
                raise StoreUnavailableError("the disk is full", location=self.location)
            return super().create(path, data)

    store, clock = Refusing("refusing", "refused"), Clock()
    with pytest.raises(StoreUnavailableError, match="the disk is full"):
        create_settled(store, "slot", b"mine", clock.environment())
    assert clock.sleeps == []
    store.outcomes = ["lost", "refused", "applied"]
    assert create_settled(store, "slot", b"mine", clock.environment()).is_own
    store.outcomes = ["lost", *["refused"] * 100]
    with pytest.raises(StoreUnavailableError, match="try again, which finds out"):
        create_settled(store, "other", b"mine", clock.environment())
