"""The table's columns as Arrow has them: what files are written in, and whether those of a file without field
ids are known by their names. Works where pyspark is not installed.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from pyiceberg import types as iceberg
from pyiceberg.schema import Schema

from streaming_sink.tasks.leaves import FIELD_ID
from timeline.errors import SchemaMismatchError
from timeline.properties import NAME_MAPPING, name_mapping
from timeline.versions.head import Head


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema in which files of the table are written, with `PARQUET:field_id` on every
    field."""
    return pa.schema([_arrow_field(field) for field in schema.fields])


def _arrow_field(field: iceberg.NestedField) -> pa.Field:
    return _with_id(field.name, field.field_type, field.field_id, field.required)


def _with_id(name: str, kind: iceberg.IcebergType, number: int, required: bool) -> pa.Field:
    return pa.field(name, _arrow_type(kind), nullable=not required, metadata={FIELD_ID: str(number)})


def _arrow_type(kind: iceberg.IcebergType) -> pa.DataType:
    if isinstance(kind, iceberg.StructType):
        return pa.struct([_arrow_field(field) for field in kind.fields])
    if isinstance(kind, iceberg.ListType):
        return pa.list_(_with_id("element", kind.element_type, kind.element_id, kind.element_required))
    if isinstance(kind, iceberg.MapType):
        key = _with_id("key", kind.key_type, kind.key_id, True)
        return pa.map_(key, _with_id("value", kind.value_type, kind.value_id, kind.value_required))
    if isinstance(kind, iceberg.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, iceberg.FixedType):
        return pa.binary(len(kind))
    found = _ARROW.get(str(kind))
    if found is None:
        raise SchemaMismatchError(f"this sink writes Iceberg v2 and cannot write columns of type {kind}")
    return found


_ARROW = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "string": pa.string(),
    "uuid": pa.uuid(),
    "binary": pa.binary(),
}


def needs_field_ids(head: Head) -> bool:
    """Return whether a data file must have field ids to be read: not where the table's name mapping has each
    column under its present name and no other. Of one that was renamed or dropped older files say nothing.
    """
    if not head.version.is_shared:
        return False
    try:
        stated = _by_id(json.loads(head.properties.get(NAME_MAPPING, "[]")))
    except (ValueError, LookupError, TypeError):
        return True
    return stated != _by_id(json.loads(name_mapping(head.schema)))


def _by_id(fields: list[dict[str, Any]]) -> dict[int, tuple[list[str], Any]]:
    return {each["field-id"]: (sorted(each["names"]), _by_id(each.get("fields") or [])) for each in fields}
