"""A table's files on a local disk: created atomically, and durable before they are acknowledged (R9, R14)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import itertools
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from timeline.errors import StoreUnavailableError, UnsafeStoreError
from timeline.stores import _paths
from timeline.stores._rename import rename_noreplace
from timeline.stores.base import Created, CreateOutcome, Exists, Listed, Stored, Unknown

_TEMPORARY = ".tmp-"
_OUTPUT_BUFFER_BYTES = 1 << 20
_AT_ONCE_NS = 500_000_000
"""In so short a time the name of the highest version is not freed and taken again: 100 commits come between.
"""
_counter = itertools.count()

_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK})
_NO_NOREPLACE = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP})
_SURELY_REFUSED = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG}
)
_REMEDIES = {
    errno.ENOSPC: "the disk is full: free space",
    errno.EDQUOT: "the disk quota is used up: raise it or free space",
    errno.EROFS: "the file system is read-only: mount it writable",
    errno.EACCES: "permission denied: give this user access",
    errno.EPERM: "operation not permitted: give this user access",
    errno.EMFILE: "too many open files: raise the limit (ulimit -n)",
    errno.ENFILE: "too many open files on this machine: raise the limit",
}


class LocalStore:
    """A folder of a local file system that several processes of one machine may write to.

    `location` is a path, absolute or relative to the current folder, or a `file:` URI. Folders are made as
    they are needed; files whose name begins with `.tmp-` are unfinished creates, which no listing shows.
    """

    def __init__(self, location: str | os.PathLike[str]) -> None:
        self._location = _absolute_location(os.fspath(location))
        self._durable_folders: set[str] = set()

    def __repr__(self) -> str:
        return f"LocalStore({self._location!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalStore, (self._location,)

    @property
    def location(self) -> str:
        return self._location

    @property
    def signature(self) -> str:
        return "local"

    def uri(self, path: str) -> str:
        return _paths.join(self._location, path)

    def relative(self, uri: str) -> str:
        return _paths.relative(self._location, uri)

    def create(self, path: str, data: bytes) -> CreateOutcome:
        final = self.uri(path)
        try:
            temporary = self._write_temporary(final, data)
        except OSError as error:
            raise _unavailable("create", final, error) from error
        try:
            return _publish(temporary, final)
        finally:
            _discard(temporary)

    def overwrite(self, path: str, data: bytes) -> None:
        final = self.uri(path)
        try:
            temporary = self._write_temporary(final, data)
            try:
                os.replace(temporary, final)  # the name is not synced: losing a hint costs nothing
            except OSError:
                _discard(temporary)
                raise
        except OSError as error:
            raise _unavailable("overwrite", final, error) from error

    def read(self, path: str) -> Stored:
        with self.open_input(path) as file:
            try:
                return Stored(file.read(), _identity(os.fstat(file.fileno())))
            except OSError as error:
                raise _unavailable("read", self.uri(path), error) from error

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
            _sync_folder(absolute)
            return listed
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unavailable("list", absolute, error) from error

    def list_below(self, folder: str) -> Iterator[Listed]:
        absolute = self.uri(folder) if folder else self._location
        try:
            changed_ns = os.stat(absolute).st_mtime_ns
            with os.scandir(absolute) as entries:
                found = list(entries)
        except FileNotFoundError:  # deleted since, or never there
            return
        except OSError as error:
            raise _unavailable("list", absolute, error) from error
        for entry in found:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from self.list_below(path)
            elif entry.is_file():
                yield _ListedFile(path, entry, changed_ns)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            _delete(self.uri(path))

    def take_turn(self) -> contextlib.AbstractContextManager[object] | None:
        """As in the protocol: a lock on the table's folder, which ends with the process."""
        turn = contextlib.ExitStack()
        try:
            descriptor = os.open(self._location, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
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
            return _DurableFile(self._open_new(final), final)
        except FileExistsError:
            raise
        except OSError as error:
            raise _unavailable("write", final, error) from error

    def open_input(self, path: str) -> BinaryIO:
        try:
            return open(self.uri(path), "rb")
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _unavailable("read", self.uri(path), error) from error

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
                _write_all(file, data)
                os.fsync(descriptor)
        except OSError:
            _discard(temporary)
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
        if len(folder) > len(self._location) or not os.path.isdir(folder):
            self._make_folder(parent)
        try:
            os.mkdir(folder)
            made = True
        except FileExistsError:
            if not os.path.isdir(folder):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder) from None
            made = False
        try:
            _sync_folder(parent)
        except PermissionError:  # then another user's process made the folder
            if made:
                raise
        self._durable_folders.add(folder)


def is_unfinished(path: str) -> bool:
    """Return whether a path is of an unfinished create, which stays so if its process died."""
    return path.rpartition("/")[2].startswith(_TEMPORARY)


class _DurableFile(io.BufferedWriter):
    """A new file: whole and durable once `close` returned, and removed if it is not closed."""

    def __init__(self, descriptor: int, name: str) -> None:
        super().__init__(io.FileIO(descriptor, "wb"), _OUTPUT_BUFFER_BYTES)
        self._path = name

    def write(self, buffer: Any, /) -> int:
        try:
            return super().write(buffer)
        except OSError as error:
            raise _unavailable("write", self._path, error) from error

    def close(self) -> None:
        if self.closed:
            return
        try:
            super().flush()
            os.fsync(self.fileno())
            super().close()
            _sync_folder(os.path.dirname(self._path))
        except OSError as error:
            self._abandon()
            raise _unavailable("write", self._path, error) from error

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if kind is None:
            self.close()
        else:
            self._abandon()

    def __del__(self) -> None:
        if not self.closed:
            self._abandon()

    def _abandon(self) -> None:
        self.raw.close()  # not super().close(), which would first write what is buffered
        _discard(self._path)


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


def _publish(temporary: str, final: str) -> CreateOutcome:
    try:
        os.link(temporary, final)
    except OSError as error:
        outcome = _settle_link(temporary, final, error)
    else:
        outcome = Created()
    if isinstance(outcome, Unknown):
        return outcome
    try:
        # Also after Exists: the name may be ours, from a create whose sync had failed.
        _sync_folder(os.path.dirname(final))
    except OSError as error:
        return Unknown(f"the folder could not be synced: {error}")
    return outcome


def _settle_link(temporary: str, final: str, error: OSError) -> CreateOutcome:
    """Say what a link that reported `error` did. A network file system may have applied it all the same."""
    try:
        links = os.stat(temporary).st_nlink
    except OSError as second:
        return Unknown(f"{error}; then {second}")
    if links > 1:
        return Created()
    if isinstance(error, FileExistsError):
        return Exists()
    if error.errno in _NO_HARD_LINKS:
        return _publish_by_rename(temporary, final)
    if error.errno in _SURELY_REFUSED:
        raise _unavailable("create", final, error) from error
    return Unknown(str(error))


def _publish_by_rename(temporary: str, final: str) -> CreateOutcome:
    try:
        rename_noreplace(temporary, final)
    except FileExistsError:
        return Exists()
    except OSError as error:
        if error.errno in _NO_NOREPLACE:
            raise UnsafeStoreError(
                "the file system has no hard links, nor a rename that never replaces, so two writers could "
                f"both win a version; nothing was stored; put the table on another file system: {final}"
            ) from error
        if error.errno in _SURELY_REFUSED:
            raise _unavailable("create", final, error) from error
        return Unknown(str(error))
    return Created()


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


def _write_all(file: io.FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _released(descriptor: int) -> None:
    """Release a turn. A failure here is no failure of the commit that it was for."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child may hold the descriptor too
    with contextlib.suppress(OSError):
        os.close(descriptor)


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _delete(name: str) -> None:
    try:
        os.unlink(name)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unavailable("delete", name, error) from error


def _discard(name: str) -> None:
    """Remove a file that nothing refers to. One that stays is harmless, so an error here hides no other."""
    with contextlib.suppress(OSError):
        os.unlink(name)


def _unavailable(verb: str, name: str, error: OSError) -> StoreUnavailableError:
    remedy = _REMEDIES.get(error.errno or 0, error.strerror or str(error))
    kept = "nothing was stored; " if verb in ("create", "write") else ""
    return StoreUnavailableError(f"cannot {verb}, {kept}{remedy}: {name}")
