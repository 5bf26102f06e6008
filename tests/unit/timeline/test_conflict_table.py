"""The conflict table of the protocol: what I commit, rebased over what they commit first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.types import LongType, NestedField, StringType

from tests.unit.timeline.world import SCHEMA, Audit, Lake
from timeline.changes.changes import Append, Replace, SetProperties
from timeline.changes.outbox_changes import PutOutbox
from timeline.changes.row_deltas import RowDelta
from timeline.errors import CommitConflictError, SchemaMismatchError
from timeline.table import Committed, Table
from timeline.versions.outbox import Delivery

SMALL = 5000


@dataclass
class Case:
    """Two small files in partition 0 and two in partition 1, and a writer that has seen just that."""

    lake: Lake
    mine: Table
    files: dict[str, DataFile]

    @classmethod
    def begin(cls) -> Case:
        lake = Lake()
        files = {name: lake.file(p=p) for name, p in (("a", 0), ("b", 0), ("c", 1), ("d", 1))}
        lake.table.commit([Append(tuple(files.values()))], open_below_bytes=SMALL)
        return cls(lake, lake.open(lake.store), files)

    def replace(self, *names: str) -> Replace:
        files = [self.files[name] for name in names]
        return Replace(frozenset(f.file_path for f in files), (self.lake.merged(*files),))


Theirs = Callable[[Case], Any]


def _append(case: Case) -> None:
    case.lake.open().commit([Append((case.lake.file(p=0),))], open_below_bytes=SMALL)


def _fill(*names: str) -> Theirs:
    def fill(case: Case) -> None:
        new = case.lake.file(p=case.files[names[0]].partition[0])
        old = [case.files[name] for name in names]
        removed = frozenset(f.file_path for f in (new, *old))
        case.lake.open().commit(
            [Append((new,)), Replace(removed, (case.lake.merged(*old, new),))], open_below_bytes=SMALL
        )

    return fill


def _cluster(*names: str) -> Theirs:
    return lambda case: case.lake.open().commit([case.replace(*names)], open_below_bytes=SMALL)


def _deletes(p: int) -> Theirs:
    return lambda case: case.lake.add_delete_file(p)


def _row_delta(name: str) -> Theirs:
    def delete(case: Case) -> None:
        new = case.lake.file(p=0)
        case.lake.open().commit([RowDelta((new,), (case.lake.deletes(case.files[name], 0),))])

    return delete


def _schema(*fields: NestedField) -> Theirs:
    schema = Schema(*fields, schema_id=1)

    def update(metadata: TableMetadataV2) -> dict[str, Any]:
        return {
            "schemas": [*metadata.schemas, schema],
            "current_schema_id": 1,
            "last_column_id": max(3, metadata.last_column_id),
        }

    return lambda case: case.lake.change_metadata(update)


def _properties(case: Case) -> None:
    case.lake.open().commit([SetProperties({"owner": "me"})])


def _outbox(case: Case) -> None:
    to_second = Delivery("memory://second", "uuid", 0, (case.lake.file(p=0),))
    case.lake.open().commit([PutOutbox("theirs", (to_second,))])


def _expire_first_snapshot(case: Case) -> None:
    case.lake.open().commit([Append((case.lake.file(p=5),))], open_below_bytes=SMALL)

    def update(metadata: TableMetadataV2) -> dict[str, Any]:
        return {"snapshots": metadata.snapshots[1:], "snapshot_log": metadata.snapshot_log[1:]}

    case.lake.change_metadata(update)


THEIRS: dict[str, Theirs] = {
    "append": _append,
    "fill my input": _fill("a"),
    "fill another file": _fill("d"),
    "cluster my input": _cluster("a", "b"),
    "cluster other files": _cluster("c", "d"),
    "deletes on my input": _deletes(0),
    "deletes elsewhere": _deletes(7),
    "a row delta on my input": _row_delta("a"),
    "a row delta elsewhere": _row_delta("d"),
    "a column is added": _schema(*SCHEMA.fields, NestedField(3, "note", StringType(), required=False)),
    "a column is widened": _schema(
        SCHEMA.fields[0], NestedField(2, "p", LongType(), required=SCHEMA.fields[1].required)
    ),
    "a column is dropped": _schema(SCHEMA.fields[1]),
    "a column is narrowed": _schema(NestedField(1, "id", StringType(), required=False), SCHEMA.fields[1]),
    "a column is required": _schema(NestedField(1, "id", LongType(), required=True), SCHEMA.fields[1]),
    "a required column is added": _schema(
        *SCHEMA.fields, NestedField(3, "note", StringType(), required=True)
    ),
    "properties": _properties,
    "an outbox entry": _outbox,
    "expiry": _expire_first_snapshot,
}
UNFIT = {"a column is dropped", "a column is narrowed", "a column is required", "a required column is added"}
TAKES_A = {"fill my input", "cluster my input", "deletes on my input", "a row delta on my input"} | UNFIT


@pytest.mark.parametrize("theirs", THEIRS)
def test_an_append_rebases_over_everything_that_its_rows_still_fit(theirs: str) -> None:
    case = Case.begin()
    new = case.lake.file(p=0)
    THEIRS[theirs](case)
    before = case.lake.live_rows()
    if theirs in UNFIT:
        with pytest.raises(SchemaMismatchError, match=r"its rows no longer fit: column 'id|note'"):
            case.mine.commit([Append((new,))], open_below_bytes=SMALL)
        assert case.lake.live_rows() == before
    else:
        committed = case.mine.commit([Append((new,))], open_below_bytes=SMALL)
        assert isinstance(committed, Committed)
        assert committed.dropped == ()
        assert case.lake.live_rows() == before + case.lake.rows_of(new)
    Audit(case.lake.store).check()


@pytest.mark.parametrize("theirs", THEIRS)
def test_a_fill_that_no_longer_fits_drops_its_replace_and_keeps_its_append(theirs: str) -> None:
    case = Case.begin()
    new, a = case.lake.file(p=0), case.files["a"]
    merged = case.lake.merged(a, new)
    changes = [Append((new,)), Replace(frozenset({a.file_path, new.file_path}), (merged,))]
    THEIRS[theirs](case)
    before = case.lake.live_rows()
    if theirs in UNFIT:
        with pytest.raises(SchemaMismatchError):
            case.mine.commit(changes, open_below_bytes=SMALL)
        assert case.lake.live_rows() == before
        return
    committed = case.mine.commit(changes, open_below_bytes=SMALL)
    assert isinstance(committed, Committed)
    dropped = theirs in TAKES_A
    assert [d.change for d in committed.dropped] == ([changes[1]] if dropped else [])
    assert case.lake.live_rows() == before + case.lake.rows_of(new)
    live = case.lake.live()
    assert (new.file_path in live) is dropped
    assert (merged.file_path in live) is not dropped
    Audit(case.lake.store).check()


@pytest.mark.parametrize("theirs", THEIRS)
def test_a_clustering_group_that_no_longer_fits_is_dropped_and_the_others_commit(theirs: str) -> None:
    case = Case.begin()
    mine = [case.replace("a", "b"), case.replace("c")]
    THEIRS[theirs](case)
    before = case.lake.live_rows()
    takes_c = theirs == "cluster other files"
    if theirs in UNFIT:
        with pytest.raises(CommitConflictError, match="schema changed from 0 to 1"):
            case.mine.commit(mine, open_below_bytes=SMALL)
    else:
        committed = case.mine.commit(mine, open_below_bytes=SMALL)
        assert isinstance(committed, Committed)
        lost = [group for group, gone in zip(mine, (theirs in TAKES_A, takes_c), strict=True) if gone]
        assert [d.change for d in committed.dropped] == lost
        live = case.lake.live()
        assert {g.added[0].file_path in live for g in mine if g not in lost} <= {True}
        assert {g.added[0].file_path in live for g in lost} <= {False}
    assert case.lake.live_rows() == before
    Audit(case.lake.store).check()


def test_a_replace_drops_an_input_that_may_hold_a_column_which_its_writer_did_not_read() -> None:
    case = Case.begin()
    THEIRS["a column is added"](case)
    known, newer = case.files["a"], case.lake.file(p=0)
    case.lake.open().commit([Append((newer,))], open_below_bytes=SMALL)
    mine = [
        Replace(frozenset({known.file_path}), (case.lake.merged(known),)),
        Replace(frozenset({newer.file_path}), (case.lake.merged(newer),)),
    ]
    committed = case.lake.open().commit(mine, schema_id=0, open_below_bytes=SMALL)
    assert isinstance(committed, Committed)
    assert [dropped.change for dropped in committed.dropped] == [mine[1]]
    assert "what was not read: column 'note' was dropped" in committed.dropped[0].reason
    Audit(case.lake.store).check()


def test_a_file_whose_snapshot_has_expired_is_judged_by_the_oldest_that_is_left() -> None:
    case = Case.begin()
    THEIRS["a column is added"](case)
    THEIRS["expiry"](case)  # the snapshot that added my inputs is gone; the next one has the new column
    with pytest.raises(CommitConflictError, match="what was not read"):
        case.lake.open().commit([case.replace("a", "b")], schema_id=0, open_below_bytes=SMALL)
    committed = case.lake.open().commit([case.replace("a", "b")], open_below_bytes=SMALL)
    assert isinstance(committed, Committed)


@pytest.mark.parametrize("theirs", sorted(TAKES_A - UNFIT))
def test_a_lone_group_that_no_longer_fits_is_a_conflict_that_says_why(theirs: str) -> None:
    case = Case.begin()
    mine = case.replace("a", "b")
    THEIRS[theirs](case)
    before, versions = case.lake.live_rows(), case.lake.open().head.number
    with pytest.raises(
        CommitConflictError, match=r"another commit has replaced an input|an input has deletes"
    ):
        case.mine.commit([mine], open_below_bytes=SMALL)
    assert case.lake.live_rows() == before
    assert case.lake.open().head.number == versions


def test_two_replaces_of_one_commit_that_claim_one_file_keep_the_first() -> None:
    case = Case.begin()
    first, second = case.replace("a", "b"), case.replace("b", "a")
    committed = case.mine.commit([first, second], open_below_bytes=SMALL)
    assert isinstance(committed, Committed)
    assert [d.change for d in committed.dropped] == [second]
    assert "takes the same file" in committed.dropped[0].reason
    Audit(case.lake.store).check()


def test_a_file_that_came_after_a_delete_may_be_filled() -> None:
    """A delete applies to files of its own and lower sequence numbers only."""
    case = Case.begin()
    case.lake.add_delete_file(0)
    late = case.lake.file(p=0)
    table = case.lake.open()
    table.commit([Append((late,))], open_below_bytes=SMALL)
    committed = table.commit([Replace(frozenset({late.file_path}), (case.lake.merged(late),))])
    assert isinstance(committed, Committed)
    assert committed.dropped == ()


def test_a_file_that_was_rebased_over_a_delete_may_be_filled() -> None:
    """Its sequence number is that of the attempt that won, not of the one that lost to the delete."""
    case = Case.begin()
    late = case.lake.file(p=0)
    case.lake.add_delete_file(0)
    case.mine.commit([Append((late,))], open_below_bytes=SMALL)
    for table in (case.mine, case.lake.open()):
        live = table.head.find_live(late.file_path)
        assert live is not None
        assert live.sequence_number == table.head.metadata.last_sequence_number
        assert not table.head.has_deletes(live)


def test_a_replace_that_loses_or_gains_rows_is_refused() -> None:
    case = Case.begin()
    a, b = case.files["a"], case.files["b"]
    with pytest.raises(ValueError, match="it removes 20 and adds 10 rows"):
        case.mine.commit([Replace(frozenset({a.file_path, b.file_path}), (case.lake.merged(a),))])


def test_their_snapshots_stay_when_my_commit_expires_others() -> None:
    """Expiry is computed from the head that the commit lands on."""
    lake = Lake(table_properties={"streaming-sink.history.max-snapshots": "5"})
    for _ in range(110):
        lake.table.commit([Append((lake.file(),))])
    mine, theirs = lake.open(), lake.open()
    theirs.commit([Append((lake.file(),))])
    new = theirs.head.metadata.current_snapshot_id
    mine.commit([Append((lake.file(),))])
    kept = [s.snapshot_id for s in mine.head.metadata.snapshots]
    assert new in kept
    assert kept[-2] == new
    Audit(lake.store).check()
