"""Requests that are odd or wrong, and answers that fail: what HTTP gets then, and what OpenAPI says of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import _logs, metrics, trace

from streaming_sink import ingest
from streaming_sink.serving.catalog import DatasetReader
from streaming_sink.zones.landed import note_path
from streaming_sink.zones.ledger import Ledger
from tests.unit.streaming_sink.serving.served import Server, filled_zone, served
from timeline.errors import StoreUnavailableError

TOKEN = "correct horse battery"
SECRET = "s3://lake/_buffer/secret"
ERROR = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}


@pytest.fixture(scope="module")
def zone(tmp_path_factory: pytest.TempPathFactory) -> ingest.BufferZone:
    return filled_zone(tmp_path_factory.mktemp("requests"))


@pytest.fixture(scope="module")
def server(zone: ingest.BufferZone) -> Iterator[Server]:
    with served(zone) as running:
        yield running


# ------------------------------------------------------------------------------------- parameters


@pytest.mark.parametrize("number", ["00", "9999999999999999999", "%D9%A1"])
def test_a_number_is_its_digits(server: Server, number: str) -> None:
    assert server.ask(f"/api/datasets/flights/items/{number}").status == 200


@pytest.mark.parametrize("number", ["+1", "1.0", "1_0", "1e1", "%201", "0x1", "true", "1" * 20, "9" * 5000])
@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("items/{}", "number is a whole number, not "),
        ("snapshots/{}/files", "snapshot_id is a whole number, not "),
        ("items/0?limit={}", "limit is a whole number from 1 to 10,000"),
    ],
)
def test_what_is_more_than_digits_is_no_number(server: Server, number: str, path: str, says: str) -> None:
    answer = server.ask("/api/datasets/flights/" + path.format(number))
    assert (answer.status, list(answer.json)) == (400, ["error"])
    assert answer.json["error"].startswith(says)
    assert len(answer.json["error"]) < 100


@pytest.mark.parametrize(("limit", "status"), [("1", 200), ("10000", 200), ("10001", 400), ("", 400)])
def test_a_limit_has_bounds(server: Server, limit: str, status: int) -> None:
    for path in ("items/0?", "snapshots/1/files?", "files?path=x&"):
        assert server.ask(f"/api/datasets/flights/{path}limit={limit}").status == status


def test_an_unknown_parameter_is_passed_over(server: Server) -> None:
    for path in ("/api/datasets/flights/lag", "/api/datasets/flights/items/0", "/docs"):
        assert server.ask(f"{path}?color=red").body == server.ask(path).body


def test_a_body_is_passed_over(server: Server) -> None:
    sent = server.ask("/api/datasets/flights/lag", body='{"a":', Content_Type="application/json")
    assert (sent.status, list(sent.json)) == (200, ["p50", "p95", "max"])


@pytest.mark.parametrize("path", ["commits", "items/x", "items/0?limit=0", "files", "snapshots/x/files"])
def test_an_unknown_dataset_is_told_before_a_wrong_parameter(server: Server, path: str) -> None:
    answer = server.ask(f"/api/datasets/other/{path}")
    assert (answer.status, "/api/datasets lists them" in answer.json["error"]) == (404, True)


# ---------------------------------------------------------------------------------- methods, paths


@pytest.mark.parametrize(
    "path",
    ["/", "/docs", "/openapi.json", "/api/datasets/flights/lag", "/api/datasets/flights/items/x", "/x"],
)
def test_head_is_answered_as_get_without_the_body(server: Server, path: str) -> None:
    get, head = server.ask(path), server.ask(path, method="HEAD")
    assert (head.status, head.body) == (get.status, b"")
    assert {**head.headers, "date": ""} == {**get.headers, "date": ""}


def test_head_needs_the_token_too(zone: ingest.BufferZone) -> None:
    with served(zone, host="0.0.0.0", token=TOKEN) as server:
        assert server.ask("/api/datasets", method="HEAD").status == 401
        assert server.ask("/api/datasets", method="HEAD", Authorization=f"Bearer {TOKEN}").status == 200


@pytest.mark.parametrize("method", ["POST", "OPTIONS", "TRACE", "ANY"])
@pytest.mark.parametrize("path", ["/", "/openapi.json", "/api/datasets", "/api/datasets/flights/items/x"])
def test_other_methods_are_told_which_ones_there_are(server: Server, method: str, path: str) -> None:
    answer = server.ask(path, method=method)
    assert (answer.status, answer.json) == (405, {"error": "the catalog is read-only: send GET"})
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}


@pytest.mark.parametrize("path", ["/redoc", "/docs/oauth2-redirect", "/api", "/api/datasets/flights/x", "//"])
def test_an_unknown_path_leads_to_the_docs(server: Server, path: str) -> None:
    answer = server.ask(path)
    assert (answer.status, answer.json["error"]) == (404, "there is nothing here; /docs lists the paths")


# ------------------------------------------------------------------------------ answers that fail


def test_a_fault_of_the_server_says_nothing_of_what_it_read(
    zone: ingest.BufferZone, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any) -> Any:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(DatasetReader, "dataset", fail)
    monkeypatch.setattr(Ledger, "find", fail)
    with served(zone) as server:
        for path in ("", "/flights", "/flights/lag", f"/flights/files?path={SECRET}"):
            answer = server.ask(f"/api/datasets{path}")
            assert answer.status == 500
            assert answer.json == {"error": "the catalog has failed; the server's log says how"}
            assert (answer.headers["cache-control"], answer.headers["x-frame-options"]) == (
                "no-store",
                "DENY",
            )


def test_an_answer_of_another_type_than_described_is_a_fault_of_the_server(
    zone: ingest.BufferZone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DatasetReader, "dataset", lambda _: SECRET)
    with served(zone) as server:
        answer = server.ask("/api/datasets/flights")
    assert answer.json == {"error": "the catalog has failed; the server's log says how"}


def test_a_store_that_fails_a_look_up_is_told(
    zone: ingest.BufferZone, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any) -> Any:
        raise StoreUnavailableError("the store does not answer; try again", location="there")

    monkeypatch.setattr(Ledger, "find", fail)
    with served(zone) as server:
        answer = server.ask("/api/datasets/flights/files?path=x")
    assert (answer.status, list(answer.json)) == (503, ["error"])
    assert answer.json["error"].startswith("the store does not answer; try again")


def test_a_reason_with_text_that_is_not_unicode_is_answered(tmp_path: Path) -> None:
    zone = filled_zone(tmp_path)
    note = tmp_path / "flights" / note_path(0)
    note.write_text(note.read_text().replace("not a whole Parquet file", r"no number: \ud800"))
    with served(zone) as server:
        [failure] = server.ask("/api/datasets/flights/failures").json
        assert failure["why"].startswith("no number: \ud800")
        assert server.ask("/api/datasets").json[0]["failures"] == [failure]


def test_the_requests_are_in_no_trace(zone: ingest.BufferZone, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace would have names of files, as a log would."""
    asked: list[str] = []

    class Provider(trace.TracerProvider, metrics.MeterProvider, _logs.LoggerProvider):
        def get_tracer(self, *given: Any, **named: Any) -> trace.Tracer:
            asked.append("trace")
            return trace.NoOpTracer()

        def get_meter(self, *given: Any, **named: Any) -> metrics.Meter:
            asked.append("metrics")
            return metrics.NoOpMeter("")

        def get_logger(self, *given: Any, **named: Any) -> _logs.Logger:
            asked.append("log")
            return _logs.NoOpLogger("")

    monkeypatch.setattr(trace, "get_tracer_provider", Provider)
    monkeypatch.setattr(metrics, "get_meter_provider", Provider)
    monkeypatch.setattr(_logs, "get_logger_provider", Provider)
    with served(zone) as server:
        assert server.ask(f"/api/datasets/flights/files?path={SECRET}").status == 200
        assert server.ask("/api/datasets/flights/items/x").status == 400
    assert asked == []


# -------------------------------------------------------------------------------- the description


@pytest.fixture(scope="module")
def described(server: Server) -> Any:
    return server.ask("/openapi.json").json


def test_the_description_has_all_paths_and_their_parameters(described: Any) -> None:
    name, limit = ("name", "path", True, "string"), ("limit", "query", False, "integer")
    number, snapshot_id = ("number", "path", True, "integer"), ("snapshot_id", "path", True, "integer")
    assert {
        path: {
            (it["name"], it["in"], it["required"], it["schema"]["type"])
            for it in operations["get"].get("parameters", [])
        }
        for path, operations in described["paths"].items()
    } == {
        "/api/datasets": set(),
        "/api/datasets/{name}": {name},
        "/api/datasets/{name}/commits": {name},
        "/api/datasets/{name}/failures": {name},
        "/api/datasets/{name}/lag": {name},
        "/api/datasets/{name}/files": {name, ("path", "query", True, "string"), limit},
        "/api/datasets/{name}/items/{number}": {name, number, limit},
        "/api/datasets/{name}/snapshots/{snapshot_id}/files": {name, snapshot_id, limit},
    }
    operations = [operations["get"] for operations in described["paths"].values()]
    assert all(it["summary"] for it in operations)
    assert all(parameter["description"] for it in operations for parameter in it.get("parameters", []))


def test_the_description_has_the_errors_as_they_are(described: Any) -> None:
    for operations in described["paths"].values():
        responses = operations["get"]["responses"]
        assert responses.keys() == {"200", "400", "404", "503", "default"}
        assert [responses[status]["content"] for status in ("400", "404", "503", "default")] == [ERROR] * 4
    error = described["components"]["schemas"]["Error"]
    assert (error["type"], error["required"]) == ("object", ["error"])
    assert error["properties"]["error"]["description"] == "What is wrong, and what to do."


def test_the_description_says_that_a_token_may_be_needed(described: Any) -> None:
    assert described["components"]["securitySchemes"] == {"token": {"type": "http", "scheme": "bearer"}}
    assert described["security"] == [{}, {"token": []}]
    assert described["openapi"].startswith("3.1")


def test_the_types_of_answers_are_described(server: Server, described: Any) -> None:
    schemas, whole = described["components"]["schemas"], server.ask("/api/datasets/flights").json
    assert schemas.keys() == {
        "Commit", "Dataset", "Error", "Failure", "File", "Files", "OpenItemStatus", "Throughput", "Waiting"
    }  # fmt: skip
    assert schemas["Commit"]["properties"].keys() == whole["commits"][0].keys()
    assert schemas["Failure"]["properties"].keys() == whole["failures"][0].keys()
    assert schemas["Commit"]["properties"]["snapshot_id"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
