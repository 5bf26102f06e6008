"""The name mapping of a table, by which files without field ids are read: it keeps the names of the past."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import (
    MappedField,
    NameMapping,
    create_mapping_from_schema,
    parse_mapping_from_json,
)


def extend_name_mapping(stored: str, schema: Schema) -> str:
    """Return a mapping with the names that a schema has besides. Pure.

    What it knows stays: a file that was written before a column was renamed has it under the old name. So a
    new column of that name gets no files without ids. A mapping that cannot be read stays as it is.
    """
    try:
        known = parse_mapping_from_json(stored)
    except ValueError:
        return stored
    merged = _merge(list(known), list(create_mapping_from_schema(schema)))
    return str(NameMapping(merged).model_dump_json())


def _merge(known: Sequence[MappedField], wanted: Sequence[MappedField]) -> list[MappedField]:
    """Return the fields of one struct, those that are known first."""
    taken = {name for field in known for name in field.names}
    now = {field.field_id: field for field in wanted}
    merged = list[MappedField]()
    for field in known:
        more = now.pop(field.field_id, MappedField(names=[]))
        names = [*field.names, *(name for name in more.names if name not in taken)]
        merged.append(_mapped(field.field_id, names, _merge(field.fields, more.fields)))
    return merged + [field for field in now.values() if taken.isdisjoint(field.names)]


def _mapped(field_id: int | None, names: list[str], fields: list[MappedField]) -> MappedField:
    return MappedField(names=names, fields=fields, **{"field-id": field_id})
