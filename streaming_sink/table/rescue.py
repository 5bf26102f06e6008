"""The column `_rescued`: what did not fit the table's columns, as JSON in the row itself."""

from __future__ import annotations

from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyspark.sql import types as spark

from timeline.errors import SchemaMismatchError

RESCUED = "_rescued"
NOT_UTF8 = "base64:"
"""Begins a rescued text whose bytes are not valid UTF-8."""

_DOC = "what did not fit the table's columns, as JSON text {column: value}; written by streaming-sink"
"""Marks the column as the sink's own."""


def rescued_field(number: int) -> iceberg.NestedField:
    """Return the field of a table that rescues."""
    return iceberg.NestedField(number, RESCUED, iceberg.StringType(), required=False, doc=_DOC)


def is_rescued_field(field: iceberg.NestedField) -> bool:
    """Return whether a top-level field is the sink's own column of rescued values."""
    own = (RESCUED, iceberg.StringType(), False, _DOC)
    return (field.name, field.field_type, field.required, field.doc) == own


def check_rescued_name(schema: Schema, batch: spark.StructType) -> None:
    """Raise SchemaMismatchError if the table or the batch has a column `_rescued` that is not the sink's."""
    for field in schema.fields:
        if field.name.lower() == RESCUED and not is_rescued_field(field):
            raise SchemaMismatchError(
                f"the table has a column {field.name} that is not the sink's, and the contract rescues values"
                f" into {RESCUED}; rename the table's column, or take another choice than"
                f' "rescue": {field.name} {field.field_type}'
            )
    for given in batch.fields:
        if given.name.lower() == RESCUED:
            raise SchemaMismatchError(
                f"the sink writes the column {RESCUED} itself, with what does not fit the table; rename the"
                f" batch's column: {given.name}"
            )
