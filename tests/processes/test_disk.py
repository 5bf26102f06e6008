"""The disk that forgets, on calls whose outcome is known."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.processes.disk import Recorder, keep, lose, states


def _left(monkeypatch, folder, life, choose, dies_at=None):
    """What a cut leaves after each of its events, from the last to the first."""
    recorder = Recorder(folder)
    recorder.run(monkeypatch, life, dies_at)
    return [dict(state) for _, _, state in states(recorder.events, [choose])][::-1]


def _store(folder, *, sync_file=True, sync_folder=True):
    descriptor = os.open(folder / "temporary", os.O_WRONLY | os.O_CREAT)
    with open(descriptor, "wb", buffering=0) as file:
        file.write(b"rows")
        if sync_file:
            os.fsync(descriptor)
    os.link(folder / "temporary", folder / "final")
    os.unlink(folder / "temporary")
    if sync_folder:
        descriptor = os.open(folder, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def test_what_was_synced_with_its_name_is_there(monkeypatch, tmp_path):
    assert _left(monkeypatch, tmp_path, lambda: _store(tmp_path), lose) == [{"final": b"rows"}, {}]


@pytest.mark.parametrize(
    ("missing", "left"),
    [({"sync_file": False}, {"final": b""}), ({"sync_folder": False}, {})],
    ids=["the bytes", "the name"],
)
def test_what_was_not_synced_may_be_lost(monkeypatch, tmp_path, missing, left):
    assert _left(monkeypatch, tmp_path, lambda: _store(tmp_path, **missing), lose)[0] == left


def test_what_was_not_synced_may_be_there(monkeypatch, tmp_path):
    """Also each stage in between: a reader may see a name before its bytes."""
    life = lambda: _store(tmp_path, sync_file=False, sync_folder=False)  # noqa: E731
    assert _left(monkeypatch, tmp_path, life, keep) == [
        {"final": b"rows"},
        {"temporary": b"rows", "final": b"rows"},
        {"temporary": b"rows"},
        {"temporary": b""},
    ]


def test_a_synced_file_in_a_folder_whose_own_name_is_not_safe_is_lost(monkeypatch, tmp_path):
    def life():
        os.mkdir(tmp_path / "folder")
        _store(tmp_path / "folder")

    assert _left(monkeypatch, tmp_path, life, lose) == [{}]


def test_a_replaced_name_means_the_old_file_or_the_new_one(monkeypatch, tmp_path):
    def life():
        _store(tmp_path)
        Path(tmp_path, "new").write_bytes(b"more")
        os.replace(tmp_path / "new", tmp_path / "final")

    assert _left(monkeypatch, tmp_path, life, lose)[0] == {"final": b"rows"}


def test_the_dead_do_nothing_more_not_even_clean_up(monkeypatch, tmp_path):
    def life():
        os.mkdir(tmp_path / "a")
        try:
            os.mkdir(tmp_path / "b")
        finally:
            os.rmdir(tmp_path / "a")

    assert _left(monkeypatch, tmp_path, life, keep, dies_at=1) == [{"a": None}]
    assert (tmp_path / "a").is_dir()
