"""The column `_column_sequences` in the schema of a table that is updated in part."""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg import types as iceberg
from pyiceberg.schema import Schema

from streaming_sink.options.values.writes import WriteByKey
from streaming_sink.table.rescue import is_rescued_field
from streaming_sink.tasks.changes.column_sequences import COLUMN_SEQUENCES
from timeline.errors import SchemaMismatchError

_DOC = (
    "the sequence at which a column was last set, by its field id, where it is not the row's own;"
    " written by streaming-sink"
)
"""Marks the column as the sink's own."""
_IDS = iceberg.IntegerType()


def is_column_sequences_field(field: iceberg.NestedField) -> bool:
    """Return whether a top-level field is the sink's own column."""
    return field.name == COLUMN_SEQUENCES and field.doc == _DOC


def is_own_field(field: iceberg.NestedField) -> bool:
    """Return whether a top-level field is any of the sink's own columns, which no batch brings."""
    return is_rescued_field(field) or is_column_sequences_field(field)


def check_is_not_brought(names: Iterable[str]) -> None:
    """Raise SchemaMismatchError for a batch with a column of the name."""
    for name in names:
        if name.lower() == COLUMN_SEQUENCES:
            raise SchemaMismatchError(
                f"the sink writes the column {COLUMN_SEQUENCES} itself, as the table is updated in part; drop"
                f" or rename the batch's column: {name}"
            )


def created_schema(schema: Schema, keys: WriteByKey | None) -> Schema:
    """Return the schema of a new table with the column, where its sink needs it."""
    value = _needed(schema, None, keys)
    if value is None:
        return schema
    free = schema.highest_field_id + 1
    return Schema(*schema.fields, _field(free, iceberg.MapType(free + 1, _IDS, free + 2, value, False)))


def evolved_fields(
    schema: Schema, wanted: iceberg.StructType | None, batch: Iterable[str], keys: WriteByKey | None
) -> iceberg.StructType | None:
    """Return the fields that a table's schema must get: those that are `wanted` for the columns of a batch,
    and the sink's own column where the table lacks it, or has it for narrower sequences. None for none.

    SchemaMismatchError where the batch brings the column, or the table has another one of its name.
    """
    if any(map(is_column_sequences_field, schema.fields)):
        check_is_not_brought(batch)
    value = _needed(schema, wanted, keys)
    if value is None:
        return wanted
    fields = () if wanted is None else wanted.fields
    return iceberg.StructType(*fields, _field(1, iceberg.MapType(2, _IDS, 3, value, False)))


def _needed(
    schema: Schema, wanted: iceberg.StructType | None, keys: WriteByKey | None
) -> iceberg.IcebergType | None:
    """Return the type of the sequences that the column is to hold, where the table's does not."""
    if keys is None or not keys.keeps or keys.sequence_by is None:
        return None
    fields = {each.name: each for each in (*schema.fields, *(() if wanted is None else wanted.fields))}
    for field in fields.values():
        if field.name.lower() == COLUMN_SEQUENCES and not is_column_sequences_field(field):
            raise SchemaMismatchError(
                f"the table has a column {field.name} that is not the sink's, and partial_update keeps there"
                f" at which sequence a column was set; rename the table's column: {field.field_type}"
            )
    if keys.sequence_by not in fields:  # an error of its own
        return None
    value = fields[keys.sequence_by].field_type
    known = fields[COLUMN_SEQUENCES].field_type if COLUMN_SEQUENCES in fields else None
    return None if isinstance(known, iceberg.MapType) and known.value_type == value else value


def _field(number: int, kind: iceberg.MapType) -> iceberg.NestedField:
    return iceberg.NestedField(number, COLUMN_SEQUENCES, kind, required=False, doc=_DOC)
