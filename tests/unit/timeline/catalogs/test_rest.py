"""A REST server's clock, which no commit is ahead of (R12), and requests that end."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import nullcontext
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.exceptions import CommitFailedException

from tests.unit.timeline.logs.kinds import CatalogKind
from timeline.catalogs.clients import rest
from timeline.catalogs.clients.server_clock import ServerClock
from timeline.catalogs.opening import connect_catalog
from timeline.errors import StoreUnavailableError

DAY_MS = 24 * 3600 * 1000


@given(
    st.integers(-2 * DAY_MS, 2 * DAY_MS),
    st.lists(st.integers(0, 5_000), min_size=1, max_size=20),
)
def test_it_is_behind_the_server_by_a_second_at_most_and_ever_nearer(
    ahead_ms: int, pauses: list[int]
) -> None:
    now = [1_750_000_000_000]
    clock = ServerClock(lambda: now[0])
    lags = []
    for pause in pauses:
        now[0] += pause
        server = now[0] + ahead_ms
        clock.see(formatdate(server // 1000, usegmt=True))
        lags.append(server - clock.now_ms())
    assert all(2 <= lag <= 1002 for lag in lags)
    assert lags == sorted(lags, reverse=True)


def test_without_a_time_of_the_server_it_is_this_machines() -> None:
    clock = ServerClock(lambda: 7)
    for nothing in (None, "", "soon"):
        clock.see(nothing)
        assert clock.now_ms() == 7


def test_a_clock_that_is_set_back_is_followed() -> None:
    now = [1_750_000_000_000]
    clock = ServerClock(lambda: now[0])
    clock.see(formatdate(now[0] // 1000, usegmt=True))
    clock.see(formatdate(now[0] // 1000 - 3600, usegmt=True))
    assert clock.now_ms() <= now[0] - 3_600_000


@pytest.mark.parametrize("given", [{}, {"credential": "a:b"}], ids=["settings", "token"])
def test_a_request_that_is_not_answered_ends(monkeypatch: pytest.MonkeyPatch, given: dict[str, str]) -> None:
    """Of a token too, for which pyiceberg asks while it makes its session."""
    monkeypatch.setattr(rest, "_SECONDS", (1, 0.2))
    monkeypatch.setattr(rest, "_READ_AGAIN", 0)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(StoreUnavailableError, match="does not answer"):
            connect_catalog({"uri": uri, "oauth2-server-uri": f"{uri}/token", **given})


class Server:
    """A REST server of one table, which states an ETag for what it answers, and counts whole answers."""

    def __init__(self, metadata: dict[str, Any]) -> None:
        self.metadata, self.config, self.number, self.refuses = metadata, dict[str, str](), 0, False
        self.is_lost, self.listed = False, list[str]()
        self.asked = list[str]()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.startswith("/v1/config"):
                    self.answer(200, {"defaults": {}, "overrides": {}})
                elif self.path.endswith("/tables"):
                    named = [{"namespace": ["db"], "name": name} for name in outer.listed]
                    self.answer(200, {"identifiers": named})
                elif outer.is_lost:
                    lost = {"message": "no metadata file", "type": "NotFoundException", "code": 404}
                    self.answer(404, {"error": lost})
                elif self.headers["If-None-Match"] == f"of {outer.number}":
                    outer.asked.append("unchanged")
                    self.answer(304)
                else:
                    outer.asked.append("whole")
                    self.answer(200, {**outer.said(), "config": outer.config})

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                said = {"error": {"message": "lost", "type": "CommitFailedException", "code": 409}}
                self.answer(*((409, said) if outer.refuses else (200, outer.said())))

            def answer(self, status: int, said: Any = None) -> None:
                data = b"" if said is None else json.dumps(said).encode()
                self.send_response(status)
                self.send_header("ETag", f"of {outer.number}")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, daemon=True).start()
        self.catalog: Any = connect_catalog(
            {"type": "rest", "uri": f"http://127.0.0.1:{self.server.server_port}"}
        )

    def said(self) -> dict[str, Any]:
        return {"metadata-location": f"s3://lake/{self.number}.json", "metadata": self.metadata}

    def load(self) -> str:
        """Load the table, and return where its metadata is."""
        return self.catalog.load_table(("db", "t")).metadata_location

    def commit(self) -> None:
        """Send a commit of nothing."""
        self.catalog.commit_table(self.catalog.load_table(("db", "t")), (), ())


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    kind = CatalogKind(tmp_path)
    kind.create()
    made = Server(json.loads(kind.read().metadata.model_dump_json()))
    kind.close()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_a_table_that_is_as_it_was_is_not_sent_again(server: Server) -> None:
    assert [server.load() for _ in range(3)] == ["s3://lake/0.json"] * 3
    server.number = 1
    assert [server.load() for _ in range(2)] == ["s3://lake/1.json"] * 2
    assert server.asked == ["whole", "unchanged", "unchanged", "whole", "unchanged"]


@pytest.mark.parametrize("refuses", [False, True])
def test_after_a_commit_that_is_no_clean_success_a_table_is_asked_for_whole(
    server: Server, refuses: bool
) -> None:
    """Two states of a table may have one ETag, which is a hash of 32 bits in Iceberg's own server: of a
    commit that may have landed the next answer decides.
    """
    server.load()
    server.refuses = refuses
    with pytest.raises(CommitFailedException) if refuses else nullcontext():
        server.commit()
    server.load()
    assert server.asked == ["whole", "unchanged", "whole" if refuses else "unchanged"]


def test_what_ends_is_asked_for_anew(server: Server) -> None:
    server.config["token"] = "hush"
    server.load()
    server.load()
    server.config.clear()
    server.load()
    server.load()
    server.catalog.file_settings(("db", "t"), "s3://lake")
    assert server.asked == ["whole", "whole", "whole", "unchanged", "whole"]


def test_a_table_whose_metadata_is_lost_is_there(server: Server) -> None:
    server.is_lost = True
    assert server.catalog.read_pointer(("db", "t")) is None
    server.listed = ["other", "t"]
    assert server.catalog.read_pointer(("db", "t")) == ""


def test_a_pointer_is_looked_at_just_before_it_is_moved(server: Server) -> None:
    base = server.catalog.read_pointer(("db", "t"))
    assert base == "s3://lake/0.json"
    server.number = 1
    with pytest.raises(CommitFailedException, match="another writer was first"):
        server.catalog.move_pointer(("db", "t"), base, "s3://lake/9.json")
