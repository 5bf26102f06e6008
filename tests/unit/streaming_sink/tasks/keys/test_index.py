"""The key index against a dictionary: lost, damaged, doubled and stale runs never make it answer wrong."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming_sink.tasks.errors import DataFileError
from streaming_sink.tasks.key_index import open_runs, upkeep
from streaming_sink.tasks.key_index.index import KeyIndex
from streaming_sink.tasks.key_index.upkeep import GRACE_MS
from streaming_sink.tasks.keys.scanning import KeyColumns
from tests.unit.streaming_sink.tasks.keys.data_files import COLUMNS, TABLE, probe_of
from tests.unit.streaming_sink.tasks.keys.data_files import field as column
from tests.unit.streaming_sink.tasks.keys.lake import FOLDER, SCOPES, Lake, make_lake, make_runs_tiny
from timeline.stores import MemoryStore

ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["a", "b", None]), st.none() | st.integers(0, 9))
)
SCOPE = st.sampled_from(SCOPES)
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


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    make_runs_tiny(monkeypatch)


@pytest.fixture(params=["memory", "local"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return make_lake(request.param, tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data(), st.sampled_from(["memory", "local"]))
def test_no_step_makes_the_index_answer_wrong(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, kind: str
) -> None:
    lake = make_lake(kind, tmp_path_factory.mktemp("lake"))
    heads = [[lake.write(data.draw(ROWS), data.draw(SCOPE)) for _ in range(3)]]
    lake.maintain()
    for step in data.draw(st.lists(st.sampled_from(STEPS), max_size=20)):
        found = lake.run_paths()
        if step == "write":
            lake.write(data.draw(ROWS), data.draw(SCOPE))
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
            # A share of the file: how long it is depends on the length of the folder's name.
            at = data.draw(st.integers(0, 2**16 - 1)) * len(damaged) >> 16
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


def test_a_key_of_two_partitions_is_found_in_that_which_is_asked_for(lake: Lake) -> None:
    eu, us = (lake.write([(1, "a", 5)], scope) for scope in SCOPES[1:])
    lake.maintain()
    for scope, file in ((SCOPES[1], eu), (SCOPES[2], us)):
        found = lake.look_for([eu, us], probe_of([(1, "a")], [scope]))
        assert ([found.of[it] for it in found.files], found.scanned) == ([file], ())


def test_a_run_covers_no_file_that_it_has_hashed_in_another_scope(lake: Lake) -> None:
    file = lake.write([(1, "a", 5)], SCOPES[1])
    lake.maintain()
    del lake.live[file]
    lake.live[file._replace(salt=SCOPES[2])] = [(1, "a", 5)]
    assert lake.lookup().scanned == tuple(lake.live)


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


def test_a_run_that_another_process_deletes_during_a_lookup_is_scanned(tmp_path: Path) -> None:
    lake = make_lake("memory", tmp_path)
    file = lake.write([(1, "a", 5)])
    (path,) = lake.maintain().built
    lake.index.readable_runs()
    footers = lake.open._footers
    lake.restart()
    lake.open._footers = footers
    reached: list[str] = []

    def delete(verb: str, name: str) -> None:
        if (verb, name) == ("open", path) and not reached:
            reached.append(name)
            lake.store.delete([path])

    store = MemoryStore(lake.store.location[9:], before=delete)
    lake.index = KeyIndex(store, COLUMNS, lake.open)
    assert lake.lookup().scanned == (file,)
    assert reached == [path]


def test_a_run_that_the_disk_has_no_room_for_is_scanned_and_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the driver would read the whole of each such run after each batch, to look at its checksums."""

    def fill_the_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    lake = make_lake("memory", tmp_path)
    file = lake.write([(1, "a", 5)])
    lake.maintain()
    monkeypatch.setattr(open_runs.shutil, "copyfileobj", fill_the_disk)
    found = lake.lookup()
    assert (found.scanned, found.damaged) == ((file,), ())


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
        assert KeyIndex(lake.store, columns, lake.open).readable_runs() == []
    digests = {COLUMNS.digest, *(columns.digest for columns in others)}
    assert len(digests) == 5


def test_the_folder_of_an_index_is_what_it_was_in_the_first_release() -> None:
    assert COLUMNS.digest == "854e8d81802b4168"


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
    assert [path for path in lake.run_paths() if path in dict(lake.index.readable_runs())] == []
