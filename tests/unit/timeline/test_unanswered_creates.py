"""What the models found: a slot that shows others' bytes is no loss while a create of ours went unanswered,
and a winner's bytes that no listing showed decide nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.manifest import DataFile

from tests.unit.timeline.world import Lake
from timeline import names
from timeline.changes.changes import Append
from timeline.errors import StoreUnavailableError
from timeline.stores import Created, CreateOutcome, MemoryStore
from timeline.table import AlreadyCommitted, Committed
from timeline.versions.transactions import Transaction


class _AsleepError(Exception):
    pass


def _sleepers_create(
    lake: Lake, files: list[DataFile], transaction: Transaction | None = None
) -> tuple[str, bytes]:
    """Return the create of the next version that a writer has built and fell asleep over."""
    sleeper, sent = lake.open(), []

    def create(path: str, data: bytes) -> CreateOutcome:
        if names.version_number(path) is None:
            return MemoryStore.create(sleeper.store, path, data)
        sent.append((path, data))
        raise _AsleepError

    sleeper.store.create = create
    with pytest.raises(_AsleepError):
        sleeper.commit([Append(tuple(files))], transaction=transaction)
    return sent[0]


def _buried(
    lake: Lake, fork: tuple[str, bytes], then: Callable[[], None] = lambda: None
) -> Callable[[], Any]:
    """Others build on version 2, retention deletes it, and the sleeper's create takes its number."""

    def happens() -> None:
        other = lake.open()
        for _ in range(5):
            other.commit([Append((lake.file(1),))])
        store = MemoryStore(lake.name)
        store.delete([names.version_path(2)])
        assert isinstance(store.create(*fork), Created)
        then()

    return happens


@pytest.mark.parametrize("transaction", [None, Transaction("app", "query", "run", 0)])
def test_a_fork_in_the_slot_of_an_unanswered_create_does_not_double_the_rows(
    transaction: Transaction | None,
) -> None:
    lake = Lake()
    fork = _sleepers_create(lake, [lake.file()])
    mine = lake.file(7)
    lake.store.creates.append("unknown-applied")
    lake.store.reads.append(_buried(lake, fork))
    committed = lake.table.commit([Append((mine,))], transaction=transaction)
    assert isinstance(committed, Committed)
    assert [lake.live_rows()[row] for row in lake.rows_of(mine)] == [1] * 7
    assert lake.table.head.number == 7


def test_past_the_deadline_too_a_commit_that_is_in_the_lineage_is_not_declared_lost() -> None:
    def late() -> None:
        lake.clock.seconds += 601

    lake = Lake()
    fork = _sleepers_create(lake, [lake.file()])
    mine = lake.file(7)
    lake.store.creates.append("unknown-applied")
    lake.store.reads.append(_buried(lake, fork, then=late))
    assert isinstance(lake.table.commit([Append((mine,))]), Committed)
    assert mine.file_path in lake.live()


def test_the_version_of_another_is_not_swept_after_an_unanswered_create() -> None:
    """Only a file that was seen to hold our own bytes is removed."""
    lake = Lake()
    lake.store.creates.append("unknown-absent")
    lake.store.creates.append(lambda: lake.open().commit([Append((lake.file(),))]))
    assert isinstance(lake.table.commit([Append((lake.file(),))]), Committed)
    assert [lake.table.log.list().versions.keys()] == [{1, 2, 3}]


def test_a_batch_is_not_taken_for_committed_because_a_fork_says_so() -> None:
    """The fork is this batch's own earlier try, which slept past the retention of its number."""
    lake = Lake()
    mine = lake.file(7)
    fork = _sleepers_create(lake, [mine], Transaction("app", "query", "run", 0))
    _buried(lake, fork)()
    # A process that had last seen version 1 tries the batch again, and finds the fork in slot 2.
    committed = lake.table.commit([Append((mine,))], transaction=Transaction("app", "query", "new run", 0))
    assert isinstance(committed, Committed)
    assert [lake.live_rows()[row] for row in lake.rows_of(mine)] == [1] * 7


def test_a_batch_is_not_refused_because_a_fork_says_so() -> None:
    lake = Lake()
    fork = _sleepers_create(lake, [lake.file()], Transaction("app", "another query", "run", 0))
    _buried(lake, fork)()
    committed = lake.table.commit([Append((lake.file(),))], transaction=Transaction("app", "query", "run", 0))
    assert isinstance(committed, Committed)


def test_a_batch_that_another_process_committed_is_skipped_on_the_listed_head() -> None:
    lake = Lake()
    transaction = Transaction("app", "query", "run", 0)
    lake.open().commit([Append((lake.file(),))], transaction=transaction)
    lake.open().commit([Append((lake.file(),))])
    skipped = lake.table.commit([Append((lake.file(),))], transaction=transaction)
    assert skipped == AlreadyCommitted(3, epoch=1)
    assert lake.table.head.number == 3


def test_a_commit_that_fails_does_not_leave_a_fork_as_the_known_head() -> None:
    lake = Lake()
    fork = _sleepers_create(lake, [lake.file()])
    _buried(lake, fork)()
    before = lake.table.head
    lake.store.creates.extend(["created", "refused"])
    with pytest.raises(StoreUnavailableError):
        lake.table.commit([Append((lake.file(),))])
    assert lake.table.head is before
