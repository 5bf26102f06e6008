"""The catalog's API, asked over a real socket: what it answers, whom it refuses, what it does not read."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from streaming_sink import ingest
from streaming_sink.commands.cli import main
from streaming_sink.serving import catalog as catalog_module
from streaming_sink.serving import server as server_module
from streaming_sink.serving.access import is_loopback
from streaming_sink.serving.app import create_app
from streaming_sink.serving.catalog import BusyError, DatasetReader, open_catalog
from streaming_sink.serving.server import serve
from tests.unit.streaming_sink.serving.served import ODD, Server, filled_zone, served
from timeline.clock import SYSTEM
from timeline.errors import StoreUnavailableError

TOKEN = "correct horse battery"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("catalog")


@pytest.fixture(scope="module")
def zone(folder: Path) -> ingest.BufferZone:
    return filled_zone(folder)


@pytest.fixture(scope="module")
def server(zone: ingest.BufferZone) -> Iterator[Server]:
    with served(zone) as running:
        yield running


# ---------------------------------------------------------------------------------- what it answers


def test_datasets_are_shown_with_what_waits_and_what_landed(server: Server, folder: Path) -> None:
    [dataset] = server.ask("/api/datasets").json
    assert (dataset["name"], dataset["stale"], dataset["error"]) == ("flights", False, "")
    assert [group["files"] for group in dataset["waiting"]] == [1]
    assert [(item["number"], item["state"]) for item in dataset["open_items"]] == [(1, "planned")]
    assert (dataset["open_count"], dataset["landed_items"]) == (1, 1)
    assert dataset["lag_ms"] == {"p50": 3000, "p95": 3000, "max": 3000}
    assert (dataset["throughput"]["files_in"], dataset["throughput"]["rows"]) == (1, 1)
    [commit] = dataset["commits"]
    assert (commit["snapshot_id"], commit["lag_ms"]["p50"]) == (str(2**62 + 1), 2900)
    assert dataset["failures"][0]["path"] == f"{folder}/drop/{ODD}"


def test_parts_of_a_dataset_are_answered_alone(server: Server) -> None:
    whole = server.ask("/api/datasets/flights").json
    assert server.ask("/api/datasets/flights/commits").json == whole["commits"]
    assert server.ask("/api/datasets/flights/failures").json == whole["failures"]
    assert server.ask("/api/datasets/flights/lag").json == whole["lag_ms"]


def test_a_file_is_found_by_its_path(server: Server, folder: Path) -> None:
    found = server.ask(f"/api/datasets/flights/files?path={quote(f'{folder}/drop/{ODD}')}").json
    assert (found["total"], found["files"][0]["state"]) == (1, "rejected")
    assert found["files"][0]["why"].startswith("not a whole Parquet file")
    landed = server.ask(f"/api/datasets/flights/files?path={quote(f'{folder}/drop/a.parquet')}").json
    assert [(it["state"], it["snapshot_id"]) for it in landed["files"]] == [("landed", str(2**62 + 1))]


def test_files_of_an_item_and_of_a_snapshot(server: Server) -> None:
    assert server.ask("/api/datasets/flights/items/0").json["total"] == 2
    cut = server.ask("/api/datasets/flights/items/0?limit=1").json
    assert (cut["total"], len(cut["files"])) == (2, 1)
    assert server.ask(f"/api/datasets/flights/snapshots/{2**62 + 1}/files").json["total"] == 1
    assert server.ask("/api/datasets/flights/items/7").json == {"total": 0, "files": []}


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../../../etc/passwd", "file:///etc/passwd", "%00", "definition/000000000001.json"],
)
def test_a_path_that_no_plan_has_is_not_looked_at(server: Server, path: str) -> None:
    answer = server.ask(f"/api/datasets/flights/files?path={path if path == '%00' else quote(path)}")
    assert answer.json == {"total": 0, "files": []}


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/api/datasets/other", 404, "/api/datasets lists them"),
        ("/api/datasets/..%2f..%2fetc/lag", 404, "lists"),
        ("/api/datasets/flights/files", 400, r"say ?path="),
        (f"/api/datasets/flights/files?path={'a' * 5000}", 400, "4,096 characters at most"),
        ("/api/datasets/flights/items/-1", 400, "number is a whole number, not '-1'"),
        ("/api/datasets/flights/items/0?limit=0", 400, "limit is a whole number from 1 to 10,000"),
        ("/api/datasets/flights/snapshots/x/files", 400, "snapshot_id is a whole number"),
        ("/favicon.ico", 404, "/docs lists the paths"),
    ],
)
def test_a_request_that_is_wrong_is_answered_with_what_to_do(
    server: Server, path: str, status: int, says: str
) -> None:
    answer = server.ask(path)
    assert (answer.status, list(answer.json)) == (status, ["error"])
    assert says in answer.json["error"]


def test_the_catalog_is_read_only(server: Server) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        answer = server.ask("/api/datasets", method=method)
        assert (answer.status, answer.json["error"]) == (405, "the catalog is read-only: send GET")


def test_reading_the_catalog_writes_nothing(tmp_path: Path) -> None:
    zone = filled_zone(tmp_path)
    index = tmp_path / "flights" / "plans" / "index"
    for run in index.iterdir():
        run.unlink()
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    with served(zone) as server:
        assert server.ask("/api/datasets").json[0]["landed_items"] == 1
        assert server.ask("/api/datasets/flights/items/0").json["total"] == 2
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == before


def test_the_description_is_of_the_paths_that_are_there(server: Server) -> None:
    described = server.ask("/openapi.json").json
    values = {"name": "flights", "number": "0", "snapshot_id": "1"}
    for path, operations in described["paths"].items():
        asked = server.ask(path.format(**values) + ("?path=x" if path.endswith("}/files") else ""))
        assert (path, asked.status, list(operations)) == (path, 200, ["get"])
    text = json.dumps(described)
    named = {part.partition('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert named <= described["components"]["schemas"].keys()
    dataset = described["components"]["schemas"]["Dataset"]["properties"]
    assert dataset.keys() == server.ask("/api/datasets/flights").json.keys()


def test_the_rules_are_described_as_they_are(server: Server) -> None:
    rules = server.ask("/api/datasets/flights").json["rules"]
    assert {type(value) for value in rules.values()} == {int, bool}
    described = server.ask("/openapi.json").json["components"]["schemas"]["Dataset"]["properties"]["rules"]
    assert described["additionalProperties"] == {"anyOf": [{"type": "integer"}, {"type": "boolean"}]}


def test_pages_load_nothing_from_elsewhere(server: Server) -> None:
    for path in ("/", "/docs"):
        page = server.ask(path)
        assert page.status == 200
        assert b"http" not in page.body.replace(b"http://www.w3.org/2000/svg", b"")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'; connect-src 'self'" in policy
        assert "unsafe" not in policy


# ---------------------------------------------------------------------------------- whom it refuses


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "", "10.0.0.1"]
)
def test_a_server_on_loopback_answers_to_its_own_names_alone(server: Server, host: str) -> None:
    """A page of another site may have its name lead to 127.0.0.1."""
    for path in ("/", "/api/datasets"):
        answer = server.ask(path, Host=host)
        assert answer.status == 403
        assert "localhost and 127.0.0.1 alone" in answer.json["error"]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:8765", "[::1]:8765", "127.3.2.1"])
def test_names_of_loopback_are_answered(server: Server, host: str) -> None:
    assert server.ask("/api/datasets", Host=host).status == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "lake.example", "localhost.example"])
def test_a_server_for_others_needs_a_token(zone: ingest.BufferZone, host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(ValueError, match=r"can be reached from other machines, so a token is needed"):
        create_app(zone, host=host)
    with pytest.raises(ValueError, match="the token must have 16 characters or more"):
        create_app(zone, host=host, token="short")


def test_the_command_refuses_another_host_without_a_token(
    zone: ingest.BufferZone, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STREAMING_SINK_TOKEN", raising=False)
    monkeypatch.setattr("uvicorn.Server.run", lambda *given, **named: pytest.fail("it listens"))
    assert main(["ingest", "serve", zone.store.location, "--host", "0.0.0.0"]) == 2
    assert "STREAMING_SINK_TOKEN" in capsys.readouterr().err
    assert main(["ingest", "serve", f"{zone.store.location}-other"]) == 2
    assert "there is no buffer zone here" in capsys.readouterr().err


@pytest.mark.parametrize("package", ["fastapi", "uvicorn"])
def test_the_command_says_in_a_line_which_extra_is_missing(
    zone: ingest.BufferZone, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    for module in ("access", "app"):
        monkeypatch.delitem(sys.modules, f"streaming_sink.serving.{module}")
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(server_module, "_listening_at", lambda *_: pytest.fail("it listens"))
    assert main(["ingest", "serve", zone.store.location]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("ingest serve: pip install 'streaming-sink[http]' to serve a catalog: ")


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)])
def test_the_command_says_in_a_line_that_a_port_is_in_use(
    zone: ingest.BufferZone, capsys: pytest.CaptureFixture[str], host: str, family: socket.AddressFamily
) -> None:
    with socket.create_server((host, 0), family=family) as taken:
        port = taken.getsockname()[1]
        assert main(["ingest", "serve", zone.store.location, "--host", host, "--port", str(port)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    refused = f"nothing can listen there; choose another by --port or --host: {host} port {port}"
    assert err == f"ingest serve: {refused}: address already in use\n"


def test_a_host_that_has_no_address_is_told_in_words(
    zone: ingest.BufferZone, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(*given: object, **named: object) -> socket.socket:
        raise OSError(socket.EAI_NONAME, "Name or service not known (while attempting to bind)")

    monkeypatch.setattr(socket, "create_server", resolve)
    with pytest.raises(ValueError, match=r"no.such.host port 1: name or service not known"):
        serve(zone, host="no.such.host", port=1, token=TOKEN)


def test_the_command_serves_what_it_has_said(zone: ingest.BufferZone) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "streaming_sink", "ingest", "serve", zone.store.location]
    with subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        try:
            assert serving.stdout.readline().startswith(f"http://127.0.0.1:{port}/ shows 1 datasets")
            assert Server(port).ask("/api/datasets").status == 200
        finally:
            serving.send_signal(signal.SIGINT)
        assert serving.wait(60) == 0


def test_a_token_opens_the_catalog_and_nothing_else_does(zone: ingest.BufferZone) -> None:
    with served(zone, host="0.0.0.0", token=TOKEN) as server:
        for sent in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": f"Basic {TOKEN}"},
            {"Cookie": "streaming_sink="},
            {"Cookie": f"streaming_sink={TOKEN}"},
        ):
            refused = server.ask("/api/datasets", **sent)
            assert (refused.status, list(refused.json)) == (401, ["error"])
        assert server.ask(f"/api/datasets?token={quote(TOKEN)}").status == 401
        assert server.ask("/api/datasets", Authorization=f"Bearer {TOKEN}").status == 200
        assert server.ask("/docs").status == 401


def test_a_browser_signs_in_with_a_form_that_leaves_the_token_in_no_url(zone: ingest.BufferZone) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    with served(zone, host="0.0.0.0", token=TOKEN) as server:
        asked = server.ask("/")
        assert (asked.status, b'action="/sign-in"' in asked.body) == (401, True)
        assert server.ask("/sign-in", method="POST", body="token=wrong", **form).status == 401
        assert server.ask("/sign-in", method="POST", body="token=" + "x" * 9000, **form).status == 413
        signed = server.ask("/sign-in", method="POST", body=f"token={quote(TOKEN)}", **form)
        assert (signed.status, signed.headers["location"]) == (303, "/")
        cookie = signed.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert TOKEN not in cookie
        assert server.ask("/", Cookie=cookie.partition(";")[0]).status == 200


# -------------------------------------------------------------------- a store that does not answer


def test_a_store_that_hangs_leaves_what_was_read_and_says_so(
    zone: ingest.BufferZone, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1_000_000]
    environment = replace(SYSTEM, now_ms=lambda: clock[0])
    reader = DatasetReader("flights", zone, environment)
    assert not reader.dataset().stale
    answered, read = threading.Event(), catalog_module.status
    calls: list[int] = []

    def hang(*given: Any) -> Any:
        calls.append(1)
        answered.wait(30)
        return read(*given)

    monkeypatch.setattr(catalog_module, "status", hang)
    clock[0] += 500
    assert not reader.dataset(0.01).stale
    assert calls == []
    clock[0] += 10_000
    for _ in range(3):
        late = reader.dataset(0.01)
        assert (late.stale, late.as_of_ms, late.landed_items) == (True, 1_000_000, 1)
        assert "the store has not answered in time" in late.error
    assert calls == [1]
    answered.set()
    assert not reader.dataset(30).stale


def test_a_store_that_fails_leaves_what_was_read_and_says_why(
    zone: ingest.BufferZone, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1_000_000]
    reader = DatasetReader("flights", zone, replace(SYSTEM, now_ms=lambda: clock[0]))
    assert not reader.dataset().stale

    def fail(*given: Any) -> Any:
        raise StoreUnavailableError("the store does not answer; try again", location="there")

    with monkeypatch.context() as patched:
        patched.setattr(catalog_module, "status", fail)
        clock[0] += 10_000
        late = reader.dataset()
        assert (late.stale, late.landed_items) == (True, 1)
        assert "the store does not answer; try again" in late.error
    clock[0] += 10_000
    assert not reader.dataset().stale


def test_look_ups_that_hang_are_bounded(zone: ingest.BufferZone) -> None:
    reader, answered = DatasetReader("flights", zone), threading.Event()
    for _ in range(8):
        with pytest.raises(BusyError, match="the store has not answered in time"):
            reader.look_up(lambda ledger: answered.wait(30), 0.01)
    with pytest.raises(BusyError, match="too many look-ups wait"):
        reader.look_up(lambda ledger: None)
    answered.set()


def test_a_dataset_that_was_never_read_is_no_empty_one(tmp_path: Path, zone: ingest.BufferZone) -> None:
    broken = filled_zone(tmp_path, "broken")
    (tmp_path / "broken" / "definition" / "000000000001.json").write_text("{")
    with served(broken.reopened(), zone) as server:
        both = server.ask("/api/datasets").json
        assert [(it["name"], it["stale"]) for it in both] == [("broken", True), ("flights", False)]
        assert "the buffer zone's definition cannot be read" in both[0]["error"]
        answer = server.ask("/api/datasets/broken/commits")
        assert (answer.status, "definition cannot be read" in answer.json["error"]) == (503, True)
        assert server.ask("/api/datasets/broken/items/0").status == 503


def test_datasets_have_names_of_their_own(tmp_path: Path, zone: ingest.BufferZone) -> None:
    assert list(open_catalog([zone, zone.store.location, f"{tmp_path}/x/flights"])) == [
        "flights",
        "flights-2",
        "flights-3",
    ]
    with pytest.raises(ValueError, match="say which buffer zones"):
        create_app()
