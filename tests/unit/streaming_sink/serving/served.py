"""A catalog that a real server serves in this process, and zones to show in it."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import uvicorn

from streaming_sink import ingest
from streaming_sink.serving.app import create_app
from streaming_sink.zones.landed import Landed, write_landed
from streaming_sink.zones.planning.flux import Flux
from tests.unit.timeline.world import SCHEMA
from timeline.stores import LocalStore
from timeline.table import Table
from timeline.versions.work_items import WorkItem

ODD = "<img src=x onerror=\"document.title='taken over'\"><script>document.title='taken over'<script>.parquet"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Server:
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def ask(self, path: str, *, method: str = "GET", body: str = "", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body or None, sent)
            answer = connection.getresponse()
            return Answer(
                answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()
            )
        finally:
            connection.close()


@contextmanager
def served(
    *zones: ingest.BufferZone | str, host: str = "127.0.0.1", token: str | None = None
) -> Iterator[Server]:
    """Serve on a free port of loopback, as a server on `host` would."""
    app = create_app(*zones, host=host, token=token)
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            thread.join(0.01)
        yield Server(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()


def filled_zone(folder: Path, name: str = "flights", *, rejected: bool = True) -> ingest.BufferZone:
    """Return a zone of which one item has landed, with a file of an odd name rejected; one is planned, and a
    file waits.
    """
    zone = ingest.BufferZone(str(folder / name), table=str(folder / f"{name}-table"))
    source = folder / "drop"
    source.mkdir(exist_ok=True)
    files = [source / "a.parquet", source / ODD, source / "c.parquet", source / "d.parquet"]
    for file in files:
        pq.write_table(pa.table({"id": [1]}), file)
    zone.push(*map(str, files[:2]))
    Flux(zone).plan(flush=True)
    table = Table.create(LocalStore(str(folder / f"{name}-table")), SCHEMA, store_is_checked=True)
    now_ms = zone.environment.now_ms()
    landed = Landed(
        0,
        published_before=False,
        version=2,
        snapshot_id=2**62 + 1,
        files_in=1,
        bytes_in=500,
        rows=1,
        files_out=1,
        oldest_ms=now_ms - 4000,
        planned_ms=now_ms - 3000,
        landed_ms=now_ms - 1000,
        lags_ms={"p50": 2900, "p95": 3000, "max": 3000},
        event_time_ms=[1_763_856_000_000, 1_763_942_399_000],
        rejected={str(files[1]): "not a whole Parquet file: <b>no footer</b>"} if rejected else {},
        rejected_places=[0] if rejected else [],
    )
    table.commit([], transaction=WorkItem(zone.app_id, 0))
    write_landed(zone.store, landed)
    zone.push(str(files[2]))
    Flux(zone).plan(flush=True)
    zone.push(str(files[3]))
    return zone
