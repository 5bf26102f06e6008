"""The local store: atomic by a link, durable before it says so, and clear about what the disk refuses."""

from __future__ import annotations

import errno
import itertools
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from timeline.errors import StoreUnavailableError, UnsafeStoreError
from timeline.stores import Created, Exists, LocalStore, Unknown, _disk, local


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(tmp_path / "table")
    store.create("metadata/first", b"makes the folder")
    return store


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of the file system, in order."""
    seen: list[str] = []
    fsync = os.fsync

    def recorded_fsync(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        name = Path(os.readlink(f"/proc/self/fd/{descriptor}")).name
        seen.append(f"fsync {kind}" + (f" {name}" if kind == "folder" else ""))
        fsync(descriptor)

    def record(call: str, show: int) -> None:
        real = getattr(os, call)

        def recorded(*names: str, **options: Any) -> Any:
            seen.append(f"{call} {'temporary' if '.tmp-' in names[show] else Path(names[show]).name}")
            return real(*names, **options)

        monkeypatch.setattr(os, call, recorded)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    record("link", 1)
    record("unlink", 0)
    record("mkdir", 0)
    record("replace", 1)
    return seen


def _fail(monkeypatch: pytest.MonkeyPatch, call: str, code: int, *, applied: bool = False) -> None:
    real = getattr(os, call)

    def failing(*args: Any, **options: Any) -> Any:
        if applied:
            real(*args, **options)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, failing)


def _fill_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file that the store opens from now on is one that the kernel has no space for."""
    open_new = LocalStore._open_new

    def full(self: LocalStore, name: str) -> int:
        descriptor = open_new(self, name)
        device = os.open("/dev/full", os.O_WRONLY)
        os.dup2(device, descriptor)
        os.close(device)
        return descriptor

    monkeypatch.setattr(LocalStore, "_open_new", full)


def _files(store: LocalStore) -> list[str]:
    return sorted(str(p.relative_to(store.location)) for p in Path(store.location).rglob("*") if p.is_file())


def test_create_syncs_the_bytes_before_the_name_and_the_name_before_it_answers(
    store: LocalStore, events: list[str]
) -> None:
    assert store.create("metadata/v1", b"x") == Created()
    assert events == ["fsync file", "link v1", "fsync folder metadata", "unlink temporary"]


def test_a_new_folder_is_synced_into_its_parent_before_anything_stands_in_it(
    tmp_path: Path, events: list[str]
) -> None:
    LocalStore(tmp_path / "lake" / "table").create("a/v1", b"x")
    assert events[:-4] == [
        f"mkdir {tmp_path.name}",  # it exists, and its maker may have died before it synced its name
        f"fsync folder {tmp_path.parent.name}",
        "mkdir lake",
        f"fsync folder {tmp_path.name}",
        "mkdir table",
        "fsync folder lake",
        "mkdir a",
        "fsync folder table",
    ]


def test_a_folder_that_another_process_made_is_synced_once(store: LocalStore, events: list[str]) -> None:
    other = LocalStore(store.location)
    other.create("metadata/v1", b"x")
    assert "fsync folder table" in events
    events.clear()
    other.create("metadata/v2", b"x")
    assert "fsync folder table" not in events


def test_a_lost_create_syncs_the_name_that_it_lost_to(store: LocalStore, events: list[str]) -> None:
    assert store.create("metadata/first", b"x") == Exists()
    assert events == ["fsync file", "link first", "fsync folder metadata", "unlink temporary"]


def test_a_listing_syncs_what_it_shows(store: LocalStore, events: list[str]) -> None:
    store.list_folder("metadata")
    assert events == ["fsync folder metadata"]


def test_an_output_is_synced_with_its_folder_when_it_is_closed(store: LocalStore, events: list[str]) -> None:
    with store.open_output("metadata/m.avro") as out:
        out.write(b"x")
        assert events == []
    assert events == ["fsync file", "fsync folder metadata"]


def test_an_overwrite_replaces_in_one_step_with_synced_bytes(store: LocalStore, events: list[str]) -> None:
    store.overwrite("metadata/hint", b"1")
    assert events == ["fsync file", "replace hint"]
    assert _files(store) == ["metadata/first", "metadata/hint"]


def test_the_temporary_name_lies_beside_the_final_one_and_is_no_metadata_file(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources: list[str] = []
    link = os.link
    monkeypatch.setattr(os, "link", lambda source, target: (sources.append(source), link(source, target)))
    store.create("metadata/v1.metadata.json", b"x")
    assert os.path.dirname(sources[0]) == f"{store.location}/metadata"
    assert os.path.basename(sources[0]).startswith(".tmp-")
    assert not sources[0].endswith(".metadata.json")


def test_a_half_written_temporary_is_never_listed(store: LocalStore) -> None:
    Path(store.location, "metadata/.tmp-1-2-3").write_bytes(b"ha")
    assert [entry.path for entry in store.list_folder("metadata")] == ["metadata/first"]


def test_the_name_of_a_dead_process_temporary_is_passed_over(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_counter", itertools.count())
    left = Path(store.location, f"metadata/.tmp-{os.getpid()}-{threading.get_ident()}-0")
    left.write_bytes(b"left behind")
    assert store.create("metadata/v1", b"mine") == Created()
    assert store.read("metadata/v1").data == b"mine"
    assert left.read_bytes() == b"left behind"


@pytest.mark.parametrize("code", [errno.EIO, errno.EEXIST, errno.ENOSPC])
def test_a_link_that_was_applied_though_it_failed_is_ours(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    _fail(monkeypatch, "link", code, applied=True)
    assert store.create("metadata/v1", b"x") == Created()
    assert _files(store) == ["metadata/first", "metadata/v1"]


def test_a_link_that_fails_without_a_reason_we_know_is_unknown(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fail(monkeypatch, "link", errno.EIO)
    assert isinstance(store.create("metadata/v1", b"x"), Unknown)
    assert _files(store) == ["metadata/first"]


def test_a_name_that_could_not_be_synced_is_unknown(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(folder: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), folder)

    monkeypatch.setattr(_disk, "sync_folder", failing)
    assert isinstance(store.create("metadata/v1", b"x"), Unknown)
    assert isinstance(store.create("metadata/v1", b"x"), Unknown), "ours is there, and still not durable"


def test_without_hard_links_a_rename_that_never_replaces_takes_over(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fail(monkeypatch, "link", errno.EPERM)
    assert store.create("metadata/v1", b"one") == Created()
    assert store.create("metadata/v1", b"two") == Exists()
    assert store.read("metadata/v1").data == b"one"
    assert _files(store) == ["metadata/first", "metadata/v1"]


def test_without_hard_links_a_race_still_has_one_winner(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fail(monkeypatch, "link", errno.EOPNOTSUPP)
    gate = threading.Barrier(8)

    def race(racer: int) -> list[bool]:
        gate.wait()
        return [store.create(f"metadata/v{n}", b"%d" % racer) == Created() for n in range(20)]

    with ThreadPoolExecutor(8) as pool:
        wins = list(pool.map(race, range(8)))
    assert [sum(column) for column in zip(*wins, strict=True)] == [1] * 20


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS])
def test_without_either_the_store_is_refused(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refused(source: str, target: str) -> None:
        raise OSError(code, os.strerror(code))

    _fail(monkeypatch, "link", errno.EPERM)
    monkeypatch.setattr(_disk, "rename_noreplace", refused)
    with pytest.raises(UnsafeStoreError, match="put the table on another file system"):
        store.create("metadata/v1", b"x")
    assert _files(store) == ["metadata/first"]


def test_a_full_disk_refuses_a_create_and_leaves_nothing(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill_the_disk(monkeypatch)
    with pytest.raises(StoreUnavailableError, match="nothing was stored; the disk is full: free space"):
        store.create("metadata/v1", b"x")
    with pytest.raises(StoreUnavailableError, match="the disk is full"):
        store.overwrite("metadata/hint", b"x")
    assert _files(store) == ["metadata/first"]


@pytest.mark.parametrize("size", [10, 4 << 20])
def test_a_full_disk_fails_an_output_and_leaves_nothing(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    _fill_the_disk(monkeypatch)
    with (
        pytest.raises(StoreUnavailableError, match="nothing was stored; the disk is full: free space"),
        store.open_output("data/x.parquet") as out,
    ):
        out.write(b"x" * size)
    assert _files(store) == ["metadata/first"]


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.EROFS, "mount it writable"),
        (errno.EACCES, "give this user access"),
        (errno.ENOSPC, "free space"),
        (errno.EDQUOT, "raise it"),
    ],
)
@pytest.mark.parametrize("call", ["open", "mkdir", "link"])
def test_what_the_disk_refuses_is_an_error_that_says_what_to_do(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, call: str, code: int, advice: str
) -> None:
    _fail(monkeypatch, call, code)
    with pytest.raises(StoreUnavailableError, match=advice):
        store.create("fresh/v1" if call == "mkdir" else "metadata/v1", b"x")
    monkeypatch.undo()
    assert _files(store) == ["metadata/first"]


def test_a_listing_that_fails_is_never_an_empty_listing(store: LocalStore) -> None:
    with pytest.raises(StoreUnavailableError, match="cannot list"):
        store.list_folder("metadata/first")


def test_a_folder_removed_under_our_feet_is_made_again(store: LocalStore) -> None:
    Path(store.location, "metadata/first").unlink()
    Path(store.location, "metadata").rmdir()
    assert store.create("metadata/v1", b"x") == Created()


def test_an_output_never_overwrites_a_file_that_is_there(store: LocalStore) -> None:
    with pytest.raises(FileExistsError):
        store.open_output("metadata/first")
    assert store.read("metadata/first").data == b"makes the folder"


@pytest.mark.parametrize(
    ("spelling", "location"),
    [
        ("/lake/t", "/lake/t"),
        ("/lake/t/", "/lake/t"),
        ("//lake//x/../t", "/lake/t"),
        ("file:///lake/t", "/lake/t"),
        ("file:/lake/t/", "/lake/t"),
        ("file://localhost/lake/a%20b", "/lake/a b"),
    ],
)
def test_a_location_has_one_spelling(spelling: str, location: str) -> None:
    assert LocalStore(spelling).location == location


def test_a_relative_location_is_below_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert LocalStore("lake/t").location == f"{tmp_path}/lake/t"


@pytest.mark.parametrize("nowhere", ["", "/", "file:///", "file://host/lake"])
def test_a_location_that_names_no_folder_of_this_machine_is_refused(nowhere: str) -> None:
    with pytest.raises(ValueError, match=r"folder of its own|names no host"):
        LocalStore(nowhere)


def test_a_name_that_came_to_another_file_after_the_listing_is_not_taken_for_the_listed_one(
    store: LocalStore,
) -> None:
    """A reader that stood still past retention would follow a fork that a stalled writer left there (R4)."""
    [listed] = store.list_folder("metadata")
    store.delete(["metadata/first"])
    store.create("metadata/first", b"a fork's bytes")
    folder = store.uri("metadata")
    os.utime(folder, ns=(0, os.stat(folder).st_mtime_ns + 3600 * 10**9))
    assert listed.identity != store.read("metadata/first").identity
    [again] = store.list_folder("metadata")
    assert again.identity == store.read("metadata/first").identity
