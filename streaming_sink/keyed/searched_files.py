"""The live files in which batches look for keys, kept from one look to the next, manifest by manifest.

A manifest never changes. So a look costs what manifests have come since the last one, and files that have
deletes; a first one reads all manifests, packed where they have copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, repeat

import numpy as np
from pyiceberg.manifest import ManifestFile

from streaming_sink.table.table_keys import check_spec, position_deletes_of
from streaming_sink.tasks.job import CoveredFiles
from streaming_sink.tasks.key_index.index import OPEN_RUNS, KeyIndex
from streaming_sink.tasks.key_index.open_runs import OpenRuns
from streaming_sink.tasks.key_index.runs import MOST_FILES, RunFooter
from streaming_sink.tasks.keys.keyed_files import KeyedFiles
from streaming_sink.tasks.keys.scanning import KeyedFile
from streaming_sink.tasks.keys.scopes import scope_salt
from timeline import names
from timeline.manifests.contents import is_data
from timeline.manifests.entries import LiveFile
from timeline.manifests.lookup import find_files
from timeline.manifests.packed import PackedFiles
from timeline.versions.head import Head

_Runs = Sequence[tuple[str, RunFooter]]
_UNCOVERED = -1


@dataclass(frozen=True)
class Searched:
    """The live files of a head, as `KeyJob` has them."""

    files: tuple[KeyedFile, ...]
    covered: tuple[CoveredFiles, ...]
    deletes: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class _Held:
    """The live files of one manifest."""

    files: tuple[KeyedFile, ...]
    """Those that no run covers."""
    covered: Mapping[str, np.ndarray]
    """The path of a run → the numbers of the files in it."""


class SearchedFiles:
    """The live data files of one table. Each is in one run that covers it, the largest, or in none."""

    def __init__(self, *, in_partitions: bool, indexed_from: int | None, runs: OpenRuns = OPEN_RUNS) -> None:
        self._in_partitions = in_partitions
        self._indexed_from = indexed_from
        self._open = runs
        self._held: dict[str, _Held] = {}
        """By the paths of their manifests."""
        self._runs: dict[str, RunFooter] = {}
        """Those that were asked last, the largest first."""
        self._named: dict[str, tuple[str, LiveFile]] = {}
        """The live files that a delete file names alone, each with the path of its manifest."""

    def at(self, head: Head, index: KeyIndex) -> Searched:
        """Return the live files of a head. KeyConflictError where another engine has deleted rows by their
        values, or has changed the partitioning of keys that are unique in each partition.
        """
        manifests = [it for it in head.manifests if is_data(it)]
        self._move_to(head, manifests, self._listed(manifests, index))
        live = {path: np.zeros(len(footer.files), bool) for path, footer in self._runs.items()}
        for manifest in manifests:
            for path, numbers in self._held[manifest.manifest_path].covered.items():
                live[path][numbers] = True
        covered = (CoveredFiles(path, np.packbits(it).tobytes()) for path, it in live.items() if it.any())
        deletes = {it.location: position_deletes_of(head, it) for it in self._with_deletes(head, manifests)}
        return Searched(self._uncovered(manifests), tuple(covered), deletes)

    def uncovered(self, head: Head) -> tuple[KeyedFile, ...]:
        """Return the live files of a head that no run covers, by the runs that the last look has found."""
        manifests = [it for it in head.manifests if is_data(it)]
        self._move_to(head, manifests, list(self._runs.items()))
        return self._uncovered(manifests)

    def forget_runs(self) -> None:
        """Read the footers of all runs anew at the next look: a task could not read one."""
        self._open.forget()
        self._runs, self._held = {}, {}

    def _uncovered(self, manifests: Iterable[ManifestFile]) -> tuple[KeyedFile, ...]:
        held = (self._held[it.manifest_path].files for it in manifests)
        return tuple(dict.fromkeys(chain.from_iterable(held)))  # another engine may list a file twice

    def _listed(self, manifests: Iterable[ManifestFile], index: KeyIndex) -> _Runs:
        if self._indexed_from is None or listed_rows(manifests) < self._indexed_from:
            return ()
        return index.readable_runs(self._open)

    def _move_to(self, head: Head, manifests: Sequence[ManifestFile], runs: _Runs) -> None:
        present, paths = {it.manifest_path for it in manifests}, [path for path, _ in runs]
        gone = self._runs.keys() - set(paths)
        fresh = [footer for path, footer in runs if path not in self._runs]
        left = [] if fresh else [held for path, held in self._held.items() if path not in present]
        self._held = {path: held for path, held in self._held.items() if path in present}
        if self._held and (gone or fresh):
            come = set(chain.from_iterable(footer.files.locations for footer in fresh))
            stay = (it for it in self._held.items() if gone.isdisjoint(it[1].covered))
            self._held = {
                path: it for path, it in stay if come.isdisjoint(file.location for file in it.files)
            }
        places = _Places(runs, left)
        self._runs = dict(runs)
        missing = (it for it in manifests if it.manifest_path not in self._held)
        for manifest in head.manifest_files.ahead(missing):
            files = self._keyed(head, head.manifest_files.columns(manifest))
            self._held[manifest.manifest_path] = _hold(files, places.of(files), paths)

    def _keyed(self, head: Head, columns: PackedFiles) -> KeyedFiles:
        for location in columns.locations[:1]:
            check_spec(head, self._in_partitions, columns.spec_id, location)
        salts = [scope_salt(self._in_partitions, values) for values in columns.partitions]
        rows, scope = np.array(columns.rows, np.int64), np.array(columns.partition, np.int32)
        return KeyedFiles(columns.locations, rows, salts, scope)

    def _with_deletes(self, head: Head, manifests: Sequence[ManifestFile]) -> Iterator[LiveFile]:
        """Yield the files that delete files may apply to, some more than once."""
        present, named = {it.manifest_path for it in manifests}, head.files_with_own_deletes()
        known = {path: it for path, it in self._named.items() if path in named and it[0] in present}
        found = find_files(head.manifest_files, manifests, named - known.keys(), once=True)
        self._named = known | {path: (it.manifest_path, file) for path, (it, file) in found.items()}
        yield from (file for _, file in self._named.values())
        yield from head.files_with_shared_deletes()


def listed_rows(manifests: Iterable[ManifestFile]) -> int:
    """Return how many rows the data files of manifests have, deleted ones too, as their list says."""
    rows = ((it.added_rows_count or 0) + (it.existing_rows_count or 0) for it in manifests if is_data(it))
    return sum(rows)


class _Places:
    """Where data files are in the runs of an index: those of manifests that have left are known; others are
    looked for in all runs, where one of them is older than a run.
    """

    def __init__(self, runs: _Runs, left: Iterable[_Held]) -> None:
        self._runs = runs
        self._known: dict[str, int] = {}
        """By their locations."""
        numbers = {path: number for number, (path, _) in enumerate(runs)}
        for held in left:
            self._known |= dict.fromkeys((file.location for file in held.files), _UNCOVERED)
            for path, places in held.covered.items():
                if (number := numbers.get(path)) is not None:
                    of_run = runs[number][1].files.locations
                    self._known |= {of_run[it]: number * MOST_FILES + it for it in places.tolist()}
        self._newest = max((names.key_run_id(path) or "" for path, _ in runs), default="")
        self._has_all = False

    def of(self, files: KeyedFiles) -> np.ndarray:
        """Return the place of each file: of its run, times `MOST_FILES`, and in the run; -1 for none."""
        if not self._has_all and any(map(self._may_be_elsewhere, files.locations)):
            for number in range(len(self._runs) - 1, -1, -1):  # so that the largest run that covers it counts
                places = count(number * MOST_FILES)
                self._known.update(zip(self._runs[number][1].files.locations, places, strict=False))
            self._has_all = True
        known = map(self._known.get, files.locations, repeat(_UNCOVERED))
        found = np.fromiter(known, np.int64, len(files))
        for number in np.unique(found[found != _UNCOVERED] // MOST_FILES).tolist():
            at = np.flatnonzero(found // MOST_FILES == number)
            alike = files.are_alike(at, self._runs[number][1].files, found[at] % MOST_FILES)
            found[at[~alike]] = _UNCOVERED  # another engine says something else of it: it is read
        return found

    def _may_be_elsewhere(self, location: str) -> bool:
        return location not in self._known and (names.file_id(location) or "") < self._newest


def _hold(files: KeyedFiles, places: np.ndarray, runs: Sequence[str]) -> _Held:
    uncovered = tuple(files[it] for it in np.flatnonzero(places == _UNCOVERED).tolist())
    in_runs = places[places != _UNCOVERED]
    numbers = (in_runs % MOST_FILES).astype(np.int32)
    of_run = in_runs // MOST_FILES
    return _Held(uncovered, {runs[it]: numbers[of_run == it] for it in np.unique(of_run).tolist()})
