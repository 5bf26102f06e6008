"""The runs that a worker process has open, and copies on its disk of those that are in an object store.

Runs are immutable and their names are used once, so neither is ever out of date. Copies are in a folder of
the user's in the machine's temporary folder, which all worker processes share. It is bounded: the copies that
were used least recently leave first, and a process that has one mapped keeps reading it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import BinaryIO, TypeVar

from streaming_sink.tasks.errors import NoCopyError
from streaming_sink.tasks.key_index.runs import MappedRun, RunFooter, read_footer
from timeline.stores.base import Store

COPIES_BYTES = 16 * 1024**3
_MOST_OPEN = 256
_COPY_BYTES = 16 * 1024**2
_T = TypeVar("_T")


class OpenRuns:
    """The runs that a process has open, for one thread at a time. `folder` is where copies are; None for one
    that all processes of the user on this machine share.
    """

    def __init__(self, folder: str | None = None, copies_bytes: int = COPIES_BYTES) -> None:
        self._folder = folder
        self._copies_bytes = copies_bytes
        self._footers: OrderedDict[str, RunFooter] = OrderedDict()
        self._runs: OrderedDict[str, MappedRun] = OrderedDict()

    def footer(self, store: Store, path: str, key_digest: str) -> RunFooter:
        """Return the footer of the run at `path`, without its entries: two requests at most, once a process.
        FileNotFoundError, and UnusableRunError as for `read_footer`.
        """

        def read() -> RunFooter:
            with store.open_input(path) as file:
                return read_footer(file, key_digest)

        return _remember(self._footers, store.uri(path), read)

    def open(self, store: Store, path: str, key_digest: str) -> MappedRun:
        """Return the run at `path`, which an object store sends whole, once a machine. FileNotFoundError, and
        UnusableRunError as for `MappedRun`, NoCopyError where the disk has no room for a copy.
        """

        def map_file() -> MappedRun:
            with self._on_disk(store, path) as file:
                return MappedRun(file, key_digest)

        return _remember(self._runs, store.uri(path), map_file)

    def discard(self, store: Store, path: str) -> None:
        """Forget a run, and remove the copy of it: it is read anew, or not any more."""
        self._footers.pop(store.uri(path), None)
        self._runs.pop(store.uri(path), None)
        with contextlib.suppress(OSError):
            os.remove(self._copy_of(store, path))

    def forget(self) -> None:
        """Read the footers of all runs anew."""
        self._footers.clear()

    def _on_disk(self, store: Store, path: str) -> BinaryIO:
        copy = self._copy_of(store, path)
        with contextlib.suppress(OSError):
            file = open(copy, "rb")  # noqa: SIM115 - the caller closes it
            os.utime(file.fileno())
            return file
        source = store.open_input(path)
        try:
            source.fileno()
        except OSError:
            with source:
                return self._copy(source, copy)
        return source

    def _copy(self, source: BinaryIO, copy: str) -> BinaryIO:
        folder = os.path.dirname(copy)
        try:
            os.makedirs(folder, 0o700, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=folder)
        except OSError as error:
            raise NoCopyError(f"a run cannot be copied to {folder}: {error}") from error
        file = open(descriptor, "w+b")  # noqa: SIM115 - the caller closes it
        try:
            shutil.copyfileobj(source, file, _COPY_BYTES)
            file.flush()
            os.replace(temporary, copy)
            _bound(folder, self._copies_bytes, copy)
        except BaseException as error:
            file.close()
            with contextlib.suppress(FileNotFoundError):
                os.remove(temporary)
            if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
                raise NoCopyError(f"a run cannot be copied to {folder}: {error}") from error
            raise
        return file

    def _copy_of(self, store: Store, path: str) -> str:
        if self._folder is None:
            self._folder = _private_folder()
        return f"{self._folder}/{blake2b(store.uri(path).encode(), digest_size=16).hexdigest()}.run"


def _remember(known: OrderedDict[str, _T], name: str, make: Callable[[], _T]) -> _T:
    if name not in known:
        known[name] = make()
    known.move_to_end(name)
    while len(known) > _MOST_OPEN:
        known.popitem(last=False)
    return known[name]


def _private_folder() -> str:
    """Return a folder that no other user can write to: where this user's copies are on the machine, or else a
    new one.
    """
    folder = f"{tempfile.gettempdir()}/streaming-sink-keys-{os.getuid()}"
    with contextlib.suppress(OSError):
        os.makedirs(folder, 0o700, exist_ok=True)
        found = os.lstat(folder)
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077:
            return folder
    return tempfile.mkdtemp(prefix="streaming-sink-keys-")


def _bound(folder: str, most_bytes: int, newest: str) -> None:
    """Remove the files that were used least recently, but not `newest`, until the rest fits."""
    found = []
    for entry in os.scandir(folder):
        with contextlib.suppress(FileNotFoundError):
            found.append((entry.stat().st_mtime_ns, entry.stat().st_size, entry.path))
    held = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if held > most_bytes and path != newest:
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)
            held -= size
