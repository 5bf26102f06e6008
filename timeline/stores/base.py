"""The `Store` protocol: the files of one table, with create-if-absent, and the outcomes of a create."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol


@dataclass(frozen=True, slots=True)
class Created:
    """The object did not exist, and now holds exactly our bytes, durably."""


@dataclass(frozen=True, slots=True)
class Exists:
    """The store says that the object was there already. It may be our own, or not be there at all (R2).

    The slot decides, not this answer.
    """


@dataclass(frozen=True, slots=True)
class Unknown:
    """No clean answer: the create may have been applied, may be applied later, or never (R3)."""

    cause: str


CreateOutcome = Created | Exists | Unknown


class Listed(Protocol):
    """One object as a listing shows it."""

    @property
    def path(self) -> str:
        """Relative to the store's location."""

    @property
    def size(self) -> int:
        """In bytes; 0 for an object that was deleted since."""

    @property
    def identity(self) -> str:
        """Changes whenever the object under this path is replaced by other bytes.

        An ETag; device, inode, size and time on local disk. On S3 equal bytes may keep it. A store may look
        for it only when it is asked, so ask as soon as the listing is there.
        """


@dataclass(frozen=True, slots=True)
class ListedObject:
    """What a listing shows, where the store's answer has it all."""

    path: str
    size: int
    identity: str


@dataclass(frozen=True, slots=True)
class Stored:
    """One object as a read brings it: its bytes, and the identity that a listing would show for them (R4)."""

    data: bytes
    identity: str


class Store(Protocol):
    """The files of one table. Every path is relative to `location`, with `/` between its parts.

    A store pickles: it carries its location and options, never an open client. Its `repr` shows no secret.
    Reads, listings and deletes that keep failing raise `StoreUnavailableError`; a failure is never reported
    as an absent object or an empty listing.
    """

    @property
    def location(self) -> str:
        """The table's location, absolute, without a trailing slash, as the table's metadata spells it."""

    @property
    def signature(self) -> str:
        """Names the endpoint and the client's version, without secrets.

        When it changes, the store is probed again (R18).
        """

    def uri(self, path: str) -> str:
        """Return the absolute name of `path`, as manifests and other engines spell it."""

    def relative(self, uri: str) -> str:
        """Return the path under `location` of an absolute name; the inverse of `uri`.

        ValueError if the name lies elsewhere.
        """

    def at(self, location: str) -> Store:
        """Return the store of another location, reached as this one is. Sends no request.

        ValueError for a location of another kind of store.
        """

    def create(self, path: str, data: bytes) -> CreateOutcome:
        """Create `path` holding `data` unless it exists; never replaces. One request, no retries.

        `Created` is returned only when the bytes and the name are durable (R14). A lost race and our own
        create whose reply was lost may both come back as `Exists` or `Unknown`. Raises only for what is
        certain to have stored nothing: `StoreUnavailableError` (permission denied, disk full, no such
        bucket), `UnsafeStoreError` (there is no create-if-absent here).
        """

    def overwrite(self, path: str, data: bytes) -> None:
        """Store `data` at `path`, replacing what is there, atomically for readers. For the version hint."""

    def read(self, path: str) -> Stored:
        """Return the object. Raises the builtin FileNotFoundError if there is none."""

    def list_folder(self, folder: str) -> list[Listed]:
        """Return the objects directly in `folder`, not in its sub-folders, in any order; [] if there is none.

        Strongly consistent: shows every object whose create was answered before the call began (R5). What it
        shows is durable, whichever writer created it.
        """

    def list_below(self, folder: str) -> Iterator[Listed]:
        """Yield every object below `folder` ("" for all), in its sub-folders too, in any order.

        For cleaners and the doctor, never to decide a commit. On local disk it shows unfinished creates too.
        """

    def delete(self, paths: Iterable[str]) -> None:
        """Delete the objects; those that do not exist are no error."""

    def take_turn(self) -> AbstractContextManager[object] | None:
        """Return this writer's turn to commit, which lasts as long as its `with`; None while it is another's.

        A courtesy among writers that see each other at no cost, as the processes of one machine do, so that
        they lose fewer races. Nothing depends on it: where writers do not see each other, each has the turn
        at any time, and several may have it at once. Sends no request, never waits, raises nothing.
        """

    def open_output(self, path: str) -> BinaryIO:
        """Open a new object for sequential writing. Whole and durable once `close()` returned (R14).

        Before that no reader takes it for whole; leaving its `with` by an exception, or dropping it unclosed,
        discards it. Writing and closing raise StoreUnavailableError. `path` must be fresh: nothing is
        promised when it exists.
        """

    def copy_from(self, source: Store, seen: Listed, path: str, /) -> bool:
        """Have the store itself copy an object that was `seen` at another location to `path`, which must be
        fresh; return whether it has.

        True: `path` was seen and is durable, and holds the bytes that have the size and the identity of
        `seen`; they did not come through this process. False: the store cannot or will not, gives no clear
        answer, or the source has changed. Then `path` is spent, since an object may still come to be there
        (R3): write to another one. Raises StoreUnavailableError where no look at either is answered.
        """

    def look(self, path: str) -> Listed:
        """Return what a listing would show of one object, by one request, however full its folder is.

        Raises the builtin FileNotFoundError if there is none.
        """

    def open_input(self, path: str) -> BinaryIO:
        """Open an object for seeking reads, as pyarrow does on Parquet.

        Raises the builtin FileNotFoundError if there is none.
        """


def read_if_there(store: Store, path: str) -> bytes | None:
    """Return what an object holds; None where there is none."""
    try:
        return store.read(path).data
    except FileNotFoundError:
        return None


def open_by_name(store: Store, uri: str) -> BinaryIO:
    """Open a file by its absolute name for seeking reads, also one that lies outside of the store's location.

    FileNotFoundError if there is none; ValueError for a name of another kind of store.
    """
    path = find_path(store, uri)
    if path is None:
        folder, _, name = uri.rpartition("/")
        return store.at(folder or "/").open_input(name)
    return store.open_input(path)


def paths_below(store: Store, uris: Iterable[str]) -> list[str]:
    """Return the paths of those of the files that lie below the store's location. What lies elsewhere is not
    the table's own, and is never deleted by it (R28).
    """
    return [path for uri in uris if (path := find_path(store, uri)) is not None]


def find_path(store: Store, uri: str) -> str | None:
    """Return the path of a file below the store's location, None where it lies elsewhere."""
    try:
        return store.relative(uri)
    except ValueError:
        return None


class DiscardedOnFailure(io.IOBase):
    """An output that exists once `close` has returned; left by an exception, or dropped, it never exists."""

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.close()
        else:
            self._abandon()

    def __del__(self) -> None:
        if not self.closed:
            self._abandon()

    def _abandon(self) -> None:
        super().close()


class HeldOutput(DiscardedOnFailure, io.BytesIO):
    """Gives what was written to `store` when it is closed."""

    def __init__(self, store: Callable[[bytes], Any]) -> None:
        super().__init__()
        self._store = store

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._store(data)
