"""The cleaner of a second table: what an outbox names is no garbage, however old (R24, R6)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pyiceberg.manifest import DataFile

from tests.unit.timeline.outboxes import APP, Pair
from tests.unit.timeline.world import DAY_MS, SCHEMA
from timeline import features, properties
from timeline.changes.changes import Append, SetProperties
from timeline.changes.outbox_changes import PutOutbox
from timeline.errors import CommitConflictError, TableNotFoundError, UnknownFeatureError
from timeline.maintenance.orphans import remove_orphan_files
from timeline.outbox import Outcome, deliver, register_main, retire_main
from timeline.retention.deletions import Deletions
from timeline.stores import MemoryStore
from timeline.table import Committed, Table


class Yard(Pair):
    """A pair whose second table always holds an orphan too, so that its cleaner has work."""

    def __init__(self) -> None:
        super().__init__()
        self.orphan = self.bad_file()

    def pass_days(self, days: int = 5) -> None:
        """Both tables get a version that is so much later."""
        self.clock.now_ms += days * DAY_MS
        for table in (self.main.open(), self.second.open()):
            table.commit([SetProperties({"days": str(days)})])

    def clean(self, open_table: Any = None, **given: Any) -> Deletions:
        return remove_orphan_files(self.second.open(), open_table=open_table or self.open_table, **given)

    def is_there(self, file: DataFile) -> bool:
        return self.second.store.relative(file.file_path) in self.second.paths()


@pytest.fixture
def yard() -> Yard:
    return Yard()


def test_a_file_that_waits_for_its_delivery_stays_and_is_delivered_from_behind_the_fence(yard: Yard) -> None:
    writer, bad = yard.writer(), yard.bad_file()
    writer.commit(0, bad)
    yard.pass_days()
    assert [each.path for each in yard.clean().files] == [yard.second.store.relative(yard.orphan.file_path)]
    assert yard.is_there(bad)
    assert yard.second.open().head.properties[properties.GC_CUTOFF] > bad.file_path.rpartition("/")[2]
    assert [each.outcome for each in writer.deliver()] == [Outcome.DELIVERED]
    assert yard.second_rows() == yard.second.rows_of(bad)


def test_a_writer_that_slept_past_the_cleaning_is_refused_in_the_main_table(yard: Yard) -> None:
    """Its file has gone, and the second table's own fence would be asked too late."""
    writer, bad = yard.writer(), yard.bad_file()
    yard.pass_days()
    yard.clean()
    assert not yard.is_there(bad)
    with pytest.raises(CommitConflictError, match="garbage cutoff"):
        writer.commit(0, bad)
    assert yard.main.open().head.outbox(APP) is None


def test_a_file_that_is_delivered_while_the_cleaner_looks_stays(yard: Yard) -> None:
    """Before the cleaner reads the outbox, the file is delivered and the entry is gone."""
    writer, bad = yard.writer(), yard.bad_file()
    writer.commit(0, bad)
    yard.pass_days()

    def deliver_first(location: str) -> Table:
        writer.deliver()
        writer.commit(1)
        return yard.open_table(location)

    yard.clean(deliver_first)
    assert yard.is_there(bad)
    assert not yard.is_there(yard.orphan)


def test_a_table_that_is_registered_after_the_cleaner_began_keeps_its_files(yard: Yard) -> None:
    other, second, bad = Pair(seed=11), yard.second, yard.bad_file()
    yard.pass_days()
    other.clock.now_ms = yard.clock.now_ms
    cleaner = second.open(second.store)

    def register_and_leave() -> None:
        register_main(second.open(), other.main.table)
        other.main.table.commit([PutOutbox(APP, (yard.delivery(bad),))])

    second.store.before = _once("list", "data", register_and_leave, second.store.before)
    remove_orphan_files(cleaner, open_table=yard.open_table)
    assert yard.is_there(bad)


def test_the_fence_trails_the_time_of_both_tables(yard: Yard) -> None:
    """The ids of the files have the main table's time, which may be far behind the second one's."""
    yard.clock.now_ms += 5 * DAY_MS
    yard.second.open().commit([SetProperties({"ahead": "yes"})])
    yard.clock.now_ms -= 5 * DAY_MS
    writer, bad = yard.writer(), yard.bad_file()
    assert yard.clean().files == ()
    writer.commit(0, bad)
    assert [each.outcome for each in writer.deliver()] == [Outcome.DELIVERED]


@pytest.mark.parametrize("again", [False, True])
def test_without_the_main_table_nothing_is_deleted_until_it_is_retired(yard: Yard, again: bool) -> None:
    yard.pass_days()
    main_uuid = str(yard.main.table.head.metadata.table_uuid)
    with pytest.raises(ValueError, match="the table is there"):
        retire_main(yard.second.open(), main_uuid, yard.open_table)
    objects = yard.main.objects
    objects.delete([listed.path for listed in objects.list_below("")])
    if again:
        Table.create(MemoryStore(yard.main.name), SCHEMA, environment=yard.clock.environment(99))
    with pytest.raises(TableNotFoundError, match="reachability cannot be determined; nothing was deleted"):
        yard.clean()
    assert yard.is_there(yard.orphan)
    retire_main(yard.second.open(), main_uuid, yard.open_table)
    yard.clean()
    assert not yard.is_there(yard.orphan)
    with pytest.raises(ValueError, match="no such table"):
        retire_main(yard.second.open(), main_uuid, yard.open_table)


def test_a_main_table_that_comes_back_after_it_was_retired_delivers_nothing_more(yard: Yard) -> None:
    """Its files may have been deleted. The stream goes on, and delivers into a new table only."""
    writer, bad = yard.writer(), yard.bad_file()
    writer.commit(0, bad)
    main, opened = yard.main.open(), yard.open_table(yard.second.store.location)

    def missing(location: str) -> Table:
        raise TableNotFoundError(location)

    retire_main(yard.second.open(), str(main.head.metadata.table_uuid), missing)
    with pytest.raises(CommitConflictError, match="is not registered"):
        deliver(main, APP, lambda location: opened)  # opened before, as by a process that slept
    assert [each.outcome for each in writer.deliver()] == [Outcome.UNDELIVERABLE]
    with pytest.raises(CommitConflictError, match="has retired"):
        register_main(yard.second.open(), main)
    assert isinstance(writer.commit(1), Committed)
    assert not yard.second_rows()


def test_a_dry_run_changes_neither_table(yard: Yard) -> None:
    yard.pass_days()
    before = yard.main.open().head.number, yard.second.open().head.number
    assert len(yard.clean(dry_run=True).files) == 1
    assert (yard.main.open().head.number, yard.second.open().head.number) == before
    assert yard.is_there(yard.orphan)


def test_an_older_release_neither_cleans_nor_writes_to_the_second_table(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard.pass_days()
    assert features.required_features(yard.second.open().head.properties) == {features.OUTBOX: "0.1"}
    monkeypatch.setattr(features, "KNOWN_FEATURES", frozenset())
    with pytest.raises(UnknownFeatureError, match=r"'outbox' \(since version 0\.1\)"):
        yard.clean()
    with pytest.raises(UnknownFeatureError):
        yard.second.open().commit([Append((yard.second.file(),))])
    yard.main.open().commit([Append((yard.main.file(),))])


def test_without_an_orphan_no_main_table_is_opened(yard: Yard) -> None:
    yard.second.objects.delete([yard.second.store.relative(yard.orphan.file_path)])
    yard.pass_days()
    assert yard.clean(_none).files == ()


def test_a_table_without_main_tables_is_cleaned_as_before(yard: Yard) -> None:
    yard.main.file()
    yard.pass_days()
    done = remove_orphan_files(yard.main.open(), older_than=timedelta(days=1), open_table=_none)
    assert len(done.files) == 1


def _none(location: str) -> Table:
    raise AssertionError(f"nothing delivers into this table, and this was opened: {location}")


def _once(verb: str, path: str, do: Any, then: Any) -> Any:
    """A hook that does something before the first request of a kind."""
    waiting = [do]

    def hook(asked: str, at: str) -> None:
        if (asked, at) == (verb, path) and waiting:
            waiting.pop()()
        then(asked, at)

    return hook
