"""Each error of the protocol, provoked on a real table: its message says what happened, what is safe and what
to do, and the table is as the message says.
"""

from __future__ import annotations

import errno
import json
import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.typedef import Record

import timeline
from tests.unit.timeline.world import BY_P, SCHEMA, Clock, Lake, data_file
from timeline import names, properties
from timeline.changes.changes import Append, Replace, SetProperties
from timeline.diagnosis import Severity
from timeline.errors import (
    CheckpointRegressionError,
    CommitConflictError,
    CommitStateUnknownError,
    CorruptTableError,
    FencedError,
    SchemaMismatchError,
    StoreUnavailableError,
    TableNotFoundError,
    TimelineError,
    UnsafeStoreError,
)
from timeline.names import version_path
from timeline.stores import Created, CreateOutcome, LocalStore, MemoryStore, _disk
from timeline.table import AlreadyCommitted, Committed, Table
from timeline.versions.transactions import Transaction

Commit = Callable[[], Any]


class Disk:
    """A table on a local disk, with two appended files and one application that has committed batch 5."""

    def __init__(self, folder: Path) -> None:
        self.location = folder / "table"
        self.store = LocalStore(self.location)
        self.ids = random.Random(1)
        self.table = Table.create(self.store, SCHEMA, BY_P, environment=Clock().environment())
        self.files = [self.file(), self.file()]
        self.table.commit([Append((self.files[0],))])
        self.batch(5, epoch=None, file=self.files[1])

    def file(self, time_ms: int = Clock().now_ms) -> DataFile:
        name = names.data_file_name(names.ulid(time_ms, self.ids.getrandbits(80)), "app", 1, 0, 0)
        file = data_file(self.store.uri(f"data/p=0/{name}"), 10, partition=Record(0))
        with self.store.open_output(f"data/p=0/{name}") as output:
            output.write(bytes(file.file_size_in_bytes))
        return file

    def batch(
        self,
        number: int,
        *,
        query: str = "query-1",
        run: str = "run-1",
        epoch: int | None = 1,
        table: Table | None = None,
        file: DataFile | None = None,
    ) -> Committed | AlreadyCommitted:
        transaction = Transaction("app", query, run, number, epoch)
        return (table or self.table).commit([Append((file or self.file(),))], transaction=transaction)

    def edit(self, key: str, value: str) -> None:
        """Set a property in the newest version by hand."""
        path = self.location / version_path(3)
        stored = json.loads(path.read_bytes())
        stored["properties"][key] = value
        path.write_text(json.dumps(stored))

    def open(self) -> Table:
        return Table.open(LocalStore(self.location), Clock().environment(2))

    def live(self) -> set[str]:
        return {file.location for file in self.open().head.live_files()}

    def refuses(self, error: type[TimelineError], commit: Commit, *says: str) -> str:
        """The commit raises an error that says these things, that pickles, and nothing of it is live."""
        before = self.live(), self.open().head.number
        with pytest.raises(error) as caught:
            commit()
        assert (self.live(), self.open().head.number) == before
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
        return told(caught.value, *says)


def told(error: TimelineError, *says: str) -> str:
    message = str(error)
    for words in says:
        assert words in message, message
    assert "  " not in message
    return message


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


# conflicts ------------------------------------------------------------------------------------------

PLAN_AGAIN = "nothing of this commit is live; plan it again"
WRITE_AGAIN = "nothing of the commit is live, write the batch again"


def test_a_replace_that_lost_its_input_says_which_and_to_plan_again(disk: Disk) -> None:
    late = disk.open()
    gone = frozenset({disk.files[0].file_path})
    disk.table.commit([Replace(gone, (disk.file(),))])
    disk.refuses(
        CommitConflictError,
        lambda: late.commit([Replace(gone, (disk.file(),))]),
        PLAN_AGAIN,
        f"another commit has replaced an input: {disk.files[0].file_path}",
    )


def test_a_file_below_the_fence_says_so(disk: Disk) -> None:
    cutoff = names.ulid_floor(Clock().now_ms + 1)
    disk.edit(properties.GC_CUTOFF, cutoff)
    table = disk.open()
    disk.refuses(
        CommitConflictError,
        lambda: table.commit([Append((disk.file(),))]),
        f"before the table's garbage cutoff {cutoff}",
        "may be deleted already",
        WRITE_AGAIN,
    )


def test_files_of_a_spec_that_is_gone_say_so(disk: Disk) -> None:
    file = disk.file()
    file.spec_id = 7
    disk.refuses(
        CommitConflictError, lambda: disk.table.commit([Append((file,))]), "partition spec 7", WRITE_AGAIN
    )


def test_files_of_a_schema_that_is_gone_say_so(disk: Disk) -> None:
    disk.refuses(
        CommitConflictError,
        lambda: disk.table.commit([Append((disk.file(),))], schema_id=9),
        "written under schema 9, which the table no longer has",
        WRITE_AGAIN,
    )


def test_a_table_that_was_made_again_says_both_identities(disk: Disk) -> None:
    late = disk.open()
    for number in (1, 2, 3):
        (disk.location / version_path(number)).unlink()
    other = Table.create(LocalStore(disk.location), SCHEMA, BY_P, environment=Clock().environment(9))
    for _ in range(3):
        other.commit([SetProperties({"a": "b"})])
    disk.refuses(
        CommitStateUnknownError,
        lambda: late.commit([Append((disk.file(),))]),
        "was dropped and created again while version 4 was being committed",
        "Nothing was deleted. Restart the query if the new table is the one that you mean",
        f"was {late._table_uuid}, is {other.head.metadata.table_uuid}",
    )


def test_a_commit_that_loses_every_race_says_how_many_and_what_helps() -> None:
    lake = Lake()
    rival = lake.open()

    def take_the_number() -> None:
        lake.clock.seconds += 100
        rival.commit([SetProperties({"a": "b"})])

    lake.store.creates.extend([take_the_number] * 100)
    with pytest.raises(CommitConflictError) as caught:
        lake.table.commit([Append((lake.file(),))])
    told(
        caught.value,
        "lost 6 races in 600 s",
        "nothing of this commit is live",
        "Fewer writers, or larger batches, help",
    )
    assert not lake.live_rows()


# what is not known ----------------------------------------------------------------------------------

RESTART = "Restart the query on its checkpoint: it finds out, and neither loses nor doubles a row"


@pytest.mark.parametrize(("answer", "is_live"), [("unknown-applied", True), ("unknown-absent", False)])
def test_a_create_without_an_answer_says_that_it_is_unknown_and_a_restart_settles_it(
    answer: str, is_live: bool
) -> None:
    lake = Lake()
    file = lake.file()

    def commit(table: Table) -> Committed | AlreadyCommitted:
        return table.commit([Append((file,))], transaction=Transaction("app", "query", "run", 1))

    lake.store.creates.extend([answer, *["unknown-absent"] * 500])
    lake.store.reads.extend(["fails"] * 500)
    with pytest.raises(CommitStateUnknownError) as caught:
        commit(lake.table)
    told(caught.value, "not known whether version 2 was created", "Nothing was deleted", RESTART)
    lake.store.creates.clear()
    lake.store.reads.clear()
    settled = commit(lake.open(lake.store))
    assert isinstance(settled, AlreadyCommitted if is_live else Committed)
    assert lake.live_rows() == lake.rows_of(file)


def test_a_create_that_no_listing_confirms_says_so() -> None:
    lake = Lake()
    lake.store.lists.extend(["fails"] * 500)
    with pytest.raises(CommitStateUnknownError) as caught:
        lake.table.commit([Append((lake.file(),))])
    told(
        caught.value,
        "version 2 was created, and no listing confirmed in time that it is part of the table",
        "Nothing was deleted",
        RESTART,
    )


# exactly once ---------------------------------------------------------------------------------------


def test_an_old_run_is_told_who_took_over(disk: Disk) -> None:
    disk.batch(6, run="run-2", epoch=None, table=disk.open())
    disk.refuses(
        FencedError,
        lambda: disk.batch(7),
        "a newer run of application 'app' has taken over this table",
        "run run-2 has epoch 2, this run run-1 had epoch 1",
        "This run must stop; the rows that it committed are kept",
        "stop the other query",
    )


def test_a_fresh_checkpoint_under_a_used_name_is_told_its_three_ways_out(disk: Disk) -> None:
    disk.refuses(
        CheckpointRegressionError,
        lambda: disk.batch(6, query="query-2", epoch=None),
        "application 'app' has committed to this table as query query-1, and this is query query-2",
        "Nothing was written",
        "Restart on the old checkpoint",
        "choose another app_id",
        "pass takeover_from='query-1'",
    )


def test_an_older_checkpoint_is_told_both_batches(disk: Disk) -> None:
    disk.refuses(
        CheckpointRegressionError,
        lambda: disk.batch(3),
        "has committed batch 5, and this is batch 3: the checkpoint is older than the table",
        "Nothing was written",
        "Restart on the checkpoint that wrote batch 5",
    )


# the store ------------------------------------------------------------------------------------------


def test_a_full_disk_is_told_and_the_table_goes_on_once_there_is_space(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.file()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def commit() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            disk.table.commit([Append((file,))])

    message = disk.refuses(
        StoreUnavailableError, commit, "nothing was stored", "the disk is full: free space"
    )
    assert str(disk.location) in message
    disk.table.commit([Append((file,))])
    assert file.file_path in disk.live()


def test_a_location_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "table").write_text("not a folder")
    with pytest.raises(StoreUnavailableError) as caught:
        Table.open(LocalStore(tmp_path / "table"))
    told(caught.value, "cannot list", "Not a directory", str(tmp_path / "table"))


def test_a_store_that_refuses_a_create_has_nothing_of_the_commit() -> None:
    lake = Lake()
    lake.store.creates.append("refused")
    with pytest.raises(StoreUnavailableError):
        lake.table.commit([Append((lake.file(),))])
    assert not lake.live_rows()
    assert isinstance(lake.table.commit([Append((lake.file(),))]), Committed)


def test_a_file_system_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    def no_rename(*_: Any) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "link", no_links)
    monkeypatch.setattr(_disk, "rename_noreplace", no_rename)
    with pytest.raises(UnsafeStoreError) as caught:
        Table.create(LocalStore(tmp_path / "table"), SCHEMA)
    told(
        caught.value,
        "two writers could both win a version",
        "nothing was stored",
        "put the table on another file system",
    )
    assert not list((tmp_path / "table").rglob("*.metadata.json"))


def test_a_store_with_two_winners_is_refused_before_anything_is_written() -> None:
    class Careless(MemoryStore):
        def create(self, path: str, data: bytes) -> CreateOutcome:
            self.overwrite(path, data)
            return Created()

    with pytest.raises(UnsafeStoreError) as caught:
        Table.create(Careless("two winners"), SCHEMA)
    told(caught.value, "lets a second create of one name win", "use another", "memory://two winners")


# damage ---------------------------------------------------------------------------------------------


def test_a_cut_off_version_says_how_to_repair_it_and_nobody_steps_back(disk: Disk) -> None:
    path = disk.location / version_path(3)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(CorruptTableError) as caught:
        disk.open()
    message = told(
        caught.value,
        "version 3 of the table cannot be read; nothing was changed",
        f"Restore {version_path(3)} from a copy, or move it away if no reader ever saw it",
        str(path),
    )
    assert timeline.doctor(str(disk.location)).findings[0].what == message


@pytest.mark.parametrize("kind", ["list", "manifest"])
def test_a_missing_manifest_says_what_is_missing_and_what_to_do(disk: Disk, kind: str) -> None:
    for path in (disk.location / "metadata" / "m").glob(f"*-{kind}.avro"):
        path.unlink()
    with pytest.raises(CorruptTableError) as caught:
        list(disk.open().head.live_files())
    what = "manifest list" if kind == "list" else "manifest"
    told(
        caught.value,
        f"the table names a {what} that does not exist: something deleted it",
        "Nothing was changed; restore it from a copy",
        f"-{kind}.avro",
    )


def test_a_state_that_cannot_be_read_is_a_corrupt_table_and_other_applications_go_on(disk: Disk) -> None:
    disk.edit(properties.TRANSACTION_PREFIX + "app", '{"batch":')
    table = disk.open()
    disk.refuses(
        CorruptTableError,
        lambda: disk.batch(6, table=table),
        "what the table remembers of application 'app' cannot be read",
        "nothing was changed",
        "Restore the newest version from a copy",
    )
    assert isinstance(table.commit([Append((disk.file(),))]), Committed)


def test_a_place_without_a_table_says_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError) as caught:
        Table.open(LocalStore(tmp_path / "tabel"))
    told(
        caught.value,
        f"there is no table of this sink at {tmp_path}/tabel",
        "is that how the stream spells it?",
        "first batch creates the table",
    )


def test_a_table_that_went_away_under_a_commit_says_what_to_restore(disk: Disk) -> None:
    for path in (disk.location / "metadata").glob("v*.metadata.json"):
        path.unlink()
    with pytest.raises(TableNotFoundError) as caught:
        disk.table.refresh()
    told(
        caught.value,
        "the table has vanished: no version of it is left",
        "Nothing was written",
        "restore metadata/ from a copy before a writer starts",
    )


def test_rows_that_no_longer_fit_say_which_column_and_what_to_do() -> None:
    lake = Lake()
    late = lake.open()

    def without_id(metadata: Any) -> dict[str, Any]:
        changed = metadata.schema().model_copy(
            update={"fields": metadata.schema().fields[1:], "schema_id": 1}
        )
        return {"schemas": [*metadata.schemas, changed], "current_schema_id": 1}

    lake.change_metadata(without_id)
    with pytest.raises(SchemaMismatchError) as caught:
        late.commit([Append((lake.file(),))])
    told(
        caught.value,
        "the table's schema changed while the batch was written, and its rows",
        "no longer fit: column 'id' was dropped",
        "Nothing of the batch is live; change the stream, or the table back",
        "restart the query on its checkpoint",
    )
    assert not lake.live_rows()


# versions deleted under a running sink --------------------------------------------------------------


def test_a_newest_version_that_vanishes_is_told_by_the_next_look(disk: Disk) -> None:
    (disk.location / version_path(3)).unlink()
    with pytest.raises(CorruptTableError) as caught:
        disk.table.refresh()
    told(
        caught.value,
        "version 3 of the table has vanished, and 2 is highest: something deleted it",
        "Nothing was changed; restore it from a copy",
    )


def test_a_newest_version_that_vanishes_between_two_batches_loses_no_row_and_the_doctor_tells(
    disk: Disk,
) -> None:
    """The running sink commits over the gap: its version is whole, with the rows of the deleted one."""
    (disk.location / version_path(3)).unlink()
    new = disk.file()
    assert isinstance(disk.batch(6, file=new), Committed)
    assert disk.live() == {file.file_path for file in (*disk.files, new)}
    kinds = {finding.kind: finding.what for finding in timeline.doctor(str(disk.location)).findings}
    assert kinds == {"version-missing": "missing below the highest version 4: 3"}


def test_a_version_that_was_deleted_and_made_again_under_a_running_sink_is_told(disk: Disk) -> None:
    """A second writer takes the number of the newest version, while the first builds on its own."""
    (disk.location / version_path(3)).unlink()
    theirs = disk.file()
    assert disk.open().commit([Append((theirs,))]).version == 3
    with pytest.raises(CorruptTableError) as caught:
        disk.batch(6)
    told(
        caught.value,
        "version 3 was deleted, and another writer has created it again, while this one held the old one",
        "version 4 follows that, and lacks the other's rows",
        "Nothing was deleted",
        "Stop all writers",
    )
    (finding,) = (f for f in timeline.doctor(str(disk.location)).findings if f.severity > Severity.NOTE)
    assert finding.kind == "version-fork"
    assert finding.severity is Severity.DAMAGE
    assert "version 3" in finding.what
    assert "of two commits that may both have been acknowledged, the table has one" in finding.means
    assert theirs.file_path not in disk.live()


def test_a_copy_that_was_put_back_under_a_running_sink_is_as_good(disk: Disk) -> None:
    path = disk.location / version_path(3)
    held = path.read_bytes()
    path.unlink()
    path.write_bytes(held)
    assert isinstance(disk.batch(6), Committed)
