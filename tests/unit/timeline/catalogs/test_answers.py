"""Answers of a catalog: what each makes of a commit, whatever its code says (R29)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import BadRequestError, CommitFailedException, ServerError

from tests.unit.timeline.logs import kinds
from tests.unit.timeline.logs.kinds import Answers, CatalogKind
from tests.unit.timeline.world import SCHEMA
from timeline.catalogs.catalog_log import CatalogLog
from timeline.changes.changes import Append, SetProperties
from timeline.errors import CommitStateUnknownError, StoreUnavailableError, UnsupportedTableError
from timeline.table import Committed


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
    send, left, sent = kinds._Catalog.commit_table, list(said), []

    def commit(self: Any, *arguments: Any) -> Any:
        sent.append(1)
        if not left:
            return send(self, *arguments)
        now = left.pop(0)
        if now.landed:
            send(self, *arguments)
        raise now.error

    monkeypatch.setattr(kinds._Catalog, "commit_table", commit)
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
    catalog = kind._catalog(Answers())
    catalog.create_table(("lake", "table"), SCHEMA, properties={"format-version": "1"})
    with pytest.raises(UnsupportedTableError, match="format version 1"):
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
