"""The live files in which batches look for keys, kept from one look to the next, manifest by manifest.

A manifest never changes. So a look costs what manifests have come since the last one, and files that have
deletes; a first one reads all manifests, packed where they have copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from pyiceberg.manifest import ManifestFile

from streaming_sink.keyed.run_places import NOWHERE, RunPlaces
from streaming_sink.table.table_keys import check_spec, position_deletes_of
from streaming_sink.tasks.job import CoveredFiles
from streaming_sink.tasks.key_index.index import KeyIndex
from streaming_sink.tasks.key_index.open_runs import OpenRuns
from streaming_sink.tasks.key_index.runs import MOST_FILES
from streaming_sink.tasks.keys.keyed_files import KeyedFiles
from streaming_sink.tasks.keys.scanning import TABLE_SALT, KeyedFile, partition_salt
from timeline.changes.references import allows_references
from timeline.manifests.contents import is_data
from timeline.manifests.entries import LiveFile
from timeline.manifests.lookup import find_files
from timeline.manifests.packed import PackedFiles
from timeline.versions.head import Head

_FOUND_AT_ONCE = 16 * 1024
"""Files whose places are looked up together: that takes a third less time, and a MiB or two."""


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

    def __init__(self, *, in_partitions: bool, indexed_from: int | None) -> None:
        self._in_partitions = in_partitions
        self._indexed_from = indexed_from
        self._held: dict[str, _Held] = {}
        """By the paths of their manifests."""
        self._places = RunPlaces()
        """In the runs that were found last."""
        self._named: dict[str, tuple[str, LiveFile]] = {}
        """The live files that a delete file names alone, each with the path of its manifest."""

    def at(self, head: Head, index: KeyIndex) -> Searched:
        """Return the live files of a head. KeyConflictError where another engine has deleted rows by their
        values, or has changed the partitioning of keys that are unique in each partition.
        """
        manifests = [it for it in head.manifests if is_data(it)]
        has_index = self._indexed_from is not None and listed_rows(manifests) >= self._indexed_from
        # A footer is read once, and not kept: it has all files of its run.
        listed = index.run_paths() if has_index else ()
        runs_changed = self._places.move_to(listed, lambda path: index.find_footer(path, OpenRuns()))
        self._move_to(head, manifests, runs_changed=runs_changed)
        live = {path: np.zeros(self._places.count_files(path), bool) for path in self._places.paths}
        for manifest in manifests:
            for path, numbers in self._held[manifest.manifest_path].covered.items():
                live[path][numbers] = True
        covered = (CoveredFiles(path, np.packbits(it).tobytes()) for path, it in live.items() if it.any())
        deletes = {it.location: position_deletes_of(head, it) for it in self._with_deletes(head, manifests)}
        return Searched(self._uncovered(manifests), tuple(covered), deletes)

    def uncovered(self, head: Head) -> tuple[KeyedFile, ...]:
        """Return the live files of a head that no run covers, by the runs that the last look has found."""
        manifests = [it for it in head.manifests if is_data(it)]
        self._move_to(head, manifests)
        return self._uncovered(manifests)

    def forget_runs(self) -> None:
        """Read the footers of all runs anew at the next look: a task could not read one."""
        self._places, self._held = RunPlaces(), {}

    def _uncovered(self, manifests: Iterable[ManifestFile]) -> tuple[KeyedFile, ...]:
        held = (self._held[it.manifest_path].files for it in manifests)
        return tuple(dict.fromkeys(chain.from_iterable(held)))  # another engine may list a file twice

    def _move_to(self, head: Head, manifests: Sequence[ManifestFile], *, runs_changed: bool = False) -> None:
        present, paths = {it.manifest_path for it in manifests}, self._places.paths
        self._held = {path: held for path, held in self._held.items() if path in present}
        if runs_changed:
            self._held = {path: held for path, held in self._held.items() if self._is_right(held)}
        missing = (it for it in manifests if it.manifest_path not in self._held)
        read = head.manifest_files.ahead(missing)
        keyed = ((it, self._keyed(head, head.manifest_files.columns(it, once=True))) for it in read)
        is_reused = reused_names(head)
        for group in _groups(keyed):
            found = self._places.of(np.concatenate([it.fingerprints() for _, it in group], axis=1))
            if is_reused is not None:
                reused = (is_reused(it) for _, files in group for it in files.locations)
                found[np.fromiter(reused, bool)] = NOWHERE
            ends = np.cumsum([len(files) for _, files in group])
            for (manifest, files), places in zip(group, np.split(found, ends[:-1]), strict=True):
                self._held[manifest.manifest_path] = _hold(files, places, paths)

    def _is_right(self, held: _Held) -> bool:
        """Return whether no run of a manifest's files has left, and none of the others has come into one."""
        stay = held.covered.keys() <= set(self._places.paths)
        return stay and bool((self._places.of(KeyedFiles.of(held.files).fingerprints()) == NOWHERE).all())

    def _keyed(self, head: Head, columns: PackedFiles) -> KeyedFiles:
        if columns.spec_id != head.spec.spec_id:
            for location in columns.locations[:1]:
                check_spec(head, self._in_partitions, columns.spec_id, location)
        rows, salts, scope = (
            np.array(columns.rows, np.int64),
            [TABLE_SALT],
            np.zeros(len(columns.rows), np.int32),
        )
        if self._in_partitions:
            salts = [partition_salt(values) for values in columns.partitions]
            scope = np.array(columns.partition, np.int32)
        return KeyedFiles(lambda: columns.locations, columns.hashes, rows, salts, scope)

    def _with_deletes(self, head: Head, manifests: Sequence[ManifestFile]) -> Iterator[LiveFile]:
        """Yield the files that delete files may apply to, some more than once."""
        present, named = {it.manifest_path for it in manifests}, head.files_with_own_deletes()
        known = {path: it for path, it in self._named.items() if path in named and it[0] in present}
        found = find_files(head.manifest_files, manifests, named - known.keys(), once=True)
        self._named = known | {path: (it.manifest_path, file) for path, (it, file) in found.items()}
        yield from (file for _, file in self._named.values())
        yield from head.files_with_shared_deletes()


def reused_names(head: Head) -> Callable[[str], bool] | None:
    """Return what says whether a location may have other rows once its file has left the table and has come
    again, as that of a file by reference, whose owner may use the name once more: a run would find keys of
    the rows before. In a catalog other engines may have added such files, as Spark's `add_files` does; what
    they write themselves is below the folders that the table names. None where no file has such a location.
    """
    is_shared = head.version.is_shared
    if not allows_references(head) and not is_shared:
        return None
    named = (head.properties.get(name) for name in _DATA_FOLDERS if is_shared)
    own = tuple(f"{folder.rstrip('/')}/" for folder in (head.metadata.location, *named) if folder)
    return lambda location: not location.startswith(own)


_DATA_FOLDERS = ("write.data.path", "write.object-storage.path", "write.folder-storage.path")
"""The properties by which Iceberg writes data files elsewhere, older ones too."""


def listed_rows(manifests: Iterable[ManifestFile]) -> int:
    """Return how many rows the data files of manifests have, deleted ones too, as their list says."""
    rows = ((it.added_rows_count or 0) + (it.existing_rows_count or 0) for it in manifests if is_data(it))
    return sum(rows)


def _groups(
    keyed: Iterable[tuple[ManifestFile, KeyedFiles]],
) -> Iterator[Sequence[tuple[ManifestFile, KeyedFiles]]]:
    """Yield manifests with their files, some at a time."""
    group, files = list[tuple[ManifestFile, KeyedFiles]](), 0
    for each in keyed:
        group.append(each)
        files += len(each[1])
        if files >= _FOUND_AT_ONCE:
            yield group
            group, files = [], 0
    if group:
        yield group


def _hold(files: KeyedFiles, places: np.ndarray, runs: Sequence[str]) -> _Held:
    uncovered = tuple(files[it] for it in np.flatnonzero(places == NOWHERE).tolist())
    in_runs = places[places != NOWHERE]
    numbers = (in_runs % MOST_FILES).astype(np.int32)
    of_run = in_runs // MOST_FILES
    return _Held(uncovered, {runs[it]: numbers[of_run == it] for it in np.unique(of_run).tolist()})
