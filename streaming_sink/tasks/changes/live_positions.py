"""Which rows of data files are live: a worker keeps what it has read of delete files, which never change."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from streaming_sink.tasks.files.delete_files import read_deletes_in
from streaming_sink.tasks.job import SearchedFile
from timeline.stores.base import Store

KEPT_BYTES = 64 * 1024 * 1024
"""Of positions that a process keeps: eight million deleted rows of few files."""
ENTRY_BYTES = 256
"""What the names and the array of one entry take, beside its positions: where many data files share a delete
file, each has a few.
"""
_READERS = 8
"""Delete files that are read at once: each is small, and takes a request or two."""

_NOTHING = np.empty(0, np.int64)
_Name = tuple[str, str]
"""A delete file, and the data file whose rows it deletes."""


class DeletedPositions:
    """The positions of deleted rows, by delete file; those that were used least recently leave first."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._bytes = 0
        self._known: OrderedDict[_Name, np.ndarray] = OrderedDict()

    def of(self, store: Store, files: Sequence[SearchedFile]) -> dict[_Name, np.ndarray]:
        """Return the positions that each delete file of these data files deletes, ascending. Reads those that
        this process does not know. DataFileError where one is missing or damaged.
        """
        asked = [(delete, file.location) for file in files for delete in file.deletes]
        found = {name: self._known[name] for name in asked if name in self._known}
        missing = [name for name in asked if name not in found]
        paths = list(dict.fromkeys(path for path, _ in missing))  # many data files may share one
        contents = dict(zip(paths, self._read(store, paths), strict=True))
        for path, data_file in missing:
            found[path, data_file] = np.unique(contents[path].get(data_file, _NOTHING))
        self._keep(found)
        return found

    def _read(self, store: Store, paths: Sequence[str]) -> Iterable[dict[str, np.ndarray]]:
        if len(paths) < 2:
            return [read_deletes_in(store, path) for path in paths]
        with ThreadPoolExecutor(min(_READERS, len(paths)), thread_name_prefix="deletes") as pool:
            return list(pool.map(lambda path: read_deletes_in(store, path), paths))

    def _keep(self, used: dict[_Name, np.ndarray]) -> None:
        for name, positions in used.items():
            if name not in self._known:
                self._known[name] = positions
                self._bytes += positions.nbytes + ENTRY_BYTES
            self._known.move_to_end(name)
        while self._bytes > self._kept_bytes:
            _, positions = self._known.popitem(last=False)
            self._bytes -= positions.nbytes + ENTRY_BYTES


DELETED_POSITIONS = DeletedPositions()
"""Those of this worker process."""


def are_live(
    store: Store,
    files: Sequence[SearchedFile],
    numbers: np.ndarray,
    positions: np.ndarray,
    known: DeletedPositions = DELETED_POSITIONS,
) -> np.ndarray:
    """Return which rows no delete file deletes: row i is in file `numbers[i]`, at `positions[i]`."""
    live = np.ones(len(numbers), bool)
    groups = [(files[number], rows) for number, rows in by_number(numbers) if files[number].deletes]
    deleted = known.of(store, [file for file, _ in groups])
    for file, rows in groups:
        for delete in file.deletes:
            live[rows] &= ~_are_in(deleted[delete, file.location], positions[rows])
    return live


def by_number(numbers: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each of the numbers, ascending, with the places where it is."""
    order = np.argsort(numbers, kind="stable")
    found, starts = np.unique(numbers[order], return_index=True)
    if len(found):
        yield from zip(found.tolist(), np.split(order, starts[1:]), strict=True)


def _are_in(ordered: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return which of the positions are among the ordered ones."""
    if not len(ordered):
        return np.zeros(len(positions), bool)
    at = np.searchsorted(ordered, positions)
    found: np.ndarray = ordered[np.minimum(at, len(ordered) - 1)] == positions
    return found
