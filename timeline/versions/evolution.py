"""Schema evolution: whether rows of one schema fit another, and the schema that has the fields of both.

Fields are only added, made wider and made optional (Iceberg spec, "Schema Evolution", as far as format v2
allows it); none is dropped, renamed or narrowed. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import count
from typing import cast

from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
)

from timeline.errors import SchemaMismatchError
from timeline.manifests.entries import LiveFile
from timeline.versions.head import Head


def find_misfit(written: Schema, current: Schema) -> str | None:
    """Return why rows that were written under one schema do not mean the same under the other; None where
    they do: each field is still there, as wide or wider, and no field was made or added as required.
    """
    # Nested fields count too, so this walks the flat index of field ids.
    now: dict[int, NestedField] = {field_id: current.find_field(field_id) for field_id in current.field_ids}
    before: dict[int, NestedField] = {
        field_id: written.find_field(field_id) for field_id in written.field_ids
    }
    for field_id, field in before.items():
        if field_id not in now:
            return f"column {field.name!r} was dropped"
        kept = now[field_id]
        if field.field_type.is_primitive and not holds(kept.field_type, field.field_type):
            return f"column {field.name!r} changed from {field.field_type} to {kept.field_type}"
        if kept.required and field.optional:
            return f"column {field.name!r} became required"
    if added := _find_required_addition(current.as_struct(), before.keys()):
        return f"column {added.name!r} was added as required"
    return None


def _find_required_addition(kind: IcebergType, known: Collection[int]) -> NestedField | None:
    """Return a field that rows without it cannot have: required, and new in what is known. In what is new
    itself, fields may be required, as the keys of each map are.
    """
    for field in _fields(kind):
        if field.field_id in known:
            if found := _find_required_addition(field.field_type, known):
                return found
        elif field.required:
            return field
    return None


def _fields(kind: IcebergType) -> tuple[NestedField, ...]:
    if isinstance(kind, StructType):
        return kind.fields
    if isinstance(kind, ListType):
        return (kind.element_field,)
    return (kind.key_field, kind.value_field) if isinstance(kind, MapType) else ()


def find_unread_column(head: Head, file: LiveFile, schema_id: int) -> str | None:
    """Return why rows of a live file, rewritten under an older schema than the head's, may not be whole."""
    if schema_id == head.schema.schema_id:
        return None
    changed = f"the table's schema changed from {schema_id} to {head.schema.schema_id}"
    written = head.metadata.schema_by_id(schema_id)
    if written is None:
        return f"{changed}, and the older one is not known"
    if misfit := find_misfit(written, head.schema):
        return f"{changed}: {misfit}"
    if misfit := find_misfit(head.schema_at(file.sequence_number), written):
        return f"{changed}, and an input may hold what was not read: {misfit}: {file.location}"
    return None


def holds(wide: IcebergType, narrow: IcebergType) -> bool:
    """Return whether a column of type `wide` holds each value of type `narrow`, as readers promote it."""
    if isinstance(wide, DecimalType) and isinstance(narrow, DecimalType):
        return wide.scale == narrow.scale and wide.precision >= narrow.precision
    promoted = {(IntegerType, LongType), (FloatType, DoubleType)}
    return wide == narrow or (type(narrow), type(wide)) in promoted


def describe_evolution(before: Schema, after: Schema) -> str:
    """Return what a schema has got: new fields, wider types, fields that became optional; "" for nothing."""
    changes: list[str] = []
    new: list[str] = []
    for field_id in sorted(after.field_ids):
        now, name = after.find_field(field_id), str(after.find_column_name(field_id))
        if field_id not in before.field_ids:
            new.append(f"{name}.")
            if not any(name.startswith(parent) for parent in new):
                changes.append(f"{name} added as {now.field_type}")
            continue
        was = before.find_field(field_id)
        if now.field_type.is_primitive and was.field_type != now.field_type:
            changes.append(f"{name} widened from {was.field_type} to {now.field_type}")
        if was.required and now.optional:
            changes.append(f"{name} became optional")
    return ", ".join(changes)


def merge_schemas(known: Schema, wanted: StructType, last_column_id: int) -> Schema:
    """Return `known` with the fields that only `wanted` has, and with the wider of two types of one field.

    Fields match by name. A new field is optional, comes after the known ones, and takes the next ids above
    `last_column_id`; the ids of `wanted` mean nothing. A known field that `wanted` has as optional becomes
    optional. Where nothing differs, the result is `known` itself, else its id is the next one.

    SchemaMismatchError where one name has two types, neither of which holds the other, for a new name that a
    reader may take for a known one, and for an identifier field that would become optional.
    """
    ids = count(last_column_id + 1)
    merged = _merge_structs(known.as_struct(), wanted, "", lambda: next(ids))
    if merged == known.as_struct():
        return known
    identifiers = list(known.identifier_field_ids)
    if identifiers and (optional := _optional_names(merged) & known.identifier_field_names()):
        raise SchemaMismatchError(
            "a column that identifies the table's rows cannot become optional; add it to the batch:"
            f" {min(optional)}"
        )
    try:
        return Schema(*merged.fields, schema_id=known.schema_id + 1, identifier_field_ids=identifiers)
    except ValueError as ambiguous:
        raise SchemaMismatchError(
            f"two columns would have one full name; rename the one with a dot: {ambiguous}"
        ) from ambiguous


def _merge_structs(
    known: StructType, wanted: StructType, prefix: str, next_id: Callable[[], int]
) -> StructType:
    new = {field.name: field for field in wanted.fields}
    fields = [
        _merge_fields(field, new.pop(field.name), prefix + field.name, next_id)
        if field.name in new
        else field
        for field in known.fields
    ]
    spelled = {field.name.lower(): prefix + field.name for field in known.fields}
    for name in new:
        if name.lower() in spelled:
            raise SchemaMismatchError(
                "the table has this column in another case, which many readers take for the same; rename it:"
                f" {prefix + name} (table: {spelled[name.lower()]})"
            )
    numbered = [(next_id(), field) for field in new.values()]
    added = [
        NestedField(number, field.name, _renumbered(field.field_type, next_id), required=False, doc=field.doc)
        for number, field in numbered
    ]
    return StructType(*fields, *added)


def _optional_names(struct: StructType, prefix: str = "") -> set[str]:
    """Return the full names of the optional fields outside of lists and maps."""
    names = {prefix + field.name for field in struct.fields if field.optional}
    for field in struct.fields:
        if isinstance(field.field_type, StructType):
            names |= _optional_names(field.field_type, f"{prefix}{field.name}.")
    return names


def _merge_fields(
    known: NestedField, wanted: NestedField, path: str, next_id: Callable[[], int]
) -> NestedField:
    kind = _merge_types(known.field_type, wanted.field_type, path, next_id)
    required = known.required and wanted.required
    if (kind, required) == (known.field_type, known.required):
        return known
    return NestedField(known.field_id, known.name, kind, required=required, doc=known.doc)


def _merge_types(
    known: IcebergType, wanted: IcebergType, path: str, next_id: Callable[[], int]
) -> IcebergType:
    if isinstance(known, StructType) and isinstance(wanted, StructType):
        return _merge_structs(known, wanted, path + ".", next_id)
    if isinstance(known, ListType) and isinstance(wanted, ListType):
        element = _merge_types(known.element_type, wanted.element_type, path + ".element", next_id)
        return ListType(known.element_id, element, known.element_required and wanted.element_required)
    if isinstance(known, MapType) and isinstance(wanted, MapType):
        if not _keys_hold(known.key_type, wanted.key_type):
            raise _two_types(path + ".key", known.key_type, wanted.key_type)
        value = _merge_types(known.value_type, wanted.value_type, path + ".value", next_id)
        return MapType(
            known.key_id,
            known.key_type,
            known.value_id,
            value,
            known.value_required and wanted.value_required,
        )
    if holds(known, wanted):
        return known
    if holds(wanted, known):
        return wanted
    raise _two_types(path, known, wanted)


def _keys_hold(known: IcebergType, wanted: IcebergType) -> bool:
    """Return whether the keys of a map, which never evolve, take keys of another type."""
    if known.is_primitive and wanted.is_primitive:
        return holds(known, wanted)
    return _renumbered(known, lambda: 0) == _renumbered(wanted, lambda: 0)


def _renumbered(kind: IcebergType, next_id: Callable[[], int]) -> IcebergType:
    # pyiceberg's function takes types too, and says that it returns a schema.
    return cast("IcebergType", assign_fresh_schema_ids(kind, next_id))


def _two_types(path: str, known: IcebergType, wanted: IcebergType) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"the table has column {path} as {known}, and it is to become {wanted}: neither type holds the other."
        " Cast the column, or write it under another name"
    )
