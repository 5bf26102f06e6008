"""The contract of every commit log, on version files and in a catalog. pyiceberg's reader judges the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.table.snapshots import Operation

from tests.unit.timeline.logs.kinds import (
    LANDED,
    NOT_LANDED,
    Answers,
    CatalogKind,
    HiveKind,
    Kind,
    LandedThen,
    VersionFilesKind,
)
from timeline import properties
from timeline.changes.changes import Append, Replace, SetProperties
from timeline.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    FencedError,
    TableNotFoundError,
)
from timeline.maintenance.expiry import expire_snapshots
from timeline.names import HINT_PATH
from timeline.retention.policy import snapshot_version
from timeline.table import AlreadyCommitted, Committed, Table
from timeline.versions.transactions import Transaction


@pytest.fixture(params=["version files", "catalog in SQL", "catalog in Hive"])
def kind(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kind]:
    kinds: dict[str, Callable[[], Kind]] = {
        "version files": lambda: VersionFilesKind(tmp_path),
        "catalog in SQL": lambda: CatalogKind(tmp_path),
        "catalog in Hive": lambda: HiveKind(tmp_path, monkeypatch),
    }
    made = kinds[request.param]()
    yield made
    if isinstance(made, CatalogKind):
        made.close()


def batch(number: int, run: str = "run", epoch: int | None = None) -> Transaction:
    return Transaction("app", "query", run, number, epoch)


def test_a_table_is_created_once_and_opened_by_others(kind: Kind) -> None:
    with pytest.raises(TableNotFoundError):
        kind.open()
    created = kind.create(table_properties={"owner": "me"})
    again = kind.create()
    opened = kind.open()
    uuids = {table.head.metadata.table_uuid for table in (created, again, opened)}
    assert len(uuids) == 1
    assert opened.head.number == kind.created
    assert opened.head.properties["owner"] == "me"
    assert kind.rows() == []


def test_of_two_creators_one_wins_and_the_other_opens_its_table(kind: Kind) -> None:
    kind.answers.append(lambda: kind.create(Answers(), table_properties={"first": "yes"}))
    late = kind.create()
    late.commit([Append((kind.file([1]),))])
    assert kind.open().head.properties["first"] == "yes"
    assert kind.rows() == [1]


@pytest.mark.parametrize("answer", [LANDED, NOT_LANDED])
def test_a_create_whose_answer_is_lost_creates_one_table(kind: Kind, answer: str) -> None:
    kind.answers.append(answer)
    table = kind.create()
    assert table.head.metadata.table_uuid == kind.open().head.metadata.table_uuid
    table.commit([Append((kind.file([1]),))])
    assert kind.rows() == [1]


def test_append_and_replace_are_two_snapshots_of_one_commit(kind: Kind) -> None:
    table = kind.create()
    small = kind.file([1, 2])
    table.commit([Append((small,))], open_below_bytes=10**9)
    new, merged = kind.file([3]), kind.file([1, 2, 3])
    replace = Replace(frozenset({small.file_path, new.file_path}), (merged,))
    committed = table.commit([Append((new,)), replace], open_below_bytes=10**9)
    assert isinstance(committed, Committed)
    assert committed.dropped == ()
    read = kind.read()
    assert kind.rows() == [1, 2, 3]
    assert [s.summary.operation for s in read.snapshots()] == [
        Operation.APPEND,
        Operation.APPEND,
        Operation.REPLACE,
    ]
    assert [s.sequence_number for s in read.snapshots()] == [1, 2, 3]
    assert [kind.rows(s.snapshot_id) for s in read.snapshots()] == [[1, 2], [1, 2, 3], [1, 2, 3]]
    times = [s.timestamp_ms for s in read.snapshots()]
    assert times == sorted(set(times)), "R12"
    assert [snapshot_version(s) for s in read.snapshots()][1:] == [committed.version] * 2
    assert [entry.snapshot_id for entry in read.history()] == [s.snapshot_id for s in read.snapshots()[::2]]
    assert len(read.inspect.files()) == 1
    assert {file.location for file in kind.open().head.live_files()} == {merged.file_path}


def test_what_was_committed_is_what_a_fresh_process_opens(kind: Kind) -> None:
    table = kind.create()
    table.commit([Append((kind.file([1]),)), SetProperties({"a": "1", "b": "2"})])
    table.commit([SetProperties({"a": "3"}, frozenset({"b"}))])
    head = kind.open().head
    assert (head.number, head.version.commit_id) == (table.head.number, table.head.version.commit_id)
    assert head.properties["a"] == "3"
    assert "b" not in head.properties
    assert head.version.recent_commits == table.head.version.recent_commits
    assert head.metadata.snapshots == table.head.metadata.snapshots


def test_of_two_that_race_both_commit_and_the_loser_rebases(kind: Kind) -> None:
    table, other = kind.create(), kind.open()
    kind.answers.append(lambda: other.commit([Append((kind.file([1]),))]))
    committed = table.commit([Append((kind.file([2]),))])
    assert isinstance(committed, Committed)
    assert (committed.version, committed.attempts) == (kind.created + 2, 2)
    assert kind.rows() == [1, 2]
    parents = [s.parent_snapshot_id for s in kind.read().snapshots()]
    assert parents == [None, kind.read().snapshots()[0].snapshot_id]


def test_races_lost_until_the_deadline_are_a_conflict_and_nothing_is_live(kind: Kind) -> None:
    table, other = kind.create(), kind.open()
    table.deadline_seconds = 0.5

    def wins() -> None:
        kind.clock.seconds += 0.2
        other.commit([SetProperties({"a": "b"})])

    kind.answers.extend([wins] * 10)
    with pytest.raises(CommitConflictError, match="races"):
        table.commit([Append((kind.file([1]),))])
    assert kind.rows() == []


def test_commits_that_move_no_ref_race_too_and_none_is_overwritten(kind: Kind) -> None:
    table, other = kind.create(), kind.open()
    kind.answers.append(lambda: other.commit([SetProperties({"theirs": "1"})]))
    committed = table.commit([SetProperties({"mine": "1"})])
    assert isinstance(committed, Committed)
    assert (committed.version, committed.attempts) == (kind.created + 2, 2)
    stated = kind.open().head.properties
    assert (stated["mine"], stated["theirs"]) == ("1", "1")
    assert len(kind.open().head.version.recent_commits) == kind.created + 2


def test_a_stale_head_is_rebased_on_what_others_have_committed(kind: Kind) -> None:
    table, other = kind.create(), kind.open()
    for row in range(1, 6):
        other.commit([Append((kind.file([row]),))])
    committed = table.commit([Append((kind.file([6]),))])
    assert isinstance(committed, Committed)
    assert committed.version == kind.created + 6
    assert kind.rows() == [1, 2, 3, 4, 5, 6]
    assert other.refresh().number == kind.created + 6
    assert other.refresh() is other.head


def test_a_replace_whose_input_another_has_replaced_is_dropped_and_its_append_stays(kind: Kind) -> None:
    table = kind.create()
    small = kind.file([1])
    table.commit([Append((small,))])
    other = kind.open()
    other.commit([Replace(frozenset({small.file_path}), (kind.file([1]),))])
    new = kind.file([2])
    replace = Replace(frozenset({small.file_path, new.file_path}), (kind.file([1, 2]),))
    committed = table.commit([Append((new,)), replace])
    assert isinstance(committed, Committed)
    assert len(committed.dropped) == 1
    assert kind.rows() == [1, 2]


@pytest.mark.parametrize("answer", [LANDED, NOT_LANDED])
def test_a_commit_whose_answer_is_lost_is_committed_once(kind: Kind, answer: str) -> None:
    table = kind.create()
    kind.answers.extend([answer] * 3)
    committed = table.commit([Append((kind.file([1]),))])
    assert isinstance(committed, Committed)
    assert (committed.version, committed.attempts) == (kind.created + 1, 1)
    assert kind.rows() == [1]
    assert len(kind.read().snapshots()) == 1


def test_a_commit_that_landed_and_was_built_upon_before_its_answer_was_lost_is_found(kind: Kind) -> None:
    table = kind.create()
    other = kind.open()
    kind.answers.append(LandedThen(lambda: other.commit([Append((kind.file([2]),))])))
    committed = table.commit([Append((kind.file([1]),))])
    assert isinstance(committed, Committed)
    assert (committed.version, committed.attempts) == (kind.created + 1, 1)
    assert table.head.number == kind.created + 2
    assert kind.rows() == [1, 2]


def test_another_that_wins_while_the_answer_is_lost_is_a_loss_and_rows_are_there_once(kind: Kind) -> None:
    table, other = kind.create(), kind.open()
    kind.answers.extend([NOT_LANDED, lambda: other.commit([Append((kind.file([2]),))])])
    committed = table.commit([Append((kind.file([1]),))])
    assert isinstance(committed, Committed)
    assert committed.version == kind.created + 2
    assert kind.rows() == [1, 2]


def test_without_a_clear_answer_until_the_deadline_the_state_is_unknown(kind: Kind) -> None:
    table = kind.create()
    table.deadline_seconds = 30
    kind.answers.extend([NOT_LANDED] * 100)
    with pytest.raises(CommitStateUnknownError, match="Nothing was deleted") as caught:
        table.commit([Append((kind.file([1]),))])
    assert caught.value.version == kind.created + 1
    assert kind.clock.seconds >= 30
    kind.answers.clear()
    assert kind.rows() == []


def test_a_batch_is_committed_exactly_once(kind: Kind) -> None:
    table = kind.create()
    first = table.commit([Append((kind.file([1]),))], transaction=batch(0))
    assert isinstance(first, Committed)
    again = kind.open().commit([Append((kind.file([1]),))], transaction=batch(0))
    assert again == AlreadyCommitted(kind.created + 1, epoch=1)
    stale = table.commit([Append((kind.file([2]),))], transaction=batch(1, epoch=first.epoch))
    assert isinstance(stale, Committed)
    assert kind.rows() == [1, 2]
    state = kind.open().head.transaction("app")
    assert state is not None
    assert (state.batch, state.commit) == (1, table.head.version.commit_id)


def test_a_batch_whose_commit_ended_unknown_is_settled_by_the_next_try(kind: Kind) -> None:
    table = kind.create()
    table.deadline_seconds = 0
    kind.answers.append(LandedThen(lambda: setattr(kind.answers, "silent", True)))
    with pytest.raises(CommitStateUnknownError):
        table.commit([Append((kind.file([1]),))], transaction=batch(0))
    restarted = kind.open()
    tried_again = restarted.commit([Append((kind.file([1]),))], transaction=batch(0, run="restarted"))
    assert isinstance(tried_again, AlreadyCommitted)
    restarted.tidy()
    assert kind.rows() == [1]


def test_a_run_that_was_superseded_is_fenced_on_the_head_that_won(kind: Kind) -> None:
    old = kind.create()
    first = old.commit([Append((kind.file([1]),))], transaction=batch(0, "old"))
    assert isinstance(first, Committed)
    new = kind.open()
    kind.answers.append(lambda: new.commit([Append((kind.file([2]),))], transaction=batch(1, "new")))
    with pytest.raises(FencedError):
        old.commit([Append((kind.file([3]),))], transaction=batch(2, "old", first.epoch))
    assert kind.rows() == [1, 2]


def test_snapshots_expire_and_what_only_they_reached_is_deleted_after_the_grace(tmp_path: Path) -> None:
    kind = VersionFilesKind(tmp_path)
    table = kind.create(table_properties={properties.MANIFEST_MIN_MERGE_COUNT: "1000"})
    small = kind.file([1])
    table.commit([Append((small,))])
    merged = kind.file([1])
    table.commit([Replace(frozenset({small.file_path}), (merged,))])
    table.commit([Append((kind.file([2]),))])
    pass_versions(kind, table, 101)
    two_days(kind)
    table.commit([SetProperties({})])
    report = expire_snapshots(
        table, max_snapshot_age=timedelta(0), min_snapshots_to_keep=1, grace=timedelta(0)
    )
    assert report.expired_snapshots == 2
    assert len(kind.read().snapshots()) == 1
    assert Path(small.file_path).exists(), "its grace has not passed"
    pass_versions(kind, table, 101)
    table.delete_expired(grace_ms=0)
    assert not Path(small.file_path).exists()
    assert kind.rows() == [1, 2]
    assert kind.open().head.number == table.head.number


def test_only_version_files_have_a_hint_and_guards(kind: Kind) -> None:
    table = kind.create()
    table.commit([Append((kind.file([1]),))])
    on_version_files = isinstance(kind, VersionFilesKind)
    assert Path(kind.store().uri(HINT_PATH)).exists() == on_version_files
    stated = kind.open().head.properties
    assert (properties.GC_ENABLED in stated) == on_version_files
    assert (properties.METADATA_PATH in stated) == on_version_files


def pass_versions(kind: Kind, table: Table, count: int) -> None:
    for _ in range(count):
        kind.clock.now_ms += 1000
        table.commit([SetProperties({})])


def two_days(kind: Kind) -> None:
    kind.clock.now_ms += 2 * 24 * 3600 * 1000
