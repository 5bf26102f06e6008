"""Manifests are read some at a time: how many at once, how many in vain, and what becomes of failures."""

from __future__ import annotations

import threading
import time

import pytest

from tests.unit.timeline.world import FaultyStore, Lake
from timeline.changes.changes import Append
from timeline.errors import MissingMetadataError
from timeline.manifests import contents, read_ahead
from timeline.stores.base import Stored
from timeline.table import Table

MANIFESTS = 80


class Slow(FaultyStore):
    """Notes how many manifests are read, and how many at once."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.lock = threading.Lock()
        self.manifests = self.now = self.most = 0

    def read(self, path: str) -> Stored:
        if not path.endswith("-manifest.avro"):
            return super().read(path)
        with self.lock:
            self.manifests, self.now = self.manifests + 1, self.now + 1
            self.most = max(self.most, self.now)
        time.sleep(0.005)
        with self.lock:
            self.now -= 1
        return super().read(path)


@pytest.fixture
def lake() -> Lake:
    lake = Lake()
    for _ in range(MANIFESTS):
        lake.open().commit([Append((lake.file(),))])
    assert len(lake.open().head.manifests) == MANIFESTS
    return lake


def opened(lake: Lake) -> tuple[Table, Slow]:
    store = Slow(lake.name)
    return lake.open(store), store


def test_manifests_are_read_once_at_most_so_many_at_a_time_and_come_in_their_order(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "READS_AT_ONCE", 1)
    table, store = opened(lake)
    one_by_one = list(table.head.live_files())
    assert (store.manifests, store.most) == (MANIFESTS, 1)
    monkeypatch.setattr(read_ahead, "READS_AT_ONCE", 8)
    table, store = opened(lake)
    assert list(table.head.live_files()) == one_by_one
    assert store.manifests == MANIFESTS
    assert 1 < store.most <= 8
    assert list(table.head.live_files()) == one_by_one
    assert store.manifests == MANIFESTS


def test_who_stops_early_has_read_few(lake: Lake) -> None:
    for taken in (1, 3, 10):
        table, store = opened(lake)
        files = table.head.live_files()
        for _ in range(taken):
            next(files)
        del files
        assert taken <= store.manifests < 2 * taken
        read = store.manifests
        assert len(list(table.head.live_files())) == MANIFESTS
        assert store.manifests <= MANIFESTS + read


def test_what_waits_to_be_decoded_is_bounded_by_its_bytes(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "AHEAD_BYTES", 1)
    table, store = opened(lake)
    assert len(list(table.head.live_files())) == MANIFESTS
    assert (store.manifests, store.most) == (MANIFESTS, 1)


def test_a_manifest_that_is_gone_fails_the_look_at_it_and_no_other(lake: Lake) -> None:
    table, store = opened(lake)
    store.delete([store.relative(table.head.manifests[5].manifest_path)])
    files = table.head.live_files()
    for _ in range(5):
        next(files)
    with pytest.raises(MissingMetadataError):
        next(files)
    assert not table.head.manifest_files._reads._asked


def test_two_looks_at_once_take_what_each_has_asked_for(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "KEPT_FILES", 1)
    table, _ = opened(lake)
    pairs = list(zip(table.head.live_files(), table.head.live_files(), strict=True))
    assert len(pairs) == MANIFESTS
    assert all(one == other for one, other in pairs)
