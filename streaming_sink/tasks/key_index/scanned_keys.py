"""Looks keys up in data files that no index covers: a worker keeps the hashes of those it has scanned."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from streaming_sink.tasks.keys.probing import KeyEntries, KeyFilter, KeyProbe
from streaming_sink.tasks.keys.scanning import (
    KeyColumns,
    KeyedFile,
    KeyMatches,
    find_in_entries,
    find_in_file,
    scan_keys,
)
from timeline.stores.base import Store, find_path

KEPT_BYTES = 64 * 1024 * 1024
"""Of hashes, positions and sequences that a process keeps: two million rows. Files that no run of an index
covers have one million before runs are built of them.
"""
FILES_AT_ONCE = 2
"""Files that a task scans at once: while one waits for a request or for a page of the disk, the other works.
More would take the cores of other tasks.
"""

_ROW_BYTES = 24
"""A hash and a position, without the sequence."""

_Name = tuple[str, KeyedFile]
"""The key, by the digest of its columns, and the file. A data file of the table's own never changes."""


class ScannedKeys:
    """The keys of data files, as far as they fit. Those that were asked for last stay: of a table that is
    larger than the bound a part is kept, and the rest is scanned each time.
    """

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._bytes = 0
        self._known: OrderedDict[_Name, list[KeyEntries]] = OrderedDict()
        self._lock = threading.Lock()

    def find(
        self,
        store: Store,
        files: Sequence[KeyedFile],
        columns: KeyColumns,
        probe: KeyProbe,
        wanted: KeyFilter | None = None,
    ) -> list[KeyMatches]:
        """Return for each of the files its rows that have a key of the probe, deleted rows too, by ascending
        position. `wanted` has the coarse words of all these keys: of files that are not kept, only rows that
        may have one are hashed. No file outside of the table's location is kept: its owner may use the name
        again for other rows, once the table has it no more. DataFileError as for `scan_keys`, for a file that
        this process does not know.
        """
        names = [(columns.digest, file) for file in files]
        with self._lock:
            for name in names:
                if name in self._known:
                    self._known.move_to_end(name)
        asked = frozenset(names)
        row_bytes = _ROW_BYTES + (0 if columns.kind is None else columns.kind.itemsize)

        def find_in(name: _Name) -> KeyMatches:
            with self._lock:
                known = self._known.get(name)
            if known is None:
                file = name[1]
                if find_path(store, file.location) is None or not self._make_room(
                    file.rows * row_bytes, asked
                ):
                    return find_in_file(store, file, columns, probe, wanted)
                known = list(scan_keys(store, file, columns))
                self._keep(name, known, asked)
            return find_in_entries(known, columns, probe)

        if len(files) < 2:
            return list(map(find_in, names))
        with ThreadPoolExecutor(min(FILES_AT_ONCE, len(files)), thread_name_prefix="keys") as pool:
            return list(pool.map(find_in, names))

    def _make_room(self, size: int, asked: Collection[_Name]) -> bool:
        """Return whether so many bytes fit, once those of files have left that were not asked for."""
        with self._lock:
            while self._bytes + size > self._kept_bytes and self._known:
                oldest = next(iter(self._known))
                if oldest in asked:
                    return False
                self._bytes -= _bytes_of(self._known.pop(oldest))
            return size <= self._kept_bytes

    def _keep(self, name: _Name, entries: list[KeyEntries], asked: Collection[_Name]) -> None:
        size = _bytes_of(entries)
        if self._make_room(size, asked):  # another thread may have taken it
            with self._lock:
                self._known[name] = entries
                self._bytes += size


SCANNED_KEYS = ScannedKeys()
"""Those of this process."""


def _bytes_of(entries: Sequence[KeyEntries]) -> int:
    return sum(array.nbytes for part in entries for array in part if isinstance(array, np.ndarray))
