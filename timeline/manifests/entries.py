"""The entries of a manifest: the live files that planning and conflict checks see, position-delete files, and
the three kinds of entry that a commit writes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus
from pyiceberg.typedef import Record

_POSITION_DELETE_PATH = 2147483546
"""Field id of `file_path` in a position-delete file (Iceberg spec, reserved field ids)."""
REFERENCED_DATA_FILE = 143
"""Field id of `referenced_data_file` in a manifest's entry."""

Raw = bytes
"""`LiveFile.bytes` hides the builtin's name."""


@dataclass(frozen=True, slots=True)
class LiveFile:
    """One live file of a snapshot, as far as planning and conflict checks need to know it."""

    location: str
    spec_id: int
    partition: tuple[object, ...]
    bytes: int
    rows: int
    sort_order_id: int
    sequence_number: int
    key_metadata: Raw | None = None
    """The writer's description of its encryption keys; None for a file that is not encrypted."""
    content: DataFileContent = DataFileContent.DATA
    """Rows, positions of deleted rows, or values of deleted rows."""
    applies_to: tuple[Raw, Raw] | None = None
    """The least and the greatest location of the data files that a position-delete file names, in UTF-8; None
    where the manifest does not state them.
    """

    @property
    def refers_to(self) -> str | None:
        """The one data file that a position-delete file names, or None where it may name several."""
        if self.applies_to is None or self.applies_to[0] != self.applies_to[1]:
            return None
        return self.applies_to[0].decode(errors="surrogateescape")

    @property
    def encryption(self) -> str | None:
        """`key_metadata` as a text."""
        return None if self.key_metadata is None else self.key_metadata.decode(errors="backslashreplace")


class DeleteFile(DataFile):
    """A delete file, with the data file that it refers to: a field that pyiceberg does not know in format
    version 2, and that Iceberg 1.7 and later write.
    """

    rows_of: Mapping[str, int] = MappingProxyType({})
    """How many rows it deletes of which data files: known to its writer, and in no manifest."""

    @property
    def referenced_data_file(self) -> str | None:
        stated: str | None = self._data[-1]
        return stated


def position_deletes(
    location: str, data_file: str, *, rows: int, size: int, spec_id: int, partition: Record
) -> DeleteFile:
    """Return a Parquet file of `rows` positions in the one data file at `data_file`, in its partition.

    It states that data file twice: as the file that it refers to, and as both bounds of its paths, by which
    readers find it that do not know the first. The file's rows are sorted by position, each once.
    """
    return shared_deletes(location, {data_file: rows}, size=size, spec_id=spec_id, partition=partition)


def shared_deletes(
    location: str, rows_of: Mapping[str, int], *, size: int, spec_id: int, partition: Record
) -> DeleteFile:
    """Return a Parquet file of so many positions in each of these data files of one partition. Its rows are
    sorted by path, then position, each once.

    Of several data files it states the range of their paths alone: it may apply to any in between.
    """
    stated = DataFile.from_args(
        _table_format_version=2,
        content=DataFileContent.POSITION_DELETES,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=sum(rows_of.values()),
        file_size_in_bytes=size,
        lower_bounds={_POSITION_DELETE_PATH: min(rows_of).encode()},
        upper_bounds={_POSITION_DELETE_PATH: max(rows_of).encode()},
    )
    referred = next(iter(rows_of)) if len(rows_of) == 1 else None
    delete = DeleteFile(*stated._data, referred)  # noqa: SLF001 - a record of one field more
    delete.spec_id = spec_id
    delete.rows_of = dict(rows_of)
    return delete


def live_file(entry: ManifestEntry) -> LiveFile:
    """Return what an entry says of its file."""
    file = entry.data_file
    return LiveFile(
        location=file.file_path,
        spec_id=file.spec_id,
        partition=entry_partition(file),
        bytes=file.file_size_in_bytes,
        rows=file.record_count,
        sort_order_id=file.sort_order_id or 0,
        sequence_number=entry.sequence_number or 0,
        key_metadata=file.key_metadata or None,
        content=DataFileContent(file.content),  # manifests of format version 1 have a plain 0
        applies_to=_deleted_from(file) if file.content == DataFileContent.POSITION_DELETES else None,
    )


def added_file(file: DataFile) -> LiveFile:
    """Return what is known of a data file that no commit has added yet."""
    return live_file(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, data_file=file))


def _deleted_from(file: DataFile) -> tuple[Raw, Raw] | None:
    """Return the range of the data files that a position-delete file names: the one that its entry refers to,
    else the bounds of its paths.
    """
    stated = getattr(file, "referenced_data_file", None)
    if stated:
        return stated.encode(), stated.encode()
    lower = (file.lower_bounds or {}).get(_POSITION_DELETE_PATH)
    upper = (file.upper_bounds or {}).get(_POSITION_DELETE_PATH)
    return None if lower is None or upper is None else (lower, upper)


def added_entry(snapshot_id: int, data_file: DataFile) -> ManifestEntry:
    """Return the entry of a file that `snapshot_id` adds; its sequence number is inherited from the list."""
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=data_file
    )


def returned_entry(snapshot_id: int, entry: ManifestEntry) -> ManifestEntry:
    """Return the entry of a file that was live before, and that `snapshot_id` adds again: with the number
    that it had, since deletes apply by it.
    """
    return _with_status(entry, ManifestEntryStatus.ADDED, snapshot_id)


def existing_entry(entry: ManifestEntry) -> ManifestEntry:
    """Return the entry of a file that an earlier snapshot added and that stays live."""
    return _with_status(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id)


def deleted_entry(snapshot_id: int, entry: ManifestEntry) -> ManifestEntry:
    """Return the entry of a file that `snapshot_id` removes."""
    return _with_status(entry, ManifestEntryStatus.DELETED, snapshot_id)


def _with_status(entry: ManifestEntry, status: ManifestEntryStatus, snapshot_id: int | None) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )


def entry_partition(data_file: DataFile) -> tuple[object, ...]:
    """Return a data file's partition as a tuple of its values. Two that hold NaN are equal too."""
    values = (data_file.partition[position] for position in range(len(data_file.partition)))
    return tuple(math.nan if value != value else value for value in values)
