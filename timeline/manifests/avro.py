"""Iceberg's metadata records as Avro files: pyiceberg defines their fields, fastavro encodes them.

pyiceberg's own encoder is Python, and derives the Avro schema anew for every file: a short list takes it six
times as long, and one of fifty manifests half as long again.
"""

from __future__ import annotations

import io
import re
import struct
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from decimal import Context, Decimal
from math import isnan
from operator import index
from typing import Any
from uuid import UUID

import fastavro
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.utils.decimal import decimal_required_bytes
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

_BLOCK_BYTES = 1 << 20
_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_WIDE = Context(prec=80)
_Convert = Callable[[Any], Any]


class AvroFormat:
    """The Avro files that hold records of one schema, whose fields have its order.

    ValueError where two fields have one name as Avro spells them, or one has none: some readers would refuse
    the file, and others take one field for the other.
    """

    def __init__(self, schema: Schema, name: str) -> None:
        avro = _rename_doubles(AvroSchemaConversion().iceberg_to_avro(schema, schema_name=name), set())
        self._schema = fastavro.parse_schema(avro)
        self._convert = _struct(schema.as_struct(), avro)

    def encode(self, records: Iterable[Any], metadata: Mapping[str, str]) -> bytes:
        """Return the bytes of a deflated file that holds these records. ValueError, TypeError, OverflowError
        for a value that its type does not hold.
        """
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

    def header(self, metadata: Mapping[str, str], sync: bytes) -> bytes:
        """Return the header of a deflated file; blocks follow it, each with the marker `sync` behind it."""
        written = io.BytesIO()
        fastavro.writer(written, self._schema, (), codec="deflate", metadata=dict(metadata), sync_marker=sync)
        return written.getvalue()

    def block(self, records: Collection[Any]) -> bytes:
        """Return a block of these records, without the marker behind it. Raises as `encode`."""
        written = io.BytesIO()
        for record in records:
            fastavro.schemaless_writer(written, self._schema, self._convert(record))
        deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        data = deflate.compress(written.getvalue()) + deflate.flush()
        return _long(len(records)) + _long(len(data)) + data


def _long(value: int) -> bytes:
    """Return a number of 0 or more as Avro spells it: zigzag, seven bits a byte, lowest first."""
    left, spelled = value << 1, bytearray()
    while left > 0x7F:
        spelled.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*spelled, left])


def _rename_doubles(avro: Any, names: set[str]) -> Any:
    """Return a schema that defines no name twice. Avro refuses that, and pyiceberg gives two decimals of one
    precision one name. Its reader knows no references to a type, so the second one gets a name of its own.
    """
    if isinstance(avro, list):
        return [_rename_doubles(each, names) for each in avro]
    if not isinstance(avro, dict):
        return avro
    apart = {key: _rename_doubles(value, names) if key in _NESTED else value for key, value in avro.items()}
    if avro.get("type") == "fixed":
        if avro["name"] in names:
            apart["name"] = f"{avro['name']}_{len(names)}"
        names.add(apart["name"])
    return apart


_NESTED = {"type", "fields", "items", "values"}


def _struct(struct: StructType, avro: Any) -> _Convert:
    names = [field["name"] for field in avro["fields"]]
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(f"a field's name cannot be spelled in Avro: {name!r}")
        if names.count(name) > 1:
            raise ValueError(f"two fields have one name in Avro's spelling: {name!r}")
    fields = [
        (name, position, _field(of, field["type"]))
        for position, (name, of, field) in enumerate(zip(names, struct.fields, avro["fields"], strict=True))
    ]

    def convert(record: Any) -> dict[str, Any]:
        if len(record) != len(fields):
            raise ValueError(f"a record of {len(record)} fields for a type of {len(fields)}: {record}")
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
    """Return what makes fastavro's value of pyiceberg's; None where they are the same. ValueError, TypeError
    or OverflowError where the type does not hold a value: fastavro would cut it off.
    """
    if isinstance(kind, StructType):
        return _struct(kind, avro)
    if isinstance(kind, ListType):
        return _list(_field(kind.element_field, avro["items"]))
    if isinstance(kind, MapType):
        key, value = (field["type"] for field in avro["items"]["fields"])
        return _pairs(_field(kind.key_field, key), _field(kind.value_field, value))
    if isinstance(kind, DecimalType):
        return _unscaled(kind.scale, decimal_required_bytes(kind.precision))
    if isinstance(kind, UUIDType):
        return lambda value: value.bytes if isinstance(value, UUID) else value
    if isinstance(kind, IntegerType | DateType):
        return _int
    if isinstance(kind, FloatType):
        return _float
    if isinstance(kind, LongType | TimeType | TimestampType | TimestamptzType):
        return index
    return None


def _int(value: Any) -> int:
    number = index(value)
    if not -(2**31) <= number < 2**31:
        raise OverflowError(f"this does not fit into 32 bits: {number}")
    return number


def _float(value: float) -> float:
    if not isnan(value) and struct.unpack("<f", struct.pack("<f", value))[0] != value:
        raise ValueError(f"this is rounded in 32 bits: {value}")
    return value


def _unscaled(scale: int, size: int) -> _Convert:
    def convert(number: Decimal) -> bytes:
        unscaled = number.scaleb(scale, _WIDE)
        if unscaled != unscaled.to_integral_value():
            raise ValueError(f"a decimal of {scale} digits behind the point cannot hold {number}")
        return int(unscaled).to_bytes(size, "big", signed=True)

    return convert


def _list(element: _Convert | None) -> _Convert:
    return list if element is None else lambda values: [element(value) for value in values]


def _pairs(key: _Convert | None, value: _Convert | None) -> _Convert:
    """A map whose keys are no text is a list of pairs in Avro; Iceberg's metadata maps the ids of fields."""
    assert key is not None
    if value is None:
        return lambda pairs: [{"key": key(k), "value": v} for k, v in pairs.items()]
    return lambda pairs: [{"key": key(k), "value": value(v)} for k, v in pairs.items()]
