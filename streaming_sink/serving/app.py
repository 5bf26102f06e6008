"""The catalog as an ASGI application: read-only JSON, its OpenAPI description, and a page."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, is_dataclass, replace
from functools import partial
from hashlib import sha256
from importlib.resources import files as package_files
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from streaming_sink import __version__
from streaming_sink.ingest.zone import BufferZone
from streaming_sink.serving.access import Access, check_access
from streaming_sink.serving.answers import Commit, Dataset, Failure, Files, files_of
from streaming_sink.serving.catalog import BusyError, DatasetReader, in_thread, open_catalog
from streaming_sink.serving.openapi import Endpoint, Parameter, describe
from timeline.errors import TimelineError

_MOST_FILES = 10_000
_LONGEST_PATH = 4_096
_NAME = Parameter("name", str, "The dataset, as /api/datasets names it.")
_LIMIT = Parameter(
    "limit", int, f"How many files to return; 1,000 by default, {_MOST_FILES:,} at most.", False, False
)
_PATH = Parameter("path", str, "The whole path, as the ledger spells it.", False)
_DATASETS = Endpoint("/api/datasets", "All datasets, each with its last 20 commits.", list[Dataset])
_DATASET = Endpoint("/api/datasets/{name}", "One dataset.", Dataset, [_NAME])
_COMMITS = Endpoint(
    "/api/datasets/{name}/commits", "The last 100 commits, newest first.", list[Commit], [_NAME]
)
_FAILURES = Endpoint(
    "/api/datasets/{name}/failures",
    "Work items that were set apart, and files that did not land.",
    list[Failure],
    [_NAME],
)
_LAG = Endpoint(
    "/api/datasets/{name}/lag",
    "Milliseconds from announcement to commit, of the last 100 commits: p50, p95, max.",
    dict[str, int],
    [_NAME],
)
_FILES = Endpoint(
    "/api/datasets/{name}/files",
    "What became of a file, in all its versions.",
    Files,
    [_NAME, _PATH, _LIMIT],
)
_ITEM = Endpoint(
    "/api/datasets/{name}/items/{number}",
    "The files of a work item.",
    Files,
    [_NAME, Parameter("number", int, "Its number."), _LIMIT],
)
_SNAPSHOT = Endpoint(
    "/api/datasets/{name}/snapshots/{snapshot_id}/files",
    "The files whose rows a snapshot has added.",
    Files,
    [_NAME, Parameter("snapshot_id", int, "Its id."), _LIMIT],
)


class Catalog:
    """The endpoints, over the datasets of a server."""

    def __init__(self, readers: dict[str, DatasetReader]) -> None:
        self._readers = readers

    def datasets(self, _: Request) -> list[Dataset]:
        reading = [in_thread(reader.dataset) for reader in self._readers.values()]
        return [_brief(each.result()) for each in reading]

    def dataset(self, request: Request) -> Dataset:
        return self._reader(request).dataset()

    def commits(self, request: Request) -> Sequence[Commit]:
        return self._read(request).commits

    def failures(self, request: Request) -> Sequence[Failure]:
        return self._read(request).failures

    def lag(self, request: Request) -> dict[str, int]:
        return dict(self._read(request).lag_ms)

    def files(self, request: Request) -> Files:
        path = request.query_params.get("path", "")
        if not path or len(path) > _LONGEST_PATH:
            raise HTTPException(
                400, f"say ?path=, the whole path of a file, {_LONGEST_PATH:,} characters at most"
            )
        found = self._reader(request).look_up(lambda ledger: ledger.find(path))
        return files_of(found, _limit(request))

    def item(self, request: Request) -> Files:
        number = _number(request, "number")
        found = self._reader(request).look_up(lambda ledger: ledger.files_of_item(number))
        return files_of(found, _limit(request))

    def snapshot(self, request: Request) -> Files:
        snapshot_id = _number(request, "snapshot_id")
        found = self._reader(request).look_up(lambda ledger: ledger.files_of(snapshot_id))
        return files_of(found, _limit(request))

    def _reader(self, request: Request) -> DatasetReader:
        try:
            return self._readers[request.path_params["name"]]
        except KeyError:
            raise HTTPException(404, "there is no dataset of this name; /api/datasets lists them") from None

    def _read(self, request: Request) -> Dataset:
        found = self._reader(request).dataset()
        if not found.as_of_ms:
            raise BusyError(found.error)
        return found


def create_app(
    *zones: BufferZone | str, host: str = "127.0.0.1", token: str | None = None
) -> Callable[..., Awaitable[None]]:
    """Return the catalog of some buffer zones, for an ASGI server that listens on `host`. It writes nothing.

    ValueError where no zone is named, or where others could read the catalog without a token.
    """
    check_access(host, token)  # Starlette makes `Access` with the first request, which is too late
    catalog = Catalog(open_catalog(zones))
    api = [
        (_DATASETS, catalog.datasets),
        (_DATASET, catalog.dataset),
        (_COMMITS, catalog.commits),
        (_FAILURES, catalog.failures),
        (_LAG, catalog.lag),
        (_FILES, catalog.files),
        (_ITEM, catalog.item),
        (_SNAPSHOT, catalog.snapshot),
    ]
    described = describe([endpoint for endpoint, _ in api], __version__)
    routes = [Route(endpoint.path, partial(_answer, answer)) for endpoint, answer in api]
    routes += [
        Route("/openapi.json", partial(_answer, lambda _: described)),
        Route("/", partial(_page, "page.html")),
        Route("/docs", partial(_page, "docs.html")),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Access, host=host, token=token)],
        exception_handlers={
            HTTPException: _say_http_error,
            BusyError: partial(_say_error, 503),
            TimelineError: partial(_say_error, 503),
            Exception: partial(_say_error, 500),
        },
    )


async def _answer(answer: Callable[[Request], Any], request: Request) -> Response:
    found = await run_in_threadpool(answer, request)
    return Response(json.dumps(found, default=_plain), media_type="application/json")


async def _page(name: str, _: Request) -> Response:
    """Answer with a page that loads nothing but the API: its script and its style are in it, and the browser
    runs no other ones.
    """
    html = package_files("streaming_sink.serving").joinpath(name).read_text("utf-8")
    style, script = _between(html, "<style>", "</style>"), _between(html, "<script>", "</script>")
    policy = (
        f"default-src 'none'; connect-src 'self'; style-src '{style}'; script-src '{script}';"
        " img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return HTMLResponse(html, headers={"content-security-policy": policy})


def _between(html: str, start: str, end: str) -> str:
    inner = html.partition(start)[2].partition(end)[0]
    return f"sha256-{b64encode(sha256(inner.encode()).digest()).decode()}"


def _brief(dataset: Dataset) -> Dataset:
    return replace(dataset, commits=dataset.commits[:20], failures=dataset.failures[:20])


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"not a value of an answer: {value!r}")


def _number(request: Request, name: str) -> int:
    text = request.path_params[name]
    if not text.isdecimal() or len(text) > 19:
        raise HTTPException(400, f"{name} is a whole number, not {text[:40]!r}")
    return int(text)


def _limit(request: Request) -> int:
    text = request.query_params.get("limit", "1000")
    if not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= _MOST_FILES:
        raise HTTPException(400, f"limit is a whole number from 1 to {_MOST_FILES:,}")
    return int(text)


async def _say_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    hints = {404: "there is nothing here; /docs lists the paths", 405: "the catalog is read-only: send GET"}
    says = hints.get(error.status_code) if error.detail in ("Not Found", "Method Not Allowed") else None
    return Response(
        json.dumps({"error": says or error.detail}), error.status_code, error.headers, "application/json"
    )


async def _say_error(status: int, _: Request, error: Exception) -> Response:
    says = "the catalog has failed; the server's log says how" if status == 500 else str(error)
    return Response(json.dumps({"error": says}), status, media_type="application/json")
