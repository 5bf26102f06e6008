"""`purge`: her rows leave the bytes, nobody else's row is touched, and nothing is deleted before its time."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.types import DecimalType, LongType, PrimitiveType

from streaming_sink import PathTable, check_gone
from streaming_sink.commands.cli import main
from streaming_sink.removal import rewriting, table_purge
from streaming_sink.removal.leftovers import LeftoverKind
from streaming_sink.removal.matching import matcher_of
from streaming_sink.removal.purge import Purge
from streaming_sink.removal.rewriting import Rewritten
from streaming_sink.removal.wanted import WantedKeys
from streaming_sink.tasks.files.delete_files import read_position_deletes
from streaming_sink.tasks.keys.scanning import partition_salt, salted
from streaming_sink.tasks.keys.sequences import LONG, WIDE
from streaming_sink.tasks.keys.tombstones import deleted_until
from tests.unit.streaming_sink.removal.people import ALICE, KEY, WANTED, People, staged
from tests.unit.streaming_sink.tasks.keys.numbers import sequences_of
from tests.unit.timeline.world import DAY_MS, change_metadata, dropping
from timeline import names
from timeline.changes.changes import Append, Change, Replace
from timeline.changes.key_changes import KeysResolved
from timeline.changes.schema_changes import SetPartitioning
from timeline.clock import Environment
from timeline.errors import StoreUnavailableError
from timeline.maintenance.expiry import expire_snapshots
from timeline.manifests.entries import LiveFile
from timeline.stores import MemoryStore
from timeline.table import Table, open_table
from timeline.versions.keys import Looked
from timeline.versions.tombstones import tombstones_of

PLAIN = {
    "write.parquet.compression-codec": "uncompressed",
    "streaming-sink.history.deletion-grace-ms": "1200000",
}
GONE = [{"user_id": ALICE}]
_numbers = count(1)


@pytest.fixture(params=["memory"])
def people(request: pytest.FixtureRequest, tmp_path: Path) -> People:
    """A table of other people, whose files can be searched for text."""
    place = tmp_path / "people" if request.param == "disk" else f"memory://people-{next(_numbers)}"
    people = People(place, **PLAIN)
    people.append(1, 2, 3)
    return people


on_disk = pytest.mark.parametrize("people", ["disk"], indirect=True)
"""Where pyiceberg is to read the table."""


def start(people: People) -> Purge:
    environment = ticking(people)
    return Purge.open(
        PathTable(people.location), WANTED, open_table=lambda place: open_table(place, None, environment)
    )


def ticking(people: People) -> Environment:
    """The lake's clock, which a sleep moves too."""
    clock = people.clock

    def sleep(seconds: float) -> None:
        clock.now_ms += int(seconds * 1000)
        clock.sleep(seconds)

    return replace(clock.environment(1000 + next(_numbers)), sleep=sleep)


def files_that_say(people: People, text: str) -> list[str]:
    """Every file of the table and its quarantine whose bytes, or Avro records, hold a text."""
    found = []
    for table in filter(None, (people.table, people.quarantine)):
        for path in sorted(each.path for each in table.store.list_below("")):
            said = table.store.read(path).data
            if path.endswith(".avro"):
                said += repr(list(fastavro.reader(BytesIO(said)))).encode()
            if text.encode() in said:
                found.append(path)
    return found


@on_disk
def test_a_live_row_is_deleted_and_its_file_rewritten_in_one_version(people: People) -> None:
    people.append(5, ALICE, 6)
    before = people.table.head.number
    job = start(people)
    job.run()
    assert people.rows() == [1, 2, 3, 5, 6]
    assert list(people.table.head.delete_files()) == []
    (table,) = job.report().tables
    assert (table.deleted_rows, table.rewritten_files, table.delete_files) == (1, 1, 1)
    assert table.versions == (before + 1,)
    assert table.found == {"row-live": 1}
    operations = [it.summary.operation.value for it in people.table.head.metadata.snapshots if it.summary]
    assert operations[-3:] == ["delete", "replace", "append"]


def test_a_purge_of_what_is_purged_deletes_nothing_more(people: People) -> None:
    people.append(5, ALICE)
    start(people).run()
    number = people.table.refresh().number
    job = start(people)
    job.run()
    assert people.table.refresh().number == number
    assert job.report().tables[0].deleted_rows == 0


@on_disk
def test_a_row_that_was_deleted_before_leaves_the_bytes_of_its_file(people: People) -> None:
    where = people.append(5, ALICE, 6)
    people.delete(where, 1)
    start(people).run()
    assert people.rows() == [1, 2, 3, 5, 6]
    assert people.table.head.find_live(where) is None
    assert list(people.table.head.delete_files()) == []


@pytest.mark.parametrize("was_deleted", [False, True])
def test_a_purge_that_slept_until_its_files_were_gone_looks_again(
    people: People, monkeypatch: pytest.MonkeyPatch, was_deleted: bool
) -> None:
    where, slept = people.append(5, ALICE, 6), list[bool]()
    if was_deleted:
        people.delete(where, 1)

    def sleep_first(*given: Any) -> Rewritten:
        if not slept:
            slept.append(True)
            start(people).run()
            for _ in range(2):
                people.pass_versions()
                start(people).run()
        return rewriting.rewrite(*given)

    monkeypatch.setattr(table_purge, "rewrite", sleep_first)
    job = start(people)
    job.run()
    assert slept
    with pytest.raises(FileNotFoundError):
        people.store.read(people.store.relative(where))
    assert people.rows() == [1, 2, 3, 5, 6]
    assert job.report().tables[0].problems == ()


@pytest.mark.parametrize(("at", "kind"), [(LongType(), LONG), (DecimalType(38, 0), WIDE)], ids=str)
def test_an_older_change_that_comes_late_brings_no_row_back(at: PrimitiveType, kind: np.dtype) -> None:
    people = People(f"memory://people-{next(_numbers)}", at=at, **PLAIN)
    people.append(5, ALICE)  # her sequence is 1
    people.index()
    start(people).run()
    head = people.table.refresh()
    hashes = matcher_of(WANTED, head).hashes
    until = deleted_until(people.store, [it.location for it in tombstones_of(head.properties)], hashes, kind)
    assert until.covers(np.array([0, 0]), sequences_of([1, 2], kind)).tolist() == [True, False]
    assert people.rows() == [5]


def test_all_bytes_are_gone_once_versions_and_time_have_passed(people: People) -> None:
    where = people.append(5, ALICE, 6)
    people.delete(where, 0)
    people.append(ALICE)
    people.append(7)
    people.index()
    people.quarantine_row(f'{{"user_id":{ALICE},"name":"name of {ALICE}"}}')
    people.quarantine_row('{"user_id":7,"name":"Bob"}', deliver=False)
    assert len(files_that_say(people, f"name of {ALICE}")) > 3
    start(people).run()
    assert people.rows() == [1, 2, 3, 6, 7]
    for _ in range(2):
        people.pass_versions()
        start(people).run()
    assert files_that_say(people, f"name of {ALICE}") == []
    assert [it.kind for it in check_gone(people.location, GONE).findings] == ["gone-key-in-tombstones"]
    assert people.rows() == [1, 2, 3, 6, 7]
    assert people.rows(people.quarantine, "row") == ['{"user_id":7,"name":"Bob"}']
    assert files_that_say(people, "name of 6") != []


@on_disk
def test_rows_of_a_file_by_reference_leave_the_table_and_its_owner_is_told(people: People) -> None:
    """The purge never deletes the file (R28), and says that it has the rows also once the table forgot it."""
    where = people.refer(f"{people.location}-drop.parquet", 5, ALICE, 6)
    before, job = Path(where).read_bytes(), start(people)
    job.run()
    assert people.rows() == [1, 2, 3, 5, 6]
    untils = {each.until for each in job.report().tables[0].left if each.path == where}
    assert all("its owner deletes it" in until for until in untils)
    assert len(untils) == 2  # of older snapshots, and of the file itself
    for _ in range(2):
        people.pass_versions()
        job.run()
    assert where not in {file.location for file in people.table.refresh().live_files()}
    (table,) = job.report().tables
    told = {each.path: each for each in table.left if each.kind.value == "row-by-reference"}
    assert (told[where].rows, "its owner deletes it" in told[where].until) == (1, True)
    assert {each.kind.value for each in table.left} == {"row-by-reference", "key-in-tombstones"}
    assert Path(where).read_bytes() == before
    assert start(people).report().tables[0].left[0].kind.value == "key-in-tombstones"


def test_what_an_earlier_fold_has_left_in_a_manifest_leaves_it(people: People) -> None:
    """The manifest names a live file too, so that later versions carry it."""
    hers, other = people.write(ALICE), people.write(8)
    people.commit(*hers, *other)
    delete = people.delete(hers[0].file_path, 0)
    people.table.commit([Replace(frozenset({hers[0].file_path}), (), frozenset({delete}), 1)])
    start(people).run()
    for _ in range(2):
        people.pass_versions()
        start(people).run()
    assert files_that_say(people, f"name of {ALICE}") == []
    assert people.rows() == [1, 2, 3, 8]


def test_it_waits_until_all_is_gone_and_makes_the_versions_itself(people: People) -> None:
    people.append(5, ALICE, 6)
    people.quarantine_row(f'{{"user_id":{ALICE},"name":"name of {ALICE}"}}')
    job = start(people)
    job.run()
    assert not job.report().is_gone
    job.wait(timedelta(hours=3).total_seconds())
    assert job.report().is_gone
    assert files_that_say(people, f"name of {ALICE}") == []
    assert people.rows() == [1, 2, 3, 5, 6]
    assert people.clock.seconds < timedelta(hours=3).total_seconds()


def test_nothing_is_deleted_before_a_hundred_versions_and_the_grace_period(people: People) -> None:
    where = people.append(ALICE)
    start(people).run()
    people.pass_versions(90, minutes=100)
    start(people).run()
    assert len(people.table.refresh().metadata.snapshots) > 3
    people.pass_versions(12)
    start(people).run()
    people.pass_versions(90)
    start(people).run()
    assert people.holds(where)
    people.pass_versions(12)
    start(people).run()
    assert not people.holds(where)


def test_an_orphan_goes_a_day_later_behind_the_fence(people: People) -> None:
    (file,) = people.write(ALICE)
    job = start(people)
    job.run()
    assert "a writer may still commit it" in job.report().tables[0].left[0].until
    assert people.holds(file.file_path)
    people.pass_versions(1, minutes=24 * 60 + 1)
    start(people).run()
    assert not people.holds(file.file_path)
    with pytest.raises(Exception, match="garbage cutoff"):
        people.table.commit([Append((file,)), KeysResolved(*_resolved(people))])


def test_an_orphan_of_a_table_that_nobody_writes_to_goes_a_day_later(people: People) -> None:
    """The table's time stands still there; a purge makes a version, and it passes."""
    (file,) = people.write(ALICE)
    start(people).run()
    people.clock.now_ms += 24 * 3_600_000 - 1000
    start(people).run()
    assert people.holds(file.file_path)
    people.clock.now_ms += 2000
    start(people).run()
    assert not people.holds(file.file_path)


def _resolved(people: People) -> tuple[object, ...]:
    head = people.table.refresh()
    known = frozenset(it.location for it in tombstones_of(head.properties))
    return KEY, Looked.at(head), known


def staged_item(people: People) -> None:
    people.tag("wap-zone-1")


@pytest.mark.parametrize(
    ("pin", "name"),
    [
        (People.tag, "tag 'audit'"),
        (staged, "staged snapshot"),
        (staged_item, "staged snapshot 'zone-1'"),
    ],
)
def test_what_another_engine_keeps_is_named_and_nothing_changes(
    people: People, pin: Callable[[People], None], name: str
) -> None:
    people.append(ALICE)
    pin(people)
    number = people.table.refresh().number
    with pytest.raises(ValueError, match=f"kept by {name}.*, and nothing was changed"):
        start(people).run()
    assert people.table.refresh().number == number


def test_what_a_tag_had_kept_goes_once_the_tag_has_gone(people: People) -> None:
    """Its neighbours have expired, so that it is no longer of main's lineage, and nothing expired it."""
    where = people.append(ALICE)
    people.tag()
    deletes = people.delete(where, 0)
    people.table.commit([Replace(frozenset({where}), (), frozenset({deletes}), 1)])
    people.append(7)
    people.append(8)
    people.pass_versions()
    expire_snapshots(people.table, max_snapshot_age=timedelta(0), min_snapshots_to_keep=1)
    with pytest.raises(ValueError, match="kept by tag 'audit'"):
        start(people).run()
    people.untag()
    job = start(people)
    job.run()
    job.wait(timedelta(hours=3).total_seconds())
    assert job.report().is_gone
    assert not people.holds(where)
    assert people.rows() == [1, 2, 3, 7, 8]


def test_a_row_whose_key_was_rescued_goes_and_one_that_mentions_her_stays(people: People) -> None:
    people.append(None, rescued=f'{{"user_id":"{ALICE}"}}')
    people.append(8, rescued=f'{{"friend":{{"user_id":{ALICE}}}}}')
    start(people).run()
    assert people.rows() == [1, 2, 3, 8]


def test_many_files_are_rewritten_in_a_few_versions(people: People) -> None:
    for number in range(40):
        people.append(100 + number, ALICE)
    job = start(people)
    job.run()
    assert people.rows() == [1, *range(100, 140), 2, 3]
    (table,) = job.report().tables
    assert (table.deleted_rows, table.rewritten_files, len(table.versions)) == (40, 40, 3)


def test_a_file_with_deletes_of_many_files_is_rewritten_or_named(people: People) -> None:
    """Other writers may delete rows of several data files in one delete file."""
    one, other = people.append(5, ALICE), people.append(6, 7)
    people.delete_of_many({one: [1], other: [0]})
    job = start(people)
    job.run()
    (table,) = job.report().tables
    rewritten = people.table.refresh().find_live(one) is None
    assert rewritten != bool(table.problems)
    assert {it.kind for it in table.left} & {LeftoverKind.LIVE, LeftoverKind.DELETED} == (
        set() if rewritten else {LeftoverKind.DELETED}
    )
    deletes = [each.location for each in people.table.head.delete_files()]
    assert deletes  # of the other file
    live = next(it for it in people.table.head.live_files() if it.location == other)
    assert read_position_deletes(people.store, deletes, live.location).tolist() == [0]


class Competitor:
    """Lets another writer act before the first commit of a purge that rewrites files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
        self.acts, commit = [act], Table.commit

        def contested(table: Table, changes: list[Change], **how: object) -> object:
            if self.acts and any(type(it).__name__ == "RewriteManifests" for it in changes):
                self.acts.pop()()
            return commit(table, changes, **how)  # type: ignore[arg-type]

        monkeypatch.setattr(Table, "commit", contested)


def test_another_writers_delete_in_the_same_file_is_kept(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = people.append(5, ALICE, 6)
    Competitor(monkeypatch, lambda: people.delete(where, 0))
    start(people).run()
    assert people.rows() == [1, 2, 3, 6]
    assert list(people.table.head.delete_files()) == []


def test_a_newer_row_of_hers_that_lands_at_the_same_time_is_found_too(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    people.append(5, ALICE, 6)
    Competitor(monkeypatch, lambda: people.append(ALICE, 9))
    start(people).run()
    assert people.rows() == [1, 2, 3, 5, 6, 9]


def test_a_purge_that_is_killed_at_any_request_is_completed_by_the_next(tmp_path: Path) -> None:
    at = 0
    while True:
        at += 1
        name = f"killed-{at}"
        people = People(f"memory://{name}")
        people.append(5, ALICE, 6)
        people.delete(people.append(7, ALICE), 1)
        people.index()
        kept = people.store  # a store in memory ends with its last user
        left = [at]

        def before(verb: str, path: str, left: list[int] = left) -> None:
            if verb in ("create", "overwrite", "delete"):
                left[0] -= 1
                if left[0] == 0:
                    raise StoreUnavailableError(f"killed before {verb} {path}")

        table = Table.open(MemoryStore(name, before=before), people.clock.environment(5000 + at))
        job = start(people)
        job._tables[0].table = table
        with suppress(StoreUnavailableError):
            job.run()
        again = start(people)
        again.run()
        assert people.rows() == [5, 6, 7], at
        report = again.report().tables[0]
        assert {it.kind for it in report.left} <= {
            LeftoverKind.HISTORY,
            LeftoverKind.ORPHAN,
            LeftoverKind.TOMBSTONE,
        }, at
        assert kept is people.store
        if left[0] > 0:
            break
    assert at > 10


class RandomWriters:
    """Act at random before commits of a purge, and remember which rows the table must have."""

    def __init__(self, people: People, seed: int) -> None:
        self.people, self.random, self.next = people, random.Random(seed), 1000
        self.expected = Counter[int](people.rows())
        self.done = Counter[str]()

    def act(self) -> None:
        self.people.table = self.people.open()
        act = self.random.choice([self.append, self.append_hers, self.delete, self.fold, self.idle])
        act()
        self.done[act.__name__] += 1

    def idle(self) -> None:
        """Nothing happens."""

    def append(self) -> None:
        self.next += 2
        self.people.append(self.next, self.next + 1)
        self.expected.update([self.next, self.next + 1])

    def append_hers(self) -> None:
        self.next += 2
        self.people.append(self.next, ALICE)
        self.expected[self.next] += 1

    def delete(self) -> None:
        """Delete one row of somebody else."""
        rows = [
            (it.location, at, who) for it in self._files() for at, who in self.people.live(it) if who != ALICE
        ]
        location, at, who = self.random.choice(rows)
        self.people.delete(location, at)
        self.expected[who] -= 1

    def fold(self) -> None:
        """Rewrite a file without its deleted rows, as a fill does."""
        file = self.random.choice(self._files())
        ids = [who for _, who in self.people.live(file)]
        deletes = self.people.table.head.deletes_of(file)
        gone = file.rows - len(ids)
        new = tuple(self.people.write(*ids)) if ids else ()
        applied = frozenset(it.location for it in deletes)
        self.people.table.commit([Replace(frozenset({file.location}), new, applied, gone)])

    def _files(self) -> list[LiveFile]:
        return sorted(self.people.table.head.live_files(), key=lambda it: it.location)


@pytest.mark.parametrize("seed", range(8))
def test_beside_random_writers_her_rows_leave_and_no_other_row_is_lost_or_doubled(
    people: People, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    for number in range(4):
        people.append(100 + number, ALICE, 200 + number)
    people.table.refresh()
    writers = RandomWriters(people, seed)
    del writers.expected[ALICE]
    left, busy, commit = [12], [False], Table.commit

    def contested(table: Table, changes: list[Change], **how: object) -> object:
        if left[0] and not busy[0]:
            left[0], busy[0] = left[0] - 1, True
            writers.act()
            busy[0] = False
        return commit(table, changes, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(Table, "commit", contested)
    start(people).run()
    left[0] = 0
    start(people).run()
    people.table = people.open()
    found = Counter(who for it in people.table.head.live_files() for _, who in people.live(it))
    assert found == +writers.expected, writers.done


def test_keys_are_named_by_the_columns_of_the_tables_key(people: People) -> None:
    with pytest.raises(ValueError, match=r"the table has the key \(user_id\).*: name keys by its columns"):
        Purge.open(PathTable(people.location), WantedKeys.of([{"name": "x"}]))


@on_disk
def test_the_command_says_what_there_is_what_it_did_and_what_is_left(
    people: People, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    people.append(5, ALICE, 6)
    number = people.table.head.number
    assert main(["purge", people.location, "--key", f"user_id={ALICE}", "--dry-run"]) == 1
    out = capsys.readouterr().out
    assert "found      1 row-live" in out
    assert "time travel of the table to versions 3 to 4 would end" in out
    assert people.table.refresh().number == number
    keys = tmp_path / "keys.jsonl"
    keys.write_text(f'{{"user_id": {ALICE}}}\n\n{{"user_id": 77}}\n')
    assert main(["purge", people.location, "--keys-file", str(keys)]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("time travel of the table to versions 3 to 4 is about to end")
    assert "1 row deleted, 1 file rewritten without 1 delete file in version 5" in out
    assert "row-in-history" in out
    assert "its snapshots expire at version 105 or later (now 6)" in out
    assert main(["purge", people.location, "--key", f"user_id={ALICE}", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["is_gone"] is False
    assert said["report"]["tables"][0]["left"][0]["kind"] == "row-in-history"
    assert main(["purge", people.location, "--key", "user_id=77"]) == 0
    assert "no row of 1 key is left in these tables" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name the keys, by --key COLUMN=VALUE or by --keys-file FILE"),
        (["--key", "user_id"], "a key is COLUMN=VALUE"),
        (["--key", "user_id=x"], "column user_id is of type long and cannot hold 'x'"),
        (["--key", "user_id=1", "--key", "at=1"], "all keys must have the columns user_id, not at"),
        (["--key", "user_id=1", "--wait", "5"], "--wait must be a number of seconds, minutes, hours or days"),
    ],
)
def test_arguments_that_cannot_be_exit_2(
    people: People, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["purge", people.location, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_key_that_is_unique_in_each_partition_is_remembered_in_each() -> None:
    people = People(f"memory://scoped-{next(_numbers)}", key=replace(KEY, scope="partition"), by="name")
    people.append(1, ALICE)
    people.index()
    assert "gone-key-in-index" in {it.kind for it in check_gone(people.location, GONE).findings}
    start(people).run()
    assert "gone-key-in-tombstones" in {it.kind for it in check_gone(people.location, GONE).findings}
    head = people.table.refresh()
    files = [it.location for it in tombstones_of(head.properties)]
    hashes = matcher_of(WANTED, head).hashes
    own, other = (salted(hashes, partition_salt((name,))) for name in (f"name of {ALICE}", "elsewhere"))
    assert deleted_until(people.store, files, own, LONG).deleted.all()
    assert not deleted_until(people.store, files, other, LONG).deleted.any()
    assert people.rows() == [1]


def test_what_cannot_be_written_again_is_named_and_all_else_is_purged(tmp_path: Path) -> None:
    """Another engine has dropped a column of older partitions, and the schemas that had it."""
    people = People(tmp_path / "people", by="name", **PLAIN)
    left, (hers, other) = people.append(ALICE), people.write(ALICE, 8)
    people.commit(hers, other)
    delete = people.delete(hers.file_path, 0)
    folded = Replace(frozenset({hers.file_path}), (), frozenset({delete}), 1)
    people.table.commit([folded])  # so that the manifest of the other has the bounds of her file
    people.table.commit([SetPartitioning(PartitionSpec(spec_id=1), "app")])
    change_metadata(people.open(), lambda metadata: dropping(metadata, 3, is_remembered=False))
    people.table.refresh()
    people.append(5, ALICE)
    job = start(people)
    job.run()
    (table,) = job.report().tables
    assert (table.deleted_rows, table.rewritten_files) == (1, 1)
    assert people.rows() == [ALICE, 5, 8]
    stated = [it for it in table.problems if "a column of partition spec 0" in it]
    assert [it.partition(": ")[0] == left for it in stated].count(True) == 1
    assert len(stated) == 2 == len(table.problems)
    assert LeftoverKind.LIVE in {it.kind for it in table.left}


def test_a_live_file_that_is_missing_ends_a_purge_and_is_named(people: People) -> None:
    lost = people.append(ALICE)
    people.append(5)
    people.store.delete([people.store.relative(lost)])
    job = start(people)
    job.run()
    (table,) = job.report().tables
    why = {it.until for it in table.left if it.kind is LeftoverKind.NOT_CHECKED}
    assert len(why) == 1
    assert "it can be read: restore it" in why.pop()
    assert table.versions == ()


def test_a_damaged_note_of_an_expiry_stops_no_other_table(people: People) -> None:
    people.append(ALICE, 3)
    people.quarantine_row(json.dumps({"user_id": ALICE}))
    people.write(ALICE, 9)  # an orphan
    people.clock.now_ms += 5 * DAY_MS
    people.append(4)
    head = people.table.refresh()
    people.store.overwrite(names.expired_path(head.number, head.version.commit_id), b"{}")
    job = start(people)
    job.run()
    main_table, quarantine = job.report().tables
    assert "cannot be read" in main_table.problems[0]
    assert quarantine.deleted_rows == 1
    assert people.rows() == [1, 2, 3, 3, 4]


def test_files_of_deletes_lack_no_partition_column_and_specs_that_left_stop_no_look(tmp_path: Path) -> None:
    """They have positions alone; and another engine removes a spec that only expired snapshots need."""
    people = People(tmp_path / "people", by="user_id", **PLAIN)
    where = people.append(ALICE)
    people.append(1)
    people.delete(where, 0)
    assert {it.kind for it in check_gone(people.location, GONE).findings} == {"gone-row-deleted"}
    people.table.commit([SetPartitioning(PartitionSpec(spec_id=1), "app")])
    change_metadata(
        people.open(), lambda it: {"partition_specs": [each for each in it.partition_specs if each.spec_id]}
    )
    assert {it.kind for it in check_gone(people.location, GONE).findings} == {"gone-row-deleted"}
