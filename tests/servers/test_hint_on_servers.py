"""Other engines read the version hint while it is replaced: they find the old one or the new one."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.servers.launch import Server
from timeline.names import HINT_PATH
from timeline.stores import LocalStore, Store

_OVERWRITES = 150
_READERS = 3


def _overwrite_before_readers(store: Store) -> list[list[bytes]]:
    """Return what each reader saw while the hint went from 1 to the last."""
    store.overwrite(HINT_PATH, b"1")
    written = threading.Event()
    seen: list[list[bytes]] = [[] for _ in range(_READERS)]
    failures: list[BaseException] = []

    def read(into: list[bytes]) -> None:
        try:
            while not written.is_set():
                into.append(store.read(HINT_PATH).data)
        except BaseException as failure:  # noqa: BLE001
            failures.append(failure)

    readers = [threading.Thread(target=read, args=(into,)) for into in seen]
    for reader in readers:
        reader.start()
    try:
        for number in range(2, _OVERWRITES + 1):
            store.overwrite(HINT_PATH, b"%d" % number)
    finally:
        written.set()
        for reader in readers:
            reader.join()
    assert failures == []
    return seen


def _check(seen: list[list[bytes]]) -> None:
    for numbers in seen:
        values = [int(number) for number in numbers]
        assert values == sorted(values)
        assert len(set(values)) > 1


@pytest.mark.servers
def test_a_reader_never_finds_the_hint_missing_empty_or_stepping_back(server: Server, folder: str) -> None:
    _check(_overwrite_before_readers(server.store(folder)))


def test_nor_on_local_disk(tmp_path: Path) -> None:
    _check(_overwrite_before_readers(LocalStore(tmp_path)))
