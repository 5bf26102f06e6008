"""The outbox among crashes, lost answers, old runs, restored tables and several processes (R24)."""

from __future__ import annotations

from collections import deque

import pytest
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.types import NestedField, StringType

from tests.unit.timeline.outboxes import APP, Pair
from tests.unit.timeline.world import BY_P, SCHEMA, Audit, change_metadata
from timeline import names, properties
from timeline.changes.changes import Append
from timeline.changes.outbox_changes import PutOutbox
from timeline.changes.schema_changes import MergeSchema
from timeline.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    CorruptTableError,
    FencedError,
    SchemaMismatchError,
    TableNotFoundError,
)
from timeline.outbox import Outcome, deliver, deliver_all, register_main
from timeline.stores import MemoryStore
from timeline.table import AlreadyCommitted, Committed, Table
from timeline.versions.head import Head
from timeline.versions.outbox import mains_of
from timeline.versions.transactions import Transaction


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_an_old_run_that_delivers_late_adds_nothing(pair: Pair) -> None:
    old, bad = pair.writer(), [pair.bad_file(), pair.bad_file()]
    old.commit(0, bad[0])
    new = pair.writer(run="run-2")
    new.deliver()
    new.commit(1, bad[1])
    assert [each.outcome for each in old.deliver()] == [Outcome.DELIVERED_BEFORE]  # same number
    new.deliver()
    assert [each.outcome for each in old.deliver()] == [Outcome.DELIVERED_BEFORE]  # a lower one
    assert pair.second_rows() == pair.second.rows_of(*bad)
    with pytest.raises(FencedError):
        old.commit(2, pair.bad_file())
    Audit(pair.second.store).check()


def test_two_processes_that_deliver_at_once_append_the_files_once(pair: Pair) -> None:
    writer, bad = pair.writer(), pair.bad_file()
    writer.commit(0, bad)
    store = pair.second.store
    store.creates = deque([lambda: deliver(pair.main.open(), APP, pair.open_table)])
    mine = deliver(writer.table, APP, lambda location: Table.open(store, pair.clock.environment(50)))
    assert [each.outcome for each in mine] == [Outcome.DELIVERED_BEFORE]
    assert pair.second_rows() == pair.second.rows_of(bad)


def test_a_main_commit_whose_answer_was_lost_is_delivered_by_whoever_finds_it(pair: Pair) -> None:
    writer, bad = pair.writer(), pair.bad_file()
    writer.table = Table.open(pair.main.store, pair.clock.environment(51))
    writer.table.deadline_seconds = 0.0
    pair.main.store.creates = deque(["unknown-applied"])
    pair.main.store.reads = deque(["fails"] * 9)
    with pytest.raises(CommitStateUnknownError):
        writer.commit(0, bad)
    pair.main.store.reads.clear()
    restarted = pair.writer(run="run-2")
    assert isinstance(restarted.commit(0, pair.bad_file()), AlreadyCommitted)
    restarted.deliver()
    assert pair.second_rows() == pair.second.rows_of(bad)


def test_a_delivery_whose_answer_was_lost_is_not_made_twice(pair: Pair) -> None:
    writer, bad = pair.writer(), pair.bad_file()
    writer.commit(0, bad)
    second = Table.open(pair.second.store, pair.clock.environment(52))
    second.deadline_seconds = 0.0
    pair.second.store.creates = deque(["unknown-applied"])
    pair.second.store.reads = deque(["fails"] * 9)
    with pytest.raises(CommitStateUnknownError):
        deliver(writer.table, APP, lambda location: second)
    pair.second.store.reads.clear()
    assert [each.outcome for each in writer.deliver()] == [Outcome.DELIVERED_BEFORE]
    assert pair.second_rows() == pair.second.rows_of(bad)


def test_a_writer_of_an_older_release_leaves_the_entry_as_it_is(pair: Pair) -> None:
    """It knows no outbox, and so takes the property over as it takes over any other."""
    writer, bad = pair.writer(), pair.bad_file()
    writer.commit(0, bad)
    transaction = Transaction(APP, "query-1", "run-of-old", 1)
    pair.main.open().commit([Append((pair.main.file(),))], transaction=transaction)
    deliver_all(pair.main.open(), pair.open_table)
    assert pair.second_rows() == pair.second.rows_of(bad)


def test_a_query_that_takes_over_must_deliver_what_the_old_one_left(pair: Pair) -> None:
    bad, more = pair.bad_file(), pair.bad_file()
    pair.writer().commit(0, bad)
    fresh = pair.writer(run="run-2", query="query-2")
    with pytest.raises(CommitConflictError, match="would forget them"):
        fresh.commit(0, more, takeover_from="query-1")
    fresh.deliver()
    fresh.commit(0, more, takeover_from="query-1")
    fresh.deliver()
    assert pair.second_rows() == pair.second.rows_of(bad, more)


def test_a_rollback_of_the_main_table_keeps_the_entry(pair: Pair) -> None:
    """A rollback moves a ref; the entry is a property of the newest version."""
    writer, bad = pair.writer(), pair.bad_file()
    writer.commit(0)
    first = pair.main.open().head.metadata.current_snapshot_id
    writer.commit(1, bad)
    main = SnapshotRef(snapshot_id=first, snapshot_ref_type=SnapshotRefType.BRANCH)
    change_metadata(pair.main.open(), lambda _: {"current_snapshot_id": first, "refs": {"main": main}})
    assert len(pair.main.live()) == 1
    deliver_all(pair.main.open(), pair.open_table)
    assert pair.second_rows() == pair.second.rows_of(bad)


def test_a_main_table_that_was_restored_from_a_copy_does_not_use_a_number_again(pair: Pair) -> None:
    """With a counter in the entry, the new second batch would pass for the lost one, and not be delivered."""
    writer, bad = pair.writer(), [pair.bad_file() for _ in range(4)]
    for batch in range(3):
        pair.clock.now_ms += 1000
        writer.commit(batch, bad[batch])
        writer.deliver()
    newest = pair.main.open().head.number
    pair.main.objects.delete([names.version_path(newest), names.version_path(newest - 1)])
    pair.clock.now_ms += 1000
    restored = pair.writer(run="run-2")
    assert [each.outcome for each in restored.deliver()] == [Outcome.DELIVERED_BEFORE]
    restored.commit(1, bad[3])
    assert [each.outcome for each in restored.deliver()] == [Outcome.DELIVERED]
    assert pair.second_rows() == pair.second.rows_of(*bad)


def test_a_second_table_that_was_made_again_took_its_files_along_and_the_stream_goes_on(pair: Pair) -> None:
    writer, bad = pair.writer(), pair.bad_file()
    writer.commit(0, bad)
    objects = pair.second.objects
    objects.delete([listed.path for listed in objects.list_below("")])
    with pytest.raises(TableNotFoundError):
        writer.deliver()
    environment = pair.clock.environment(53)
    again = Table.create(MemoryStore(pair.second.name), SCHEMA, BY_P, environment=environment)
    assert [each.outcome for each in writer.deliver()] == [Outcome.UNDELIVERABLE]
    register_main(again, writer.table)
    new = pair.bad_file()
    writer.commit(1, new)
    assert [each.outcome for each in writer.deliver()] == [Outcome.DELIVERED]
    assert pair.second_rows() == pair.second.rows_of(new)


def test_a_delivery_into_a_table_that_knows_no_main_table_is_refused(pair: Pair) -> None:
    """Its cleaner would not look at the outbox: the files may be deleted already."""
    writer = pair.writer()
    writer.commit(0, pair.bad_file())
    change_metadata(pair.second.open(), _forget)
    with pytest.raises(CommitConflictError, match="is not registered"):
        writer.deliver()
    assert not pair.second_rows()


def _forget(metadata: object) -> dict[str, object]:
    kept = {key: value for key, value in metadata.properties.items() if key != properties.OUTBOXES}  # type: ignore[attr-defined]
    return {"properties": kept}


def test_a_table_cannot_be_its_own_second_table(pair: Pair) -> None:
    with pytest.raises(ValueError, match="cannot be its own second table"):
        register_main(pair.main.open(), pair.main.open())
    with pytest.raises(ValueError, match="cannot be its own second table"):
        pair.second.open().commit([PutOutbox(APP, (pair.delivery(),))])


def test_several_main_tables_share_a_second_one_and_their_applications_may_have_one_name(pair: Pair) -> None:
    other = Pair(seed=11)
    register_main(pair.second.table, other.main.table)
    bad = pair.bad_file(), pair.bad_file()
    for main, file in zip((pair.main.open(), other.main.open()), bad, strict=True):
        main.commit([PutOutbox(APP, (pair.delivery(file),))])
        assert [each.outcome for each in deliver(main, APP, pair.open_table)] == [Outcome.DELIVERED]
    assert pair.second_rows() == pair.second.rows_of(*bad)
    assert len(mains_of(pair.second.open().head.properties)) == 2


def test_a_second_table_may_be_a_stream_s_own_table_under_the_same_name(pair: Pair) -> None:
    own = pair.second.file()
    pair.second.open().commit([Append((own,))], transaction=Transaction(APP, "query-1", "run-1", 5))
    writer, bad = pair.writer(), pair.bad_file()
    writer.commit(0, bad)
    writer.deliver()
    assert pair.second_rows() == pair.second.rows_of(own, bad)


def test_a_schema_that_grew_takes_the_files_and_one_that_lost_a_column_refuses_them(pair: Pair) -> None:
    writer, bad, more = pair.writer(), pair.bad_file(), pair.bad_file()
    writer.commit(0, bad)
    note = NestedField(9, "note", StringType(), required=False)
    pair.second.open().commit([MergeSchema(SCHEMA.as_struct().model_copy(update={"fields": (note,)}))])
    assert [each.outcome for each in writer.deliver()] == [Outcome.DELIVERED]
    writer.commit(1, more)
    kept = SCHEMA.model_copy(update={"fields": SCHEMA.fields[1:], "schema_id": 7})
    change_metadata(
        pair.second.open(),
        lambda metadata: {"schemas": [*metadata.schemas, kept], "current_schema_id": 7},
    )
    with pytest.raises(SchemaMismatchError, match="no longer fit"):
        writer.deliver()
    assert pair.main.open().head.outbox(APP) is not None


def test_an_entry_that_cannot_be_read_stops_its_application_only(pair: Pair) -> None:
    writer = pair.writer()
    writer.commit(0, pair.bad_file())
    key = properties.OUTBOX_PREFIX + APP
    change_metadata(
        pair.main.open(), lambda metadata: {"properties": {**metadata.properties, key: '{"sequence": 1}'}}
    )
    with pytest.raises(CorruptTableError, match="the outbox of application 'flights' cannot be read"):
        pair.writer(run="run-2").commit(1)
    assert isinstance(pair.writer("other").commit(0), Committed)


def test_an_entry_is_looked_for_again_after_a_lost_race(pair: Pair) -> None:
    """Another run's entry comes between this run's plan and its commit."""
    mine, theirs, bad = pair.writer("a"), pair.writer("a", run="run-2"), pair.bad_file()
    theirs.commit(0, bad)
    with pytest.raises(CommitConflictError, match="would forget them"):
        mine.table.commit([PutOutbox("a", (pair.delivery(),))])
    head: Head = pair.main.open().head
    entry = head.outbox("a")
    assert entry is not None
    assert [file.file_path for file in entry.files] == [bad.file_path]
