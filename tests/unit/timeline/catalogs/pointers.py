"""A catalog that knows the place of each table's metadata, and nothing else. Requests may be cut off."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)

BEFORE, AFTER = "before its effect", "after its effect"
"""When the connection is lost."""


class PointersInMemory:
    """The `PointerCatalog` of the tests. `compares`: as SQL, Glue and Hive do, and REST does not."""

    def __init__(self, *, compares: bool = True) -> None:
        self.compares = compares
        self.places = dict[tuple[str, ...], str]()
        self.namespaces = {("db",)}
        self.requests = list[str]()
        self.meets = deque[str | Callable[[], Any] | None]()
        """What the next requests meet, one after the other: BEFORE, AFTER, or what happens before it."""

    def read_pointer(self, identifier: tuple[str, ...]) -> str | None:
        return self._ask("read", lambda: self.places.get(identifier))

    def begin_pointer(self, identifier: tuple[str, ...], place: str) -> None:
        def begin() -> None:
            if identifier[:-1] not in self.namespaces:
                raise NoSuchNamespaceError(str(identifier))
            if identifier in self.places:
                raise TableAlreadyExistsError(str(identifier))
            self.places[identifier] = place

        self._ask("begin", begin)

    def move_pointer(self, identifier: tuple[str, ...], base: str, place: str) -> None:
        def move() -> None:
            if self.compares and self.places.get(identifier) != base:
                raise CommitFailedException("another writer was first")
            self.places[identifier] = place

        self._ask("move", move)

    def drop_table(self, identifier: tuple[str, ...]) -> None:
        def drop() -> None:
            if self.places.pop(identifier, None) is None:
                raise NoSuchTableError(str(identifier))

        self._ask("drop", drop)

    def create_namespace(self, namespace: tuple[str, ...]) -> None:
        def create() -> None:
            if namespace in self.namespaces:
                raise NamespaceAlreadyExistsError(str(namespace))
            self.namespaces.add(namespace)

        self._ask("create namespace", create)

    def _ask(self, request: str, effect: Callable[[], Any]) -> Any:
        self.requests.append(request)
        met = self.meets.popleft() if self.meets else None
        if callable(met):
            met()
        if met == BEFORE:
            raise ConnectionError("no answer")
        answer = effect()
        if met == AFTER:
            raise ConnectionError("no answer")
        return answer
