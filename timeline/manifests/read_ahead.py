"""Manifests and their copies are read some at a time, while those before them are decoded.

Threads make the requests alone: what they bring is decoded, and kept, in the caller's own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from pyiceberg.manifest import ManifestFile

from timeline.stores.base import Store, read_if_there

READS_AT_ONCE = 32
AHEAD_BYTES = 32 * 1024 * 1024
"""Of manifests that were asked for, and are not decoded yet. Their copies are smaller."""


@dataclass
class ReadAhead:
    """The files of one table's metadata. Not safe for concurrent use by threads."""

    store: Store
    _asked: dict[str, Future[bytes | None]] = field(default_factory=dict)
    """What is being read, and what was and is not taken yet, by its path."""

    def read(self, path: str) -> bytes | None:
        """Return what a file holds, None where there is none. Raises as the store does."""
        if (asked := self._asked.pop(path, None)) is not None:
            return asked.result()
        return read_if_there(self.store, path)

    def through(
        self, manifests: Iterable[ManifestFile], path_of: Callable[[ManifestFile], str | None]
    ) -> Iterator[ManifestFile]:
        """Yield manifests in their order, while the files that `path_of` states of the next ones are read;
        None where none is to be read.

        The more were taken, the more are read ahead, up to `READS_AT_ONCE`: who stops early has read few.
        """
        left, waiting = iter(manifests), deque[tuple[ManifestFile, str | None]]()
        most, size = 1, 0
        pool = ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="manifests")
        try:
            while True:
                while len(waiting) < most and size < AHEAD_BYTES and (manifest := next(left, None)):
                    path = path_of(manifest)
                    waiting.append((manifest, path))
                    size += manifest.manifest_length
                    if path is not None and most > 1:
                        self._asked[path] = pool.submit(read_if_there, self.store, path)
                if not waiting:
                    return
                manifest, path = waiting[0]
                yield manifest
                waiting.popleft()
                self._forget(path)
                size -= manifest.manifest_length
                most = min(READS_AT_ONCE, most + 1)
        finally:
            for _, path in waiting:
                self._forget(path)
            pool.shutdown(cancel_futures=True)

    def _forget(self, path: str | None) -> None:
        if path is not None:
            self._asked.pop(path, None)
