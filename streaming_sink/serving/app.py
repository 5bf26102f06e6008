"""The catalog as an application of FastAPI: read-only JSON, its OpenAPI description, and a page."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from importlib.resources import files as package_files
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Path, Query
from fastapi.exceptions import RequestValidationError
from pydantic import BeforeValidator
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from streaming_sink import __version__
from streaming_sink.ingest.zone import BufferZone
from streaming_sink.serving.access import Access
from streaming_sink.serving.answers import Commit, Dataset, Error, Failure, Files, list_files_of
from streaming_sink.serving.catalog import BusyError, DatasetReader, in_thread, open_catalog
from timeline.errors import TimelineError

_MOST_FILES = 10_000
_LONGEST_PATH = 4_096
_WANTED = {
    "limit": f"limit is a whole number from 1 to {_MOST_FILES:,}",
    "path": f"say ?path=, the whole path of a file, {_LONGEST_PATH:,} characters at most",
}
_HINTS = {
    "Not Found": "there is nothing here; /docs lists the paths",
    "Method Not Allowed": "the catalog is read-only: send GET",
}


class Json(JSONResponse):
    """JSON in ASCII: the reason why a file was rejected may hold text that UTF-8 has no bytes for."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content).encode()


_API = APIRouter(
    prefix="/api/datasets",
    default_response_class=Json,
    generate_unique_id_function=lambda route: route.name,
    responses={
        200: {"description": "the answer"},
        400: {"model": Error, "description": "a parameter is missing or wrong"},
        404: {"model": Error, "description": "there is no such dataset or path"},
        503: {"model": Error, "description": "the store does not answer in time"},
        "default": {"model": Error, "description": "any other error"},
    },
)


def _whole(text: str) -> int:
    """Return a number as its digits say; pydantic alone would take 1.0, 1_000 and +1, too."""
    if not text.isdecimal() or len(text) > 19:
        raise ValueError("not a whole number")
    return int(text)


async def _reader(
    request: Request, name: Annotated[str, Path(description="The dataset, as /api/datasets names it.")]
) -> DatasetReader:
    readers: dict[str, DatasetReader] = request.app.state.readers
    if name not in readers:
        raise HTTPException(404, "there is no dataset of this name; /api/datasets lists them")
    return readers[name]


_Reader = Annotated[DatasetReader, Depends(_reader)]


def _known(reader: _Reader) -> Dataset:
    found = reader.dataset()
    if not found.as_of_ms:
        raise BusyError(found.error)
    return found


_Known = Annotated[Dataset, Depends(_known)]
_Whole = Annotated[int, BeforeValidator(_whole)]
_Limit = Annotated[
    int,
    Query(
        ge=1,
        le=_MOST_FILES,
        description=f"How many files to return; 1,000 by default, {_MOST_FILES:,} at most.",
    ),
    BeforeValidator(_whole),
]


@_API.get("", summary="All datasets, each with its last 20 commits.")
def datasets(request: Request) -> list[Dataset]:
    reading = [in_thread(reader.dataset) for reader in request.app.state.readers.values()]
    return [_brief(each.result()) for each in reading]


@_API.get("/{name}", summary="One dataset.")
def dataset(reader: _Reader) -> Dataset:
    return reader.dataset()


@_API.get("/{name}/commits", summary="The last 100 commits, newest first.")
def commits(known: _Known) -> Sequence[Commit]:
    return known.commits


@_API.get("/{name}/failures", summary="Work items that were set apart, and files that did not land.")
def failures(known: _Known) -> Sequence[Failure]:
    return known.failures


@_API.get(
    "/{name}/lag",
    summary="Milliseconds from announcement to commit, of the last 100 commits: p50, p95, max.",
)
def lag(known: _Known) -> dict[str, int]:
    return dict(known.lag_ms)


@_API.get("/{name}/files", summary="What became of a file, in all its versions.")
def files(
    reader: _Reader,
    path: Annotated[
        str,
        Query(min_length=1, max_length=_LONGEST_PATH, description="The whole path, as the ledger spells it."),
    ],
    limit: _Limit = 1_000,
) -> Files:
    return list_files_of(reader.look_up(lambda ledger: ledger.find(path)), limit)


@_API.get("/{name}/items/{number}", summary="The files of a work item.")
def item(
    reader: _Reader, number: Annotated[_Whole, Path(description="Its number.")], limit: _Limit = 1_000
) -> Files:
    return list_files_of(reader.look_up(lambda ledger: ledger.files_of_item(number)), limit)


@_API.get("/{name}/snapshots/{snapshot_id}/files", summary="The files whose rows a snapshot has added.")
def snapshot(
    reader: _Reader, snapshot_id: Annotated[_Whole, Path(description="Its id.")], limit: _Limit = 1_000
) -> Files:
    return list_files_of(reader.look_up(lambda ledger: ledger.files_of(snapshot_id)), limit)


def create_app(
    *zones: BufferZone | str, host: str = "127.0.0.1", token: str | None = None
) -> Callable[..., Awaitable[None]]:
    """Return the catalog of some buffer zones, for an ASGI server that listens on `host`. It writes nothing.

    ValueError where no zone is named, or where others could read the catalog without a token.
    """
    app = FastAPI(
        title="streaming-sink: catalog of buffered ingestion",
        version=__version__,
        docs_url=None,  # FastAPI's own pages load scripts from elsewhere.
        redoc_url=None,
        # A trace would have what a log must not have: names of files.
        telemetry={"tracing": False, "metrics": False, "logs": False},
        exception_handlers={
            HTTPException: _say_http_error,
            RequestValidationError: _say_wrong_parameter,
            TimelineError: partial(_say_error, 503),
            Exception: partial(_say_error, 500),
        },
    )
    guarded = Access(app, host=host, token=token)
    app.state.readers = open_catalog(zones)
    app.include_router(_API)
    app.add_route("/", partial(_page, "page.html"))
    app.add_route("/docs", partial(_page, "docs.html"))
    described = app.openapi()
    described["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    described["security"] = [{}, {"token": []}]
    return guarded


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


async def _say_http_error(_: Request, error: HTTPException) -> Response:
    headers = {"allow": "GET, HEAD"} if error.status_code == 405 else None
    return Json({"error": _HINTS.get(error.detail, error.detail)}, error.status_code, headers)


async def _say_wrong_parameter(_: Request, error: RequestValidationError) -> Response:
    wrong = error.errors()[0]
    name = wrong["loc"][-1]
    return Json({"error": _WANTED.get(name) or f"{name} is a whole number, not {wrong['input'][:40]!r}"}, 400)


async def _say_error(status: int, _: Request, error: Exception) -> Response:
    says = "the catalog has failed; the server's log says how" if status == 500 else str(error)
    return Json({"error": says}, status)
