"""What the retained snapshots refer to: read manifest by manifest, and kept in some bytes a file."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple, TypeVar

from pyiceberg.manifest import DataFileContent, ManifestFile
from pyiceberg.table.snapshots import Snapshot

from timeline.diagnosis.findings import Few
from timeline.errors import CorruptTableError
from timeline.manifests.contents import is_data
from timeline.manifests.entries import LiveFile
from timeline.manifests.manifests import ManifestFiles
from timeline.manifests.packed import PackedFiles
from timeline.retention.path_index import PathIndex
from timeline.stores.base import Store, find_path
from timeline.versions.tombstones import tombstones_of
from timeline.versions.version_file import Version
from timeline.versions.work_items import STAGED_TAG_PREFIX

_T = TypeVar("_T")

READERS = 8
"""Requests at a time: 2,000 snapshots on a store that takes 60 ms a request are read in half a minute."""
_LISTS_AT_ONCE = 4 * READERS
"""In memory: some 8 MB where each has 300 manifests."""

_NOW, _STAGED, _LIVE, _TWICE, _THERE, _DIFFERS, _SAID = (1 << bit for bit in range(7))
_UNKNOWN = -1


class Needed(NamedTuple):
    """A file that a retained snapshot needs."""

    location: str
    what: str
    """Manifest list, manifest, data file, delete file, tombstone file, statistics file."""
    size: int | None
    """As the metadata states it, where it does."""
    now: bool = False
    """Whether the current snapshot needs it."""
    tag: str | None = None
    """That of the staged snapshot that has added it."""
    rows: int = 0
    deletes: LiveFile | None = None
    """What is known of a delete file."""


class Wrong(NamedTuple):
    """A needed file that is missing, or has another size than is stated."""

    needed: Needed
    now: bool
    """Whether the current snapshot needs it."""
    staged: bool
    """Whether a staged snapshot has added it, and the current one does not need it."""
    size: int | None
    """That of the file that is there; None where none is."""


class Reachable:
    """What the retained snapshots refer to, and what was wrong with it. Locations are absolute.

    Keeps 30 bytes of each file. Those that are missing are named by reading the manifests once more.
    """

    def __init__(self, store: Store, head: Version) -> None:
        self.store = store
        self.head = head
        self.unreadable: dict[str, tuple[str, str]] = {}
        """Location → manifest list or manifest, and why."""
        self.files = self.rows = self.bytes = 0
        """Of the data files of the current snapshot."""
        self.delete_files: list[LiveFile] = []
        """Those of the current snapshot."""
        self.live_twice = Few()
        self.folders: set[str] = set()
        """Outside of the table, where it has files by reference."""
        self._manifest_files = ManifestFiles(store)
        self._index = PathIndex()
        self._flags = bytearray()
        self._sizes = array("q")
        for needed in self._needed():
            self._note(needed)

    @property
    def is_whole(self) -> bool:
        """Whether all that the current snapshot lists could be read."""
        return not any(map(self.is_needed_now, self.unreadable))

    def is_needed_now(self, location: str) -> bool:
        """Return whether the current snapshot needs a file."""
        return bool(self._flags_of(location) & _NOW)

    def is_missing(self, location: str) -> bool:
        """Return whether a needed file was not found in the store."""
        return not self._flags_of(location) & _THERE

    def mark(self, path: str, size: int) -> bool:
        """Note that the store holds a file, and return whether it is needed. `path`: that of a file by
        reference is its location.
        """
        if (number := self._index.find(path)) is None:
            return False
        self._flags[number] |= _THERE
        if self._sizes[number] not in (_UNKNOWN, size):
            self._flags[number] |= _DIFFERS
            self._sizes[number] = size
        return True

    def find_wrong(self) -> Iterator[Wrong]:
        """Yield each needed file once that is missing or has another size. Call it once, after all that the
        store holds was marked.
        """
        if all(flags & (_THERE | _DIFFERS) == _THERE for flags in set(self._flags)):
            return
        for needed in self._needed():
            if (number := self._index.find(self._path(needed.location))) is None:
                continue  # of a manifest that was damaged when it was read first
            flags = self._flags[number]
            staged = bool(flags & _STAGED and not flags & _NOW)
            is_said = flags & (_THERE | _DIFFERS) == _THERE or flags & _SAID
            if not (is_said or (staged and needed.tag is None)):
                self._flags[number] |= _SAID
                size = self._sizes[number] if flags & _THERE else None
                yield Wrong(needed, bool(flags & _NOW), staged, size)

    def live_columns(self) -> Iterator[PackedFiles]:
        """Yield the data files of the current snapshot as columns, manifest by manifest, of those that can be
        read.
        """
        for manifest in self._manifest_files.ahead(filter(is_data, self._live_manifests())):
            with suppress(CorruptTableError):
                yield self._manifest_files.columns(manifest)
            self._manifest_files.keep_only(())

    def _live_manifests(self) -> Sequence[ManifestFile]:
        current = self.head.metadata.current_snapshot_id
        lists = [it.manifest_list for it in self.head.metadata.snapshots if it.snapshot_id == current]
        read = (_or_damage(lambda it=it: self._manifest_files.read_list(it)) for it in lists)  # type: ignore[misc]
        return next((it for it in read if not isinstance(it, CorruptTableError)), ())

    def _needed(self) -> Iterator[Needed]:
        """Yield what the snapshots need, a file as often as it is listed in different ways."""
        manifests: dict[str, ManifestFile] = {}
        of_now, of_tag, tags = set[str](), dict[str, str](), staged_tags(self.head)
        for snapshot, listed in self._read_lists():
            now = snapshot.snapshot_id == self.head.metadata.current_snapshot_id
            tag = tags.get(snapshot.snapshot_id)
            yield Needed(snapshot.manifest_list, "manifest list", None, now, tag)
            if isinstance(listed, CorruptTableError):
                self.unreadable[snapshot.manifest_list] = "manifest list", str(listed)
                continue
            for manifest in listed:
                path, is_own = manifest.manifest_path, manifest.added_snapshot_id == snapshot.snapshot_id
                if path not in manifests or now or tag is not None:
                    own = tag if is_own else None
                    yield Needed(path, "manifest", manifest.manifest_length, now, own)
                    of_now |= {path} if now else set()
                    of_tag |= {} if own is None else {path: own}
                manifests[path] = manifest
        for manifest in self._manifest_files.ahead(manifests.values()):
            path = manifest.manifest_path
            yield from self._files_of(manifest, path in of_now, of_tag.get(path))
            self._manifest_files.keep_only(())
        for deleted in tombstones_of(self.head.metadata.properties):
            yield Needed(deleted.location, "tombstone file", None, now=True)
        for statistics in (*self.head.metadata.statistics, *self.head.metadata.partition_statistics):
            yield Needed(statistics.statistics_path, "statistics file", statistics.file_size_in_bytes)

    def _read_lists(self) -> Iterator[tuple[Snapshot, tuple[ManifestFile, ...] | CorruptTableError]]:
        def read(snapshot: Snapshot) -> tuple[ManifestFile, ...] | CorruptTableError:
            return _or_damage(lambda: ManifestFiles(self.store).read_list(snapshot.manifest_list))

        snapshots = self.head.metadata.snapshots
        with ThreadPoolExecutor(READERS, thread_name_prefix="doctor") as pool:
            for start in range(0, len(snapshots), _LISTS_AT_ONCE):
                some = snapshots[start : start + _LISTS_AT_ONCE]
                yield from zip(some, pool.map(read, some), strict=True)

    def _files_of(self, manifest: ManifestFile, now: bool, tag: str | None) -> Iterator[Needed]:
        files = self._manifest_files
        if is_data(manifest):
            columns = _or_damage(lambda: files.columns(manifest))
            if isinstance(columns, CorruptTableError):
                self.unreadable[manifest.manifest_path] = "manifest", str(columns)
                return
            for location, size, rows in zip(columns.locations, columns.bytes, columns.rows, strict=True):
                yield Needed(location, "data file", size, now, tag, rows)
            return
        contents = _or_damage(lambda: files.contents(manifest).files.values())
        if isinstance(contents, CorruptTableError):
            self.unreadable[manifest.manifest_path] = "manifest", str(contents)
            return
        for file in contents:
            what = "data file" if file.content == DataFileContent.DATA else "delete file"
            yield Needed(file.location, what, file.bytes, now, tag, file.rows, file)

    def _note(self, needed: Needed) -> None:
        path = self._path(needed.location)
        if path == needed.location:
            self.folders.add(path.rpartition("/")[0])
        number = self._index.add(path)
        if number == len(self._flags):
            self._flags.append(0)
            self._sizes.append(_UNKNOWN)
        self._sizes[number] = _UNKNOWN if needed.size is None else needed.size
        flags = self._flags[number] | (_NOW if needed.now else 0) | (0 if needed.tag is None else _STAGED)
        if needed.now and needed.what in ("data file", "delete file"):
            if flags & _LIVE and not flags & _TWICE:
                self.live_twice.add(needed.location)
                flags |= _TWICE
            elif not flags & _LIVE:
                self._count(needed)
            flags |= _LIVE
        self._flags[number] = flags

    def _count(self, needed: Needed) -> None:
        if needed.what == "data file":
            self.files += 1
            self.rows += needed.rows
            self.bytes += needed.size or 0
        elif needed.deletes is not None:
            self.delete_files.append(needed.deletes)

    def _flags_of(self, location: str) -> int:
        number = self._index.find(self._path(location))
        return _THERE if number is None else self._flags[number]

    def _path(self, location: str) -> str:
        """Return the path of a location; that of a file by reference is returned as it is."""
        return find_path(self.store, location) or location


def staged_tags(head: Version) -> dict[int, str]:
    """Return the tags of staged snapshots, by the snapshot that each names."""
    refs = head.metadata.refs.items()
    return {ref.snapshot_id: name for name, ref in refs if name.startswith(STAGED_TAG_PREFIX)}


def _or_damage(read: Callable[[], _T]) -> _T | CorruptTableError:
    try:
        return read()
    except CorruptTableError as damage:
        return damage
