"""The probe lets good stores pass and refuses those that lose acknowledged rows."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from timeline.errors import StoreUnavailableError, UnsafeStoreError
from timeline.stores import Created, Exists, Listed, ListedObject, MemoryStore, Store, Unknown, probe
from timeline.stores.base import CreateOutcome


def _left(store: Store) -> list[Listed]:
    return store.list_folder("_timeline/probe")


class IgnoresTheCondition(MemoryStore):
    """Garage's way: every create wins, and replaces."""

    def create(self, path: str, data: bytes) -> CreateOutcome:
        self.overwrite(path, data)
        return Created()


class ChecksThenWrites(MemoryStore):
    """S3Mock's way: right one after the other; two that check at the same time both win.

    The gap lets one other thread in, once for `every` names.
    """

    def __init__(self, every: int = 1) -> None:
        super().__init__()
        self.every = every
        self.gap = threading.Barrier(2)
        self.seen: dict[str, int] = {}
        self.seen_lock = threading.Lock()

    def create(self, path: str, data: bytes) -> CreateOutcome:
        with self.seen_lock:
            number = self.seen.setdefault(path, len(self.seen))
        if number % self.every:
            return super().create(path, data)
        try:
            self.read(path)
        except FileNotFoundError:
            try:
                self.gap.wait(0.02)
            except threading.BrokenBarrierError:
                self.gap.reset()
            self.overwrite(path, data)
            return Created()
        return Exists()


class LosersOverwrite(MemoryStore):
    """Says the truth about who was first, and stores the last one's bytes all the same."""

    def create(self, path: str, data: bytes) -> CreateOutcome:
        outcome = super().create(path, data)
        if isinstance(outcome, Exists) and data != b"second":
            self.overwrite(path, data)
        return outcome


class ListsLate(MemoryStore):
    """Shows what was there before the last twenty creates, as eventually consistent stores did."""

    def list_folder(self, folder: str) -> list[Listed]:
        return sorted(super().list_folder(folder), key=lambda entry: int(entry.identity))[:-20]


class ListsTheDeleted(MemoryStore):
    def list_folder(self, folder: str) -> list[Listed]:
        now = super().list_folder(folder)
        self.last = now or self.last
        return self.last

    last: list[Listed] = []  # noqa: RUF012


def test_a_store_that_keeps_create_if_absent_passes_and_no_key_stays(store: Store) -> None:
    probe(store, "01")
    assert _left(store) == []


def test_a_store_can_be_probed_again_under_another_id(store: Store) -> None:
    probe(store, "01")
    probe(store, "02")
    assert _left(store) == []


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (IgnoresTheCondition, "second create of one name win"),
        (ChecksThenWrites, "several writers create one name"),
        (LosersOverwrite, "replaced the winner's bytes"),
        (ListsLate, "does not list what was just created"),
    ],
)
def test_a_store_that_breaks_the_promise_is_refused_and_no_key_stays(
    make: Callable[[], MemoryStore], reason: str
) -> None:
    store = make()
    with pytest.raises(UnsafeStoreError, match=reason):
        probe(store, "01")
    assert MemoryStore.list_folder(store, "_timeline/probe") == []


def test_a_store_that_fails_one_race_in_four_is_refused() -> None:
    with pytest.raises(UnsafeStoreError, match="several writers create one name in"):
        probe(ChecksThenWrites(every=4), "01")


def test_a_store_that_lists_what_was_deleted_is_refused() -> None:
    with pytest.raises(UnsafeStoreError, match="lists an object that was deleted"):
        probe(ListsTheDeleted(), "01")


def test_a_listing_that_misses_a_winner_is_refused() -> None:
    class ListsOnlyTheFirst(MemoryStore):
        def list_folder(self, folder: str) -> list[Listed]:
            return [entry for entry in super().list_folder(folder) if entry.path.endswith("-first")]

    with pytest.raises(UnsafeStoreError, match="listing missed 24 of 24"):
        probe(ListsOnlyTheFirst(), "01")


def test_a_listing_that_names_objects_otherwise_than_reads_is_refused() -> None:
    class OtherIdentities(MemoryStore):
        def list_folder(self, folder: str) -> list[Listed]:
            return [
                ListedObject(entry.path, entry.size, f"{entry.identity}!")
                for entry in super().list_folder(folder)
            ]

    with pytest.raises(UnsafeStoreError, match="differently in listing and read"):
        probe(OtherIdentities(), "01")


def test_a_store_that_gives_no_clear_answer_is_neither_passed_nor_called_unsafe() -> None:
    class Silent(MemoryStore):
        def create(self, path: str, data: bytes) -> CreateOutcome:
            super().create(path, data)
            return Unknown("timed out")

    with pytest.raises(StoreUnavailableError, match=r"no clear answer; try again later.*timed out"):
        probe(Silent(), "01")


def test_a_store_whose_races_are_mostly_unclear_is_not_passed() -> None:
    class SilentWhenRaced(MemoryStore):
        def create(self, path: str, data: bytes) -> CreateOutcome:
            outcome = super().create(path, data)
            return outcome if path.endswith("-first") else Unknown("slow down")

    store = SilentWhenRaced()
    with pytest.raises(StoreUnavailableError, match=r"only 0 of 24 races had a clear winner.*slow down"):
        probe(store, "01")
    assert _left(store) == []


def test_a_few_unclear_answers_do_not_spoil_the_probe() -> None:
    lost = iter(range(10_000))

    class SometimesSilent(MemoryStore):
        def create(self, path: str, data: bytes) -> CreateOutcome:
            outcome = super().create(path, data)
            busy = isinstance(outcome, Exists) and not path.endswith("-first") and next(lost) % 5 == 0
            return Unknown("slow down") if busy else outcome

    probe(SometimesSilent(), "01")


def test_the_probe_asks_for_each_race_at_the_same_time() -> None:
    """No create starts before all eight racers stand ready."""
    ready: list[int] = []

    def look(verb: str, path: str) -> None:
        if verb == "create" and not path.endswith("-first"):
            ready.append(sum(thread.name.startswith("probe") for thread in threading.enumerate()))

    probe(MemoryStore(before=look), "01")
    assert ready == [8] * 24 * 8
