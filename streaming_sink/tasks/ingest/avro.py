"""The Arrow types of the columns of an Avro file, from its schema: a map's values look like a struct's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

_PLAIN = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL = {
    "date": pa.date32(),
    "time-millis": pa.time64("us"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "uuid": pa.uuid(),
}


def arrow_columns(schema: Any) -> pa.Schema:
    """Return the columns of a file of records. ValueError for other files, and for types that no column has:
    a union of several types, or a record that holds itself.
    """
    if not isinstance(schema, Mapping) or schema.get("type") != "record":
        raise ValueError("it holds no records; write one record for each row")
    return pa.schema(list(_arrow_type(schema, {}, ())))


def _arrow_type(kind: Any, named: dict[str, Any], inside: tuple[str, ...]) -> pa.DataType:
    if isinstance(kind, list):
        kinds = [each for each in kind if each != "null"]
        if len(kinds) > 1:
            raise ValueError(f"a union of several types is no column; write a column for each: {kinds}"[:200])
        return _arrow_type(kinds[0] if kinds else "null", named, inside)
    if isinstance(kind, str):
        return _PLAIN[kind] if kind in _PLAIN else _arrow_type(named[kind], named, inside)
    if "name" in kind:
        if kind["name"] in inside:
            raise ValueError(f"a record that holds itself is no column: {kind['name']}")
        named[kind["name"]], inside = kind, (*inside, kind["name"])
    if kind.get("logicalType") == "decimal":
        return pa.decimal128(kind["precision"], kind.get("scale", 0))
    if kind.get("logicalType") in _LOGICAL:
        return _LOGICAL[kind["logicalType"]]
    if kind["type"] == "record":
        fields = kind["fields"]
        return pa.struct([(each["name"], _arrow_type(each["type"], named, inside)) for each in fields])
    if kind["type"] == "array":
        return pa.list_(_arrow_type(kind["items"], named, inside))
    if kind["type"] == "map":
        return pa.map_(pa.string(), _arrow_type(kind["values"], named, inside))
    return _arrow_type(kind["type"], named, inside)
