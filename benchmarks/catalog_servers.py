"""The catalogs that benchmarks of commits run on, and what is seen of the requests to them.

REST is Iceberg's own test server, SQL a file of sqlite, and Glue MiniStack, whose store is its own S3.
"""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from botocore.httpsession import URLLib3Session
from requests import Session
from sqlalchemy.engine.default import DefaultDialect

from tests.servers.databases import sqlite
from tests.servers.launch import BUCKET, ministack
from tests.servers.rest_catalog import rest_catalog
from timeline.catalogs.opening import connect_catalog
from timeline.stores import LocalStore, open_store
from timeline.stores.object import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyiceberg.catalog import Catalog

    from timeline.stores import Store

KINDS = ("REST", "SQL", "Glue")
CLIENT_WRITES = ("SQL", "Glue")
"""Where the client reads and writes the metadata."""
PARTS = ("all", "catalog", "store", "own", "own processor")
_TO_STORE = ("create", "overwrite", "read", "list_folder", "delete", "look")


class UnseenWritersStore(LocalStore):
    """A local store whose writers do not see each other."""

    def take_turn(self) -> AbstractContextManager[object]:
        return nullcontext()


@dataclass(frozen=True)
class Served:
    """A running catalog, and how its tables are reached; another process may have it."""

    kind: str
    properties: dict[str, str]
    options: dict[str, Any] | None = None
    """Of the store; None on a disk."""
    seen: bool = True
    """Whether writers on one disk take turns; else they do not see each other, as on an object store."""

    def open_store(self, location: str) -> Store:
        if self.options is not None:
            return open_store(location, self.options)
        return LocalStore(location) if self.seen else UnseenWritersStore(location)

    def connect(self) -> Catalog:
        return connect_catalog(self.properties, open_store=self.open_store)


@contextmanager
def serving(kind: str, work: Path) -> Iterator[Served]:
    """Run an empty catalog of a kind till the block is left."""
    folder = work / kind
    folder.mkdir()
    if kind == "REST":
        with rest_catalog(folder) as server:
            yield Served(kind, server.properties)
    elif kind == "SQL":
        with sqlite(folder) as database:
            yield Served(kind, database.properties)
    else:
        with ministack(folder) as server:
            known = server.options
            keys = {
                "client.region": known["region"],
                "client.access-key-id": known["access_key_id"],
                "client.secret-access-key": known["secret_access_key"],
            }
            ends = {"glue.endpoint": server.endpoint, "s3.endpoint": server.endpoint}
            found = {"type": "glue", "warehouse": f"s3://{BUCKET}/lake", **keys, **ends}
            yield Served(kind, found, known)


@dataclass(frozen=True)
class Sample:
    """One commit, in milliseconds."""

    total: float
    processor: float
    requests: list[tuple[str, float, float]]
    """In their order: those to the catalog in capitals, by what was asked for, and those to the store; each
    with its time, and that on a processor.
    """

    @property
    def parts(self) -> dict[str, float]:
        catalog = sum(taken for name, taken, _ in self.requests if name.isupper())
        store = sum(taken for name, taken, _ in self.requests if not name.isupper())
        own, processor = self.total - catalog - store, self.processor - sum(it for *_, it in self.requests)
        return dict(zip(PARTS, (self.total, catalog, store, own, processor), strict=True))

    @property
    def sequence(self) -> str:
        return ", ".join(name for name, *_ in self.requests)


class Meter:
    """Notes the requests of this process where they leave it, and how long they take."""

    def __init__(self) -> None:
        self._requests: list[tuple[str, float, float]] = []
        self._within = threading.local()

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note requests till the block is left."""
        watched: list[tuple[type, str, Callable[..., str]]] = [
            (Session, "send", lambda _, request, **__: str(request.method)),
            (DefaultDialect, "do_execute", lambda _, __, statement, *___: statement.split()[0].upper()),
            (DefaultDialect, "do_commit", lambda *_: "COMMIT"),
            (URLLib3Session, "send", lambda _, request: _glue_name(request.headers)),
        ]
        for store in (LocalStore, ObjectStore):
            watched += [(store, name, lambda *_, name=name: name) for name in _TO_STORE]
        with ExitStack() as patched:
            for owner, name, call in watched:
                patched.enter_context(patch.object(owner, name, self._noted(call, getattr(owner, name))))
            yield

    def _noted(self, call: Callable[..., str], send: Callable[..., Any]) -> Callable[..., Any]:
        def request(*arguments: Any, **options: Any) -> Any:
            if getattr(self._within, "request", False):
                return send(*arguments, **options)  # a part of one that is noted
            self._within.request, start, processor = True, time.perf_counter(), time.thread_time()
            try:
                return send(*arguments, **options)
            finally:
                processor = 1_000 * (time.thread_time() - processor)
                taken = 1_000 * (time.perf_counter() - start)
                self._requests.append((call(*arguments, **options), taken, processor))
                self._within.request = False

        return request

    def take(self, act: Callable[[], object]) -> Sample:
        """Return what an act takes."""
        self._requests.clear()
        start, start_processor = time.perf_counter(), time.process_time()
        act()
        processor = 1_000 * (time.process_time() - start_processor)
        return Sample(1_000 * (time.perf_counter() - start), processor, self._requests.copy())


def _glue_name(headers: Any) -> str:
    """Return what Glue is asked for, such as UPDATETABLE."""
    target = headers.get("X-Amz-Target", b"")
    text = target.decode() if isinstance(target, bytes) else str(target)
    return text.rpartition(".")[2].upper()
