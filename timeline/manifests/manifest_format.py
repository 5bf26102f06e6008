"""Manifests and manifest lists as bytes: pyiceberg's readers and writers in memory, fastavro's encoder."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import fastavro
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import AvroFile, AvroOutputFile
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import resolve_reader
from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    _inherit_from_manifest,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, ListType, NestedField, StringType, StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from timeline.manifests.avro import AvroFormat
from timeline.manifests.entries import REFERENCED_DATA_FILE, DeleteFile
from timeline.stores.base import HeldOutput

LIST_FORMAT = AvroFormat(MANIFEST_LIST_FILE_SCHEMAS[2], "manifest_file")


def _delete_entries(data_file: StructType) -> Schema:
    """Return the schema of a delete file's entries: with the data file that it refers to, which pyiceberg's
    own of version 2 leaves out.
    """
    referenced = NestedField(REFERENCED_DATA_FILE, "referenced_data_file", StringType(), required=False)
    return manifest_entry_schema_with_data_file(2, StructType(*data_file.fields, referenced))


_DELETE_ENTRIES = _delete_entries(DATA_FILE_TYPE[2])
_EQUALITY_IDS = NestedField(135, "equality_ids", ListType(136, IntegerType()), required=False)
"""As the specification has them. pyiceberg calls them longs, which are read as well, but Iceberg's own reader
casts them to ints: no table with such a manifest can be read by Spark, Flink or Trino.
"""


def check_partition_names(partition: StructType) -> None:
    """Raise ValueError where manifests cannot spell the fields of a partition; see `AvroFormat`."""
    _entry_format(partition, ManifestContent.DATA)


def encode_manifest(
    location: str,
    spec: PartitionSpec,
    schema: Schema,
    snapshot_id: int,
    entries: Iterable[ManifestEntry],
    content: ManifestContent = ManifestContent.DATA,
    stated: Schema | None = None,
) -> tuple[bytes, ManifestFile]:
    """Return the bytes of a manifest with these entries, status included, and its entry in a list. In one of
    delete files each is a `DeleteFile`. `stated`: the schema of the table that the header has, where `schema`
    has columns that the table has no more; ClickHouse refuses a table with two schemas of one id.
    """
    output = WrittenBytes(location)
    kind = DeleteManifestWriter if content == ManifestContent.DELETES else ManifestWriter
    made = kind(spec, schema, output, snapshot_id, "deflate")
    made.stated = stated
    with made as writer:
        for entry in entries:
            writer.add_entry(entry)
    return output.data, writer.to_manifest_file()


def decode_live_entries(manifest: ManifestFile, data: bytes) -> Iterator[ManifestEntry]:
    """Yield the live entries of a manifest. Those of delete files name the data file that they refer to."""
    is_data = manifest.content == ManifestContent.DATA
    inherit = _inherit_from_manifest if is_data else _inherit

    def live() -> Iterator[ManifestEntry]:
        with _EntryFile(ReadBytes(manifest.manifest_path, data), of_deletes=not is_data) as entries:
            for entry in entries:
                if entry.status != ManifestEntryStatus.DELETED:
                    inherit(entry, manifest)
                    yield entry

    return _with_exact_partitions(live(), data)


def decode_entries(manifest: ManifestFile, data: bytes) -> Iterator[ManifestEntry]:
    """Yield all entries of a manifest, those of removed files too."""

    def every() -> Iterator[ManifestEntry]:
        with _EntryFile(ReadBytes(manifest.manifest_path, data)) as entries:
            for entry in entries:
                yield _inherit_from_manifest(entry, manifest)

    return _with_exact_partitions(every(), data)


class _EntryFile(AvroFile[ManifestEntry]):
    """pyiceberg's reader of a manifest. What reads the entries of a schema is derived once, which takes as
    long as seventy entries do.
    """

    def __init__(self, source: InputFile, *, of_deletes: bool = False) -> None:
        super().__init__(source)
        self._of_deletes = of_deletes

    def __enter__(self) -> _EntryFile:
        with self.input_file.open() as stream:
            self.decoder = new_decoder(stream.read())
        self.header = self._read_header()
        self.reader = _entry_reader(self.header.meta["avro.schema"], self._of_deletes)
        return self


@lru_cache(maxsize=64)
def _entry_reader(avro_schema: str, of_deletes: bool) -> Reader:
    """Return what reads the entries of a schema: with `of_deletes` each as of a `DeleteFile`."""
    return resolve_reader(
        AvroSchemaConversion().avro_to_iceberg(json.loads(avro_schema)),
        _DELETE_ENTRIES if of_deletes else MANIFEST_ENTRY_SCHEMAS[2],
        read_types={-1: ManifestEntry, 2: DeleteFile if of_deletes else DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    )


def _inherit(entry: ManifestEntry, manifest: ManifestFile) -> None:
    """Set what an entry leaves to its manifest, as pyiceberg does for those of data files."""
    entry.data_file.spec_id = manifest.partition_spec_id
    if entry.snapshot_id is None and manifest.added_snapshot_id is not None:
        entry.snapshot_id = manifest.added_snapshot_id
    if entry.sequence_number is None:
        entry.sequence_number = manifest.sequence_number
    if entry.file_sequence_number is None:
        entry.file_sequence_number = manifest.sequence_number


def _with_exact_partitions(entries: Iterable[ManifestEntry], data: bytes) -> Iterator[ManifestEntry]:
    """Yield the entries, with doubles in partitions as the manifest has them. pyiceberg's compiled decoder
    rounds them to floats: 0.1 would come to the partition of 0.10000000149011612, and engines that take such
    a column from the partition would read another value.
    """
    exact: Mapping[str, Sequence[object]] | None = None
    for entry in entries:
        if any(isinstance(value, float) for value in _values(entry)):
            exact = exact or _exact_partitions(data)
            for position, value in enumerate(exact[entry.data_file.file_path]):
                if isinstance(value, float):
                    entry.data_file.partition[position] = value
        yield entry


def _exact_partitions(data: bytes) -> Mapping[str, Sequence[object]]:
    records: Iterable[Any] = fastavro.reader(io.BytesIO(data))
    files = (record["data_file"] for record in records)
    return {file["file_path"]: tuple(file["partition"].values()) for file in files}


def _values(entry: ManifestEntry) -> Iterator[object]:
    partition = entry.data_file.partition
    return (partition[position] for position in range(len(partition)))


@lru_cache(maxsize=64)
def _entry_format(partition: StructType, content: ManifestContent) -> AvroFormat:
    # A required column may give no value: the transform is `void`, or the column is in a struct that is
    # null. The Iceberg spec has all fields of a partition optional.
    optional = (NestedField(it.field_id, it.name, it.field_type, required=False) for it in partition.fields)
    data_file = data_file_with_partition(StructType(*optional), format_version=2)
    if content == ManifestContent.DELETES:
        fields = (_EQUALITY_IDS if it.field_id == _EQUALITY_IDS.field_id else it for it in data_file.fields)
        return AvroFormat(_delete_entries(StructType(*fields)), "manifest_entry")
    return AvroFormat(manifest_entry_schema_with_data_file(2, data_file), "manifest_entry")


class ManifestWriter(ManifestWriterV2):
    """pyiceberg's writer, which counts files and summarizes partitions, with this package's encoder."""

    stated: Schema | None = None

    @property
    def _meta(self) -> dict[str, str]:
        stated = {} if self.stated is None else {"schema": self.stated.model_dump_json()}
        return {**super()._meta, **stated}

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        entry_format = _entry_format(self._spec.partition_type(self._schema), self.content())
        return _EncodedOnce(self._output_file, entry_format, self._meta)


class DeleteManifestWriter(ManifestWriter):
    """The same for delete files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _EncodedOnce(AvroOutputFile[ManifestEntry]):
    """Collects the entries, and encodes them when it is closed."""

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


class WrittenBytes(OutputFile):
    """A file that pyiceberg writes, kept in memory until the store gets it in one request."""

    data: bytes = b""

    def __len__(self) -> int:
        return len(self.data)

    def exists(self) -> bool:
        return False

    def to_input_file(self) -> InputFile:
        return ReadBytes(self.location, self.data)

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: ARG002 - pyiceberg's signature
        return HeldOutput(self._keep)

    def _keep(self, data: bytes) -> None:
        self.data = data


class ReadBytes(InputFile):
    """A file that the store has read, for pyiceberg's readers."""

    def __init__(self, location: str, data: bytes) -> None:
        super().__init__(location)
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002 - pyiceberg's signature
        return io.BytesIO(self._data)
