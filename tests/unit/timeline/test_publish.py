"""Publishing: every answer to the create and to the confirming listing, with waits, deadline and requests."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.timeline.world import SCHEMA, Audit, Clock, FaultyStore, Lake, versions_of
from timeline import properties
from timeline.changes.changes import Append, Change, Replace, SetProperties
from timeline.clock import Environment
from timeline.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    CorruptTableError,
    StoreUnavailableError,
)
from timeline.names import version_path
from timeline.stores import MemoryStore
from timeline.table import Committed, Table
from timeline.versions.transactions import Transaction

CREATES: dict[str, list[str]] = {
    "created": ["created"],
    "exists though ours landed": ["exists-ours"],
    "exists while nothing is stored": ["exists-absent"],
    "unknown, applied": ["unknown-applied"],
    "unknown, not applied": ["unknown-absent"],
    "unknown, applied before our resend is answered": ["unknown-late", "unknown-absent"],
    "unknown, applied after our resend": ["unknown-late", "created"],
    "unknown many times": [
        "unknown-absent",
        "exists-absent",
        "unknown-absent",
        "exists-absent",
        "exists-ours",
    ],
    "refused after an unknown": ["unknown-absent", "refused", "created"],
}


def versions_deleted(lake: Lake) -> list[str]:
    return [path for verb, path in lake.store.requests if verb == "delete"]


def go_on_without_me(lake: Lake, commits: int) -> None:
    """Let another writer commit, and let retention delete what is beyond the last hundred versions."""
    lake.clock.now_ms += 1
    other = lake.open()
    for number in range(commits):
        lake.clock.now_ms += 60_000
        other.commit([SetProperties({"step": str(number)})])
    while other.head.number % 20:
        lake.clock.now_ms += 60_000
        other.commit([SetProperties({"step": "last"})])


@pytest.mark.parametrize("name", CREATES)
def test_the_slot_decides_what_a_create_did(name: str) -> None:
    """Whatever the store answers, the commit is acknowledged once, and is there once."""
    lake = Lake()
    new = lake.file()
    lake.store.creates.extend(CREATES[name])
    committed = lake.table.commit([Append((new,))])
    assert isinstance(committed, Committed)
    assert (committed.version, committed.attempts) == (2, 1)
    assert lake.live_rows() == lake.rows_of(new)
    assert versions_deleted(lake) == []
    Audit(lake.store).check()


@pytest.mark.parametrize("answer", ["exists-absent", "unknown-absent"])
def test_a_slot_that_another_took_while_ours_was_unknown_is_a_loss(answer: str) -> None:
    lake = Lake()
    mine, theirs = lake.file(), lake.file()
    other = lake.open()
    lake.store.creates.extend([answer, lambda: other.commit([Append((theirs,))])])
    committed = lake.table.commit([Append((mine,))])
    assert isinstance(committed, Committed)
    assert (committed.version, committed.attempts) == (3, 2)
    assert lake.live_rows() == lake.rows_of(mine, theirs)
    Audit(lake.store).check()


def test_the_same_bytes_go_to_the_same_name_until_the_slot_shows_them() -> None:
    lake = Lake()
    sent: list[tuple[str, bytes]] = []
    store = lake.store
    usual = store._scripted_create

    def recording(path: str, data: bytes) -> Any:
        sent.append((path, data))
        return usual(path, data)

    store._scripted_create = recording  # type: ignore[method-assign]
    store.creates.extend(["unknown-absent", "exists-absent", "unknown-absent", "created"])
    lake.table.commit([Append((lake.file(),))])
    assert len(sent) == 4
    assert len(set(sent)) == 1


def test_waits_are_none_twice_and_then_full_jitter_that_doubles_to_ten_seconds() -> None:
    lake = Lake()
    drawn: list[tuple[float, float]] = []

    class Recorded(random.Random):
        def uniform(self, low: float, high: float) -> float:
            drawn.append((low, high))
            return super().uniform(low, high)

    clock = lake.clock
    environment = Environment(lambda: clock.now_ms, lambda: clock.seconds, clock.sleep, Recorded(1))
    table = Table.open(lake.store, environment)
    lake.store.creates.extend(["unknown-absent"] * 12)
    table.commit([Append((lake.file(),))])
    assert [high for _, high in drawn] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    assert {low for low, _ in drawn} == {0}
    assert clock.sleeps[:2] == [0.0, 0.0]
    assert len(clock.sleeps) == 12
    assert all(0 <= wait <= high for wait, (_, high) in zip(clock.sleeps[2:], drawn, strict=True))


def test_lost_races_wait_the_same_way() -> None:
    lake = Lake()
    other = lake.open()
    lake.store.creates.extend([lambda: other.commit([Append((lake.file(),))])] * 5)
    committed = lake.table.commit([Append((lake.file(),))])
    assert isinstance(committed, Committed)
    assert committed.attempts == 6
    assert lake.clock.sleeps[:2] == [0.0, 0.0]
    assert [wait <= high for wait, high in zip(lake.clock.sleeps[2:], [0.05, 0.1, 0.2], strict=True)] == [
        True
    ] * 3
    Audit(lake.store).check()


def test_without_a_clear_answer_until_the_deadline_the_state_is_unknown_and_nothing_is_deleted() -> None:
    lake = Lake()
    new = lake.file()
    lake.store.creates.extend(["unknown-absent"] * 1000)
    with pytest.raises(CommitStateUnknownError, match="not known whether version 2 was created") as caught:
        lake.table.commit([Append((new,))])
    assert "Nothing was deleted" in str(caught.value)
    assert 600 <= lake.clock.seconds < 610.001
    assert versions_deleted(lake) == []


def test_the_deadline_is_the_tables_own() -> None:
    lake = Lake()
    lake.table.deadline_seconds = 30
    lake.store.creates.extend(["unknown-absent"] * 1000)
    with pytest.raises(CommitStateUnknownError):
        lake.table.commit([Append((lake.file(),))])
    assert 30 <= lake.clock.seconds < 40.001


def another_wins(lake: Lake) -> Callable[[], None]:
    """Another writer commits, 0.1 s after the attempt that it beats began."""
    other = lake.open()

    def commit() -> None:
        lake.clock.seconds += 0.1
        other.commit([SetProperties({"a": "b"})])

    return commit


def test_who_has_lost_more_races_waits_less_and_then_looks_for_the_head() -> None:
    """Waits that grew with the losses starved the losers: a writer that has just won does not wait (R15)."""
    lake = Lake()
    drawn: list[float] = []

    class Longest(random.Random):
        def uniform(self, low: float, high: float) -> float:
            assert low == 0
            drawn.append(high)
            return high

    clock = lake.clock
    environment = Environment(lambda: clock.now_ms, lambda: clock.seconds, clock.sleep, Longest(1))
    table = Table.open(lake.store, environment)
    lake.store.creates.extend([another_wins(lake)] * 17)
    lake.store.count()
    table.commit([Append((lake.file(),))])
    assert drawn == pytest.approx([2 * 0.1 / losses for losses in (8, 16)])
    assert clock.sleeps == [*[0] * 7, drawn[0], *[0] * 7, drawn[1], 0]
    reads = [verb for verb, path in lake.store.requests if path == "metadata"]
    assert len(reads) == 3, "one listing after each wait, and one to confirm"


def test_races_lost_until_the_deadline_are_a_conflict_and_nothing_is_live() -> None:
    lake = Lake()
    mine = lake.file()
    lake.table.deadline_seconds = 5
    lake.store.creates.extend([another_wins(lake)] * 1000)
    with pytest.raises(CommitConflictError, match=r"lost \d+ races in 5 s; nothing of this commit is live"):
        lake.table.commit([Append((mine,))])
    assert lake.live_rows() == {}


def test_a_store_that_refuses_the_first_create_is_unavailable_and_the_table_is_as_it_was() -> None:
    lake = Lake()
    lake.store.creates.append("refused")
    with pytest.raises(StoreUnavailableError):
        lake.table.commit([Append((lake.file(),))])
    assert list(versions_of(lake.store)) == [1]
    assert isinstance(lake.table.commit([Append((lake.file(),))]), Committed)


def test_a_store_that_refuses_until_the_deadline_after_an_unknown_create_leaves_it_unknown() -> None:
    """The first request may still be applied, so a refusal of the second says nothing."""
    lake = Lake()
    lake.store.creates.extend(["unknown-absent", *["refused"] * 1000])
    with pytest.raises(CommitStateUnknownError):
        lake.table.commit([Append((lake.file(),))])


def test_reads_of_the_slot_that_fail_are_tried_again() -> None:
    lake = Lake()
    lake.store.creates.extend(["unknown-applied"])
    lake.store.reads.extend(["fails", "fails"])
    committed = lake.table.commit([Append((lake.file(),))])
    assert isinstance(committed, Committed)
    assert committed.attempts == 1


# confirm ------------------------------------------------------------------------------------------


def test_a_commit_that_others_built_on_is_acknowledged_by_its_descendant() -> None:
    lake = Lake()
    new, other = lake.file(), lake.open()
    lake.store.lists.append(lambda: (other.refresh(), other.commit([SetProperties({"x": "y"})])))
    committed = lake.table.commit([Append((new,))])
    assert isinstance(committed, Committed)
    assert (committed.version, committed.attempts) == (2, 1)
    assert lake.table.head.number == 3


def test_listings_that_fail_or_lag_are_made_again() -> None:
    lake = Lake()
    lake.store.lists.extend(["fails", "fails", "fails"])
    committed = lake.table.commit([Append((lake.file(),))])
    assert isinstance(committed, Committed)
    assert committed.attempts == 1
    assert len(lake.clock.sleeps) == 3


def test_a_commit_that_no_listing_confirms_is_unknown_and_stays() -> None:
    lake = Lake()
    new = lake.file()
    lake.store.lists.extend(["fails"] * 1000)
    with pytest.raises(CommitStateUnknownError, match="version 2 was created, and no listing confirmed"):
        lake.table.commit([Append((new,))])
    lake.store.lists.clear()
    assert versions_deleted(lake) == []
    assert lake.live_rows() == lake.rows_of(new)


def test_a_listing_that_does_not_show_our_version_does_not_confirm_it() -> None:
    lake = Lake()
    shown = MemoryStore(lake.name).list_folder("metadata")

    class Lagging(MemoryStore):
        lags = 3

        def list_folder(self, folder: str) -> Any:
            if folder == "metadata" and self.lags > 0:
                self.lags -= 1
                return shown
            return super().list_folder(folder)

    store = Lagging(lake.name)
    store.lags = 0
    table = lake.open(store)
    store.lags = 3
    committed = table.commit([Append((lake.file(),))])
    assert isinstance(committed, Committed)
    assert len(lake.clock.sleeps) == 3


def test_a_version_created_below_the_head_and_known_to_be_foreign_is_swept_and_committed_again() -> None:
    """A listing that lost its lower numbers, within the hundred ids that the head remembers."""
    lake = Lake()
    mine = lake.open(lake.store)
    lake.clock.now_ms += 1
    other = lake.open()
    for number in range(50):
        other.commit([SetProperties({"step": str(number)})])
    MemoryStore(lake.name).delete([version_path(2)])
    new = lake.file()
    lake.store.requests.clear()
    committed = mine.commit([Append((new,))])
    assert isinstance(committed, Committed)
    assert (committed.version, committed.attempts) == (52, 2)
    assert versions_deleted(lake) == [version_path(2)]
    assert lake.live_rows() == lake.rows_of(new)
    assert 2 not in versions_of(lake.store)


def test_a_sweep_that_fails_does_not_fail_the_commit() -> None:
    """The swept version is below the head, where no reader takes it for the table; retention removes it."""
    lake = Lake()
    mine = lake.open(lake.store)
    other = lake.open()
    for number in range(50):
        other.commit([SetProperties({"step": str(number)})])
    MemoryStore(lake.name).delete([version_path(2)])

    def no_deletes(verb: str, path: str) -> None:
        if verb == "delete":
            raise ConnectionError("no")

    lake.store.before = no_deletes
    new = lake.file()
    assert isinstance(mine.commit([Append((new,))]), Committed)
    assert lake.live_rows() == lake.rows_of(new)


def stalled(lake: Lake, changes: list[Change], transaction: Transaction | None = None) -> Callable[[], Any]:
    """A writer that knew version 1 (or whatever is the head now), and sleeps past every retention."""
    mine = lake.open(lake.store)
    mine.deadline_seconds = 60
    return lambda: mine.commit(changes, transaction=transaction)


def batch(number: int, run: str = "run-1", epoch: int | None = None) -> Transaction:
    return Transaction("app", "query-1", run, number, epoch)


def test_a_batch_created_far_below_the_head_is_committed_again() -> None:
    """It stalled past retention: its number was free again. What the head knows of the batch settles it."""
    lake = Lake()
    new = lake.file()
    commit = stalled(lake, [Append((new,))], batch(0))
    go_on_without_me(lake, 220)
    assert 2 not in versions_of(lake.store)
    committed = commit()
    assert isinstance(committed, Committed)
    assert committed.version > 220
    assert lake.live_rows() == lake.rows_of(new)


def test_a_batch_that_landed_and_was_buried_by_others_is_found_by_its_number() -> None:
    lake = Lake()
    new = lake.file()
    commit = stalled(lake, [Append((new,))], batch(0))
    lake.store.lists.append(lambda: go_on_without_me(lake, 150))
    outcome = commit()
    assert isinstance(outcome, Committed)
    assert lake.live_rows() == lake.rows_of(new)


def test_a_plain_append_that_landed_and_was_buried_is_found_by_its_files() -> None:
    lake = Lake()
    new = lake.file()
    commit = stalled(lake, [Append((new,))])
    lake.store.lists.append(lambda: go_on_without_me(lake, 150))
    committed = commit()
    assert isinstance(committed, Committed)
    assert committed.version == 2
    assert lake.live_rows() == lake.rows_of(new)


def test_a_plain_append_far_below_the_head_whose_files_are_not_live_is_unknown_and_nothing_is_deleted() -> (
    None
):
    """Its files may have been committed and replaced since: nobody can tell."""
    lake = Lake()
    commit = stalled(lake, [Append((lake.file(),))])
    go_on_without_me(lake, 220)
    lake.store.requests.clear()
    with pytest.raises(CommitStateUnknownError, match="too far to decide"):
        commit()
    assert versions_deleted(lake) == []


def test_a_replace_far_below_the_head_is_lost_while_its_inputs_live_and_committed_again() -> None:
    lake = Lake()
    a = lake.file()
    lake.table.commit([Append((a,))])
    commit = stalled(lake, [Replace(frozenset({a.file_path}), (lake.merged(a),))])
    go_on_without_me(lake, 220)
    committed = commit()
    assert isinstance(committed, Committed)
    assert committed.version > 220
    assert a.file_path not in lake.live()
    assert lake.live_rows() == lake.rows_of(a)


def test_a_replace_that_landed_and_was_buried_is_found_by_its_outputs() -> None:
    lake = Lake()
    a = lake.file()
    lake.table.commit([Append((a,))])
    commit = stalled(lake, [Replace(frozenset({a.file_path}), (lake.merged(a),))])
    lake.store.lists.append(lambda: go_on_without_me(lake, 150))
    committed = commit()
    assert isinstance(committed, Committed)
    assert committed.version == 3


def test_a_replace_whose_outputs_and_inputs_are_both_gone_is_unknown() -> None:
    lake = Lake()
    a = lake.file()
    lake.table.commit([Append((a,))])
    commit = stalled(lake, [Replace(frozenset({a.file_path}), (lake.merged(a),))])
    lake.open().commit([Replace(frozenset({a.file_path}), (lake.merged(a),))])
    go_on_without_me(lake, 220)
    with pytest.raises(CommitStateUnknownError, match="too far to decide"):
        commit()


@pytest.mark.parametrize("distance", [1, 98, 99, 100, 101])
def test_a_commit_that_landed_is_acknowledged_once_however_far_others_went_on(distance: int) -> None:
    """The head remembers a hundred ids; one further off, only the files tell."""
    lake = Lake()
    new, other = lake.file(), lake.open()

    def go_on() -> None:
        other.refresh()
        for step in range(distance):
            other.commit([SetProperties({"step": str(step)})])

    lake.store.lists.append(go_on)
    lake.store.requests.clear()
    committed = lake.table.commit([Append((new,))])
    assert isinstance(committed, Committed)
    assert (committed.version, committed.attempts) == (2, 1)
    assert versions_deleted(lake) == []
    assert lake.live_rows() == lake.rows_of(new)
    assert len(lake.table.head.version.recent_commits) == min(distance + 2, properties.RECENT_COMMITS_KEPT)


# the slot holds something else --------------------------------------------------------------------


def test_a_foreign_file_in_the_slot_is_a_corrupt_table() -> None:
    lake = Lake()
    MemoryStore(lake.name).create(version_path(2), b"{}")
    with pytest.raises(CorruptTableError, match="version 2 of the table cannot be read"):
        lake.table.commit([Append((lake.file(),))])


def test_racing_creators_make_one_table() -> None:
    lake = Lake()
    uuid = lake.table.head.metadata.table_uuid
    again = Table.create(MemoryStore(lake.name), SCHEMA, environment=lake.clock.environment(7))
    assert again.head.metadata.table_uuid == uuid


def test_a_creator_that_loses_the_race_opens_the_winners_table() -> None:
    store = FaultyStore("raced")
    clock = Clock()
    winners: deque[Table] = deque()
    store.creates.append(
        lambda: winners.append(Table.create(MemoryStore("raced"), SCHEMA, environment=clock.environment(1)))
    )
    loser = Table.create(store, SCHEMA, environment=clock.environment(2))
    assert loser.head.metadata.table_uuid == winners[0].head.metadata.table_uuid
    assert loser.head.number == 1


@pytest.mark.parametrize("name", [n for n in CREATES if n != "refused after an unknown"])
def test_creating_a_table_settles_like_any_commit(name: str) -> None:
    store = FaultyStore(f"created {name}")
    store.creates.extend(CREATES[name])
    table = Table.create(store, SCHEMA, environment=Clock().environment())
    assert table.head.number == 1
    assert list(versions_of(store)) == [1]
