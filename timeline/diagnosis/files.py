"""Read what the retained snapshots refer to, check it, and find files that nothing refers to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from pyiceberg.manifest import DataFileContent, ManifestFile
from pyiceberg.table.snapshots import Snapshot

from timeline import names
from timeline.diagnosis.findings import Finding, Severity, count, some
from timeline.errors import CorruptTableError
from timeline.manifests.entries import LiveFile
from timeline.manifests.manifests import ManifestFiles
from timeline.stores.base import Store, paths_below
from timeline.stores.local import is_unfinished
from timeline.versions.tombstones import tombstones_of
from timeline.versions.version_file import Version
from timeline.versions.work_items import STAGED_TAG_PREFIX

_T = TypeVar("_T")

READERS = 8
"""Requests at a time: 2,000 snapshots on a store that takes 60 ms a request are read in half a minute."""
_YOUNG_MS = 3 * 24 * 3600 * 1000
"""A file this much younger than the head may belong to a batch that is still being written."""


@dataclass
class Reachable:
    """What the retained snapshots refer to, and what was wrong with it. Locations are absolute."""

    live: dict[str, LiveFile] = field(default_factory=dict)
    """The data and delete files of the current snapshot."""
    sizes: dict[str, int | None] = field(default_factory=dict)
    """Every file that a retained snapshot needs → its size, where the metadata states it."""
    what: dict[str, str] = field(default_factory=dict)
    """Location → manifest list, manifest, data file, delete file, tombstone file, statistics file."""
    needed_now: set[str] = field(default_factory=set)
    """Those that the current snapshot needs."""
    staged: dict[str, str] = field(default_factory=dict)
    """Those that only a staged snapshot needs → its tag."""
    live_twice: set[str] = field(default_factory=set)
    unreadable: dict[str, str] = field(default_factory=dict)

    @property
    def data_files(self) -> list[LiveFile]:
        return [file for file in self.live.values() if file.content == DataFileContent.DATA]

    @property
    def delete_files(self) -> list[LiveFile]:
        return [file for file in self.live.values() if file.content != DataFileContent.DATA]

    def missing(self, objects: Mapping[str, int], store: Store) -> list[str]:
        """Return the locations of what is not among the objects of the store, path → size."""
        return [location for location in self.sizes if _path(store, location) not in objects]


def read_reachable(store: Store, head: Version) -> Reachable:
    """Return what the head's snapshots refer to, reading every manifest once."""
    found = Reachable()
    current = head.metadata.current_snapshot_id
    manifests: dict[str, ManifestFile] = {}
    with ThreadPoolExecutor(READERS, thread_name_prefix="doctor") as pool:

        def read_list(snapshot: Snapshot) -> tuple[ManifestFile, ...] | CorruptTableError:
            return _or_damage(lambda: ManifestFiles(store).read_list(snapshot.manifest_list))

        def read_manifest(manifest: ManifestFile) -> dict[str, LiveFile] | CorruptTableError:
            return _or_damage(lambda: ManifestFiles(store).contents(manifest).files)

        snapshots = head.metadata.snapshots
        tags = staged_tags(head)
        of_tag: dict[str, str] = {}
        for snapshot, listed in zip(snapshots, pool.map(read_list, snapshots), strict=True):
            now = snapshot.snapshot_id == current
            _need(found, snapshot.manifest_list, "manifest list", None, now)
            tag = tags.get(snapshot.snapshot_id)
            if tag is not None:
                found.staged[snapshot.manifest_list] = tag
            if isinstance(listed, CorruptTableError):
                found.unreadable[snapshot.manifest_list] = str(listed)
                continue
            for manifest in listed:
                _need(found, manifest.manifest_path, "manifest", manifest.manifest_length, now)
                manifests[manifest.manifest_path] = manifest
                if tag is not None and manifest.added_snapshot_id == snapshot.snapshot_id:
                    of_tag[manifest.manifest_path] = tag
        found.staged |= of_tag
        unread = list(manifests.values())
        for manifest, files in zip(unread, pool.map(read_manifest, unread), strict=True):
            if isinstance(files, CorruptTableError):
                found.unreadable[manifest.manifest_path] = str(files)
                continue
            now = manifest.manifest_path in found.needed_now
            for file in files.values():
                _need(found, file.location, _what(file), file.bytes, now)
                if manifest.manifest_path in of_tag:
                    found.staged[file.location] = of_tag[manifest.manifest_path]
                if now:
                    if file.location in found.live:
                        found.live_twice.add(file.location)
                    found.live[file.location] = file
    for deleted in tombstones_of(head.metadata.properties):
        _need(found, deleted.location, "tombstone file", None, True)
    for statistics in (*head.metadata.statistics, *head.metadata.partition_statistics):
        _need(found, statistics.statistics_path, "statistics file", statistics.file_size_in_bytes, False)
    return found


def sizes_of_references(found: Reachable, store: Store) -> dict[str, int]:
    """Return the size of each file by reference that is there, by its location (R28). One LIST a folder."""
    folders = {it.rpartition("/")[0] for it in found.sizes if not paths_below(store, [it])}
    sizes: dict[str, int] = {}
    for folder in sorted(folders):
        with suppress(ValueError):  # another kind of store, which nothing of this table reads
            listed = store.at(folder).list_folder("")
            sizes |= {f"{folder}/{each.path}": each.size for each in listed}
    return {location: size for location, size in sizes.items() if location in found.sizes}


def check_files(
    found: Reachable, objects: Mapping[str, int], store: Store, head: Version
) -> Iterator[Finding]:
    """Yield what is wrong with the files. `objects` is what the store holds, path → size, listed after the
    head was read: so all files that the head refers to had been written.
    """
    yield from _check_every_metadata_file_can_be_read(found, objects, store)
    yield from _check_sizes_are_as_stated(found, objects, store)
    yield from _check_no_file_is_live_twice(found)
    yield from _check_totals(found, head)
    yield from _check_refs(head)
    yield from _check_nothing_is_left_over(found, objects, store, head)


def _check_every_metadata_file_can_be_read(
    found: Reachable, objects: Mapping[str, int], store: Store
) -> Iterator[Finding]:
    for location, problem in found.unreadable.items():
        if _path(store, location) not in objects:
            continue  # reported as missing
        now = location in found.needed_now
        yield Finding(
            kind=f"{found.what[location].replace(' ', '-')}-unreadable",
            severity=Severity.DAMAGE if now else Severity.WARNING,
            what=problem,
            means="the table cannot be read or written; the data files that it lists are still there"
            if now
            else "only older snapshots need it; writers may go on",
            repair="restore it byte for byte from a backup, or from the bucket's earlier object versions",
        )


def _check_sizes_are_as_stated(
    found: Reachable, objects: Mapping[str, int], store: Store
) -> Iterator[Finding]:
    wrong = {
        location: f"{location} has {objects[path]:,} bytes and is stated with {size:,}"
        for location, size in found.sizes.items()
        if size is not None and (path := _path(store, location)) in objects and objects[path] != size
    }
    now = [text for location, text in wrong.items() if location in found.needed_now]
    if wrong:
        yield Finding(
            kind="file-size-differs",
            severity=Severity.DAMAGE if now else Severity.WARNING,
            what=f"{count(len(wrong), 'file')} of another size than stated:"
            f" {some(now or list(wrong.values()))}",
            means="the file was replaced or cut off after it was written: its rows cannot be trusted. Some"
            " readers (Spark, Polars) fail on it, others may not. Appends may go on",
            repair="restore it byte for byte from a backup, or from the bucket's earlier object versions",
        )


def _check_no_file_is_live_twice(found: Reachable) -> Iterator[Finding]:
    if found.live_twice:
        yield Finding(
            kind="file-live-twice",
            severity=Severity.DAMAGE,
            what=f"{count(len(found.live_twice), 'data file')} in more than one manifest of the current"
            f" snapshot: {some(sorted(found.live_twice))}",
            means="readers count their rows more than once. This sink never adds a file twice: a program that"
            " commits through the timeline, or another engine, has",
            repair="stop that program. Read the distinct rows of these files into a new table",
        )


def _check_totals(found: Reachable, head: Version) -> Iterator[Finding]:
    snapshot = next(
        (s for s in head.metadata.snapshots if s.snapshot_id == head.metadata.current_snapshot_id), None
    )
    if snapshot is None or snapshot.summary is None or found.live_twice:
        return
    if found.unreadable.keys() & found.needed_now:
        return
    summary = snapshot.summary.additional_properties
    rows, files = sum(file.rows for file in found.data_files), len(found.data_files)
    stated = int(summary.get("total-records", rows)), int(summary.get("total-data-files", files))
    if stated != (rows, files):
        yield Finding(
            kind="totals-differ",
            severity=Severity.WARNING,
            what=f"the summary states {stated[0]:,} rows in {stated[1]:,} files, and the manifests list"
            f" {rows:,} in {files:,}",
            means="the manifests are what readers read; the summary is used for estimates and reports",
            repair="compare the manifests with a backup: one may have been replaced",
        )


def _check_refs(head: Version) -> Iterator[Finding]:
    known = {snapshot.snapshot_id for snapshot in head.metadata.snapshots}
    for name, ref in head.metadata.refs.items():
        if ref.snapshot_id not in known and not name.startswith(STAGED_TAG_PREFIX):
            yield Finding(
                kind="reference-dangling",
                severity=Severity.DAMAGE if name == "main" else Severity.WARNING,
                what=f"{ref.snapshot_ref_type} {name!r} names snapshot {ref.snapshot_id}, which the table"
                " does not hold",
                means="reads of it fail; the version file was edited, or written by another engine",
                repair=f"restore {names.version_path(head.number)} from a backup",
            )


def _check_nothing_is_left_over(
    found: Reachable, objects: Mapping[str, int], store: Store, head: Version
) -> Iterator[Finding]:
    needed = {_path(store, location) for location in found.sizes}
    left = {
        path: size
        for path, size in objects.items()
        if path.startswith((f"{names.DATA_FOLDER}/", f"{names.MANIFEST_FOLDER}/"))
        and path not in needed
        and not is_unfinished(path)
    }
    ours = {path: file_id for path in left if (file_id := names.written_id(path)) is not None}
    fence = names.ulid_floor(max(head.metadata.last_updated_ms - _YOUNG_MS, 0))
    old = [path for path, file_id in ours.items() if file_id < fence]
    if ours:
        yield Finding(
            kind="orphans",
            severity=Severity.NOTE,
            what=f"{count(len(ours), 'file')} of {sum(left[path] for path in ours):,} bytes that no retained"
            f" snapshot refers to: {some(sorted(ours))}",
            means="no row of the table is in them: they are of batches that failed or lost, of snapshots that"
            f" expired, or of batches that are being written now. {len(old):,} of them, of"
            f" {sum(left[path] for path in old):,} bytes, are three days older than the newest version",
            repair="never delete them yourself, nor by age, since a running writer may still commit them:"
            " remove_orphan_files takes the old ones behind a fence",
        )
    theirs = sorted(left.keys() - ours.keys())
    if theirs:
        yield Finding(
            kind="foreign-file",
            severity=Severity.NOTE,
            what=f"{count(len(theirs), 'file')} of {sum(left[path] for path in theirs):,} bytes that this"
            f" sink did not write and does not refer to: {some(theirs)}",
            means="this sink neither reads nor removes them",
            repair="none needed; remove them if you know what they are",
        )


def staged_tags(head: Version) -> dict[int, str]:
    """Return the tags of staged snapshots, by the snapshot that each names."""
    refs = head.metadata.refs.items()
    return {ref.snapshot_id: name for name, ref in refs if name.startswith(STAGED_TAG_PREFIX)}


def _what(file: LiveFile) -> str:
    return "data file" if file.content == DataFileContent.DATA else "delete file"


def _need(found: Reachable, location: str, what: str, size: int | None, now: bool) -> None:
    found.sizes[location] = size
    found.what[location] = what
    if now:
        found.needed_now.add(location)


def _or_damage(read: Callable[[], _T]) -> _T | CorruptTableError:
    try:
        return read()
    except CorruptTableError as damage:
        return damage


def _path(store: Store, location: str) -> str:
    """Return the path of a location; that of a file by reference is returned as it is."""
    try:
        return store.relative(location)
    except ValueError:
        return location
