"""Answers of a catalog: what each makes of a commit, whatever its code says (R29)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import BadRequestError, CommitFailedException, ServerError
from pyiceberg.table import CommitTableResponse
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate

from tests.unit.timeline.logs import kinds
from tests.unit.timeline.logs.kinds import CatalogKind
from tests.unit.timeline.world import SCHEMA
from timeline.catalogs.catalog_log import CatalogLog
from timeline.changes.changes import Append, Replace, SetProperties
from timeline.changes.intent import Intent
from timeline.commit.attempts import Attempts
from timeline.commit.log import Lost, StateUnknown, Won
from timeline.errors import (
    CommitStateUnknownError,
    CorruptTableError,
    StoreUnavailableError,
    UnsupportedTableError,
)
from timeline.table import Committed
from timeline.versions.head import Head


@pytest.fixture
def kind(tmp_path: Path) -> Iterator[CatalogKind]:
    made = CatalogKind(tmp_path)
    yield made
    made.close()


class Raising:
    """What a catalog says in the place of its answer to a commit, before or after it took effect."""

    def __init__(self, error: Exception, *, landed: bool) -> None:
        self.error, self.landed = error, landed


def answer(kind: CatalogKind, monkeypatch: pytest.MonkeyPatch, *said: Raising) -> list[int]:
    """Let the next commits be answered so; return a list that counts the requests."""
    send, left, sent = kinds._Answering.commit_table, list(said), []

    def commit(self: Any, *arguments: Any) -> Any:
        sent.append(1)
        if not left:
            return send(self, *arguments)
        now = left.pop(0)
        if now.landed:
            send(self, *arguments)
        raise now.error

    monkeypatch.setattr(kinds._Answering, "commit_table", commit)
    return sent


@pytest.mark.parametrize(
    "error",
    [CommitFailedException("409"), ServerError("507"), ConnectionError("reset"), BadRequestError("400")],
)
def test_a_commit_that_landed_is_found_whatever_was_answered(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A proxy that sends a request twice makes "conflict" of one's own commit."""
    table = kind.create()
    sent = answer(kind, monkeypatch, Raising(error, landed=True))
    committed = table.commit([Append((kind.file([1]),))])
    assert isinstance(committed, Committed)
    assert len(sent) == 1
    assert kind.rows() == [1]


def test_a_refusal_of_a_table_that_has_not_changed_is_tried_a_few_times_and_said(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = kind.create()
    refusals = [Raising(BadRequestError("snapshot is ahead of the clock"), landed=False)] * 999
    sent = answer(kind, monkeypatch, *refusals)
    with pytest.raises(StoreUnavailableError, match="ahead of the clock"):
        table.commit([Append((kind.file([1]),))])
    assert 3 <= len(sent) < 30
    assert 5 <= kind.clock.seconds < 20
    assert kind.rows() == []


def test_a_cache_that_shows_the_table_as_it_was_for_a_moment_fails_no_commit(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others have won, and the answer to a load is from before: that is a race, and no refusal for good."""
    table, other = kind.create(), kind.open()
    table.commit([Append((kind.file([1]),))])
    stale, newest, loads = table.log.newest(), CatalogLog.newest, []
    other.commit([Append((kind.file([2]),))])

    def load(self: Any, **named: Any) -> Any:
        loads.append(1)
        return stale if len(loads) < 6 else newest(self, **named)

    monkeypatch.setattr(CatalogLog, "newest", load)
    committed = table.commit([Append((kind.file([3]),))])
    monkeypatch.undo()
    assert isinstance(committed, Committed)
    assert kind.rows() == [1, 2, 3]


def test_a_refusal_after_an_unclear_answer_leaves_the_commit_unknown(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first request may land later still: that one refusal follows it proves nothing of it."""
    table = kind.create()
    table.deadline_seconds = 20
    refusals = [Raising(CommitFailedException("409"), landed=False)] * 99
    answer(kind, monkeypatch, Raising(ServerError("502"), landed=False), *refusals)
    with pytest.raises(CommitStateUnknownError, match="Nothing was deleted"):
        table.commit([Append((kind.file([1]),))])


def test_a_stale_load_is_no_proof_that_a_commit_was_lost(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = kind.create()
    table.commit([Append((kind.file([1]),))])
    stale, loads = table.log.newest(), []
    table.commit([Append((kind.file([2]),))])
    answer(kind, monkeypatch, Raising(CommitFailedException("409"), landed=True))
    log, newest = type(table.log), type(table.log).newest

    def load(self: Any, **named: Any) -> Any:
        loads.append(1)
        return stale if len(loads) < 3 else newest(self, **named)

    monkeypatch.setattr(log, "newest", load)
    committed = table.commit([Append((kind.file([3]),))])
    assert isinstance(committed, Committed)
    assert committed.attempts == 1
    monkeypatch.undo()
    assert kind.rows() == [1, 2, 3]


def test_a_load_from_before_a_rollback_is_no_proof_though_its_number_is_the_same(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rollback has no sequence number of its own: the load shows another main, and not our commit."""
    table = kind.create()
    table.commit([Append((kind.file([1]),))])
    table.commit([Append((kind.file([2]),))])
    stale, loads = table.log.newest(), []
    _roll_back(kind)
    table.refresh()
    answer(kind, monkeypatch, Raising(ConnectionError("reset"), landed=True))
    log, newest = type(table.log), type(table.log).newest

    def load(self: Any, **named: Any) -> Any:
        loads.append(1)
        return stale if len(loads) < 3 else newest(self, **named)

    monkeypatch.setattr(log, "newest", load)
    committed = table.commit([Append((kind.file([3]),))])
    assert isinstance(committed, Committed)
    assert committed.attempts == 1
    monkeypatch.undo()
    assert kind.rows() == [1, 3]


@pytest.mark.parametrize("merges", [True, False])
def test_a_load_from_before_main_was_set_back_is_no_proof_that_a_refused_commit_was_lost(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch, merges: bool
) -> None:
    """Main went and came back under one number, and the commit landed on it, by the first of two requests of
    a proxy. The state in between is later than its base: it shows another main, and not our commit.
    """
    table, inputs = kind.create(), [kind.file([1]), kind.file([2])]
    for file in inputs:
        table.commit([Append((file,))])
    newest_id = table.head.metadata.current_snapshot_id
    _roll_back(kind)
    stale, loads = kind.open().head, []
    kind.read().manage_snapshots().set_current_snapshot(newest_id).commit()
    answer(kind, monkeypatch, Raising(CommitFailedException("409"), landed=True))
    newest = CatalogLog.newest

    def load(self: Any, **named: Any) -> Any:
        loads.append(1)
        return stale if len(loads) < 4 else newest(self, **named)

    monkeypatch.setattr(CatalogLog, "newest", load)
    merge = Replace(frozenset(file.file_path for file in inputs), (kind.file([1, 2]),))
    committed = table.commit([merge if merges else Append((kind.file([3]),))])
    monkeypatch.undo()
    assert isinstance(committed, Committed)
    assert not committed.dropped
    assert kind.rows() == ([1, 2] if merges else [1, 2, 3])


@pytest.mark.parametrize("merges", [False, True])
def test_a_commit_that_lands_after_minutes_on_a_table_that_was_set_back_is_found(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch, merges: bool
) -> None:
    """A request without an answer is still under way when its table has long been seen without it."""
    table, inputs = kind.create(), [kind.file([1]), kind.file([2])]
    for file in inputs:
        table.commit([Append((file,))])
    newest_id = table.head.metadata.current_snapshot_id
    send, late = kinds._Answering.commit_table, list[Callable[[], Any]]()

    def commit(self: Any, *arguments: Any) -> Any:
        monkeypatch.setattr(kinds._Answering, "commit_table", send)
        if not late:
            _roll_back(kind)
            late.append(lambda: send(self, *arguments))
            monkeypatch.setattr(kinds._Answering, "commit_table", commit)
            raise ServerError("504")
        kind.read().manage_snapshots().set_current_snapshot(newest_id).commit()
        late[0]()
        return send(self, *arguments)

    monkeypatch.setattr(kinds._Answering, "commit_table", commit)
    merge = Replace(frozenset(file.file_path for file in inputs), (kind.file([1, 2]),))
    if merges:
        with pytest.raises(CommitStateUnknownError, match="may land yet"):
            table.commit([merge])
        return
    committed = table.commit([Append((kind.file([3]),))])
    assert isinstance(committed, Committed)
    assert kind.rows() == [1, 2, 3]


@pytest.mark.parametrize("lasts", [False, True])
def test_an_attempt_that_fails_does_not_say_that_an_earlier_one_has(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch, lasts: bool
) -> None:
    """The first one lands after all, when the second is sent; then the table cannot be read, for a moment."""
    table = kind.create()
    for row in (1, 2):
        table.commit([Append((kind.file([row]),))])
    newest_id = table.head.metadata.current_snapshot_id
    send, newest, late = kinds._Answering.commit_table, CatalogLog.newest, list[Callable[[], Any]]()

    def commit(self: Any, *arguments: Any) -> Any:
        monkeypatch.setattr(kinds._Answering, "commit_table", send)
        if not late:
            _roll_back(kind)
            late.append(lambda: send(self, *arguments))
            monkeypatch.setattr(kinds._Answering, "commit_table", commit)
            raise ServerError("504")
        kind.read().manage_snapshots().set_current_snapshot(newest_id).commit()
        late[0]()
        monkeypatch.setattr(CatalogLog, "newest", damaged)
        raise CommitFailedException("409")

    def damaged(self: Any, **named: Any) -> Any:
        if not lasts:
            monkeypatch.setattr(CatalogLog, "newest", newest)
        raise CorruptTableError("no list")

    monkeypatch.setattr(kinds._Answering, "commit_table", commit)
    if lasts:
        table.deadline_seconds = 20
        with pytest.raises(CommitStateUnknownError, match="no list"):
            table.commit([Append((kind.file([3]),))])
    else:
        assert isinstance(table.commit([Append((kind.file([3]),))]), Committed)
    monkeypatch.undo()
    assert kind.rows() == [1, 2, 3]


def test_a_commit_to_an_empty_table_may_land_though_others_have_its_number(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server compares the number of a snapshot without a parent, and a branch leaves main empty."""
    table, late = kind.create(), list[Any]()

    def commit(self: Any, *arguments: Any) -> Any:
        if late:
            raise BadRequestError("400")
        late.extend(arguments)
        _branch_off_nothing(kind)
        raise ServerError("504")

    monkeypatch.setattr(kinds._Answering, "commit_table", commit)
    with pytest.raises(CommitStateUnknownError, match="may land yet"):
        table.commit([Append((kind.file([1]),))])
    kind.beside().commit_table(*late)
    assert kind.rows() == [1]


def test_a_commit_that_landed_and_was_rolled_back_since_counts_as_committed(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its rows would be added again, though someone has removed them on purpose."""
    table = kind.create()
    table.commit([Append((kind.file([1]),))])
    answer(kind, monkeypatch, Raising(ConnectionError("reset"), landed=True))
    _before_the_next_load(kind, monkeypatch, lambda: _roll_back(kind))
    assert isinstance(table.commit([Append((kind.file([2]),))]), Committed)
    assert kind.rows() == [1]


def test_a_drop_is_not_taken_for_a_loss(kind: CatalogKind, monkeypatch: pytest.MonkeyPatch) -> None:
    table = kind.create()
    answer(kind, monkeypatch, Raising(ConnectionError("reset"), landed=True))
    _before_the_next_load(kind, monkeypatch, lambda: kind.read().catalog.drop_table(("lake", "table")))
    with pytest.raises(CommitStateUnknownError, match="was dropped"):
        table.commit([Append((kind.file([1]),))])


def test_a_commit_that_decides_moves_main_also_without_rows(kind: CatalogKind) -> None:
    """Of two commits that set a property each, with nothing to compare, the first would be lost."""
    table, other = kind.create(), kind.open()
    kind.answers.append(lambda: other.commit([SetProperties({"theirs": "1"})]))
    table.commit([SetProperties({"mine": "1"})])
    snapshots = kind.read().snapshots()
    assert [it.summary.operation.value for it in snapshots] == ["replace", "replace"]
    assert [it.summary["added-data-files"] for it in snapshots] == [None, None]
    assert {"mine", "theirs"} <= kind.open().head.properties.keys()


def test_a_table_of_format_version_1_is_refused(kind: CatalogKind) -> None:
    catalog = kind.beside()
    catalog.create_table(("lake", "table"), SCHEMA, properties={"format-version": "1"})
    with pytest.raises(UnsupportedTableError, match="format version 1"):
        kind.open()


def test_a_commit_beside_main_is_a_race_and_no_refusal_for_good(kind: CatalogKind) -> None:
    """No sequence number is taken twice, and a branch takes one while main stays where it was."""
    table = kind.create()
    table.commit([Append((kind.file([1]),))])
    _write_to_a_branch(kind)
    committed = table.commit([Append((kind.file([2]),))])
    assert isinstance(committed, Committed)
    assert committed.attempts == 2
    assert kind.rows() == [1, 2]


def test_a_commit_beside_main_after_an_unclear_answer_lets_neither_attempt_land_twice(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = kind.create()
    table.commit([Append((kind.file([1]),))])
    sent = answer(kind, monkeypatch, Raising(ConnectionError("reset"), landed=False))
    _before_the_next_load(kind, monkeypatch, lambda: _write_to_a_branch(kind))
    assert isinstance(table.commit([Append((kind.file([2]),))]), Committed)
    assert len(sent) < 9
    assert kind.rows() == [1, 2]


def test_an_attempt_is_not_taken_for_another_one_of_its_commit(kind: CatalogKind) -> None:
    """All add their new rows under one snapshot id; which merges are live differs between them."""
    table = kind.create()
    head, log = table.head, table.log
    intent = Intent((Append((kind.file([1]),)),), 0, str(head.metadata.table_uuid))
    attempts = Attempts(intent, log.manifest_files, log.environment, log.draft)
    attempts.prepare(head)
    first, second = attempts.build(head, None), attempts.build(head, None)
    assert first is not None
    assert second is not None
    deadline = log.environment.monotonic() + 20
    assert isinstance(log.publish(first, _no_judge, deadline), Won)
    assert isinstance(log.publish(second, _no_judge, deadline), Lost)
    assert isinstance(log.find_landed([second], head, _no_judge, deadline), Head)
    found = log.find_landed([first, second], head, _no_judge, deadline)
    assert isinstance(found, Won)
    assert found.candidate is first


@pytest.mark.parametrize("error", [CorruptTableError("no list"), UnsupportedTableError("format version 3")])
def test_a_table_that_cannot_be_read_while_attempts_are_in_doubt_leaves_them_unknown(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """As a refusal it would say that nothing is live, while the rows may be."""
    table = kind.create()
    head, log = table.head, table.log
    intent = Intent((Append((kind.file([1]),)),), 0, str(head.metadata.table_uuid))
    attempts = Attempts(intent, log.manifest_files, log.environment, log.draft)
    attempts.prepare(head)
    candidate = attempts.build(head, None)
    assert candidate is not None

    def unreadable(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(CatalogLog, "newest", unreadable)
    found = log.find_landed([candidate], head, _no_judge, log.environment.monotonic() + 20)
    assert isinstance(found, StateUnknown)
    assert str(error) in str(found.error)


@pytest.mark.parametrize("landed", [True, False])
def test_a_refusal_of_a_table_that_cannot_be_read_is_not_believed_where_the_commit_is_there(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    """The first of two requests of a proxy has landed, and then others have made it format version 3."""
    table = kind.create()
    answer(kind, monkeypatch, Raising(CommitFailedException("409"), landed=landed))

    def unreadable(*_: Any, **__: Any) -> Any:
        raise UnsupportedTableError("format version 3")

    monkeypatch.setattr(CatalogLog, "newest", unreadable)
    with pytest.raises(CommitStateUnknownError if landed else UnsupportedTableError, match="version 3"):
        table.commit([Append((kind.file([1]),))])


def _no_judge(*_: Any) -> Any:
    raise AssertionError("all snapshots are there: nothing is to be judged")


def test_a_list_that_cannot_be_read_just_then_is_no_error_of_a_commit_that_landed(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may answer with a newer head than the commit's own."""
    table, head, failing = kind.create(), CatalogLog._head, [StoreUnavailableError("the store is away")]

    def unreadable(self: Any, *given: Any) -> Any:
        if failing:
            raise failing.pop()
        return head(self, *given)

    monkeypatch.setattr(CatalogLog, "_head", unreadable)
    for row in (1, 2):
        assert isinstance(table.commit([Append((kind.file([row]),))]), Committed)
    assert kind.rows() == [1, 2]


def test_answers_that_are_no_json_leave_it_open_and_are_asked_for_again(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a proxy's page with the status 200."""
    table, load, garbled = kind.create(), kinds._Answering.load_table, [_invalid()] * 3
    answer(kind, monkeypatch, Raising(_invalid(), landed=True))

    def garbled_first(self: Any, *arguments: Any, **named: Any) -> Any:
        if garbled:
            raise garbled.pop()
        return load(self, *arguments, **named)

    monkeypatch.setattr(kinds._Answering, "load_table", garbled_first)
    monkeypatch.setattr(
        kinds._Answering, "commit_table", _loading_plainly(kinds._Answering.commit_table, load)
    )
    assert isinstance(table.commit([Append((kind.file([1]),))]), Committed)
    assert kind.rows() == [1]


def test_a_store_that_is_away_while_a_commit_is_judged_leaves_it_unknown(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ "The store refused it, and nothing is live" would be wrong: the fill has landed."""
    table = kind.create()
    small = [kind.file([row]) for row in (1, 2)]
    table.commit([Append(tuple(small))])
    merged, inputs = kind.file([1, 2]), frozenset(file.file_path for file in small)
    table.deadline_seconds = 20
    answer(kind, monkeypatch, Raising(ConnectionError("reset"), landed=True))
    _before_the_next_load(kind, monkeypatch, lambda: _add_and_expire_all_others(kind))

    def away(_: Head, locations: Iterable[str], **__: Any) -> dict[str, Any]:
        if set(locations):
            raise StoreUnavailableError("the store is away")
        return {}

    monkeypatch.setattr(Head, "find_all_live", away)
    table.deadline_seconds = 20
    monkeypatch.setattr(Replace, "find_conflict", lambda *_: None)
    with pytest.raises(CommitStateUnknownError):
        table.commit([Replace(inputs, (merged,))])


def test_metadata_that_others_put_elsewhere_is_refused(kind: CatalogKind) -> None:
    kind.create()
    with kind.read().transaction() as edit:
        edit.set_properties({"write.metadata.path": "/elsewhere/metadata"})
    with pytest.raises(UnsupportedTableError, match="elsewhere"):
        kind.open()


def _before_the_next_load(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], Any]
) -> None:
    """Let something happen after a commit was answered, and before the table is loaded again."""
    newest, done = CatalogLog.newest, []

    def load(self: Any, **named: Any) -> Any:
        if not done:
            done.append(1)
            with monkeypatch.context() as plain:
                plain.setattr(CatalogLog, "newest", newest)
                happens()
        return newest(self, **named)

    monkeypatch.setattr(CatalogLog, "newest", load)


def _roll_back(kind: CatalogKind) -> None:
    table = kind.read()
    table.manage_snapshots().set_current_snapshot(table.snapshots()[0].snapshot_id).commit()


def _loading_plainly(commit: Any, load: Any) -> Any:
    """Return a commit during which the catalog, which loads the table itself, loads it as it is."""

    def committing(self: Any, *arguments: Any) -> Any:
        with pytest.MonkeyPatch.context() as plain:
            plain.setattr(kinds._Answering, "load_table", load)
            return commit(self, *arguments)

    return committing


def _write_to_a_branch(kind: CatalogKind) -> None:
    table = kind.read()
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "other").commit()
    rows = pa.table({"id": [100], "p": [0]}, schema=pa.schema([("id", pa.int64()), ("p", pa.int32())]))
    kind.read().append(rows, branch="other")


def _branch_off_nothing(kind: CatalogKind) -> None:
    """Add a snapshot to a branch while main has none, as another engine does."""
    table = kind.read()
    added = Snapshot(
        snapshot_id=7,
        sequence_number=1,
        timestamp_ms=table.metadata.last_updated_ms,
        manifest_list=f"{table.location()}/metadata/theirs.avro",
        summary=Summary(Operation.APPEND),
        schema_id=table.schema().schema_id,
    )
    ref = SetSnapshotRefUpdate(
        ref_name="other",
        type="branch",
        snapshot_id=7,
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )
    table.catalog.commit_table(table, (), (AddSnapshotUpdate(snapshot=added), ref))


def _add_and_expire_all_others(kind: CatalogKind) -> None:
    kind.open().commit([Append((kind.file([9]),))])
    for snapshot in kind.read().snapshots()[:-1]:
        kind.read().maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()


def _invalid() -> Exception:
    """What pyiceberg raises for an answer that is no JSON."""
    try:
        CommitTableResponse.model_validate_json("<html>")
    except ValueError as failure:
        return failure
    raise AssertionError("it was read")
