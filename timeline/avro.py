"""Iceberg's metadata records as Avro files: pyiceberg says what stands in them, fastavro encodes them.

pyiceberg's own encoder is Python, and derives the Avro schema anew for every file: a list of fifty manifests
takes it ten times as long.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import UUID

import fastavro
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, IcebergType, ListType, MapType, NestedField, StructType, UUIDType
from pyiceberg.utils.decimal import decimal_required_bytes, decimal_to_bytes
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

_BLOCK_BYTES = 1 << 20
_Convert = Callable[[Any], Any]


class AvroFormat:
    """The Avro files that hold records of one schema, whose fields stand in its order."""

    def __init__(self, schema: Schema, name: str) -> None:
        avro = _named_apart(AvroSchemaConversion().iceberg_to_avro(schema, schema_name=name), set())
        self._schema = fastavro.parse_schema(avro)
        self._convert = _struct(schema.as_struct(), avro)

    def encode(self, records: Iterable[Any], metadata: Mapping[str, str]) -> bytes:
        """Return the bytes of a deflated file that holds these records."""
        written = io.BytesIO()
        fastavro.writer(
            written,
            self._schema,
            map(self._convert, records),
            codec="deflate",
            sync_interval=_BLOCK_BYTES,
            metadata=dict(metadata),
        )
        return written.getvalue()


def _named_apart(avro: Any, names: set[str]) -> Any:
    """Return a schema that defines no name twice. Avro refuses that, and pyiceberg gives two decimals of one
    precision one name. Its reader knows no references to a type, so the second one gets a name of its own.
    """
    if isinstance(avro, list):
        return [_named_apart(each, names) for each in avro]
    if not isinstance(avro, dict):
        return avro
    apart = {key: _named_apart(value, names) if key in _NESTED else value for key, value in avro.items()}
    if avro.get("type") == "fixed":
        if avro["name"] in names:
            apart["name"] = f"{avro['name']}_{len(names)}"
        names.add(apart["name"])
    return apart


_NESTED = {"type", "fields", "items", "values"}


def _struct(struct: StructType, avro: Any) -> _Convert:
    fields = [
        (field["name"], position, _field(of, field["type"]))
        for position, (of, field) in enumerate(zip(struct.fields, avro["fields"], strict=True))
    ]

    def convert(record: Any) -> dict[str, Any]:
        return {
            name: record[position] if each is None else each(record[position])
            for name, position, each in fields
        }

    return convert


def _field(field: NestedField, avro: Any) -> _Convert | None:
    return _value(field.field_type, avro) if field.required else _optional(field.field_type, avro[1])


def _optional(kind: IcebergType, avro: Any) -> _Convert:
    """Name the branch of the union: without that, fastavro looks through each value for the one that fits."""
    convert = _value(kind, avro)
    named = avro if isinstance(avro, str) else avro.get("name", avro["type"])
    if convert is None:
        return lambda value: None if value is None else (named, value)
    return lambda value: None if value is None else (named, convert(value))


def _value(kind: IcebergType, avro: Any) -> _Convert | None:
    """Return what makes fastavro's value of pyiceberg's; None where they are the same."""
    if isinstance(kind, StructType):
        return _struct(kind, avro)
    if isinstance(kind, ListType):
        return _list(_field(kind.element_field, avro["items"]))
    if isinstance(kind, MapType):
        return _pairs
    if isinstance(kind, DecimalType):
        size = decimal_required_bytes(kind.precision)
        return lambda number: decimal_to_bytes(number, size)
    if isinstance(kind, UUIDType):
        return lambda value: value.bytes if isinstance(value, UUID) else value
    return None


def _list(element: _Convert | None) -> _Convert:
    return list if element is None else lambda values: [element(value) for value in values]


def _pairs(values: Mapping[int, Any]) -> list[dict[str, Any]]:
    """A map whose keys are no text is a list of pairs in Avro; Iceberg's metadata maps field ids to plain
    values.
    """
    return [{"key": key, "value": value} for key, value in values.items()]
