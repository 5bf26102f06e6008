"""Zip importers read an archive again only when it has changed."""

from __future__ import annotations

import gc
import importlib
import os
import sys
import weakref
import zipfile
import zipimport
from types import SimpleNamespace

import pytest

from streaming_sink.tasks import fast_workers


class Ring:
    """An object that only a collection frees."""

    itself: Ring


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "archive.zip"
    _write(path, "first_module")
    yield path
    fast_workers.set_enabled(False)


def _write(path, *modules):
    with zipfile.ZipFile(path, "w") as made:
        for module in modules:
            made.writestr(f"{module}.py", "")


def _count_reads(monkeypatch):
    reads = []
    original = zipimport._read_directory
    monkeypatch.setattr(zipimport, "_read_directory", lambda path: reads.append(path) or original(path))
    return reads


def test_an_unchanged_archive_is_read_once(archive, monkeypatch):
    importer = zipimport.zipimporter(str(archive))
    fast_workers.set_enabled(True)
    importer.invalidate_caches()
    assert importer.find_spec("first_module")
    reads = _count_reads(monkeypatch)
    for _ in range(5):
        importer.invalidate_caches()
        assert importer.find_spec("first_module")
    assert reads == []


def test_an_archive_that_changed_is_read_again_by_each_importer(archive):
    importers = [zipimport.zipimporter(str(archive)) for _ in range(2)]
    fast_workers.set_enabled(True)
    for importer in importers:
        importer.invalidate_caches()
    _write(archive, "first_module", "second_module")
    for importer in importers:
        importer.invalidate_caches()
        assert importer.find_spec("second_module")


def test_an_archive_replaced_by_one_of_equal_size_is_read_again(archive, tmp_path):
    importer = zipimport.zipimporter(str(archive))
    fast_workers.set_enabled(True)
    importer.invalidate_caches()
    times = os.stat(archive)
    _write(tmp_path / "new.zip", "other_module")
    os.utime(tmp_path / "new.zip", ns=(times.st_atime_ns, times.st_mtime_ns))
    os.replace(tmp_path / "new.zip", archive)
    importer.invalidate_caches()
    assert importer.find_spec("other_module")


def test_an_archive_that_vanished_is_treated_as_python_does(archive):
    importer = zipimport.zipimporter(str(archive))
    fast_workers.set_enabled(True)
    importer.invalidate_caches()
    archive.unlink()
    importer.invalidate_caches()
    assert importer.find_spec("first_module") is None


def test_importlib_goes_through_it_and_switching_off_restores_the_original(archive, monkeypatch):
    monkeypatch.syspath_prepend(str(archive))
    importlib.import_module("first_module")
    sys.modules.pop("first_module")
    original = zipimport.zipimporter.invalidate_caches
    fast_workers.set_enabled(True)
    importlib.invalidate_caches()
    reads = _count_reads(monkeypatch)
    importlib.invalidate_caches()
    assert reads == []
    fast_workers.set_enabled(False)
    assert zipimport.zipimporter.invalidate_caches is original
    importlib.invalidate_caches()
    importlib.util.find_spec("first_module")
    assert str(archive) in reads


@pytest.fixture
def imported(archive, monkeypatch):
    """The importer that PySpark's reading before a worker's first task has just read."""
    monkeypatch.syspath_prepend(str(archive))
    importer = zipimport.zipimporter(str(archive))
    monkeypatch.setitem(sys.path_importer_cache, str(archive), importer)
    return importer


def test_an_archive_untouched_for_a_minute_is_not_read_before_the_second_task(imported, archive, monkeypatch):
    monkeypatch.setattr(fast_workers, "time", SimpleNamespace(time=lambda: os.stat(archive).st_ctime + 61))
    fast_workers.set_enabled(True)
    reads = _count_reads(monkeypatch)
    imported.invalidate_caches()
    assert reads == []
    _write(archive, "first_module", "second_module")
    imported.invalidate_caches()
    assert imported.find_spec("second_module")


def test_an_archive_that_may_have_changed_since_the_first_task_began_is_read(imported, archive, monkeypatch):
    _write(archive, "first_module", "second_module")  # after the importer read it
    fast_workers.set_enabled(True)
    imported.invalidate_caches()
    assert imported.find_spec("second_module")


def test_a_collection_leaves_out_what_was_there_as_the_first_task_began():
    gc.unfreeze()  # what `tests/conftest.py` has frozen
    ring = Ring()
    ring.itself, gone = ring, weakref.ref(ring)
    fast_workers.set_enabled(True)
    assert gc.get_freeze_count() > 10_000
    later = Ring()
    later.itself, later_gone = later, weakref.ref(later)
    del ring, later
    gc.collect()
    assert gone() is not None
    assert later_gone() is None
    fast_workers.set_enabled(False)
    gc.collect()
    assert gone() is None


def test_the_environment_switches_it_off():
    assert fast_workers.is_enabled({})
    assert not fast_workers.is_enabled({"STREAMING_SINK_FAST_WORKERS": "0"})
