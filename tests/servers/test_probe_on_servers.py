"""The probe on real servers; and what becomes of a table on the one that it refuses."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.servers.conftest import StartServer
from tests.servers.launch import Server
from tests.servers.writing import SCHEMA, one_file
from tests.tiers import only_in_soak
from timeline.changes.changes import Append
from timeline.errors import UnsafeStoreError
from timeline.names import version_number
from timeline.stores import Created, CreateOutcome, Exists, probe
from timeline.stores.object import ObjectStore
from timeline.table import Committed, Table

pytestmark = pytest.mark.servers

_ROUNDS = 60


def test_a_safe_server_passes_the_probe(server: Server, folder: str) -> None:
    store = server.store(folder)
    probe(store, "01")
    assert store.list_folder("_timeline/probe") == []


@only_in_soak
def test_a_server_that_is_right_only_without_a_race_is_refused(start_server: StartServer) -> None:
    server = start_server("s3mock")
    store = server.store("probed/table")
    assert [store.create("x", b"1"), store.create("x", b"2")] == [Created(), Exists()]
    with pytest.raises(UnsafeStoreError, match="several writers create one name"):
        probe(store, "01")


class _Together(ObjectStore):
    """Two writers of one version send their creates at the same moment, as two machines sometimes do."""

    gate = threading.Barrier(2)

    def create(self, path: str, data: bytes) -> CreateOutcome:
        if (version_number(path) or 0) > 1 and not self.raced:
            self.raced = True
            self.gate.wait(30)
        return super().create(path, data)

    raced = False


@only_in_soak
def test_without_the_probe_it_loses_rows_of_an_acknowledged_commit(
    start_server: StartServer,
) -> None:
    """Both writers are told that their commit is durable, and the table holds the rows of one."""
    server = start_server("s3mock")
    for attempt in range(_ROUNDS):
        location = server.store(f"unprobed-{attempt}/table").location
        stores = [_Together(location, server.options) for _ in range(2)]
        Table.create(stores[0], SCHEMA, store_is_checked=True)

        def write(store: ObjectStore) -> str:
            table = Table.open(store)
            file = one_file(store)
            assert isinstance(table.commit([Append((file,))]), Committed)
            return file.file_path

        with ThreadPoolExecutor(2) as pool:
            acknowledged = set(pool.map(write, stores))
        live = {file.location for file in Table.open(ObjectStore(location, server.options)).head.live_files()}
        if acknowledged - live:
            assert len(acknowledged & live) == 1
            return
    pytest.fail(f"{_ROUNDS} races had one winner each: this server no longer shows what the probe is for")
