"""pyiceberg's REST catalog with time-outs on its requests, and its server's clock as answers state it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from threading import Lock, local
from typing import Any, Literal

from pyiceberg.catalog import TOKEN, rest
from pyiceberg.catalog.rest import Capability, RegisterTableRequest, RestCatalog, TableResponse
from pyiceberg.catalog.rest.response import _handle_non_200_response
from pyiceberg.catalog.rest.scan_planning import StorageCredential
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    UnauthorizedError,
)
from pyiceberg.table import CommitTableRequest, CommitTableResponse, Table, TableIdentifier
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from requests import HTTPError, PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter
from urllib3 import Retry

from timeline.catalogs.answers import unclear
from timeline.catalogs.clients.known_snapshots import KnownSnapshots
from timeline.catalogs.clients.server_clock import ServerClock
from timeline.catalogs.clients.settings import CatalogSettings
from timeline.clock import SYSTEM, Environment
from timeline.errors import StoreUnavailableError, UnsupportedTableError
from timeline.stores import local_path

_SECONDS = (10, 60)
"""To connect, and between two parts of an answer."""
_READ_AGAIN = Retry(
    total=4, backoff_factor=0.2, allowed_methods=("GET", "HEAD"), status_forcelist=(429, 500, 502, 503, 504)
)
"""Reads change nothing, so a failed one is sent again. A commit is not: what became of it is looked up."""
_OF_COMMITS: dict[int, type[Exception]] = {
    409: CommitFailedException,
    500: CommitStateUnknownException,
    502: CommitStateUnknownException,
    504: CommitStateUnknownException,
}
_OF_REGISTERING: dict[int, type[Exception]] = {
    405: NotImplementedError,
    406: NotImplementedError,
    409: CommitFailedException,
}
_TRIES_TO_REGISTER = 3
"""A server that does not know `overwrite` answers 409, as one does that was changed at that moment; but the
first one does so again, while the pointer stays where it is.
"""
_OF_LOADS: dict[int, type[Exception]] = {404: NoSuchTableError}
_MAKING = Lock()


class _TimedSession(Session):
    """A session whose requests end, through whichever adapter they go, and that has a token of one commit."""

    def __init__(self) -> None:
        super().__init__()
        self.next = local()
        for scheme in ("http://", "https://"):
            self.mount(scheme, HTTPAdapter(max_retries=_READ_AGAIN))

    def send(self, request: PreparedRequest, **named: Any) -> Response:
        if named.get("timeout") is None:
            named["timeout"] = _SECONDS
        if (token := getattr(self.next, "token", None)) is not None:
            request.headers["Authorization"] = f"Bearer {token}"
        return super().send(request, **named)


class TimedRestCatalog(RestCatalog):
    """A REST catalog whose requests end, that knows its server's clock, and what is stated for each table."""

    server_clock: ServerClock

    def __init__(self, name: str, now_ms: Callable[[], int], **given: Any) -> None:
        self.server_clock = ServerClock(now_ms)
        self._known = defaultdict[Identifier, KnownSnapshots](KnownSnapshots)
        self._loaded: dict[Identifier, tuple[str, TableResponse]] = {}
        self._stated: dict[Identifier, tuple[dict[str, Any], list[StorageCredential]]] = {}
        super().__init__(name, **given)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit, with the token that the server has stated for the table: pyiceberg would use it for all
        tables from then on.
        """
        token = self._stated[table.name()][0].get(TOKEN) if table.name() in self._stated else None
        bare = Table(table.name(), table.metadata, table.metadata_location, table.io, self)
        if token is None or not isinstance(self._session, _TimedSession):
            return self._commit(bare, requirements, updates)
        self._session.next.token = token
        try:
            return self._commit(bare, requirements, updates)
        finally:
            self._session.next.token = None

    def _commit(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Send a commit as pyiceberg does; what it answers is read by what is known."""
        self._check_endpoint(Capability.V1_UPDATE_TABLE)
        name = table.name()
        asked = CommitTableRequest(
            identifier=TableIdentifier(namespace=name[:-1], name=name[-1]),
            requirements=requirements,
            updates=updates,
        )
        path = self._split_identifier_for_path(name)
        url, data = self.url(rest.Endpoints.update_table, prefixed=True, **path), asked.model_dump_json()
        self._loaded.pop(name, None)  # where it is not a clean success, a whole answer decides
        answer = self._ask(lambda: self._session.post(url, data=data.encode()), _OF_COMMITS)
        done = self._known[name].read(CommitTableResponse, answer.text)
        if name in self._stated:
            config, credentials = self._stated[name]
            loaded = TableResponse.model_construct(
                metadata_location=done.metadata_location,
                metadata=done.metadata,
                config=config,
                storage_credentials=credentials,
            )
            self._remember(name, answer.headers.get("ETag"), loaded)
        return done

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load a table as pyiceberg does. What is answered is read by what is known; a server that states
        ETags answers with nothing but a status where the table is as this process has seen it last.
        """
        self._check_endpoint(Capability.V1_LOAD_TABLE)
        name, path = self.identifier_to_tuple(identifier), self._split_identifier_for_path(identifier)
        url = self.url(rest.Endpoints.load_table, prefixed=True, **path)
        shown = {"snapshots": self.properties.get(rest.SNAPSHOT_LOADING_MODE, "all")}
        etag, loaded = self._loaded.get(name, (None, None))
        unless = {} if etag is None else {"If-None-Match": etag}
        answer = self._ask(lambda: self._session.get(url, params=shown, headers=unless), _OF_LOADS)
        if loaded is None or answer.status_code != HTTPStatus.NOT_MODIFIED:
            loaded = self._known[name].read(TableResponse, answer.text)
            self._remember(name, answer.headers.get("ETag"), loaded)
        return self._response_to_table(name, loaded)

    def forget_table(self, identifier: Identifier) -> None:
        """Keep nothing of a table that was loaded."""
        self._known.pop(identifier, None)
        self._loaded.pop(identifier, None)
        self._stated.pop(identifier, None)

    def _remember(self, name: Identifier, etag: str | None, loaded: TableResponse) -> None:
        if etag is None or TOKEN in loaded.config:
            self._loaded.pop(name, None)  # a token ends, and only a whole answer has the next one
        else:
            self._loaded[name] = etag, loaded

    def _ask(self, send: Callable[[], Response], errors: dict[int, type[Exception]]) -> Response:
        """Return the answer to a request, which is sent once more with a new token. Raises as pyiceberg does,
        by the status.
        """
        for tries_left in (1, 0):
            answer = send()
            try:
                answer.raise_for_status()
            except HTTPError as failure:
                try:
                    _handle_non_200_response(failure, errors)
                except (AuthorizationExpiredError, UnauthorizedError):
                    if not tries_left:
                        raise
                    self._refresh_token()
            else:
                break
        return answer

    def read_pointer(self, identifier: Identifier) -> str | None:
        """Return the place of a table's metadata file, "" where it is not there, so that the server loads no
        table; None where there is no table of this name.
        """
        with suppress(NoSuchTableError):
            return self.load_table(identifier).metadata_location
        with suppress(NoSuchNamespaceError, ForbiddenError):
            if identifier in self.list_tables(identifier[:-1]):
                return ""
        return None

    def begin_pointer(self, identifier: Identifier, place: str) -> None:
        """Register a metadata file as a table that is not there yet, and once more over itself: a server that
        does not offer that is refused, and the table dropped. TableAlreadyExistsError where there is one.
        """
        self.register_table(identifier, place)
        try:
            self.move_pointer(identifier, place, place)
        except UnsupportedTableError:
            self.drop_table(identifier)
            raise
        except (ForbiddenError, UnauthorizedError) as refusal:
            raise CommitStateUnknownException(
                f"the table was registered, and no more: {refusal}"
            ) from refusal

    def move_pointer(self, identifier: Identifier, base: str, place: str) -> None:
        """Register a metadata file over the table of this name. The protocol compares nothing: what comes
        between a last look and the move is passed over. CommitFailedException where it is not at `base` any
        more, UnsupportedTableError where the server does not offer it.
        """
        for tries_left in reversed(range(_TRIES_TO_REGISTER)):
            if self.read_pointer(identifier) != base:
                raise CommitFailedException("another writer was first")
            try:
                self._register_over(identifier, place)
            except CommitFailedException as refusal:
                if not tries_left:
                    raise _cannot_mirror(refusal) from refusal
            else:
                return

    def _register_over(self, identifier: Identifier, place: str) -> None:
        path = self._split_identifier_for_path(identifier)
        asked = RegisterTableRequest(name=identifier[-1], metadata_location=place, overwrite=True)
        url = self.url(rest.Endpoints.register_table, namespace=path["namespace"])
        data = asked.model_dump_json()
        self._loaded.pop(identifier, None)
        try:
            self._check_endpoint(Capability.V1_REGISTER_TABLE)
            answer = self._ask(lambda: self._session.post(url, data=data.encode()), _OF_REGISTERING)
        except NotImplementedError as refusal:
            raise _cannot_mirror(refusal) from refusal
        stated = str(json.loads(answer.text)["metadata-location"])
        if local_path(stated) != local_path(place):
            raise _cannot_mirror(f"it names {stated} for {place}")

    def file_settings(self, identifier: tuple[str, ...], location: str) -> dict[str, Any]:
        """Return how files at a location of a table are reached, with credentials where some are vended.

        NoSuchTableError where there is none of this name.
        """
        self._loaded.pop(identifier, None)  # a whole answer has new credentials
        self.load_table(identifier)
        config, credentials = self._stated[identifier]
        vended = self._resolve_storage_credentials(credentials, location)
        if not vended and Capability.V1_LOAD_CREDENTIALS in self._supported_endpoints:
            vended = self.load_credentials(identifier, location)
        return {**self.properties, **config, **vended}

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Table:
        self._stated[identifier_tuple] = table_response.config, table_response.storage_credentials
        return super()._response_to_table(identifier_tuple, table_response)

    def _create_session(self) -> Session:
        # pyiceberg makes the session, and asks for a token through it, in one call: so it makes ours.
        with _MAKING, _patched(rest, "Session", _TimedSession):
            session = super()._create_session()
        session.hooks["response"].append(self._see_date)
        return session

    def _see_date(self, answer: Response, *_: Any, **__: Any) -> None:
        self.server_clock.see(answer.headers.get("Date"))


def connect_rest(
    settings: CatalogSettings, environment: Environment = SYSTEM, *, snapshots: Literal["all", "refs"] = "all"
) -> TimedRestCatalog:
    """Return a REST catalog, which shows all snapshots of a table, or those alone that a branch or a tag
    names. StoreUnavailableError where it does not answer.
    """
    try:
        catalog = TimedRestCatalog(settings.name, environment.now_ms, **settings.properties)
    except unclear() as failure:
        raise StoreUnavailableError(f"the catalog {settings.name!r} does not answer: {failure}") from failure
    # Even where user or server state another: files of snapshots that are not shown would pass for orphans.
    catalog.properties[rest.SNAPSHOT_LOADING_MODE] = snapshots
    return catalog


def _cannot_mirror(why: object) -> UnsupportedTableError:
    return UnsupportedTableError(
        "the REST server does not let a table's metadata be registered over what is there (overwrite), so it"
        f" cannot have mirrors; use another catalog for them: {why}"
    )


@contextmanager
def _patched(module: Any, name: str, value: object) -> Iterator[None]:
    """Let a module have another value under a name within the block."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)
