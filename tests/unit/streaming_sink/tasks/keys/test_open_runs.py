"""Runs that a process has open: read once, copied to the disk of the machine once, in bounded space."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from streaming_sink.tasks.errors import UnusableRunError
from streaming_sink.tasks.key_index import open_runs
from streaming_sink.tasks.key_index.open_runs import OpenRuns
from streaming_sink.tasks.keys.scanning import KeyedFile
from tests.unit.streaming_sink.tasks.keys.run_files import KEY, found_in, run_bytes
from timeline.stores import LocalStore, MemoryStore, Store

FILE = KeyedFile("s3://t/a", 2)
BYTES = run_bytes({FILE: [(1, 1), (2, 2)]})


def _put(store: Store, *paths: str) -> None:
    for path in paths:
        with store.open_output(path) as output:
            output.write(BYTES)


def _counting() -> tuple[MemoryStore, list[str]]:
    opened: list[str] = []
    return MemoryStore(before=lambda verb, path: opened.append(path) if verb == "open" else None), opened


def test_a_run_of_an_object_store_is_read_once_a_machine(tmp_path: Path) -> None:
    store, opened = _counting()
    _put(store, "r")
    for _ in range(2):  # processes
        runs = OpenRuns(str(tmp_path))
        for _ in range(2):
            assert len(found_in(runs.open(store, "r", KEY), [(1, 1)])) == 1
    assert opened == ["r"]


def test_a_footer_is_read_once_a_process_and_copies_nothing(tmp_path: Path) -> None:
    store, opened = _counting()
    _put(store, "r")
    runs = OpenRuns(str(tmp_path))
    assert {tuple(runs.footer(store, "r", KEY).files) for _ in range(3)} == {(FILE,)}
    assert opened == ["r"]
    assert list(tmp_path.iterdir()) == []


def test_a_run_on_a_local_disk_is_not_copied(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "table")
    _put(store, "r")
    assert found_in(OpenRuns(str(tmp_path / "copies")).open(store, "r", KEY), [(2, 2)])
    assert not (tmp_path / "copies").exists()


def test_copies_that_were_used_least_recently_leave_and_stay_readable(tmp_path: Path) -> None:
    store, opened = _counting()
    _put(store, "a", "b", "c")
    first = OpenRuns(str(tmp_path), 2 * len(BYTES))
    runs = [first.open(store, path, KEY) for path in "ab"]
    for age, path in enumerate("ba"):
        os.utime(first._copy_of(store, path), (age, age))
    OpenRuns(str(tmp_path), 2 * len(BYTES)).open(store, "b", KEY)  # now "a" was used least recently
    runs.append(first.open(store, "c", KEY))
    assert {path.name for path in tmp_path.iterdir()} == {
        os.path.basename(first._copy_of(store, path)) for path in "bc"
    }
    assert all(len(found_in(run, [(1, 1)])) == 1 for run in runs)
    assert opened == ["a", "b", "c"]


def test_a_run_larger_than_the_space_for_copies_is_used_all_the_same(tmp_path: Path) -> None:
    store, opened = _counting()
    _put(store, "a")
    for _ in range(2):
        assert found_in(OpenRuns(str(tmp_path), 1).open(store, "a", KEY), [(1, 1)])
    assert opened == ["a"]


def test_a_process_keeps_a_bounded_number_of_runs_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_runs, "_MOST_OPEN", 2)
    store, opened = _counting()
    _put(store, "a", "b", "c")
    runs = OpenRuns(str(tmp_path))
    for path in "abac":  # "b" was used least recently
        runs.footer(store, path, KEY)
    opened.clear()
    for path in "acb":
        runs.footer(store, path, KEY)
    assert opened == ["b"]


def test_a_discarded_run_is_read_anew(tmp_path: Path) -> None:
    store, opened = _counting()
    _put(store, "r")
    runs = OpenRuns(str(tmp_path))
    before = runs.open(store, "r", KEY)
    runs.discard(store, "r")
    assert list(tmp_path.iterdir()) == []
    assert runs.open(store, "r", KEY) is not before
    assert opened == ["r", "r"]


@pytest.mark.parametrize("use", [OpenRuns.open, OpenRuns.footer])
def test_a_missing_run_is_missing_and_a_damaged_one_is_not_remembered(
    tmp_path: Path, use: Callable[[OpenRuns, Store, str, str], object]
) -> None:
    store, runs = MemoryStore(), OpenRuns(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        use(runs, store, "r", KEY)
    with store.open_output("r") as output:
        output.write(BYTES[:-1])  # it is being written
    with pytest.raises(UnusableRunError):
        use(runs, store, "r", KEY)
    runs.discard(store, "r")
    _put(store, "r")
    assert use(runs, store, "r", KEY)


def test_runs_of_two_tables_have_copies_of_their_own(tmp_path: Path) -> None:
    stores, runs = [MemoryStore() for _ in range(2)], OpenRuns(str(tmp_path))
    for number, store in enumerate(stores):
        with store.open_output("r") as output:
            output.write(run_bytes({KeyedFile(f"s3://{number}", 1): [(number, 0)]}))
    assert [runs.open(store, "r", KEY).footer.files.locations[0] for store in stores] == ["s3://0", "s3://1"]


def test_a_disk_without_room_is_an_error_of_the_index(tmp_path: Path) -> None:
    store = MemoryStore()
    _put(store, "r")
    (tmp_path / "taken").write_text("")
    with pytest.raises(UnusableRunError, match="cannot be copied"):
        OpenRuns(str(tmp_path / "taken" / "copies")).open(store, "r", KEY)


def test_a_copy_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill_the_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    store = MemoryStore()
    _put(store, "r")
    monkeypatch.setattr(open_runs.shutil, "copyfileobj", fill_the_disk)
    with pytest.raises(UnusableRunError, match="No space left"):
        OpenRuns(str(tmp_path)).open(store, "r", KEY)
    assert list(tmp_path.iterdir()) == []


def test_copies_are_where_no_other_user_can_put_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_runs.tempfile, "tempdir", str(tmp_path))
    shared = Path(open_runs._private_folder())
    assert stat.S_IMODE(shared.stat().st_mode) == 0o700
    assert open_runs._private_folder() == str(shared)
    shared.chmod(0o770)
    other = Path(open_runs._private_folder())
    assert other != shared
    assert stat.S_IMODE(other.stat().st_mode) == 0o700
    shared.rmdir()
    shared.symlink_to(other)
    assert open_runs._private_folder() not in (str(shared), str(other))
