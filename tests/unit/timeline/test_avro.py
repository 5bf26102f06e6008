"""Manifests and their lists hold what pyiceberg's own encoder would have written."""

from __future__ import annotations

import io
import json
import math
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pytest
from fastavro.schema import SchemaParseException
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    read_manifest_list,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tests.unit.timeline.world import OneFile
from timeline.manifests.avro import AvroFormat
from timeline.manifests.entries import added_entry, deleted_entry
from timeline.manifests.manifest_format import ReadBytes, WrittenBytes
from timeline.manifests.manifests import ManifestFiles
from timeline.stores import MemoryStore
from timeline.table import Table

UUID_VALUE = UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
VALUES: list[tuple[IcebergType, Any]] = [
    (BooleanType(), True),
    (IntegerType(), -(2**31)),
    (LongType(), 2**63 - 1),
    (FloatType(), 0.5),
    (DoubleType(), math.inf),
    (DateType(), 20_000),
    (TimeType(), 86_399_999_999),
    (TimestampType(), -1),
    (TimestamptzType(), 1_700_000_000_000_000),
    (StringType(), "Ærø 🌊"),
    (UUIDType(), UUID_VALUE),
    (FixedType(3), b"\x00\xff\x10"),
    (BinaryType(), b""),
    (DecimalType(9, 2), Decimal("-1.25")),
    (DecimalType(38, 10), Decimal("9999999999999999999999999999.9999999999")),
]


def table_of(*types: IcebergType) -> tuple[Schema, PartitionSpec]:
    """A schema whose columns are of these types, and a spec that is partitioned by each of them."""
    names = [f"a.col-{position}" for position in range(len(types))]
    schema = Schema(*(NestedField(i + 1, names[i], kind) for i, kind in enumerate(types)))
    spec = PartitionSpec(
        *(PartitionField(i + 1, 1000 + i, IdentityTransform(), names[i]) for i in range(len(types))),
        spec_id=3,
    )
    return schema, spec


def data_file(partition: tuple[Any, ...], **more: Any) -> DataFile:
    given = {
        "content": DataFileContent.DATA,
        "file_path": "memory://lake/data/a.parquet",
        "file_format": FileFormat.PARQUET,
        "partition": Record(*partition),
        "record_count": 5,
        "file_size_in_bytes": 2**40,
    }
    file = DataFile.from_args(**given, **more)
    file.spec_id = 3
    return file


def both(schema: Schema, spec: PartitionSpec, entries: list[ManifestEntry]) -> tuple[bytes, bytes]:
    """The bytes that we write, and those that pyiceberg does."""
    store = MemoryStore()
    files = ManifestFiles(store)
    files.write_manifest("metadata/m.avro", spec, schema, 77, entries)
    output = WrittenBytes(store.uri("metadata/m.avro"))
    with ManifestWriterV2(spec, schema, output, 77, "deflate") as writer:
        for entry in entries:
            writer.add_entry(entry)
    return store.read("metadata/m.avro").data, output.data


def headers(data: bytes) -> dict[str, Any]:
    found = fastavro.reader(io.BytesIO(data)).metadata
    return {**found, "avro.schema": json.loads(found["avro.schema"])}


def entries_in(data: bytes, spec: PartitionSpec) -> list[ManifestEntry]:
    location = "memory://lake/metadata/m.avro"
    manifest = ManifestFile.from_args(
        manifest_path=location, manifest_length=len(data), partition_spec_id=spec.spec_id, sequence_number=9
    )
    source = OneFile(ReadBytes(location, data))
    return manifest.fetch_manifest_entry(source, discard_deleted=False)


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=lambda each: str(each)[:20])
def test_every_partition_type_is_written_as_pyiceberg_writes_it(kind: IcebergType, value: Any) -> None:
    schema, spec = table_of(kind)
    ours, theirs = both(
        schema, spec, [added_entry(77, data_file((value,))), added_entry(77, data_file((None,)))]
    )
    assert headers(ours) == headers(theirs)
    assert entries_in(ours, spec) == entries_in(theirs, spec)
    assert entries_in(ours, spec)[1].data_file.partition[0] is None
    assert list(fastavro.reader(io.BytesIO(ours))) == list(fastavro.reader(io.BytesIO(theirs)))


def test_statistics_of_every_kind_and_every_status_are_kept() -> None:
    schema, spec = table_of(LongType())
    whole = data_file(
        (4,),
        column_sizes={1: 7, 2: 2**40},
        value_counts={1: 5},
        null_value_counts={},
        nan_value_counts={1: 0},
        lower_bounds={1: b"\x01", 2: b""},
        upper_bounds={1: b"\xff"},
        key_metadata=b"\x00key",
        split_offsets=[4, 2**33],
        equality_ids=[],
        sort_order_id=2,
    )
    known = ManifestEntry.from_args(
        status=ManifestEntryStatus.EXISTING,
        snapshot_id=5,
        sequence_number=3,
        file_sequence_number=2,
        data_file=whole,
    )
    entries = [added_entry(77, whole), known, deleted_entry(77, known)]
    ours, theirs = both(schema, spec, entries)
    assert list(fastavro.reader(io.BytesIO(ours))) == list(fastavro.reader(io.BytesIO(theirs)))
    read = entries_in(ours, spec)
    assert read == entries_in(theirs, spec)
    assert [entry.status for entry in read] == [entry.status for entry in entries]
    assert read[0].data_file.lower_bounds == {1: b"\x01", 2: b""}
    assert read[0].data_file.split_offsets == [4, 2**33]


@pytest.mark.parametrize(
    ("kind", "value"),
    [(DecimalType(9, 2), Decimal("7.25")), (UUIDType(), UUID_VALUE), (FixedType(2), b"ab")],
    ids=str,
)
def test_partitions_of_one_named_type_have_names_of_their_own(kind: IcebergType, value: Any) -> None:
    """Avro refuses a file that defines a name twice, as pyiceberg's do."""
    schema, spec = table_of(kind, kind, kind)
    ours, theirs = both(schema, spec, [added_entry(77, data_file((value, None, value)))])
    fastavro.parse_schema(headers(ours)["avro.schema"])
    with pytest.raises(SchemaParseException, match="redefined"):
        fastavro.parse_schema(headers(theirs)["avro.schema"])
    assert entries_in(ours, spec) == entries_in(theirs, spec)


def test_a_list_is_what_pyiceberg_writes_and_a_retry_finds_its_own_manifest_unnumbered() -> None:
    schema, spec = table_of(LongType())
    store = MemoryStore()
    files = ManifestFiles(store)
    own = files.write_manifest("metadata/m.avro", spec, schema, 77, [added_entry(77, data_file((4,)))])
    _, first = files.write_list("metadata/a-list.avro", 77, None, 8, [own])
    _, second = files.write_list("metadata/b-list.avro", 77, 12, 9, [own, *first])
    assert [manifest.sequence_number for manifest in second] == [9, 8]
    output = WrittenBytes(store.uri("metadata/b-list.avro"))
    with write_manifest_list(2, output, 77, 12, 9, "deflate") as writer:
        writer.add_manifests([own, *first])
    ours = store.read("metadata/b-list.avro").data
    assert headers(ours) == headers(output.data)
    assert list(fastavro.reader(io.BytesIO(ours))) == list(fastavro.reader(io.BytesIO(output.data)))
    listed = read_manifest_list(ReadBytes("b", ours))
    assert tuple(listed) == second


def test_many_entries_share_a_block() -> None:
    """pyiceberg makes one of each, which doubles the file."""
    schema, spec = table_of(LongType())
    ours, theirs = both(schema, spec, [added_entry(77, data_file((i,))) for i in range(200)])
    assert len(list(fastavro.block_reader(io.BytesIO(ours)))) == 1
    assert len(ours) < len(theirs) / 2


def partition_format(schema: Schema, spec: PartitionSpec) -> AvroFormat:
    return AvroFormat(Schema(*spec.partition_type(schema).fields), "partition")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (IntegerType(), 2**31),
        (IntegerType(), 1.5),
        (LongType(), 1.5),
        (LongType(), 2**63),
        (DateType(), Decimal("1.5")),
        (TimestampType(), 1.5),
        (TimestamptzType(), "1"),
        (DecimalType(9, 2), Decimal("1.255")),
        (DecimalType(2, 0), Decimal(10**9)),
        (FixedType(3), b"ab"),
        (StringType(), 7),
        (FloatType(), 0.1),
        (FloatType(), 1e300),
    ],
    ids=str,
)
def test_a_value_that_its_type_does_not_hold_is_refused(kind: IcebergType, value: Any) -> None:
    """fastavro would have cut the fractions off, and pyiceberg written 1.5 as 0.15, between two that fit."""
    schema, spec = table_of(kind)
    entry_format = partition_format(schema, spec)
    assert entry_format.encode([Record(None)], {})
    with pytest.raises((ValueError, TypeError, OverflowError, AttributeError)):
        entry_format.encode([Record(value)], {})


def test_a_decimal_of_fewer_digits_is_written_at_its_scale() -> None:
    schema, spec = table_of(DecimalType(9, 2))
    data = partition_format(schema, spec).encode([Record(Decimal("1.5"))], {})
    assert [list(row.values()) for row in fastavro.reader(io.BytesIO(data))] == [[Decimal("1.50")]]


@pytest.mark.parametrize("statistics", [{"column_sizes": {1: 1.5}}, {"value_counts": {1.5: 1}}], ids=str)
def test_a_statistic_that_is_no_number_is_refused(statistics: dict[str, Any]) -> None:
    schema, spec = table_of(LongType())
    with pytest.raises(TypeError):
        ManifestFiles(MemoryStore()).write_manifest(
            "metadata/m.avro", spec, schema, 77, [added_entry(77, data_file((1,), **statistics))]
        )


def test_a_record_of_other_fields_than_its_type_is_refused() -> None:
    schema, spec = table_of(LongType())
    with pytest.raises(ValueError, match="a record of 2 fields for a type of 1"):
        partition_format(schema, spec).encode([Record(1, 2)], {})


@pytest.mark.parametrize(
    ("columns", "said"),
    [(("1a", "_1a"), "two fields have one name"), (("m²",), "cannot be spelled in Avro")],
    ids=str,
)
def test_a_table_whose_partitions_manifests_cannot_tell_apart_is_not_made(
    columns: tuple[str, ...], said: str
) -> None:
    schema = Schema(*(NestedField(i + 1, name, LongType()) for i, name in enumerate(columns)))
    fields = [PartitionField(i + 1, 1000 + i, IdentityTransform(), name) for i, name in enumerate(columns)]
    store = MemoryStore()
    with pytest.raises(ValueError, match=said):
        Table.create(store, schema, PartitionSpec(*fields))
    assert not list(store.list_below(""))
