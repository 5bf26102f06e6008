"""Manifests and manifest lists as files, which a `Store` keeps."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache

from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    UNASSIGNED_SEQ,
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
    read_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from timeline.errors import CorruptTableError, MissingMetadataError
from timeline.stores.base import Created, Store
from timeline.versions.avro import AvroFormat

_CACHED_ENTRIES = 256
"""A manifest of at most so many live entries is kept parsed in whole; it is the kind that fills rewrite."""


_KEPT_LISTS = 4_000
"""Of a history of 2,000 snapshots and those whose files wait for their deletion: some 10 MB."""

Raw = bytes
"""`LiveFile.bytes` hides the builtin's name."""


@dataclass(frozen=True, slots=True)
class LiveFile:
    """One live data file, as far as planning and conflict checks need to know it."""

    location: str
    spec_id: int
    partition: tuple[object, ...]
    bytes: int
    rows: int
    sort_order_id: int
    sequence_number: int
    key_metadata: Raw | None = None
    """What its writer said of its keys; None for a file that is not encrypted."""

    @property
    def encryption(self) -> str | None:
        """`key_metadata` as a text."""
        return None if self.key_metadata is None else self.key_metadata.decode(errors="backslashreplace")


@dataclass(frozen=True)
class ManifestContents:
    """The live entries of one immutable manifest."""

    sequence_number: int
    files: dict[str, LiveFile]
    entries: tuple[ManifestEntry, ...] | None
    """The whole entries, where they are few."""
    _below: dict[int, tuple[LiveFile, ...]] = field(default_factory=dict)
    _open_below: dict[int, int] = field(default_factory=dict)

    def below(self, size: int) -> tuple[LiveFile, ...]:
        """Return the live files smaller than `size` bytes; looked for once, since planning asks at every
        batch.
        """
        if size not in self._below:
            self._below[size] = tuple(file for file in self.files.values() if file.bytes < size)
        return self._below[size]

    def open_below(self, size: int) -> int:
        """Return how many of these may still be filled: those without a sort order. Counted once."""
        if size not in self._open_below:
            self._open_below[size] = sum(not file.sort_order_id for file in self.below(size))
        return self._open_below[size]


@dataclass
class ManifestFiles:
    """Reads and writes the manifests of one table, and remembers them: they never change."""

    store: Store
    _contents: dict[str, ManifestContents] = field(default_factory=dict)
    _lists: dict[str, tuple[ManifestFile, ...]] = field(default_factory=dict)
    """The last lists that were written or read; never what a version tells of one, since deletions go by
    these. Who deletes what old snapshots reached reads a hundred of them: 0.4 s of processor time, and 3 s at
    30 ms a request.
    """

    def read_list(self, location: str) -> tuple[ManifestFile, ...]:
        """Return the manifests of one snapshot, from memory where its list was seen before.
        MissingMetadataError where it has gone, CorruptTableError where it is unreadable.
        """
        if (known := self._lists.get(location)) is not None:
            return known
        return self._parsed(_ReadBytes(location, self._read(location, "manifest list")))

    def remember_list(self, location: str, manifests: tuple[ManifestFile, ...]) -> tuple[ManifestFile, ...]:
        """Keep what a list holds, and return it."""
        self._lists[location] = manifests
        if len(self._lists) > _KEPT_LISTS:
            del self._lists[next(iter(self._lists))]
        return manifests

    def contents(self, manifest: ManifestFile) -> ManifestContents:
        """Return the live entries of a manifest, from memory where it was read before."""
        return self.known(manifest) or self.remember(manifest, self._read_entries(manifest))

    def known(self, manifest: ManifestFile) -> ManifestContents | None:
        """Return the live entries of a manifest that was read or written before."""
        known = self._contents.get(manifest.manifest_path)
        # A manifest that a lost attempt listed may be listed again under another sequence number, which its
        # entries inherit.
        return known if known is not None and known.sequence_number == manifest.sequence_number else None

    def find_list(self, location: str) -> tuple[ManifestFile, ...] | None:
        """Return the manifests of an expired snapshot; None where its list has gone, and was never seen."""
        if (known := self._lists.get(location)) is not None:
            return known
        source = self._find(location)
        return None if source is None else self._parsed(source)

    def find_entries(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...] | None:
        """Return all entries, those of removed files too, or None where the manifest was deleted. Remembers
        nothing.
        """
        if (source := self._find(manifest.manifest_path)) is None:
            return None
        with _telling_damage(manifest.manifest_path):
            return tuple(manifest.fetch_manifest_entry(_OneFile(source), discard_deleted=False))

    def entries(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        """Return the live entries of a manifest with all their statistics, reading it again if it is a big
        one.
        """
        known = self.contents(manifest).entries
        return self._read_entries(manifest) if known is None else known

    def keep_only(self, manifests: Iterable[ManifestFile]) -> None:
        """Forget all manifests but these, which the head lists: memory follows the table, not its history."""
        paths = {manifest.manifest_path for manifest in manifests}
        for path in self._contents.keys() - paths:
            del self._contents[path]

    def write_manifest(
        self,
        path: str,
        spec: PartitionSpec,
        schema: Schema,
        snapshot_id: int,
        entries: Sequence[ManifestEntry],
    ) -> ManifestFile:
        """Write one data manifest of `snapshot_id`, durably, with these entries, status included."""
        output = _WrittenBytes(self.store.uri(path))
        with _ManifestWriter(spec, schema, output, snapshot_id, "deflate") as writer:
            for entry in entries:
                writer.add_entry(entry)
        self.write_fresh(path, output.data)
        return writer.to_manifest_file()

    def write_list(
        self,
        path: str,
        snapshot_id: int,
        parent_id: int | None,
        sequence_number: int,
        manifests: Sequence[ManifestFile],
    ) -> tuple[str, tuple[ManifestFile, ...]]:
        """Write one manifest list, durably. Return its location, and the manifests with their sequence
        numbers assigned.
        """
        assigned = tuple(_numbered(manifest, sequence_number) for manifest in manifests)
        metadata = {
            "snapshot-id": str(snapshot_id),
            "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
            "sequence-number": str(sequence_number),
            "format-version": "2",
        }
        self.write_fresh(path, _LIST_FORMAT.encode(assigned, metadata))
        location = self.store.uri(path)
        return location, self.remember_list(location, assigned)

    def write_fresh(self, path: str, data: bytes) -> None:
        """Store a file under a name that nobody else has, durably."""
        outcome = self.store.create(path, data)
        if isinstance(outcome, Created):
            return
        # The name is fresh and ours alone, so what is there can only be ours: written whole, or not at all.
        try:
            stored = self.store.read(path).data
        except FileNotFoundError:
            self.store.overwrite(path, data)
        else:
            if stored != data:
                raise CorruptTableError(
                    "a file of a fresh name holds other bytes; two processes share one source of randomness:"
                    f" {path}"
                )
        # Neither says that the name is durable, as a create does; what a listing has shown is.
        self.store.list_folder(path.rpartition("/")[0])

    def _parsed(self, source: InputFile) -> tuple[ManifestFile, ...]:
        with _telling_damage(source.location):
            return self.remember_list(source.location, tuple(read_manifest_list(source)))

    def _find(self, location: str) -> InputFile | None:
        try:
            return _ReadBytes(location, self.store.read(self._path(location)).data)
        except FileNotFoundError:
            return None

    def _path(self, location: str) -> str:
        try:
            return self.store.relative(location)
        except ValueError as outside:
            raise CorruptTableError(
                f"the table names a file that is not below its own location; nothing was changed: {outside}"
            ) from outside

    def _read(self, location: str, what: str) -> bytes:
        try:
            return self.store.read(self._path(location)).data
        except FileNotFoundError:
            raise MissingMetadataError(
                f"the table names a {what} that does not exist: something deleted it. Nothing was changed;"
                f" restore it from a copy, and see what else the doctor misses: {location}"
            ) from None

    def _read_entries(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        source = _ReadBytes(manifest.manifest_path, self._read(manifest.manifest_path, "manifest"))
        with _telling_damage(manifest.manifest_path):
            return tuple(manifest.fetch_manifest_entry(_OneFile(source), discard_deleted=True))

    def remember(self, manifest: ManifestFile, entries: Iterable[ManifestEntry]) -> ManifestContents:
        """Keep the entries of a manifest that this process wrote or read; those that are live count."""
        live = tuple(entry for entry in entries if entry.status != ManifestEntryStatus.DELETED)
        for entry in live:
            if entry.sequence_number is None:
                entry.sequence_number = entry.file_sequence_number = manifest.sequence_number
            entry.data_file.spec_id = manifest.partition_spec_id
        files = {file.location: file for file in map(_live_file, live)}
        contents = ManifestContents(
            manifest.sequence_number, files, live if len(live) <= _CACHED_ENTRIES else None
        )
        self._contents[manifest.manifest_path] = contents
        return contents


def check_partition_names(partition: StructType) -> None:
    """Raise ValueError where manifests cannot spell the fields of a partition; see `AvroFormat`."""
    _entry_format(partition)


def is_data(manifest: ManifestFile) -> bool:
    return manifest.content == ManifestContent.DATA


def added_entry(snapshot_id: int, data_file: DataFile) -> ManifestEntry:
    """Return the entry of a file that `snapshot_id` adds; its sequence number is inherited from the list."""
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=data_file
    )


def existing_entry(entry: ManifestEntry) -> ManifestEntry:
    return _with_status(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id)


def deleted_entry(snapshot_id: int, entry: ManifestEntry) -> ManifestEntry:
    return _with_status(entry, ManifestEntryStatus.DELETED, snapshot_id)


def _with_status(entry: ManifestEntry, status: ManifestEntryStatus, snapshot_id: int | None) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )


def partition_of(data_file: DataFile) -> tuple[object, ...]:
    """Return a data file's partition as a tuple of its values. Two that hold NaN are equal too."""
    values = (data_file.partition[position] for position in range(len(data_file.partition)))
    return tuple(math.nan if value != value else value for value in values)


def _live_file(entry: ManifestEntry) -> LiveFile:
    data_file = entry.data_file
    return LiveFile(
        location=data_file.file_path,
        spec_id=data_file.spec_id,
        partition=partition_of(data_file),
        bytes=data_file.file_size_in_bytes,
        rows=data_file.record_count,
        sort_order_id=data_file.sort_order_id or 0,
        sequence_number=entry.sequence_number or 0,
        key_metadata=data_file.key_metadata or None,
    )


@contextmanager
def _telling_damage(location: str) -> Iterator[None]:
    try:
        yield
    except Exception as failure:  # whatever the Avro reader trips over first
        raise CorruptTableError(
            "a file of the table's metadata cannot be read; nothing was changed. Restore it from a copy:"
            f" {location}: {type(failure).__name__}: {failure}"
        ) from failure


def _numbered(manifest: ManifestFile, sequence_number: int) -> ManifestFile:
    """Return a manifest with its sequence numbers, those that this commit gives to its own included. A copy:
    a retry must find them unassigned.
    """
    if manifest.sequence_number != UNASSIGNED_SEQ:
        return manifest
    numbered = deepcopy(manifest)
    numbered.sequence_number = sequence_number
    if manifest.min_sequence_number == UNASSIGNED_SEQ:
        numbered.min_sequence_number = sequence_number
    return numbered


_LIST_FORMAT = AvroFormat(MANIFEST_LIST_FILE_SCHEMAS[2], "manifest_file")


@lru_cache(maxsize=64)
def _entry_format(partition: StructType) -> AvroFormat:
    data_file = data_file_with_partition(partition, format_version=2)
    return AvroFormat(manifest_entry_schema_with_data_file(2, data_file), "manifest_entry")


class _ManifestWriter(ManifestWriterV2):
    """pyiceberg's, which counts and sums up, with an encoding of ours."""

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        entry_format = _entry_format(self._spec.partition_type(self._schema))
        return _EncodedOnce(self._output_file, entry_format, self._meta)


class _EncodedOnce(AvroOutputFile[ManifestEntry]):
    """Keeps what it is given, and encodes it as it is closed."""

    def __init__(self, output_file: OutputFile, form: AvroFormat, metadata: Mapping[str, str]) -> None:
        self.output_file = output_file
        self._format, self._metadata = form, metadata
        self._entries: list[ManifestEntry] = []

    def __enter__(self) -> _EncodedOnce:
        return self

    def write_block(self, objects: list[ManifestEntry]) -> None:
        self._entries += objects

    def __exit__(self, *failure: object) -> None:
        with self.output_file.create() as stream:
            stream.write(self._format.encode(self._entries, self._metadata))


class _WrittenBytes(OutputFile):
    """A file that pyiceberg writes, kept in memory until the store gets it in one request."""

    data: bytes = b""

    def __len__(self) -> int:
        return len(self.data)

    def exists(self) -> bool:
        return False

    def to_input_file(self) -> InputFile:
        return _ReadBytes(self.location, self.data)

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: ARG002 - pyiceberg's signature
        return _Buffer(self)


class _Buffer(io.BytesIO):
    def __init__(self, target: _WrittenBytes) -> None:
        super().__init__()
        self._target = target

    def close(self) -> None:
        if not self.closed:
            self._target.data = self.getvalue()
        super().close()


class _ReadBytes(InputFile):
    def __init__(self, location: str, data: bytes) -> None:
        super().__init__(location)
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002 - pyiceberg's signature
        return io.BytesIO(self._data)


class _OneFile(FileIO):
    """A FileIO that holds one file in memory: what pyiceberg's manifest reader wants to be given."""

    def __init__(self, source: InputFile) -> None:
        super().__init__()
        self._source = source

    def new_input(self, location: str) -> InputFile:  # noqa: ARG002 - pyiceberg's signature
        return self._source

    def new_output(self, location: str) -> OutputFile:
        raise PermissionError(f"this reads one manifest and writes nothing: {location}")

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise PermissionError(f"this reads one manifest and deletes nothing: {location}")
