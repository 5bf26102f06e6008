"""Commits over a network that resets, falls silent and answers 5xx, before and after the server has acted."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.servers.launch import Server
from tests.servers.proxy import Fault, Proxy, Request
from tests.servers.writing import SCHEMA, one_file
from tests.tiers import count, longer_in_soak
from tests.unit.timeline.world import Audit
from timeline.changes.changes import Append
from timeline.names import version_number
from timeline.stores import Created, Exists, Unknown
from timeline.stores.object import ObjectStore
from timeline.table import Committed, Table

pytestmark = [pytest.mark.servers, longer_in_soak]

APPLIED = {Fault.RESET_AFTER, Fault.SILENT_AFTER, Fault.ERROR_AFTER}
_PATIENCE = "500ms"
_WRITERS = 4
_COMMITS = count(5, 30)
_RACE_TIMEOUT_SECONDS = 60 + 10 * _COMMITS


@pytest.fixture
def far(s3: Server, proxy: Proxy, folder: str) -> ObjectStore:
    """A store behind the proxy, whose client waits for an answer no longer than half a second."""
    return s3.at(proxy.endpoint, timeout=_PATIENCE).store(folder)


def _is_version(request: Request) -> bool:
    return request.is_create and version_number(request.path.partition("/table/")[2]) is not None


@pytest.mark.parametrize("fault", Fault)
def test_a_spoiled_create_is_unknown_and_was_sent_once(far: ObjectStore, proxy: Proxy, fault: Fault) -> None:
    proxy.fault = lambda request: fault
    assert isinstance(far.create("x", b"x"), Unknown)
    assert proxy.count() == {"PUT": 1}
    proxy.fault = None
    assert far.create("x", b"y") == (Exists() if fault in APPLIED else Created())


@pytest.mark.parametrize("fault", Fault)
def test_a_commit_whose_version_was_spoiled_once_is_acknowledged_and_in_the_table_once(
    s3: Server, far: ObjectStore, proxy: Proxy, folder: str, fault: Fault
) -> None:
    table = Table.create(far, SCHEMA)
    spoiled: Iterator[Fault | None] = itertools.chain([fault], itertools.repeat(None))
    proxy.fault = lambda request: next(spoiled) if _is_version(request) else None
    file = one_file(far)
    committed = table.commit([Append((file,))])
    assert isinstance(committed, Committed)
    assert committed.version == 2
    assert _live(s3, folder) == [file.file_path]


def test_a_burst_of_5xx_delays_a_commit_and_no_more(
    s3: Server, far: ObjectStore, proxy: Proxy, folder: str
) -> None:
    table = Table.create(far, SCHEMA)
    answers = iter([Fault.ERROR_BEFORE] * 5 + [Fault.ERROR_AFTER] * 3)
    proxy.fault = lambda request: next(answers, None)
    file = one_file(far)
    table.commit([Append((file,))])
    assert _live(s3, folder) == [file.file_path]


def test_processes_that_race_over_a_bad_network_land_every_acknowledged_commit_once(
    s3: Server, proxy: Proxy, folder: str
) -> None:
    """Sixty milliseconds away; a fifth of all requests is spoiled, each way as often."""
    server = s3.at(proxy.endpoint, timeout=_PATIENCE)
    store = server.store(folder)
    Table.create(store, SCHEMA)
    dice = random.Random(20)
    ways = list(Fault)
    proxy.latency = 0.06
    proxy.fault = lambda request: dice.choice(ways) if dice.random() < 0.2 else None
    settings = {"location": store.location, "options": server.options, "commits": _COMMITS}

    def run_writer(name: str) -> list[str]:
        command = [sys.executable, "-m", "tests.servers.writing", json.dumps({**settings, "name": name})]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_RACE_TIMEOUT_SECONDS)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.splitlines()

    with ThreadPoolExecutor(_WRITERS) as pool:
        acknowledged = [path for paths in pool.map(run_writer, map(str, range(_WRITERS))) for path in paths]
    assert len(set(acknowledged)) == _WRITERS * _COMMITS
    assert sorted(_live(s3, folder)) == sorted(acknowledged)
    Audit(s3.store(folder)).check()


def _live(server: Server, folder: str) -> list[str]:
    """What a process that reaches the server directly, with nothing cached, finds in the table."""
    return [file.location for file in Table.open(server.store(folder)).head.live_files()]
