"""A table's files in this process's memory: the store of tests and of the simulator."""

from __future__ import annotations

import io
import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, BinaryIO, TypeVar

from timeline.errors import StoreUnavailableError
from timeline.stores import _paths
from timeline.stores.base import (
    Created,
    CreateOutcome,
    Exists,
    HeldOutput,
    Listed,
    ListedObject,
    Stored,
    Unknown,
)

_T = TypeVar("_T")

Hook = Callable[[str, str], None]
"""Called as `hook(verb, path)`; verbs are create, overwrite, read, list, delete, write, open."""

_SCHEME = "memory://"
_names = itertools.count(1)


class _Contents:
    """The objects of one name. Every copy of a store in this process shares them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.identities = itertools.count(1)


_registry: weakref.WeakValueDictionary[str, _Contents] = weakref.WeakValueDictionary()
_registry_lock = threading.Lock()


class MemoryStore:
    """A store whose objects live as long as a store of that name lives in this process.

    It pickles by name: a copy in the same process shares the objects, a copy in another process finds none.
    `before` and `after` are called around each request, outside the lock, so they may count, block, or fail
    it: a ConnectionError from `before` is a request that was lost, from `after` one that was applied and
    whose reply was lost. A create answers either with `Unknown`, everything else raises
    StoreUnavailableError. Copies made by pickle have no hooks.
    """

    def __init__(
        self, name: str | None = None, *, before: Hook | None = None, after: Hook | None = None
    ) -> None:
        self._name = name.strip("/") if name is not None else f"unnamed-{next(_names)}"
        self.before = before
        self.after = after
        with _registry_lock:
            self._contents = _registry.setdefault(self._name, _Contents())

    def __repr__(self) -> str:
        return f"MemoryStore({self._name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return MemoryStore, (self._name,)

    @property
    def location(self) -> str:
        return f"{_SCHEME}{self._name}"

    @property
    def signature(self) -> str:
        return "memory"

    def uri(self, path: str) -> str:
        return f"{self.location}/{path}"

    def relative(self, uri: str) -> str:
        return _paths.relative(self.location, uri)

    def at(self, location: str) -> MemoryStore:
        if not location.startswith(_SCHEME):
            raise ValueError(f"not in this process's memory, as {self.location} is: {location}")
        return MemoryStore(location.removeprefix(_SCHEME))

    def create(self, path: str, data: bytes) -> CreateOutcome:
        def apply() -> CreateOutcome:
            with self._contents.lock:
                if path in self._contents.objects:
                    return Exists()
                self._contents.objects[path] = (bytes(data), next(self._contents.identities))
                return Created()

        try:
            return self._request("create", path, apply)
        except ConnectionError as error:
            return Unknown(str(error))

    def overwrite(self, path: str, data: bytes) -> None:
        self._clean_request("overwrite", path, lambda: self._put(path, data))

    def read(self, path: str) -> Stored:
        data, identity = self._clean_request("read", path, lambda: self._get(path))
        return Stored(data, str(identity))

    def list_folder(self, folder: str) -> list[Listed]:
        start = len(folder) + 1 if folder else 0
        return [each for each in self.list_below(folder) if "/" not in each.path[start:]]

    def list_below(self, folder: str) -> Iterator[Listed]:
        prefix = f"{folder}/" if folder else ""

        def apply() -> list[Listed]:
            with self._contents.lock:
                return [
                    ListedObject(path, len(data), str(identity))
                    for path, (data, identity) in self._contents.objects.items()
                    if path.startswith(prefix)
                ]

        return iter(self._clean_request("list", folder, apply))

    def look(self, path: str) -> Listed:
        data, identity = self._clean_request("look at", path, lambda: self._get(path))
        return ListedObject(path, len(data), str(identity))

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._clean_request("delete", path, partial(self._remove, path))

    def take_turn(self) -> AbstractContextManager[object]:
        return nullcontext()

    def open_output(self, path: str) -> BinaryIO:
        return HeldOutput(lambda data: self._clean_request("write", path, lambda: self._put(path, data)))

    def copy_from(self, *_: object) -> bool:
        return False

    def open_input(self, path: str) -> BinaryIO:
        return io.BytesIO(self._clean_request("open", path, lambda: self._get(path))[0])

    def _get(self, path: str) -> tuple[bytes, int]:
        with self._contents.lock:
            if path not in self._contents.objects:
                raise FileNotFoundError(f"no such object: {self.uri(path)}")
            return self._contents.objects[path]

    def _put(self, path: str, data: bytes) -> None:
        with self._contents.lock:
            self._contents.objects[path] = (bytes(data), next(self._contents.identities))

    def _remove(self, path: str) -> None:
        with self._contents.lock:
            self._contents.objects.pop(path, None)

    def _request(self, verb: str, path: str, apply: Callable[[], _T]) -> _T:
        if self.before is not None:
            self.before(verb, path)
        answer = apply()
        if self.after is not None:
            self.after(verb, path)
        return answer

    def _clean_request(self, verb: str, path: str, apply: Callable[[], _T]) -> _T:
        try:
            return self._request(verb, path, apply)
        except ConnectionError as error:
            raise StoreUnavailableError(
                f"cannot {verb}, the store does not answer: {self.uri(path)}"
            ) from error
