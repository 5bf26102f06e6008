"""Where data files are in the runs of a key index, by hashes of their locations: 36 bytes a file, no names.

Two locations pass for one where 128 bits of their hashes are the same, as two keys do
(`tasks/keys/siphash.py`), and the files have as many rows. A process has hashes of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from streaming_sink.tasks.key_index.runs import MOST_FILES, RunFooter
from streaming_sink.tasks.keys.keyed_files import KeyedFiles

NOWHERE = -1


@dataclass(frozen=True)
class _Run:
    entries: int
    files: KeyedFiles
    """Without their locations."""


class RunPlaces:
    """Data files that some runs cover. A place is the number of a run, times `MOST_FILES`, and a file's in
    it. A file that is in several is in the largest.
    """

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        self._hashes = np.empty((2, 0), np.int64)
        """In ascending order of the first ones."""
        self._places = np.empty(0, np.int64)

    @property
    def paths(self) -> Sequence[str]:
        """The runs by their numbers, the largest first."""
        return list(self._runs)

    def count_files(self, path: str) -> int:
        """Return how many files a run covers."""
        return len(self._runs[path].files.rows)

    def move_to(self, paths: Collection[str], read: Callable[[str], RunFooter | None]) -> bool:
        """Know these runs alone; return whether one came or left. `read` returns the footer of one that is
        not known yet, None where it is not to be used.
        """
        before, listed = self.paths, set(paths)
        runs = {path: run for path, run in self._runs.items() if path in listed}
        hashes, came = [self._hashes], list[tuple[str, int]]()
        for path in paths:
            if path not in runs and (footer := read(path)) is not None:
                runs[path] = _Run(footer.entries, replace(footer.files, locations=()))
                hashes.append(_hashes_of(footer.files.locations))
                came.append((path, len(footer.files)))
        if not came and len(runs) == len(before):
            return False
        ordered = sorted(runs, key=lambda path: (-runs[path].entries, path))
        number = {path: at for at, path in enumerate(ordered)}
        moved = np.array([number.get(path, NOWHERE) for path in before], np.int64)[self._places // MOST_FILES]
        old = np.where(moved == NOWHERE, NOWHERE, moved * MOST_FILES + self._places % MOST_FILES)
        new = [number[path] * MOST_FILES + np.arange(count) for path, count in came]
        places = np.concatenate([old, *new])
        self._sort(np.concatenate(hashes, axis=1)[:, places != NOWHERE], places[places != NOWHERE])
        self._runs = {path: runs[path] for path in ordered}
        return True

    def of(self, files: KeyedFiles) -> np.ndarray:
        """Return the place of each file, `NOWHERE` where there is none."""
        if not len(self._places):
            return np.full(len(files), NOWHERE, np.int64)
        wanted = _hashes_of(files.locations)
        at = np.empty(len(files), np.int64)
        ascending = np.argsort(wanted[0])  # so that memory is read in order
        at[ascending] = np.searchsorted(self._hashes[0], wanted[0][ascending])
        at = np.minimum(at, len(self._places) - 1)
        found: np.ndarray = np.where((self._hashes[:, at] == wanted).all(axis=0), self._places[at], NOWHERE)
        paths = self.paths
        for number in np.unique(found[found != NOWHERE] // MOST_FILES).tolist():
            there = np.flatnonzero(found // MOST_FILES == number)
            alike = files.are_alike(there, self._runs[paths[number]].files, found[there] % MOST_FILES)
            found[there[~alike]] = NOWHERE  # another engine says something else of it: it is read
        return found

    def _sort(self, hashes: np.ndarray, places: np.ndarray) -> None:
        order = np.argsort(places, kind="stable")  # so that the largest run of a file is the first
        order = order[np.argsort(hashes[0][order], kind="stable")]
        self._hashes, self._places = hashes[:, order], places[order]


def _hashes_of(locations: Sequence[str]) -> np.ndarray:
    found = np.empty((2, len(locations)), np.int64)
    found[0] = np.fromiter(map(hash, locations), np.int64, len(locations))
    found[1] = np.fromiter((hash(f"{it}\n") for it in locations), np.int64, len(locations))
    return found
