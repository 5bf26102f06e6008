"""Remembers what pyiceberg works out again for every Avro file: a schedule writes thirty of the same schemas.

All of it is pure, and most of a simulated commit's time. Nothing of `timeline` is replaced.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import fastavro._write
from pyiceberg import manifest
from pyiceberg.avro import file as avro_file
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

_MOST = 2000


def _by_identity(function: Callable[..., Any], schemas: int = 1, first: int = 0) -> Callable[..., Any]:
    """Remember by the identity of the schemas, which are kept so that no identity is used twice. `first`: the
    argument that is the first of them.
    """
    known: dict[tuple[int, ...], tuple[Any, Any]] = {}

    def remembering(*args: Any, **named: Any) -> Any:
        given = (*args, *named.values())
        key = tuple(map(id, given[first : first + schemas]))
        if key not in known:
            if len(known) > _MOST:
                known.clear()
            known[key] = given, function(*args, **named)
        return known[key][1]

    return remembering


def _by_key(function: Callable[..., Any], key: Callable[..., Any]) -> Callable[..., Any]:
    known: dict[Any, Any] = {}

    def remembering(*args: Any, **named: Any) -> Any:
        this = key(*args, **named)
        if this not in known:
            if len(known) > _MOST:
                known.clear()
            known[this] = function(*args, **named)
        return known[this]

    return remembering


def _fields(spec: PartitionSpec) -> tuple[Any, ...]:
    return spec.spec_id, *((field.field_id, field.name) for field in spec.fields)


def _sources(spec: PartitionSpec, schema: Schema) -> tuple[Any, ...]:
    """Return what the type of a partition depends on: the columns that it is of, and their types."""
    columns = schema._lazy_id_to_field
    return tuple((it.source_id, columns.get(it.source_id)) for it in spec.fields)


_meta_reader = avro_file.construct_reader(avro_file.META_SCHEMA, {-1: avro_file.AvroFileHeader})
_meta_writer = avro_file.construct_writer(avro_file.META_SCHEMA)
_construct_writer = _by_identity(avro_file.construct_writer)
_dump_record = _by_identity(lambda fields, schema: json.dumps(schema))

_REMEMBERED = (
    # Its one use of JSON is the schema in the header of a file.
    (fastavro._write, "json", SimpleNamespace(dumps=lambda schema: _dump_record(schema["fields"], schema))),
    (
        PartitionSpec,
        "partition_type",
        _by_key(PartitionSpec.partition_type, lambda spec, schema: (_fields(spec), _sources(spec, schema))),
    ),
    (avro_file, "construct_reader", lambda schema, types: _meta_reader),
    (
        avro_file,
        "construct_writer",
        lambda file_schema: (
            _meta_writer if file_schema is avro_file.META_SCHEMA else _construct_writer(file_schema)
        ),
    ),
    (avro_file, "resolve_reader", _by_identity(avro_file.resolve_reader, 2)),
    (avro_file, "resolve_writer", _by_identity(avro_file.resolve_writer, 2)),
    (
        avro_file.AvroFileHeader,
        "get_schema",
        _by_key(avro_file.AvroFileHeader.get_schema, lambda header: header.meta["avro.schema"]),
    ),
    (
        AvroSchemaConversion,
        "iceberg_to_avro",
        _by_identity(AvroSchemaConversion.iceberg_to_avro, first=1),
    ),
    (
        manifest.ManifestWriter,
        "_with_partition",
        _by_key(
            manifest.ManifestWriter._with_partition,
            lambda it, version: (_fields(it._spec), _sources(it._spec, it._schema), version),
        ),
    ),
    (
        manifest.ManifestWriterV2,
        "_meta",
        property(
            _by_key(
                manifest.ManifestWriterV2._meta.fget,
                lambda it: (_fields(it._spec), it._schema.schema_id, it._schema.fields, type(it)),
            )
        ),
    ),
)


@contextmanager
def remembered() -> Iterator[None]:
    """Use what is remembered, for as long as a schedule runs."""
    parse = _by_key(TableMetadataUtil.parse_raw, lambda data: data)
    with ExitStack() as stack:
        for owner, name, remembering in _REMEMBERED:
            stack.enter_context(mock.patch.object(owner, name, remembering))
        stack.enter_context(mock.patch.object(TableMetadataUtil, "parse_raw", staticmethod(parse)))
        yield
