"""Check that the files which the retained snapshots refer to are as stated, and find what nothing needs. What
the store holds is listed once, compared with what is needed as it comes, and kept as sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from timeline import names
from timeline.diagnosis.findings import Few, Finding, Severity, count, damage, note, warning
from timeline.diagnosis.reachable import Reachable
from timeline.stores.base import Store
from timeline.stores.local import is_unfinished
from timeline.versions.version_file import Version
from timeline.versions.work_items import STAGED_TAG_PREFIX

_YOUNG_MS = 3 * 24 * 3600 * 1000
"""A file this much younger than the head may belong to a batch that is still being written."""
_FOLDERS = (f"{names.DATA_FOLDER}/", f"{names.MANIFEST_FOLDER}/")


@dataclass
class StoredFiles:
    """The files of the store, by their paths; the first of some kinds by name."""

    every: Few = field(default_factory=Few)
    unfinished: Few = field(default_factory=Few)
    """What a create left unfinished."""
    left: Few = field(default_factory=Few)
    """Files of this protocol that nothing refers to."""
    old_left: Few = field(default_factory=Few)
    """Those of them that are three days older than the newest version."""
    strange: Few = field(default_factory=Few)
    """Other files beside them."""
    of_metadata: set[str] = field(default_factory=set)
    """The paths of manifests and lists, of other engines too."""

    def add(self, path: str, size: int, fence: str, is_needed: bool) -> None:
        """Count a file. `fence`: the id that begins the last three days."""
        self.every.add(path, size)
        if path.endswith(".avro"):
            self.of_metadata.add(path)
        if is_unfinished(path):
            self.unfinished.add(path, size)
        elif not is_needed and path.startswith(_FOLDERS):
            file_id = names.written_id(path)
            (self.strange if file_id is None else self.left).add(path, size)
            if file_id is not None and file_id < fence:
                self.old_left.add(path, size)


def read_stored(store: Store, found: Reachable | None, head: Version | None) -> StoredFiles:
    """List the store, and mark what of it is needed; and where there are files by reference, one folder after
    the other (R28).

    The head was read before: so all files that it refers to had been written.
    """
    stored = StoredFiles()
    fence = "" if head is None else names.ulid_floor(max(head.metadata.last_updated_ms - _YOUNG_MS, 0))
    for listed in store.list_below(""):
        size = listed.size
        stored.add(listed.path, size, fence, found is not None and found.mark(listed.path, size))
    if found is not None:
        _mark_references(found, sorted(found.folders))
    return stored


def _mark_references(found: Reachable, folders: Iterable[str]) -> None:
    for folder in folders:
        with suppress(ValueError):  # another kind of store, which nothing of this table reads
            for each in found.store.at(folder).list_folder(""):
                found.mark(f"{folder}/{each.path}", each.size)


@dataclass
class MissingFiles:
    """Missing files of one kind."""

    files: Few = field(default_factory=Few)
    rows: int = 0


@dataclass
class WrongFiles:
    """The needed files that are missing, or have another size than is stated."""

    now: dict[str, MissingFiles] = field(default_factory=dict)
    """Those that the current snapshot needs, by what they are."""
    past: dict[str, MissingFiles] = field(default_factory=dict)
    """Those that only older snapshots need."""
    staged: Few = field(default_factory=Few)
    """Those that only staged snapshots need."""
    staged_tags: set[str] = field(default_factory=set)
    differ: Few = field(default_factory=Few)
    """Each with both sizes."""
    differ_now: Few = field(default_factory=Few)
    """Those of them that the current snapshot needs."""

    @classmethod
    def of(cls, found: Reachable) -> WrongFiles:
        """Return what is wrong of what was found, once all that the store holds was marked."""
        wrong = cls()
        for needed, now, staged, size in found.find_wrong():
            location = needed.location
            if size is not None:
                text = f"{location} has {size:,} bytes and is stated with {needed.size:,}"
                wrong.differ.add(text)
                if now:
                    wrong.differ_now.add(text)
            elif staged:
                wrong.staged.add(location)
                wrong.staged_tags.add((needed.tag or "").removeprefix(STAGED_TAG_PREFIX))
            else:
                of_kind = (wrong.now if now else wrong.past).setdefault(needed.what, MissingFiles())
                of_kind.files.add(location)
                of_kind.rows += needed.rows
        return wrong


def check_files(found: Reachable, wrong: WrongFiles, stored: StoredFiles, head: Version) -> Iterator[Finding]:
    """Yield what is wrong with the files."""
    yield from _check_every_metadata_file_can_be_read(found)
    yield from _check_sizes_are_as_stated(wrong)
    yield from _check_no_file_is_live_twice(found)
    yield from _check_totals(found, head)
    yield from _check_refs(head)
    yield from _check_nothing_is_left_over(stored)


def _check_every_metadata_file_can_be_read(found: Reachable) -> Iterator[Finding]:
    for location, (what, problem) in found.unreadable.items():
        if found.is_missing(location):
            continue  # reported as missing
        now = found.is_needed_now(location)
        yield Finding(
            kind=f"{what.replace(' ', '-')}-unreadable",
            severity=Severity.DAMAGE if now else Severity.WARNING,
            what=problem,
            means="the table cannot be read or written; the data files that it lists are still there"
            if now
            else "only older snapshots need it; writers may go on",
            repair="restore it byte for byte from a backup, or from the bucket's earlier object versions",
        )


def _check_sizes_are_as_stated(wrong: WrongFiles) -> Iterator[Finding]:
    if wrong.differ.count:
        now = wrong.differ_now
        yield Finding(
            kind="file-size-differs",
            severity=Severity.DAMAGE if now.count else Severity.WARNING,
            what=f"{count(wrong.differ.count, 'file')} of another size than stated:"
            f" {now if now.count else wrong.differ}",
            means="the file was replaced or cut off after it was written: its rows cannot be trusted. Some"
            " readers (Spark, Polars) fail on it, others may not. Appends may go on",
            repair="restore it byte for byte from a backup, or from the bucket's earlier object versions",
        )


def _check_no_file_is_live_twice(found: Reachable) -> Iterator[Finding]:
    if found.live_twice.count:
        yield damage(
            kind="file-live-twice",
            what=f"{count(found.live_twice.count, 'data file')} in more than one manifest of the current"
            f" snapshot: {found.live_twice}",
            means="readers count their rows more than once. This sink never adds a file twice: a program that"
            " commits through the timeline, or another engine, has",
            repair="stop that program. Read the distinct rows of these files into a new table",
        )


def _check_totals(found: Reachable, head: Version) -> Iterator[Finding]:
    snapshot = next(
        (s for s in head.metadata.snapshots if s.snapshot_id == head.metadata.current_snapshot_id), None
    )
    if snapshot is None or snapshot.summary is None or found.live_twice.count or not found.is_whole:
        return
    summary = snapshot.summary.additional_properties
    rows, files = found.rows, found.files
    stated = int(summary.get("total-records", rows)), int(summary.get("total-data-files", files))
    if stated != (rows, files):
        yield warning(
            kind="totals-differ",
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


def _check_nothing_is_left_over(stored: StoredFiles) -> Iterator[Finding]:
    if (left := stored.left).count:
        yield note(
            kind="orphans",
            what=f"{count(left.count, 'file')} of {left.bytes:,} bytes that no retained snapshot refers to:"
            f" {left}",
            means="no row of the table is in them: they are of batches that failed or lost, of snapshots that"
            f" expired, or of batches that are being written now. {stored.old_left.count:,} of them, of"
            f" {stored.old_left.bytes:,} bytes, are three days older than the newest version",
            repair="never delete them yourself, nor by age, since a running writer may still commit them:"
            " remove_orphan_files takes the old ones behind a fence",
        )
    if (strange := stored.strange).count:
        yield note(
            kind="foreign-file",
            what=f"{count(strange.count, 'file')} of {strange.bytes:,} bytes that this sink did not write and"
            f" does not refer to: {strange}",
            means="this sink neither reads nor removes them",
            repair="none needed; remove them if you know what they are",
        )
