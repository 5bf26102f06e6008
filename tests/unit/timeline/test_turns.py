"""Writers of one machine stand in line: fewer lost races, and nothing that depends on it."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.typedef import Record

from tests.unit.timeline.world import SCHEMA, Clock, data_file
from timeline.changes.changes import Append, SetProperties
from timeline.commit.turns import LONGEST_WAIT
from timeline.errors import CorruptTableError
from timeline.names import data_file_name, ulid, version_path
from timeline.stores import LocalStore, MemoryStore
from timeline.table import Committed, Table

_HOLDER = """
import sys, time
from timeline.stores import LocalStore
turn = LocalStore(sys.argv[1]).take_turn()
print("mine" if turn else "another's", flush=True)
time.sleep(60)
"""


class OutOfTurn(LocalStore):
    """Waits for nobody, as a writer on another machine does."""

    def take_turn(self) -> AbstractContextManager[object]:
        return nullcontext()


@pytest.fixture
def location(tmp_path: Path) -> str:
    location = str(tmp_path / "table")
    Table.create(LocalStore(location), SCHEMA)
    return location


def test_one_writer_at_a_time_has_the_turn_on_a_local_table(location: str) -> None:
    turn = LocalStore(location).take_turn()
    assert turn is not None
    with turn:
        assert LocalStore(location).take_turn() is None
        other = LocalStore(f"{location}-other").take_turn()
        assert other is not None, "another table is none of its business"
    again = LocalStore(location).take_turn()
    assert again is not None
    again.__exit__(None, None, None)


def test_the_turn_ends_with_its_process(location: str) -> None:
    with subprocess.Popen([sys.executable, "-c", _HOLDER, location], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"mine\n"
        assert LocalStore(location).take_turn() is None
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    turn = LocalStore(location).take_turn()
    assert turn is not None
    turn.__exit__(None, None, None)


def test_a_turn_that_cannot_be_given_back_is_no_failure_of_the_commit(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system may refuse: what was committed is committed."""
    table, real = Table.open(LocalStore(location)), fcntl.flock

    def refuses(descriptor: int, operation: int) -> None:
        if operation == fcntl.LOCK_UN:
            raise OSError(116, "Stale file handle")
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", refuses)
    assert isinstance(table.commit([SetProperties({"a": "b"})]), Committed)


def test_where_writers_do_not_see_each_other_it_is_always_ones_turn() -> None:
    store = MemoryStore()
    with store.take_turn(), store.take_turn():
        pass


def test_who_has_waited_builds_on_what_the_others_committed_and_loses_no_race(location: str) -> None:
    turn = LocalStore(location).take_turn()
    other = Table.open(OutOfTurn(location))
    clock = Clock()
    waited: list[float] = []

    def commit_and_end(seconds: float) -> None:
        clock.sleep(seconds)
        waited.append(seconds)
        assert other.commit([_append(other, len(waited))]).version == 1 + len(waited)
        if len(waited) == 3 and turn is not None:
            turn.__exit__(None, None, None)

    table = Table.open(LocalStore(location), _with_sleep(clock, commit_and_end))
    committed = table.commit([_append(table, 9)])
    assert isinstance(committed, Committed)
    assert (committed.version, committed.attempts, len(waited)) == (5, 1, 3)
    assert len(list(Table.open(LocalStore(location)).head.live_files())) == 4


def test_who_has_waited_builds_on_nothing_older_than_it_knew(location: str) -> None:
    """Somebody deletes the highest version meanwhile: on the one before its rows would be lost."""
    turn = LocalStore(location).take_turn()
    clock = Clock()
    Table.open(OutOfTurn(location)).commit([_append(Table.open(OutOfTurn(location)), 1)])

    def delete_and_end(_: float) -> None:
        LocalStore(location).delete([version_path(2)])
        if turn is not None:
            turn.__exit__(None, None, None)

    table = Table.open(LocalStore(location), _with_sleep(clock, delete_and_end))
    with pytest.raises(CorruptTableError, match="version 2 of the table has vanished, and 1 is highest"):
        table.commit([_append(table, 2)])
    assert not Path(location, version_path(2)).exists()


def test_who_waits_for_a_writer_that_stands_still_goes_out_of_turn(location: str) -> None:
    turn = LocalStore(location).take_turn()
    assert turn is not None
    with turn:
        clock = Clock()
        table = Table.open(LocalStore(location), clock.environment())
        for batch in range(3):
            table.commit([_append(table, batch)])
        assert LocalStore(location).take_turn() is None
    assert 3 * LONGEST_WAIT <= clock.seconds < 3 * LONGEST_WAIT + 0.1
    assert table.head.number == 4


def _with_sleep(clock: Clock, sleep: Any) -> Any:
    clock.sleep, slept = sleep, clock.sleep  # type: ignore[method-assign]
    environment = clock.environment()
    clock.sleep = slept  # type: ignore[method-assign]
    return environment


def _append(table: Table, number: int) -> Append:
    file_id = ulid(1_750_000_000_000, hash((id(table), number)) % 2**80)
    location = table.store.uri(f"data/{data_file_name(file_id, 'app', number, 0, 0)}")
    return Append((data_file(location, 10, partition=Record()),))
