"""Pointers in a REST catalog: metadata that is registered over what is there, or not (R36)."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

from tests.unit.timeline.logs.kinds import CatalogKind
from timeline.catalogs.opening import connect_catalog
from timeline.errors import UnsupportedTableError

NAME = ("db", "t")
OURS, THEIRS = "s3://lake/v5.json", "s3://lake/v6.json"


class Server:
    """A REST server of one table, which knows `overwrite`, or does not."""

    def __init__(self, metadata: dict[str, Any]) -> None:
        self.place: str | None = None
        self.knows_overwrite = True
        self.meets = deque[Callable[[], int | None]]()
        """What the next registrations over the table meet: each returns the status of a refusal, or None."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.startswith("/v1/config"):
                    self.answer(200, {"defaults": {}, "overrides": {}})
                elif self.path.endswith("/tables"):
                    self.answer(200, {"identifiers": []})
                else:
                    self.answer(*((404, _error(404)) if outer.place is None else (200, said())))

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                over = asked.get("overwrite") and outer.knows_overwrite
                status = outer.meets.popleft()() if asked.get("overwrite") and outer.meets else None
                if status is None and outer.place is not None and not over:
                    status = 409
                if status is None:
                    outer.place = asked["metadata-location"]
                self.answer(*((200, said()) if status is None else (status, _error(status))))

            def do_DELETE(self) -> None:
                outer.place = None
                self.answer(204)

            def answer(self, status: int, stated: Any = None) -> None:
                data = b"" if stated is None else json.dumps(stated).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        def said() -> dict[str, Any]:
            return {"metadata-location": outer.place, "metadata": metadata, "config": {}}

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, daemon=True).start()
        uri = f"http://127.0.0.1:{self.server.server_port}"
        self.catalog: Any = connect_catalog({"type": "rest", "uri": uri})

    def be_moved(self) -> int:
        """Let another process move the pointer, and refuse this one for it."""
        self.place = THEIRS
        return 409


def _error(status: int) -> dict[str, Any]:
    return {"error": {"message": "no", "type": "Refused", "code": status}}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    kind = CatalogKind(tmp_path)
    kind.create()
    made = Server(json.loads(kind.read().metadata.model_dump_json()))
    kind.close()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_a_pointer_is_begun_and_moved(server: Server) -> None:
    server.catalog.begin_pointer(NAME, OURS)
    server.catalog.move_pointer(NAME, OURS, THEIRS)
    assert server.catalog.read_pointer(NAME) == server.place == THEIRS


def test_a_server_that_does_not_know_overwrite_is_refused_and_nothing_is_left(server: Server) -> None:
    server.knows_overwrite = False
    with pytest.raises(UnsupportedTableError, match="registered over what is there"):
        server.catalog.begin_pointer(NAME, OURS)
    assert server.place is None


def test_what_another_process_has_made_of_a_new_pointer_is_not_dropped(server: Server) -> None:
    server.meets.append(server.be_moved)
    with pytest.raises(CommitFailedException):
        server.catalog.begin_pointer(NAME, OURS)
    assert server.place == THEIRS


@pytest.mark.parametrize("begins", [True, False])
def test_a_conflict_of_a_moment_is_no_refusal(server: Server, begins: bool) -> None:
    server.meets.append(lambda: 409)
    if begins:
        server.catalog.begin_pointer(NAME, OURS)
        assert server.place == OURS
    else:
        server.place = OURS
        server.catalog.move_pointer(NAME, OURS, THEIRS)
        assert server.place == THEIRS


def test_a_pointer_that_a_killed_process_has_left_on_such_a_server_is_told(server: Server) -> None:
    """It was killed between the two registrations of the first call."""
    server.place, server.knows_overwrite = OURS, False
    with pytest.raises(UnsupportedTableError, match="registered over what is there"):
        server.catalog.move_pointer(NAME, OURS, THEIRS)
    assert server.place == OURS


def test_a_pointer_that_was_begun_and_may_not_be_moved_is_looked_at_again(server: Server) -> None:
    """Access is refused after the first request has had its effect."""
    server.meets.append(lambda: 403)
    with pytest.raises(CommitStateUnknownException, match="was registered"):
        server.catalog.begin_pointer(NAME, OURS)
    assert server.place == OURS
