"""Commits through a Hive metastore: the pointer is compared under a lock, and answers may get lost (R14)."""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from typing import Any

import pytest
from hive_metastore.ttypes import InvalidOperationException, LockRequest, MetaException, Table
from pyiceberg.types import StringType

from tests.unit.timeline.catalogs.metastores import AFTER, BEFORE
from tests.unit.timeline.logs.kinds import HiveKind
from timeline.catalogs.clients import hive
from timeline.catalogs.opening import connect_catalog, open_in_catalog
from timeline.changes.changes import Append, SetProperties
from timeline.errors import CommitStateUnknownError, StoreUnavailableError, UnsupportedTableError
from timeline.stores import LocalStore
from timeline.table import Committed

ALTER = "alter_table_with_environment_context"
DEAD_MS = 301_000


@pytest.fixture
def kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HiveKind:
    return HiveKind(tmp_path, monkeypatch)


def test_a_commit_keeps_what_other_engines_have_put_into_the_metastore(kind: HiveKind) -> None:
    kind.create()
    columns = kind.stated.sd.cols
    kind.stated.parameters["numRows"] = "7"
    kind.stated.sd.inputFormat = "org.apache.iceberg.mr.hive.HiveIcebergInputFormat"
    kind.stated.sd.cols[0].comment = "theirs"
    table = kind.open()
    table.commit([SetProperties({"a": "b"})])
    assert kind.stated.parameters["a"] == "b"
    with kind.read().transaction() as edit:
        edit.remove_properties("a")
    table.commit([Append((kind.file([1]),))])
    assert "a" not in kind.stated.parameters
    assert kind.stated.parameters["numRows"] == "7"
    assert kind.stated.sd.inputFormat == "org.apache.iceberg.mr.hive.HiveIcebergInputFormat"
    assert kind.stated.sd.cols == columns
    with kind.read().update_schema() as evolved:
        evolved.add_column("note", StringType())
    assert [it.name for it in kind.stated.sd.cols] == ["id", "p", "note"]
    assert kind.rows() == [1]


def test_of_two_that_meet_one_lands_first_and_the_other_is_built_again(kind: HiveKind) -> None:
    """The other one has read the pointer, and written its metadata, before the first one takes the lock."""
    table, other = kind.create(), kind.open()
    kind.metastore.meets["lock"].append(lambda: other.commit([Append((kind.file([1]),))]))
    committed = table.commit([Append((kind.file([2]),))])
    assert isinstance(committed, Committed)
    assert committed.attempts == 2
    assert kind.rows() == [1, 2]
    assert kind.metadata_files() == kind.named()
    assert kind.metastore.locks == {}


@pytest.mark.parametrize(
    ("request_", "lost"),
    [
        ("get_table", BEFORE), ("lock", BEFORE), ("lock", AFTER), ("heartbeat", BEFORE), ("heartbeat", AFTER),
        (ALTER, AFTER), ("unlock", AFTER),
    ],
)  # fmt: skip
def test_a_request_that_gets_lost_loses_and_doubles_nothing_and_locks_nobody_out(
    kind: HiveKind, request_: str, lost: str
) -> None:
    table = kind.create()
    kind.metastore.meets[request_].append(lost)
    for row in (1, 2):
        assert isinstance(table.commit([Append((kind.file([row]),))]), Committed)
    table.refresh()
    assert not kind.metastore.meets[request_]
    assert kind.rows() == [1, 2]
    assert kind.metadata_files() == kind.named()
    assert kind.metastore.locks == {}
    assert kind.clock.seconds < 60


def test_a_move_that_may_still_happen_keeps_others_out_until_its_lock_is_dead(kind: HiveKind) -> None:
    table = kind.create()
    kind.metastore.meets[ALTER].append(BEFORE)
    assert isinstance(table.commit([Append((kind.file([1]),))]), Committed)
    assert kind.clock.seconds * 1000 > DEAD_MS
    assert kind.rows() == [1]
    assert kind.metastore.locks == {}


def test_a_lock_of_another_program_is_left_alone_and_its_holder_is_named(kind: HiveKind) -> None:
    table = kind.create()
    wanted = LockRequest(component=[], user="flink", hostname="elsewhere")
    kind.metastore.do_lock(wanted)
    with pytest.raises(CommitStateUnknownError, match=r"nothing was sent: .* of flink on elsewhere"):
        table.commit([Append((kind.file([1]),))])
    assert [it.user for it in kind.metastore.locks.values()] == ["flink"]
    assert kind.metastore.requests.count(ALTER) == 0


def test_what_the_metastore_refuses_is_an_error_and_locks_nobody_out(kind: HiveKind) -> None:
    def refuse() -> None:
        raise InvalidOperationException("incompatible columns")

    table = kind.create()
    kind.metastore.meets[ALTER].extend([refuse] * 100)
    with pytest.raises(StoreUnavailableError, match=r"nothing of it is live.*incompatible columns"):
        table.commit([Append((kind.file([1]),))])
    assert kind.metastore.locks == {}


def test_an_error_after_the_move_is_no_refusal(kind: HiveKind) -> None:
    """As where the metastore has retried by itself."""
    table, move = kind.create(), kind.metastore.do_alter_table_with_environment_context

    def moved_then_failed(*given: Any) -> None:
        move(*given)
        raise MetaException("modified")

    kind.metastore.do_alter_table_with_environment_context = moved_then_failed  # type: ignore[method-assign]
    committed = table.commit([Append((kind.file([1]),))])
    assert isinstance(committed, Committed)
    assert committed.attempts == 1
    assert kind.metadata_files() == kind.named()


def test_a_lock_that_has_ended_moves_nothing(kind: HiveKind) -> None:
    """As of a process that has stood still since it has got it."""
    table = kind.create()
    kind.metastore.meets["heartbeat"].append(kind.metastore.locks.clear)
    assert isinstance(table.commit([Append((kind.file([1]),))]), Committed)
    assert kind.metastore.requests.count("heartbeat") == 2
    assert kind.metastore.requests.count(ALTER) == 1


def test_an_answer_that_comes_late_moves_nothing(kind: HiveKind) -> None:
    table = kind.create()
    kind.metastore.meets["heartbeat"].append(lambda: kind.clock.sleep(11))
    assert isinstance(table.commit([Append((kind.file([1]),))]), Committed)
    assert kind.metastore.requests.count("heartbeat") == 2
    assert kind.metastore.requests.count(ALTER) == 1


def test_a_move_that_took_longer_than_a_lock_may_last_is_told(
    kind: HiveKind, caplog: pytest.LogCaptureFixture
) -> None:
    table = kind.create()
    kind.metastore.meets[ALTER].append(lambda: kind.clock.sleep(400))
    with caplog.at_level(logging.ERROR):
        table.commit([Append((kind.file([1]),))])
    assert "a commit to lake.table took 400 s" in caplog.text


def test_a_metastore_that_compares_is_asked_to(kind: HiveKind) -> None:
    """So that nothing is lost there to a client without a lock, or after one has ended."""
    table, other = kind.create(), kind.open()
    kind.metastore.compares = True

    def beside_the_lock() -> None:
        held = dict(kind.metastore.locks)
        kind.metastore.locks.clear()
        other.commit([Append((kind.file([1]),))])
        kind.metastore.locks.update(held)

    kind.metastore.meets[ALTER].append(beside_the_lock)
    table.commit([Append((kind.file([2]),))])
    assert kind.rows() == [1, 2]


def test_what_is_no_table_of_iceberg_is_refused(kind: HiveKind) -> None:
    stated = Table(dbName="lake", tableName="table", parameters={})
    kind.metastore.tables["lake", "table"] = stated
    for parameters in ({}, {"table_type": "ICEBERG-VIEW"}):
        stated.parameters = parameters
        with pytest.raises(UnsupportedTableError, match="no table of Iceberg"):
            kind.open()


@pytest.mark.parametrize("listens", [False, True])
def test_a_metastore_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch, listens: bool) -> None:
    monkeypatch.setattr(hive, "_ANSWER_SECONDS", 0.05)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listens:
            server.listen()
        catalog = connect_catalog({"uri": f"thrift://127.0.0.1:{server.getsockname()[1]}"})
        with pytest.raises(StoreUnavailableError, match="the catalog does not answer"):
            open_in_catalog(catalog, ("lake", "table"), LocalStore)
