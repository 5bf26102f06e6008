"""A table's files on a local disk: created atomically, and durable before they are acknowledged (R9, R14)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from timeline.stores import _paths
from timeline.stores._disk import (
    DurableFile,
    delete,
    discard_unfinished,
    link_into_place,
    sync_folder,
    unavailable,
    write_all,
)
from timeline.stores.base import CreateOutcome, Listed, ListedObject, Stored

_TEMPORARY = ".tmp-"
_AT_ONCE_NS = 500_000_000
"""In so short a time the name of the highest version is not freed and taken again: 100 commits come between.
"""
_counter = itertools.count()


class LocalStore:
    """A folder of a local file system that several processes of one machine may write to.

    `location` is a path, absolute or relative to the current folder, or a `file:` URI. Folders are made as
    they are needed; files whose name begins with `.tmp-` are unfinished creates, which no listing shows.
    """

    def __init__(self, location: str | os.PathLike[str]) -> None:
        self.location = _absolute_location(os.fspath(location))
        self._durable_folders: set[str] = set()

    def __repr__(self) -> str:
        return f"LocalStore({self.location!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalStore, (self.location,)

    @property
    def signature(self) -> str:
        return "local"

    def uri(self, path: str) -> str:
        return f"{self.location}/{path}"

    def relative(self, uri: str) -> str:
        return _paths.relative(self.location, _paths.local_path(uri))

    def at(self, location: str) -> LocalStore:
        if "://" in location and not location.startswith("file:"):
            raise ValueError(f"not on this machine's disk, as {self.location} is: {location}")
        return LocalStore(location)

    def create(self, path: str, data: bytes) -> CreateOutcome:
        final = self.uri(path)
        try:
            temporary = self._write_temporary(final, data)
        except OSError as error:
            raise unavailable("create", final, error) from error
        try:
            return link_into_place(temporary, final)
        finally:
            discard_unfinished(temporary)

    def overwrite(self, path: str, data: bytes) -> None:
        final = self.uri(path)
        try:
            temporary = self._write_temporary(final, data)
            try:
                os.replace(temporary, final)  # the name is not synced: losing a hint costs nothing
            except OSError:
                discard_unfinished(temporary)
                raise
        except OSError as error:
            raise unavailable("overwrite", final, error) from error

    def read(self, path: str) -> Stored:
        with self.open_input(path) as file:
            try:
                return Stored(file.read(), _identity(os.fstat(file.fileno())))
            except OSError as error:
                raise unavailable("read", self.uri(path), error) from error

    def look(self, path: str) -> Listed:
        absolute = self.uri(path)
        try:
            status = os.stat(absolute)
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(f"no such file: {absolute}") from None
        except OSError as error:
            raise unavailable("look at", absolute, error) from error
        return ListedObject(path, status.st_size, _identity(status))

    def list_folder(self, folder: str) -> list[Listed]:
        absolute = self.uri(folder)
        try:
            changed_ns = os.stat(absolute).st_mtime_ns
            with os.scandir(absolute) as entries:
                listed: list[Listed] = [
                    _ListedFile(f"{folder}/{entry.name}" if folder else entry.name, entry, changed_ns)
                    for entry in entries
                    if entry.is_file() and not entry.name.startswith(_TEMPORARY)
                ]
            # A writer may have died between its link and its fsync. A process that finds its version
            # acknowledges it, so what a listing shows must outlive a power cut too. On a folder that is clean
            # this costs 0.05 ms.
            sync_folder(absolute)
            return listed
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unavailable("list", absolute, error) from error

    def list_below(self, folder: str) -> Iterator[Listed]:
        absolute = self.uri(folder) if folder else self.location
        try:
            changed_ns = os.stat(absolute).st_mtime_ns
            with os.scandir(absolute) as entries:
                found = list(entries)
        except FileNotFoundError:  # deleted since, or never there
            return
        except OSError as error:
            raise unavailable("list", absolute, error) from error
        for entry in found:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from self.list_below(path)
            elif entry.is_file():
                yield _ListedFile(path, entry, changed_ns)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            delete(self.uri(path))

    def take_turn(self) -> contextlib.AbstractContextManager[object] | None:
        """As in the protocol: a lock on the table's folder, which ends with the process."""
        turn = contextlib.ExitStack()
        try:
            descriptor = os.open(self.location, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            turn.callback(_released, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            turn.close()
            return None
        except OSError:  # no folder yet, or a file system without locks: then everyone has the turn
            turn.close()
        return turn

    def open_output(self, path: str) -> BinaryIO:
        """As in the protocol; FileExistsError where the name is taken."""
        final = self.uri(path)
        try:
            return DurableFile(self._open_new(final), final)
        except FileExistsError:
            raise
        except OSError as error:
            raise unavailable("write", final, error) from error

    def copy_from(self, *_: object) -> bool:
        return False

    def open_input(self, path: str) -> BinaryIO:
        try:
            return open(self.uri(path), "rb")
        except FileNotFoundError:
            raise
        except OSError as error:
            raise unavailable("read", self.uri(path), error) from error

    def _write_temporary(self, final: str, data: bytes) -> str:
        """Return the name of a new file beside `final` that durably holds `data`. An error leaves no file."""
        folder = os.path.dirname(final)
        while True:
            temporary = f"{folder}/{_TEMPORARY}{os.getpid()}-{threading.get_ident()}-{next(_counter)}"
            try:
                descriptor = self._open_new(temporary)
                break
            except FileExistsError:  # left behind by a dead process that had our process id
                continue
        try:
            with open(descriptor, "wb", buffering=0) as file:
                write_all(file, data)
                os.fsync(descriptor)
        except OSError:
            discard_unfinished(temporary)
            raise
        return temporary

    def _open_new(self, name: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        folder = os.path.dirname(name)
        self._make_folder(folder)
        try:
            return os.open(name, flags, 0o666)
        except FileNotFoundError:  # the folder was removed after we had made it
            self._durable_folders.clear()
            self._make_folder(folder)
            return os.open(name, flags, 0o666)

    def _make_folder(self, folder: str) -> None:
        """Make `folder` and what is missing above it, durably.

        The parent is synced even when the folder exists: the process that made it may have died before it
        synced. Nothing is made in a folder whose own name is not safe, so above the table's location this
        begins at the lowest folder that exists. Once per folder and store.
        """
        if folder in self._durable_folders:
            return
        parent = os.path.dirname(folder)
        if len(folder) > len(self.location) or not os.path.isdir(folder):
            self._make_folder(parent)
        try:
            os.mkdir(folder)
            made = True
        except FileExistsError:
            if not os.path.isdir(folder):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder) from None
            made = False
        try:
            sync_folder(parent)
        except PermissionError:  # then another user's process made the folder
            if made:
                raise
        self._durable_folders.add(folder)


def is_unfinished(path: str) -> bool:
    """Return whether a path is of an unfinished create, which stays so if its process died."""
    return path.rpartition("/")[2].startswith(_TEMPORARY)


def _absolute_location(location: str) -> str:
    path = location
    if location.startswith("file:"):
        parts = urlsplit(location)
        if parts.netloc not in ("", "localhost"):
            raise ValueError(f"a file: location names no host; write file:///path: {location!r}")
        path = unquote(parts.path)
    if not path.strip("/"):
        raise ValueError(f"a table needs a folder of its own: {location!r}")
    return "/" + os.path.abspath(path).lstrip("/")


@dataclass(frozen=True, slots=True)
class _ListedFile:
    """A name that a folder showed. Its size and identity take another system call, at four times the cost."""

    path: str
    entry: os.DirEntry[str]
    changed_ns: int
    """When its folder had last changed, before the listing."""

    @property
    def size(self) -> int:
        try:
            return self.entry.stat().st_size
        except FileNotFoundError:
            return 0

    @property
    def identity(self) -> str:
        """That of the file that was listed; of none, where the name may have come to another one since.

        A process that was stalled after its listing may look at what took the name after retention had freed
        it (R4). Then the folder has changed long after it was listed, by the one clock that times both.
        """
        try:
            identity = _identity(self.entry.stat())
            later_ns = os.stat(os.path.dirname(self.entry.path)).st_mtime_ns - self.changed_ns
        except FileNotFoundError:
            return "gone"
        return identity if abs(later_ns) < _AT_ONCE_NS else "too late to know"


def _identity(status: os.stat_result) -> str:
    return f"{status.st_dev:x}-{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}"


def _released(descriptor: int) -> None:
    """Release a turn. A failure here is no failure of the commit that it was for."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child may hold the descriptor too
    with contextlib.suppress(OSError):
        os.close(descriptor)
