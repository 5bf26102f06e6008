"""The manifests and manifest lists of one table: read from a `Store`, written to it, and cached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from pyiceberg.manifest import (
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from timeline import names
from timeline.errors import CorruptTableError, MissingMetadataError
from timeline.manifests.contents import ContentsCache, ManifestContents, count_live, is_data, is_large
from timeline.manifests.copies import PackedManifests
from timeline.manifests.entries import LiveFile, live_file
from timeline.manifests.known_lists import KnownLists
from timeline.manifests.known_past import KnownPast
from timeline.manifests.list_encoder import ListEncoder, numbered
from timeline.manifests.manifest_format import (
    decode_entries,
    decode_live_entries,
    encode_manifest,
)
from timeline.manifests.packed import PackedFiles
from timeline.manifests.read_ahead import ReadAhead
from timeline.stores.base import Created, Store, read_if_there

_READ_FOR_A_COPY = 4_096
"""The most entries of a manifest that is read for its copy alone: a quarter of a second."""
_COPIES_AT_ONCE = 8
"""The most copies that one maintenance writes, after a batch was acknowledged."""


@dataclass
class ManifestFiles:
    """Reads and writes the manifests of one table, and caches the last ones: they never change."""

    store: Store
    cache: ContentsCache = field(default_factory=ContentsCache)
    packed: PackedManifests = field(init=False)
    _reads: ReadAhead = field(init=False)
    list_encoder: ListEncoder = field(default_factory=ListEncoder)
    appended: dict[str, None] = field(default_factory=dict)
    """The last files that were appended without a transaction, or may have been."""
    lists: KnownLists = field(default_factory=KnownLists)
    past: KnownPast = field(default_factory=KnownPast)

    def __post_init__(self) -> None:
        self._reads = ReadAhead(self.store)
        self.packed = PackedManifests(self.store, self._reads)

    def read_list(self, location: str) -> tuple[ManifestFile, ...]:
        """Return the manifests of one snapshot, from memory where its list was seen before.
        MissingMetadataError where the list does not exist, CorruptTableError where it is unreadable.
        """
        if (known := self.lists.get(location)) is not None:
            return known
        return self._parse_list(location, self._read(location, "manifest list"))

    def ahead(self, manifests: Iterable[ManifestFile], *, copies: bool = True) -> Iterator[ManifestFile]:
        """Yield these manifests, while what `contents` and `columns` need of the next ones is read, some at a
        time; without `copies` what `read_contents`, `find_contents` and `find_entries` need.
        """
        return self._reads.through(manifests, partial(self._unread_path, copies=copies))

    def contents(self, manifest: ManifestFile) -> ManifestContents:
        """Return the live entries of a manifest: from memory where it was read before, else from a copy of
        it, else from itself.
        """
        if (known := self.known(manifest)) is not None:
            return known
        packed = self.packed.find(manifest, may_have_copy=is_large(manifest)) if is_data(manifest) else None
        if packed is None:
            return self.read_contents(manifest)
        columns, is_copy = packed
        files = {file.location: file for file in columns.files()}
        contents = ManifestContents(manifest.sequence_number, files, is_copy=is_copy)
        self.cache.put(manifest.manifest_path, contents)
        return contents

    def columns(self, manifest: ManifestFile, *, once: bool = False) -> PackedFiles:
        """Return the live files of a manifest of data files as columns. Where it is asked for `once`, neither
        its entries are kept, nor what a copy has.
        """
        if (known := self.known(manifest)) is not None:
            return PackedFiles.of(manifest, known.files.values())
        if (found := self.packed.find(manifest, may_have_copy=is_large(manifest), keep=not once)) is not None:
            return found[0]
        if not once:
            return PackedFiles.of(manifest, self.contents(manifest).files.values())
        files = map(live_file, _live(manifest, self._read_entries(manifest)))
        found_once = list({it.location: it for it in files}.values())
        self.packed.put(manifest, found_once)
        return PackedFiles.of(manifest, found_once)

    def write_copies(self, manifests: Iterable[ManifestFile]) -> None:
        """Write copies of large manifests that have none: of those in memory, and of one that it reads."""
        # Copies of others' manifests would stay: those who delete such a manifest know of no copy.
        own = (it for it in manifests if is_large(it) and names.file_id(it.manifest_path) is not None)
        read = written = 0
        for manifest in self.packed.without_copy(own):
            if not self.packed.keeps(manifest):
                if read or count_live(manifest) > _READ_FOR_A_COPY:
                    continue
                self.packed.put(manifest, self.read_contents(manifest).files.values())
                read += 1
            written += self.packed.write_copy(manifest)
            if written == _COPIES_AT_ONCE:
                return

    def _unread_path(self, manifest: ManifestFile, *, copies: bool) -> str | None:
        known = self.known(manifest)
        if known is not None and (copies or not known.is_copy):
            return None
        if copies and self.packed.keeps(manifest):
            return None
        copy = self.packed.find_copy(manifest) if copies and is_large(manifest) else None
        return copy or self._path(manifest.manifest_path)

    def read_contents(self, manifest: ManifestFile) -> ManifestContents:
        """As `contents`, and never from a copy: for one that deletes files which it does not name."""
        if (known := self.known(manifest)) is not None and not known.is_copy:
            return known
        return self.remember(manifest, self._read_entries(manifest))

    def find_contents(self, manifest: ManifestFile) -> ManifestContents | None:
        """As `read_contents`; None where the manifest was deleted and is not in memory."""
        try:
            return self.read_contents(manifest)
        except MissingMetadataError:
            return None

    def known(self, manifest: ManifestFile) -> ManifestContents | None:
        """Return the live entries of a manifest that was read or written before, and is still in memory."""
        return self.cache.get(manifest)

    def find_list(self, location: str) -> tuple[ManifestFile, ...] | None:
        """Return the manifests of an expired snapshot; None where its list was deleted and is not cached."""
        if (known := self.lists.get(location)) is not None:
            return known
        data = self._find(location)
        return None if data is None else self._parse_list(location, data)

    def find_entries(self, manifest: ManifestFile) -> Iterator[ManifestEntry] | None:
        """Return all entries, those of removed files too, or None where the manifest was deleted. Each is
        read when it is asked for; nothing is cached.
        """
        data = self._find(manifest.manifest_path)
        return None if data is None else _entries(manifest, decode_entries(manifest, data))

    def entries(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        """Return the live entries of a manifest with all their statistics; reads a big manifest again."""
        known = self.known(manifest)
        if known is not None and known.entries is not None:
            return known.entries
        entries = tuple(self._read_entries(manifest))
        if known is None:
            self.remember(manifest, entries)
        return entries

    def keep_only(self, manifests: Iterable[ManifestFile]) -> None:
        """Forget all manifests but these, which the head lists: memory follows the table, not its history."""
        paths = {manifest.manifest_path for manifest in manifests}
        self.cache.keep_only(paths)
        self.packed.keep_only(paths)

    def write_manifest(
        self,
        path: str,
        spec: PartitionSpec,
        schema: Schema,
        snapshot_id: int,
        entries: Sequence[ManifestEntry],
        content: ManifestContent = ManifestContent.DATA,
        stated: Schema | None = None,
    ) -> ManifestFile:
        """Write one manifest of `snapshot_id`, durably, as `encode_manifest` makes it."""
        how = spec, schema, snapshot_id, entries, content, stated
        data, made = encode_manifest(self.store.uri(path), *how)
        self.write_fresh(path, data)
        return made

    def write_list(
        self,
        path: str,
        snapshot_id: int,
        parent_id: int | None,
        sequence_number: int,
        manifests: Sequence[ManifestFile],
    ) -> tuple[str, tuple[ManifestFile, ...]]:
        """Write one manifest list, durably. Return its location, and its manifests with sequence numbers."""
        assigned = tuple(numbered(manifest, sequence_number) for manifest in manifests)
        metadata = {
            "snapshot-id": str(snapshot_id),
            "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
            "sequence-number": str(sequence_number),
            "format-version": "2",
        }
        self.write_fresh(path, self.list_encoder.encode(assigned, metadata))
        location = self.store.uri(path)
        return location, self.lists.remember(location, assigned)

    def write_fresh(self, path: str, data: bytes) -> None:
        """Store a file under a name that no other writer uses, durably."""
        outcome = self.store.create(path, data)
        if isinstance(outcome, Created):
            return
        # The name is fresh and unique, so what is stored there is these bytes in whole, or nothing.
        stored = read_if_there(self.store, path)
        if stored is None:
            self.store.overwrite(path, data)
        elif stored != data:
            raise CorruptTableError(
                "a file of a fresh name holds other bytes; two processes share one source of randomness:"
                f" {path}",
                location=self.store.location,
                files=[path],
            )
        # Neither proves that the name is durable, as a create does; a listing that shows it does.
        self.store.list_folder(path.rpartition("/")[0])

    def remember(self, manifest: ManifestFile, entries: Iterable[ManifestEntry]) -> ManifestContents:
        """Cache the live entries among those of a manifest that this process wrote or read."""
        files, live, is_whole = dict[str, LiveFile](), list[ManifestEntry](), not is_large(manifest)
        for entry in _live(manifest, entries):
            file = live_file(entry)
            files[file.location] = file
            if is_whole:  # thousands in memory at once would double the time that reading takes
                live.append(entry)
        contents = ManifestContents(manifest.sequence_number, files, tuple(live) if is_whole else None)
        self.cache.put(manifest.manifest_path, contents)
        if is_data(manifest):
            self.packed.put(manifest, files.values())
        return contents

    def _parse_list(self, location: str, data: bytes) -> tuple[ManifestFile, ...]:
        with _naming_damage(location):
            return self.lists.parse(location, data)

    def _find(self, location: str) -> bytes | None:
        return self._reads.read(self._path(location))

    def _path(self, location: str) -> str:
        try:
            return self.store.relative(location)
        except ValueError as outside:
            raise CorruptTableError(
                f"the table names a file that is not below its own location; nothing was changed: {outside}",
                location=self.store.location,
                files=[location],
            ) from outside

    def _read(self, location: str, what: str) -> bytes:
        if (data := self._find(location)) is None:
            raise MissingMetadataError(
                f"the table names a {what} that does not exist: something deleted it. Nothing was changed;"
                f" restore it from a copy, and run the doctor to see what else is missing: {location}",
                location=self.store.location,
                files=[location],
            )
        return data

    def _read_entries(self, manifest: ManifestFile) -> Iterator[ManifestEntry]:
        data = self._read(manifest.manifest_path, "manifest")
        return _entries(manifest, decode_live_entries(manifest, data))


def _live(manifest: ManifestFile, entries: Iterable[ManifestEntry]) -> Iterator[ManifestEntry]:
    """Yield the live ones of a manifest's entries, with what they leave to it."""
    for entry in entries:
        if entry.status != ManifestEntryStatus.DELETED:
            if entry.sequence_number is None:
                entry.sequence_number = entry.file_sequence_number = manifest.sequence_number
            entry.data_file.spec_id = manifest.partition_spec_id
            yield entry


def _entries(manifest: ManifestFile, entries: Iterator[ManifestEntry]) -> Iterator[ManifestEntry]:
    with _naming_damage(manifest.manifest_path):
        yield from entries


@contextmanager
def _naming_damage(location: str) -> Iterator[None]:
    try:
        yield
    except Exception as failure:  # the Avro reader fails in many ways
        raise CorruptTableError(
            "a file of the table's metadata cannot be read; nothing was changed. Restore it from a copy:"
            f" {location}: {type(failure).__name__}: {failure}",
            files=[location],
        ) from failure
