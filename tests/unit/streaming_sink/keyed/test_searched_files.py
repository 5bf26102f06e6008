"""What a batch searches, kept from one look to the next, beside a look of a new process and a plain one."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.typedef import Record

from streaming_sink.keyed.searched_files import Searched, SearchedFiles, reused_names
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.table_keys import position_deletes_of
from streaming_sink.tasks.errors import UnusableRunError
from streaming_sink.tasks.key_index.index import KeyIndex
from streaming_sink.tasks.key_index.open_runs import OpenRuns
from streaming_sink.tasks.key_index.upkeep import write_run
from streaming_sink.tasks.keys.scanning import KeyColumns, KeyedFile, partition_salt
from tests.unit.timeline.logs.kinds import CatalogKind
from tests.unit.timeline.test_manifest_reads import reading
from tests.unit.timeline.world import SCHEMA, Lake, data_file
from timeline import names
from timeline.changes.changes import Append, Replace
from timeline.changes.references import AllowReferences
from timeline.changes.row_deltas import RowDelta
from timeline.manifests import contents
from timeline.manifests.entries import DeleteFile, LiveFile
from timeline.refs import roll_back
from timeline.stores import MemoryStore
from timeline.versions.head import Head
from timeline.versions.keys import Looked


def index_of(lake: Lake, runs: OpenRuns) -> KeyIndex:
    key = pa.schema([arrow_schema(SCHEMA).field("id")])
    return KeyIndex(lake.store, KeyColumns(lake.table.head.metadata.table_uuid, key), runs)


class Driver:
    """A process that looks at heads of the table, by the index or without it."""

    def __init__(self, lake: Lake, folder: Path, indexed_from: int | None = 0) -> None:
        self.runs = OpenRuns(str(folder))
        self.index = index_of(lake, self.runs)
        self.files = SearchedFiles(in_partitions=False, indexed_from=indexed_from)

    def look(self, head: Head) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
        """Return where each live file is looked for, by its location, and the delete files of each."""
        found = self.files.at(head, self.index)
        return self.places(found), {path: these for path, these in found.deletes.items() if these}

    def places(self, found: Searched) -> dict[str, str]:
        places = [(file.location, "") for file in found.files]
        for covered in found.covered:
            part = self.index.part(covered.run, covered.live)
            places += [(file.location, covered.run) for file in part.files]
        assert len(dict(places)) == len(places)
        return dict(places)


def plain_look(head: Head, index: KeyIndex) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    places = {file.location: "" for file in head.live_files()}
    for path, footer in reversed(index.readable_runs()):
        places |= {file.location: path for file in footer.files if file.location in places}
    deletes = {file.location: position_deletes_of(head, file) for file in head.live_files()}
    return places, {path: these for path, these in deletes.items() if these}


class World:
    """A table that others change, and its index, at random."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.lake, self.drawn, self.folder = Lake(), random.Random(seed), folder
        self.made: dict[str, DataFile] = {}
        self.numbers = itertools.count(1)
        self.runs: list[str] = []
        self.append()

    def act(self) -> None:
        """Do something that the next look may see."""
        self.lake.clock.now_ms += 1_000
        acts = [self.append, self.append, self.replace, self.delete, self.share, self.index, self.forget]
        self.drawn.choice([*acts, self.go_back])()
        self.lake.table.refresh()

    def file(self, rows: int = 10) -> DataFile:
        made = self.lake.file(rows)
        self.made[made.file_path] = made
        return made

    def some(self, *, with_deletes: bool = True) -> list[LiveFile]:
        head = self.lake.table.head
        live = sorted(head.live_files(), key=lambda it: it.location)
        live = [it for it in live if with_deletes or not head.has_deletes(it)]
        return self.drawn.sample(live, min(len(live), self.drawn.randint(1, 4)))

    def append(self) -> None:
        self.lake.table.commit([Append(tuple(self.file() for _ in range(self.drawn.randint(1, 5))))])

    def replace(self) -> None:
        if some := self.some(with_deletes=False):
            merged = self.file(sum(it.rows for it in some))
            self.lake.table.commit([Replace(frozenset(it.location for it in some), (merged,))])

    def delete(self) -> None:
        some = self.some()
        deletes = [self.lake.deletes(self.made[it.location], next(self.numbers) % 10) for it in some]
        self._commit(some, deletes)

    def share(self) -> None:
        some = self.some()
        self._commit(some, [self.lake.share({it.location: [next(self.numbers) % 10] for it in some})])

    def _commit(self, files: Sequence[LiveFile], deletes: Sequence[DeleteFile]) -> None:
        head = self.lake.table.head
        applied = frozenset(each for it in files for each in position_deletes_of(head, it))
        self.lake.table.commit([RowDelta((), tuple(deletes), applied)])

    def index(self) -> None:
        keyed = [KeyedFile(it.location, it.rows) for it in self.some()]
        run_id = names.ulid(self.lake.clock.now_ms, next(self.numbers))
        self.runs.append(write_run(index_of(self.lake, OpenRuns()), keyed, (), run_id))

    def forget(self) -> None:
        if self.runs:
            self.lake.store.delete([self.runs.pop(self.drawn.randrange(len(self.runs)))])

    def go_back(self) -> None:
        if self.lake.table.head.number > 4:
            with suppress(ValueError):  # to what main is already
                roll_back(self.lake.table, self.lake.table.head.number - self.drawn.randint(1, 3))


@pytest.mark.parametrize("seed", range(4))
def test_a_look_after_others_sees_what_a_new_process_sees(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "_CACHED_ENTRIES", 2)
    monkeypatch.setattr(contents, "KEPT_FILES", 9)
    world = World(seed, tmp_path)
    old = Driver(world.lake, tmp_path)
    for step in range(25):
        for _ in range(world.drawn.randint(1, 3)):
            world.act()
        expected = plain_look(world.lake.open().head, old.index)
        assert old.look(world.lake.table.head) == expected
        if step % 8 == 0:
            assert Driver(world.lake, tmp_path).look(world.lake.open().head) == expected


@pytest.mark.parametrize("seed", range(3))
def test_what_was_not_seen_is_told_by_manifests_as_by_comparing_all_files(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "KEPT_FILES", 9)
    world = World(seed, tmp_path)
    for _ in range(20):
        looked, seen = Looked.at(world.lake.table.head), world.lake.live()
        for _ in range(world.drawn.randint(1, 3)):
            world.act()
        head = world.lake.open().head
        assert looked.find_added(head).keys() == world.lake.live() - seen


def test_a_later_look_reads_what_came_since_and_the_job_gets_what_no_run_covers(tmp_path: Path) -> None:
    lake = Lake()
    files = [lake.file() for _ in range(400)]
    lake.table.commit([Append(tuple(files[:300]))])
    lake.table.commit([Append(tuple(files[300:]))])
    driver, keyed = Driver(lake, tmp_path), [KeyedFile(it.file_path, it.record_count) for it in files]
    write_run(driver.index, keyed, (), names.ulid(lake.clock.now_ms + 1, 1))
    table, store = reading(lake)
    store.manifests()
    found = driver.files.at(table.head, driver.index)
    assert (found.files, len(driver.places(found)), store.manifests()) == ((), 400, 2)
    lake.clock.now_ms += 1_000
    came = lake.file()
    lake.table.commit([Append((came,))])
    found = driver.files.at(table.refresh(), driver.index)
    assert [it.location for it in found.files] == [came.file_path]
    assert store.manifests() == 1
    assert driver.files.uncovered(table.head) == found.files


def test_files_are_in_the_runs_of_their_partitions_where_keys_are_unique_in_each(lake: Lake) -> None:
    files = [lake.file(p=p) for p in (1, 2, 1, 3)]
    lake.table.commit([Append(tuple(files))])
    index = index_of(lake, OpenRuns())
    keyed = [KeyedFile(it.file_path, it.record_count, partition_salt((it.partition[0],))) for it in files]
    run = write_run(index, [keyed[3], keyed[1]], (), names.ulid(lake.clock.now_ms, 1))
    write_run(index, [keyed[2]._replace(salt=keyed[3].salt)], (), names.ulid(lake.clock.now_ms, 2))
    searched = SearchedFiles(in_partitions=True, indexed_from=0)
    found = searched.at(lake.table.head, index)
    assert found.files == (keyed[0], keyed[2])
    (covered,) = found.covered
    assert (covered.run, index.part(run, covered.live).files) == (run, [keyed[3], keyed[1]])


@pytest.mark.parametrize("stated", [None, "drop"])
def test_a_file_by_reference_is_scanned_whatever_a_run_says_of_its_name(stated: str | None) -> None:
    """Its owner may write other rows under the name, as many, once the table has the file no more. No engine
    writes to a table at a location, wherever its properties say.
    """
    lake = Lake(table_properties={"write.data.path": MemoryStore(stated).location} if stated else None)
    own, theirs = lake.file(), data_file(MemoryStore("drop").uri("latest.parquet"), 10, partition=Record(0))
    lake.table.commit([AllowReferences()])
    lake.table.commit([Append((own, theirs))])
    index = index_of(lake, OpenRuns())
    keyed = [KeyedFile(it.file_path, it.record_count) for it in (theirs, own)]
    run = write_run(index, keyed, (), names.ulid(lake.clock.now_ms, 1))
    found = SearchedFiles(in_partitions=False, indexed_from=0).at(lake.table.head, index)
    assert found.files == (keyed[0],)
    (covered,) = found.covered
    assert index.part(run, covered.live).files == [keyed[1]]


def test_in_a_catalog_a_file_that_others_have_added_from_elsewhere_is_scanned(tmp_path: Path) -> None:
    kind = CatalogKind(tmp_path)
    table = kind.create(table_properties={"write.data.path": f"file://{tmp_path}/written"})
    outside = [tmp_path / "drop.parquet", tmp_path / "written" / "00000-0.parquet"]
    for number, path in enumerate(outside):
        path.parent.mkdir(exist_ok=True)
        rows = {"id": pa.array([number], pa.int64()), "p": pa.array([0], pa.int32())}
        pq.write_table(pa.table(rows), path)
        kind.read().add_files([f"file://{path}"])
    table.commit([Append((kind.file([7]),))])
    is_reused = reused_names(table.refresh())
    assert is_reused is not None
    live = [it.location for it in table.head.live_files()]
    assert [it for it in live if is_reused(it)] == [f"file://{outside[0]}"]
    assert len(live) == 3
    kind.close()


def test_a_manifest_that_has_left_and_is_gone_makes_its_files_new(lake: Lake) -> None:
    files = [lake.file() for _ in range(3)]
    lake.table.commit([Append(tuple(files))])
    table = lake.open()
    looked = Looked.at(table.head)
    (left,) = table.head.manifests
    merged = lake.merged(*files[:2])
    lake.table.commit([Replace(frozenset(it.file_path for it in files[:2]), (merged,))])
    assert looked.find_added(lake.table.head).keys() == {merged.file_path}
    lake.store.delete([lake.store.relative(left.manifest_path)])
    again = lake.open()
    assert looked.find_added(again.head).keys() == {merged.file_path, files[2].file_path}


def test_a_run_that_a_task_cannot_read_is_read_anew_by_the_driver(lake: Lake, tmp_path: Path) -> None:
    file = lake.file()
    lake.table.commit([Append((file,))])
    driver = Driver(lake, tmp_path)
    keyed = [KeyedFile(file.file_path, file.record_count)]
    path = write_run(driver.index, keyed, (), names.ulid(lake.clock.now_ms + 1, 1))
    covered = driver.files.at(lake.table.head, driver.index).covered
    assert [it.run for it in covered] == [path]
    lake.store.overwrite(path, b"damaged")
    assert driver.files.at(lake.table.head, driver.index).covered == covered
    with pytest.raises(UnusableRunError):
        replace(driver.index, runs=OpenRuns(str(tmp_path))).part(path, covered[0].live)
    driver.files.forget_runs()
    assert driver.files.at(lake.table.head, driver.index).files == tuple(keyed)


@pytest.fixture
def lake() -> Lake:
    return Lake()
