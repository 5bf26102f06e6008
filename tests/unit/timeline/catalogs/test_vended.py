"""Credentials that a catalog vends: fetched once a process, renewed before they end, and shown nowhere."""

from __future__ import annotations

import contextlib
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table as LoadedTable

from streaming_sink import CatalogTable
from tests.unit.timeline.world import SCHEMA
from timeline.catalogs.clients import vended
from timeline.catalogs.clients.settings import settings_of
from timeline.catalogs.clients.vended import VendedOptions, vended_options
from timeline.catalogs.opening import connect_catalog
from timeline.clock import Environment
from timeline.errors import StoreUnavailableError, UnsupportedTableError
from timeline.stores.object import ObjectStore

MINUTE_MS = 60_000
NOON = 1_750_000_000_000
PLACE = "s3://lake/db/t"
SECRETS = ("hush-key", "hush-session", "hush-catalog", "hush-table")


class Catalog:
    """A REST catalog of two tables, which vends credentials, each time others."""

    def __init__(self, folder: Path) -> None:
        self.config: dict[str, str] = {}
        self.overrides = {"s3.region": "eu-west-1"}
        self.credentials: list[dict[str, Any]] = []
        self.endpoints: list[str] | None = None
        self.loads = 0
        self.asked: list[tuple[str, str | None]] = []
        self.ends_ms: int | None = None
        plain = SqlCatalog("x", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
        plain.create_namespace("db")
        made = plain.create_table(("db", "t"), SCHEMA, properties={"format-version": "2"})
        self.metadata = json.loads(made.metadata.model_dump_json())
        plain.engine.dispose()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(outer.answer(self.path))

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.answer({"metadata-location": "s3://lake/m.json", "metadata": outer.metadata})

            def answer(self, said: dict[str, Any]) -> None:
                outer.asked.append((self.path, self.headers["Authorization"]))
                data = json.dumps(said).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.uri = f"http://127.0.0.1:{self.server.server_port}"
        Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, path: str) -> dict[str, Any]:
        if path.startswith("/v1/config"):
            found: dict[str, Any] = {"defaults": {}, "overrides": self.overrides}
            return found if self.endpoints is None else {**found, "endpoints": self.endpoints}
        if path.endswith("/credentials"):
            return {"storage-credentials": [{"prefix": "s3://lake/", "config": self.keys()}]}
        self.loads += 1
        table = path.partition("?")[0].rpartition("/")[2]
        config = {**self.config, **({} if self.credentials or self.endpoints else self.keys())}
        return {
            "metadata-location": "s3://lake/db/t/metadata/0.json",
            "metadata": self.metadata,
            "config": {"token": f"hush-table-{table}", **config},
            "storage-credentials": self.credentials,
        }

    def keys(self) -> dict[str, str]:
        keys = {"s3.access-key-id": f"key {self.loads}", "s3.secret-access-key": "hush-key"}
        keys["s3.session-token"] = "hush-session"
        return keys if self.ends_ms is None else {**keys, "s3.session-token-expires-at-ms": str(self.ends_ms)}

    @property
    def properties(self) -> dict[str, str]:
        return {"type": "rest", "uri": self.uri, "token": "hush-catalog", "oauth2-server-uri": self.uri}


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    made = Catalog(tmp_path)
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time of this process, in milliseconds, to move."""
    found = [NOON]
    vended._fetched.clear()
    monkeypatch.setattr(vended, "SYSTEM", Environment(lambda: found[0]))
    return found


def options_of(catalog: Catalog, table: str = "t") -> VendedOptions:
    made = vended_options(settings_of(catalog.properties), ("db", table), PLACE)
    assert made is not None
    return made


def test_they_are_fetched_once_a_process_for_all_its_stores_and_tasks(
    catalog: Catalog, now: list[int]
) -> None:
    options = options_of(catalog)
    found = [options(), pickle.loads(pickle.dumps(options))(), options_of(catalog)()]
    assert found[0] == found[1] == found[2]
    assert found[0] == {
        "access_key_id": "key 1",
        "secret_access_key": "hush-key",
        "session_token": "hush-session",
        "region": "eu-west-1",
    }
    assert catalog.loads == 1
    assert [path for path, _ in catalog.asked if "tables" in path] == [
        "/v1/namespaces/db/tables/t?snapshots=refs"
    ]
    assert now == [NOON]


@pytest.mark.parametrize("by", ["user", "server"])
def test_a_table_is_loaded_with_all_its_snapshots_whatever_is_stated(catalog: Catalog, by: str) -> None:
    """Files of those that are not shown would pass for orphans."""
    stated = {"snapshot-loading-mode": "refs"}
    catalog.overrides |= stated if by == "server" else {}
    connected = connect_catalog({**catalog.properties, **(stated if by == "user" else {})})
    connected.load_table(("db", "t"))
    assert catalog.asked[-1][0] == "/v1/namespaces/db/tables/t?snapshots=all"


def test_each_table_has_its_own(catalog: Catalog, now: list[int]) -> None:
    assert options_of(catalog)() != options_of(catalog, "other")()
    assert catalog.loads == 2
    assert now == [NOON]


@pytest.mark.parametrize(
    ("lasts_ms", "kept_ms"),
    [(60 * MINUTE_MS, 55 * MINUTE_MS), (4 * MINUTE_MS, 2 * MINUTE_MS), (None, 10 * MINUTE_MS), (-5, 1_000)],
)
def test_they_are_renewed_before_they_end(
    catalog: Catalog, now: list[int], lasts_ms: int | None, kept_ms: int
) -> None:
    catalog.ends_ms = None if lasts_ms is None else NOON + lasts_ms
    options = options_of(catalog)
    first = options()
    now[0] += kept_ms - 1
    assert not options.is_due(first)
    assert options() == first
    now[0] += 1
    assert options.is_due(first)
    second = options()
    assert second["access_key_id"] == "key 2"
    assert options.is_due(first), "another store has the old ones"
    assert catalog.loads == 2


def test_keys_that_do_not_end_are_not_fetched_again(catalog: Catalog, now: list[int]) -> None:
    static = {"type": "sql", "uri": "sqlite:////a.db", "s3.access-key-id": "a", "s3.secret-access-key": "b"}
    options = vended_options(settings_of(static), ("db", "t"), PLACE)
    assert options is not None
    assert options() == {"access_key_id": "a", "secret_access_key": "b"}
    now[0] += 10**10
    assert not options.is_due(options())
    assert catalog.loads == 0


def test_a_store_asks_for_others_when_they_are_due_and_when_they_are_refused(
    catalog: Catalog, now: list[int]
) -> None:
    catalog.ends_ms = NOON + 60 * MINUTE_MS
    options, made = options_of(catalog), []

    class Client:
        """Says which key it was made with."""

    def connect(place: Any, given: Any, commit: bool) -> Any:
        made.append(given["access_key_id"])
        return Client()

    stores = [ObjectStore(PLACE, options, connect) for _ in range(2)]
    for store in stores:
        store._client("other")
        store._client("other")
    assert made == ["key 1", "key 1"]
    now[0] += 56 * MINUTE_MS
    catalog.ends_ms += 60 * MINUTE_MS
    for store in stores:
        store._client("other")
        store._client("other")
    assert made[2:] == ["key 2", "key 2"]
    held = options()
    options.renew({"access_key_id": "key 1"})  # of a store that is late
    assert options() == held
    options.renew(held)
    assert options()["access_key_id"] == "key 3"


def test_those_of_the_longest_prefix_count_and_those_of_their_own_path_are_asked_for(
    catalog: Catalog, now: list[int]
) -> None:
    catalog.credentials = [
        {"prefix": "s3://lake/", "config": {"s3.access-key-id": "of all", "s3.secret-access-key": "a"}},
        {"prefix": PLACE, "config": {"s3.access-key-id": "of this", "s3.secret-access-key": "b"}},
    ]
    assert options_of(catalog)()["access_key_id"] == "of this"
    vended._fetched.clear()
    catalog.credentials = []
    tables = "/v1/{prefix}/namespaces/{namespace}/tables/{table}"
    catalog.endpoints = [f"GET {tables}", f"POST {tables}", f"GET {tables}/credentials"]
    assert options_of(catalog)()["access_key_id"] == "key 2"
    assert catalog.asked[-1][0] == "/v1/namespaces/db/tables/t/credentials"
    assert now == [NOON]


def test_where_nothing_is_stated_those_of_the_environment_are_taken(tmp_path: Path) -> None:
    static = settings_of({"type": "sql", "uri": f"sqlite:///{tmp_path}/a.db"})
    assert vended_options(static, ("db", "t"), PLACE) is None
    assert vended_options(static, ("db", "t"), str(tmp_path)) is None


def test_remote_signing_is_refused_before_anything_is_sent(catalog: Catalog, now: list[int]) -> None:
    catalog.config = {"s3.remote-signing-enabled": "true"}
    table = CatalogTable("db.t", catalog.properties)
    with pytest.raises(UnsupportedTableError, match="remote signing"):
        table._open_store(PLACE)
    given = CatalogTable("db.t", catalog.properties, storage_options={"access_key_id": "mine"})
    assert given._open_store(PLACE).location == PLACE
    assert now == [NOON]


def test_a_catalog_that_does_not_answer_is_told_without_a_secret(catalog: Catalog, now: list[int]) -> None:
    options = options_of(catalog)
    catalog.server.shutdown()
    catalog.server.server_close()
    vended._fetched.clear()
    with pytest.raises(StoreUnavailableError) as refused:
        ObjectStore(PLACE, options).read("a")
    text = f"{refused.value} {options!r} {options} {ObjectStore(PLACE, options)!r}"
    assert not [secret for secret in SECRETS if secret in text]
    assert now == [NOON]


def test_a_task_unpickles_them_without_the_packages_of_the_driver(catalog: Catalog, now: list[int]) -> None:
    program = "import pickle, sys; pickle.loads(sys.stdin.buffer.read()); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps(options_of(catalog)),
        capture_output=True,
        check=True,
    )
    loaded = set(done.stdout.decode().split())
    assert "timeline.catalogs.clients.vended" in loaded
    assert not {"pyiceberg", "pyspark", "sqlalchemy"} & loaded
    assert now == [NOON]


@pytest.mark.parametrize("of_catalog", [None, "hush-catalog"])
def test_the_tokens_of_two_tables_of_one_client_do_not_mix(catalog: Catalog, of_catalog: str | None) -> None:
    """pyiceberg sends the last one with every request from then on, where the catalog has none."""
    properties: dict[str, Any] = {"type": "rest", "uri": catalog.uri, "auth": {"type": "noop"}}
    if of_catalog:
        del properties["auth"]
        properties |= {"token": of_catalog, "oauth2-server-uri": catalog.uri}
    with contextlib.closing(connect_catalog(properties)) as client:
        for name in ("one", "two"):
            loaded = client.load_table(("db", name))
            given = LoadedTable(loaded.name(), loaded.metadata, "", loaded.io, client, dict(loaded.config))
            client.commit_table(given, (), ())
        client.load_table(("db", "one"))
    sent = [(path.partition("?")[0].rpartition("/")[2], token) for path, token in catalog.asked[1:]]
    theirs = f"Bearer {of_catalog}" if of_catalog else None
    assert sent == [
        ("one", theirs), ("one", "Bearer hush-table-one"), ("two", theirs), ("two", "Bearer hush-table-two"),
        ("one", theirs),
    ]  # fmt: skip
