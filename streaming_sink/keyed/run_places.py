"""Where data files are in the runs of a key index: 24 bytes a file, no names.

Two files pass for one where 128 bits are the same, of the hash of their location, their rows and their scope,
as two keys do (`tasks/keys/siphash.py`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from streaming_sink.tasks.key_index.runs import MOST_FILES, RunFooter

NOWHERE = -1


class _Run(NamedTuple):
    entries: int
    files: int


class RunPlaces:
    """Data files that some runs cover. A place is the number of a run, times `MOST_FILES`, and a file's in
    it. A file that is in several is in the largest. It is in none that says other rows or another scope of it
    than the table does.
    """

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        self._high, self._low = np.empty((2, 0), np.uint64)
        """The fingerprints, in ascending order of their first words."""
        self._places = np.empty(0, np.int64)

    @property
    def paths(self) -> Sequence[str]:
        """The runs by their numbers, the largest first."""
        return list(self._runs)

    def count_files(self, path: str) -> int:
        """Return how many files a run covers."""
        return self._runs[path].files

    def move_to(self, paths: Collection[str], read: Callable[[str], RunFooter | None]) -> bool:
        """Know these runs alone; return whether one came or left. `read` returns the footer of one that is
        not known yet, None where it is not to be used.
        """
        before, listed = self.paths, set(paths)
        runs = {path: run for path, run in self._runs.items() if path in listed}
        came, high, low = list[str](), array("Q"), array("Q")
        for path in paths:
            if path not in runs and (run := _read_into(high, low, read(path))) is not None:
                runs[path] = run
                came.append(path)
        if not came and len(runs) == len(before):
            return False
        ordered = sorted(runs, key=lambda path: (-runs[path].entries, path))
        self._runs = {path: runs[path] for path in ordered}
        number = {path: at for at, path in enumerate(ordered)}
        moved = np.array([number.get(path, NOWHERE) for path in before], np.int64)[self._places // MOST_FILES]
        stay = moved != NOWHERE
        self._places = moved[stay] * MOST_FILES + self._places[stay] % MOST_FILES
        self._high, self._low = _behind(self._high[stay], high), _behind(self._low[stay], low)
        del high, low
        self._add([(number[path] * MOST_FILES, runs[path].files) for path in came])
        return True

    def of(self, fingerprints: np.ndarray) -> np.ndarray:
        """Return the place of each file, `NOWHERE` where there is none. Many at a time take less for each."""
        high, low = fingerprints
        if not len(self._places):
            return np.full(len(high), NOWHERE, np.int64)
        ascending = np.argsort(high)  # so that memory is read in order
        at = np.empty(len(high), np.int64)
        at[ascending] = np.searchsorted(self._high, high[ascending])
        at = np.minimum(at, len(self._places) - 1)
        same = (self._high[at] == high) & (self._low[at] == low)
        found: np.ndarray = np.where(same, self._places[at], NOWHERE)
        return found

    def _add(self, came: Iterable[tuple[int, int]]) -> None:
        """Add the places of files whose fingerprints are there, each from a number on, and order all."""
        places, at = np.empty(len(self._high), np.int64), len(self._places)
        places[:at] = self._places
        for first, files in came:
            places[at : at + files] = np.arange(first, first + files)
            at += files
        order = np.lexsort((places, self._high))  # the largest run of a file is the first
        self._places = places[order]
        del places
        self._high = self._high[order]
        self._low = self._low[order]


def _read_into(high: array[int], low: array[int], footer: RunFooter | None) -> _Run | None:
    """Add the fingerprints of a run's files to buffers, which grow in place, and forget its footer."""
    if footer is None:
        return None
    for column, words in zip((high, low), footer.files.fingerprints(), strict=True):
        column.frombytes(words.tobytes())
    return _Run(footer.entries, len(footer.files))


def _behind(known: np.ndarray, came: array[int]) -> np.ndarray:
    """Return the words of both; where none is known yet, `came` as it is: a copy takes as much again."""
    words = np.frombuffer(came, np.uint64)
    return np.concatenate([known, words]) if len(known) else words
