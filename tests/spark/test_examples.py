"""The examples run as their first lines say, and land what they say."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import pytest
from pyiceberg.table import StaticTable

from tests.spark.streams import metadata_file
from tests.tiers import only_in_soak

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


@only_in_soak
def test_avro_of_a_registry_whose_schema_changes(tmp_path: Path) -> None:
    said, table, quarantine = _run("avro_registry", tmp_path)
    assert "id widened from int to long, placed_at added as timestamptz" in said
    assert "0 rows quarantined and 1 dropped (fault <> 'tombstone': 1)" in said
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    columns = ["id", "schema_id", "price", "country", "placed_at", "lines"]
    assert _sorted(table, columns) == [
        [1, 1, 9.5, None, None, None],
        [2, 1, 1.5, None, None, None],
        [3, 2, 2.0, "IN", None, None],
        [4, 1, 3.0, None, None, None],
        [6, 3, 6.0, None, epoch, [{"sku": "a", "pieces": None}]],
        [7, 4, 7.0, None, epoch, [{"sku": "b", "pieces": 2}]],
        [3_000_000_000, 3, 4.0, None, epoch, []],
    ]
    assert quarantine == {
        ("fault <> 'no frame of the registry'", None): 1,
        ("fault <> 'not decodable by its schema'", 1): 1,
        ("fault <> 'not decodable by its schema'", 2): 1,
        ("fault <> 'unknown schema id'", 99): 1,
    }


@only_in_soak
def test_protobuf_of_a_registry_whose_schema_changes(tmp_path: Path) -> None:
    said, table, quarantine = _run("protobuf_registry", tmp_path)
    assert "id widened from int to long, placed_at added as timestamptz" in said
    assert "0 rows quarantined and 1 dropped (fault <> 'tombstone': 1)" in said
    at = datetime(2026, 1, 1, microsecond=1, tzinfo=timezone.utc)
    columns = ["id", "schema_id", "price", "country", "placed_at", "lines", "gift", "status", "counts"]
    for row in table:
        row["lines"] = row["lines"] or None  # pyiceberg reads a null list of structs as an empty one
    older = [None] * 3
    assert _sorted(table, columns) == [
        [1, 1, 9.5, None, None, None, *older],
        [2, 1, 0.0, None, None, None, *older],
        [3, 2, 2.0, "IN", None, None, *older],
        [4, 1, 3.0, None, None, None, *older],
        [5, 4, None, None, None, [_line("c", 0, "gift")], _line("d", 0, ""), "PAID", []],
        [7, 4, None, None, None, None, None, "2", [("a", 2**40)]],
        [8, 1, 0.0, None, None, None, *older],
        [3_000_000_000, 3, 0.0, None, at, [_line("a", 2, None), _line("b", 0, None)], *older],
    ]
    assert quarantine == {
        ("fault <> 'no frame of the registry'", None): 2,
        ("fault <> 'not decodable by its schema'", 2): 1,
        ("fault <> 'unknown schema id or message index'", 99): 1,
        ("fault <> 'unknown schema id or message index'", 1): 1,
    }


def _sorted(table: list[dict[str, Any]], columns: list[str]) -> list[list[Any]]:
    assert {name for row in table for name in row} == set(columns)
    return sorted(([row[name] for name in columns] for row in table), key=lambda row: row[0])


def _line(sku: str, pieces: int, note: str | None) -> dict[str, Any]:
    return {"sku": sku, "pieces": pieces, "note": note}


def _run(example: str, folder: Path) -> tuple[str, list[dict[str, Any]], Counter[tuple[str, int | None]]]:
    """Return what an example says, its rows, and how often each check failed for each schema."""
    command = [sys.executable, f"examples/{example}.py", str(folder)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    table, quarantine = (
        StaticTable.from_metadata(metadata_file(str(folder / name)) or "").scan().to_arrow().to_pylist()
        for name in ("orders", "orders__quarantine")
    )
    faults = Counter((row["check"], json.loads(row["row"])["schema_id"]) for row in quarantine)
    return ran.stdout, table, faults


@pytest.mark.parametrize("example", ["avro_registry", "protobuf_registry"])
def test_only_the_registry_itself_says_that_a_schema_is_unknown(example: str) -> None:
    """A registry that is away, or behind a proxy without it, must not send a stream into the quarantine."""
    asked = _registry(example)
    with _answering(404, b'{"error_code": 40403, "message": "Schema not found"}') as url:
        assert asked(url, 7) is None
    for status, body in (
        (404, b"<html>no such page"),
        (404, b'{"error_code": 404}'),
        (404, b"[]"),
        (503, b""),
    ):
        with _answering(status, body) as url, pytest.raises(HTTPError):
            asked(url, 7)
    with pytest.raises(URLError):
        asked(url, 7)


def _registry(example: str) -> Callable[[str, int], object]:
    spec = importlib.util.spec_from_file_location(example, ROOT / "examples" / f"{example}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    method = {"avro_registry": "schema", "protobuf_registry": "file"}[example]
    return lambda url, number: getattr(module.Registry(url), method)(number)


@contextmanager
def _answering(status: int, body: bytes) -> Iterator[str]:
    """Run a server that gives one answer to everything, and yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
