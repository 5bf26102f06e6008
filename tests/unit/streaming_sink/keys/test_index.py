"""The key index against a dictionary: lost, damaged, doubled and stale runs never make it answer wrong."""

from __future__ import annotations

import itertools
import pickle
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planners import key_runs
from streaming_sink.tasks.errors import DataFileError
from streaming_sink.tasks.keys import merging, runs, upkeep
from streaming_sink.tasks.keys.index import KeyIndex, KeyLookup
from streaming_sink.tasks.keys.open_runs import OpenRuns
from streaming_sink.tasks.keys.probing import KeyEntries
from streaming_sink.tasks.keys.scanning import NO_SEQUENCE, KeyColumns, KeyedFile
from streaming_sink.tasks.keys.upkeep import GRACE_MS, Upkeep, maintain
from tests.unit.streaming_sink.keys.data_files import COLUMNS, TABLE, probe_of, put_rows
from tests.unit.streaming_sink.keys.data_files import field as column
from timeline import names
from timeline.stores import LocalStore, MemoryStore, Store

Row = tuple[int, str | None, int | None]
NOON = 1_700_000_000_000
FOLDER = f"_timeline/index/{COLUMNS.digest}"
KEYS = [(number, name) for number in range(3) for name in ("a", "b")]
ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["a", "b", None]), st.none() | st.integers(0, 9))
)


@dataclass
class Lake:
    """A table's data files and its index, as a dictionary knows them."""

    store: Store
    copies: Path
    live: dict[KeyedFile, list[Row]] = field(default_factory=dict)
    now: int = NOON

    def __post_init__(self) -> None:
        self.index = KeyIndex(self.store, COLUMNS)
        self.restart()
        self._numbers = itertools.count(1)

    def restart(self) -> None:
        """Start a new process on the same machine."""
        self.open = OpenRuns(str(self.copies))

    def write(self, rows: list[Row]) -> KeyedFile:
        file = put_rows(self.store, rows, path=f"data/{next(self._numbers)}.parquet")
        self.live[file] = rows
        return file

    def maintain(self, live: list[KeyedFile] | None = None, damaged: tuple[str, ...] = ()) -> Upkeep:
        files = list(self.live) if live is None else live
        return maintain(self.index, files, self.new_id, self.now, damaged=damaged, runs=self.open)

    def new_id(self) -> str:
        return names.ulid(self.now, next(self._numbers))

    def run_paths(self) -> list[str]:
        return sorted(each.path for each in self.store.list_folder(FOLDER))

    def lookup(self) -> KeyLookup:
        """Look up every key, and compare the answer with the dictionary."""
        files = list(self.live)
        found = self.index.lookup(files, probe_of(KEYS), self.open)
        assert found.rows.sequences is not None
        answer = zip(found.rows.indexes, found.files, found.rows.positions, found.rows.sequences, strict=True)
        assert sorted(tuple(map(int, each)) for each in answer) == sorted(
            (KEYS.index((number, name)), files.index(file), position, NO_SEQUENCE if at is None else at)
            for file, rows in self.live.items()
            for position, (number, name, at) in enumerate(rows)
            if name is not None
        )
        return found


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "BLOCK_ENTRIES", 3)
    monkeypatch.setattr(merging, "BLOCK_ENTRIES", 3)
    monkeypatch.setattr(merging, "SEGMENT_ENTRIES", 8)
    monkeypatch.setattr(key_runs, "RUNS_A_TIER", 3)
    monkeypatch.setattr(key_runs, "FIRST_TIER_ROWS", 8)
    monkeypatch.setattr(key_runs, "BUILD_ROWS", 12)


@pytest.fixture(params=["memory", "local"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return make_lake(request.param, tmp_path)


def make_lake(kind: str, folder: Path) -> Lake:
    store = MemoryStore() if kind == "memory" else LocalStore(folder / "table")
    return Lake(store, folder / "copies")


STEPS = [
    "write",
    "write",
    "drop",
    "maintain",
    "maintain",
    "restart",
    "wait",
    "lose",
    "damage",
    "cut",
    "elsewhere",
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data(), st.sampled_from(["memory", "local"]))
def test_no_step_makes_the_index_answer_wrong(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, kind: str
) -> None:
    lake = make_lake(kind, tmp_path_factory.mktemp("lake"))
    heads = [[lake.write(data.draw(ROWS)) for _ in range(3)]]
    lake.maintain()
    for step in data.draw(st.lists(st.sampled_from([*STEPS, "write", "maintain"]), max_size=20)):
        found = lake.run_paths()
        if step == "write":
            lake.write(data.draw(ROWS))
            heads.append(list(lake.live))
        elif step == "drop" and lake.live:
            del lake.live[data.draw(st.sampled_from(list(lake.live)))]
        elif step == "maintain":
            lake.maintain(
                damaged=tuple(data.draw(st.lists(st.sampled_from(found), unique=True))) if found else ()
            )
        elif step == "elsewhere":  # another process, which knows an older head, and builds the same again
            upkeep.build(lake.index, data.draw(st.sampled_from(heads)), lake.new_id())
        elif step == "restart":
            lake.restart()
        elif step == "wait":
            lake.now += GRACE_MS
        elif found and step == "lose":
            lake.store.delete([data.draw(st.sampled_from(found))])
        elif found and step in ("damage", "cut"):
            path = data.draw(st.sampled_from(found))
            damaged = bytearray(lake.store.read(path).data)
            at = data.draw(st.integers(0, max(0, len(damaged) - 1)))
            if step == "cut":
                del damaged[at:]
            elif damaged:
                damaged[at] ^= 1
            lake.store.overwrite(path, bytes(damaged))
        lake.lookup()


def test_what_upkeep_has_built_is_not_scanned(lake: Lake) -> None:
    first = lake.write([(1, "a", 5), (1, None, 6)])
    assert lake.lookup().scanned == (first,)
    assert len(lake.maintain().built) == 1
    assert lake.lookup().scanned == ()
    second = lake.write([(1, "a", 7)])
    assert lake.lookup().scanned == (second,)
    lake.restart()
    assert lake.lookup().scanned == (second,)


def test_a_lookup_lists_once_and_reads_what_is_new(tmp_path: Path) -> None:
    requests: list[tuple[str, str]] = []
    store = MemoryStore(before=lambda *request: requests.append(request))
    lake = Lake(store, tmp_path)
    lake.write([(1, "a", 5)])
    (path,) = lake.maintain().built
    lake.restart()
    requests.clear()
    lake.lookup()
    assert requests == [("list", FOLDER), ("open", path), ("open", path)]  # its footer, then all of it
    requests.clear()
    lake.lookup()
    assert requests == [("list", FOLDER)]


def test_a_run_of_which_no_file_is_live_is_not_read(lake: Lake) -> None:
    old = lake.write([(1, "a", 5)])
    (path,) = lake.maintain().built
    del lake.live[old]
    lake.restart()
    lake.lookup()
    assert list(lake.open._footers) == [lake.store.uri(path)]
    assert list(lake.open._runs) == []


def test_rows_of_files_that_are_not_live_are_not_found(lake: Lake) -> None:
    files = [lake.write([(1, "a", number)]) for number in range(3)]
    assert len(lake.maintain().built) == 1
    del lake.live[files[1]]
    assert lake.lookup().scanned == ()


def test_a_damaged_run_is_reported_then_deleted_and_built_again(lake: Lake) -> None:
    file = lake.write([(1, "a", 5)])
    (path,) = lake.maintain().built
    damaged = bytearray(lake.store.read(path).data)
    damaged[9] ^= 1
    lake.store.overwrite(path, bytes(damaged))
    lake.restart()
    found = lake.lookup()
    assert (found.scanned, found.damaged) == ((file,), (path,))
    done = lake.maintain(damaged=found.damaged)
    assert done.deleted == (path,)
    assert len(done.built) == 1
    assert lake.lookup().scanned == ()


def test_a_run_whose_copy_alone_is_damaged_stays(tmp_path: Path) -> None:
    lake = make_lake("memory", tmp_path)
    lake.write([(1, "a", 5)])
    lake.maintain()
    lake.lookup()
    (copy,) = lake.copies.iterdir()
    data = bytearray(copy.read_bytes())
    data[9] ^= 1
    copy.unlink()
    copy.write_bytes(data)
    lake.restart()
    found = lake.lookup()
    assert len(found.scanned) == 1
    assert lake.lookup().scanned == ()
    assert lake.maintain(damaged=found.damaged) == Upkeep((), (), ())
    assert lake.lookup().scanned == ()


def test_a_merge_that_meets_a_damaged_copy_is_tried_again_without_it(tmp_path: Path) -> None:
    lake = make_lake("memory", tmp_path)
    for _ in range(3):
        lake.write([(1, "a", 5)])
        lake.maintain()
    lake.lookup()
    copy = next(lake.copies.iterdir())
    data = bytearray(copy.read_bytes())
    data[9] ^= 1
    copy.unlink()
    copy.write_bytes(data)
    lake.restart()
    assert lake.maintain() == Upkeep((), (), ())
    assert len(lake.maintain().merged) == 1


def test_damage_that_a_merge_meets_is_deleted_and_the_next_upkeep_builds_it_again(lake: Lake) -> None:
    for _ in range(3):
        lake.write([(1, "a", 5)])
        last = lake.maintain()
    assert len(last.built) == 1
    first = lake.run_paths()[0]
    damaged = bytearray(lake.store.read(first).data)
    damaged[9] ^= 1
    lake.store.overwrite(first, bytes(damaged))
    lake.restart()
    assert lake.maintain() == Upkeep((), (), (first,))
    assert len(lake.run_paths()) == 2
    assert len(lake.maintain().built) == 1
    assert len(lake.maintain().merged) == 1
    assert lake.lookup().scanned == ()


def test_merged_runs_are_deleted_after_the_grace(lake: Lake) -> None:
    for _ in range(3):
        lake.write([(1, "a", 5)])
        lake.maintain()
    (merged,) = lake.maintain().merged
    assert len(lake.run_paths()) == 4
    lake.now += GRACE_MS - 1
    assert lake.maintain().deleted == ()
    lake.now += 1
    assert len(lake.maintain().deleted) == 3
    assert lake.run_paths() == [merged]
    assert lake.lookup().scanned == ()


def test_a_run_that_was_not_written_to_its_end_is_deleted_after_the_grace(lake: Lake) -> None:
    path = names.key_run_path(COLUMNS.digest, lake.new_id())
    lake.store.overwrite(path, b"SSKEYRUN")
    lake.now += GRACE_MS - 1
    assert lake.maintain().deleted == ()
    lake.lookup()
    lake.now += 1
    assert lake.maintain().deleted == (path,)


def test_a_run_that_another_process_deletes_during_a_lookup_is_scanned(tmp_path: Path) -> None:
    lake = make_lake("memory", tmp_path)
    file = lake.write([(1, "a", 5)])
    (path,) = lake.maintain().built
    lake.index.readable_runs(lake.open)
    footers = lake.open._footers
    lake.restart()
    lake.open._footers = footers
    reached: list[str] = []

    def delete(verb: str, name: str) -> None:
        if (verb, name) == ("open", path) and not reached:
            reached.append(name)
            lake.store.delete([path])

    store = MemoryStore(lake.store.location[9:], before=delete)
    lake.index = KeyIndex(store, COLUMNS)
    assert lake.lookup().scanned == (file,)
    assert reached == [path]


def test_a_run_that_another_process_deletes_before_a_merge_stops_no_upkeep(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        lake.write([(1, "a", 5)])
        lake.maintain()
    lake.restart()
    plan = upkeep.plan_upkeep

    def then_delete(*arguments: object) -> object:
        planned = plan(*arguments)  # type: ignore[arg-type]
        lake.store.delete(lake.run_paths()[:1])
        return planned

    monkeypatch.setattr(upkeep, "plan_upkeep", then_delete)
    assert lake.maintain() == Upkeep((), (), ())


def test_another_key_and_another_order_of_changes_have_indexes_of_their_own(lake: Lake) -> None:
    lake.write([(1, "a", 5)])
    lake.maintain()
    keys, at = COLUMNS.keys, COLUMNS.sequence
    others = [
        KeyColumns(TABLE, keys, None),
        KeyColumns(TABLE, keys, column("id", keys.field(0).type, 1)),
        KeyColumns(TABLE, keys.remove(1), at),
        KeyColumns(type(TABLE)(int=8), keys, at),
    ]
    for columns in others:
        assert KeyIndex(lake.store, columns).readable_runs(lake.open) == []
    digests = {COLUMNS.digest, *(columns.digest for columns in others)}
    assert len(digests) == 5


def test_the_folder_of_an_index_is_what_it_was_in_the_first_release() -> None:
    assert COLUMNS.digest == "854e8d81802b4168"


def test_rows_that_a_task_has_just_written_need_no_scan(lake: Lake) -> None:
    file = lake.write([(1, "a", 5), (2, "b", None)])
    (entries,) = upkeep.scan_keys(lake.store, file, COLUMNS)
    known = KeyEntries(entries.hashes[::-1], np.array([1, 0]), entries.sequences[::-1])
    path = upkeep.write_run(lake.index, [file], [(0, known)], lake.new_id())
    assert lake.run_paths() == [path]
    assert lake.lookup().scanned == ()


def test_an_index_is_pickled_to_tasks(lake: Lake) -> None:
    lake.write([(1, "a", 5)])
    lake.maintain()
    lake.index = pickle.loads(pickle.dumps(lake.index))
    assert lake.lookup().scanned == ()


def test_a_missing_data_file_is_an_error_and_no_empty_one(lake: Lake) -> None:
    file = lake.write([(1, "a", 5)])
    lake.store.delete([lake.store.relative(file.location)])
    for use in (lake.lookup, lake.maintain):
        with pytest.raises(DataFileError, match="is missing"):
            use()
    assert [path for path in lake.run_paths() if path in dict(lake.index.readable_runs(lake.open))] == []


def test_files_in_the_folder_that_are_no_runs_are_ignored(lake: Lake) -> None:
    lake.store.overwrite(f"{FOLDER}/notes.txt", b"by a person")
    lake.write([(1, "a", 5)])
    lake.now += 2 * GRACE_MS
    lake.maintain()
    assert f"{FOLDER}/notes.txt" in lake.run_paths()
