"""Keys on the driver: the table's key by its field ids, and a batch as changes."""

from __future__ import annotations

from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from streaming_sink.table.key_options import KeyOptions
from streaming_sink.tasks.job import DELETES
from timeline.errors import SchemaMismatchError
from timeline.versions.keys import TableKey

_HASHED = (
    iceberg.BooleanType,
    iceberg.IntegerType,
    iceberg.LongType,
    iceberg.DateType,
    iceberg.TimeType,
    iceberg.TimestampType,
    iceberg.TimestamptzType,
    iceberg.DecimalType,
    iceberg.StringType,
    iceberg.BinaryType,
    iceberg.FixedType,
    iceberg.UUIDType,
)
_ORDERED = (
    iceberg.IntegerType,
    iceberg.LongType,
    iceberg.DateType,
    iceberg.TimestampType,
    iceberg.TimestamptzType,
)


def table_key(options: KeyOptions, schema: Schema) -> TableKey:
    """Return the key by the field ids of a table. SchemaMismatchError for a column that the table lacks,
    or whose type cannot be a key's or a sequence's; each names the column.
    """
    ids = []
    for name in options.columns:
        field = _field(schema, name, "key")
        if not isinstance(field.field_type, _HASHED):
            raise SchemaMismatchError(
                f"a key's column cannot be of type {field.field_type}, of which equal values have no one"
                f" spelling: cast it, or choose another column for key: {name}"
            )
        ids.append(field.field_id)
    return TableKey(tuple(ids), _sequence_id(options, schema), options.scope)


def _sequence_id(options: KeyOptions, schema: Schema) -> int | None:
    if options.sequence_by is None:
        return None
    field = _field(schema, options.sequence_by, "sequence_by")
    if not isinstance(field.field_type, _ORDERED):
        raise SchemaMismatchError(
            "sequence_by must be a column of type int, long, date or timestamp, since the larger value"
            f" wins: {options.sequence_by} is {field.field_type}; cast it, as in"
            f" withColumn({options.sequence_by!r}, ...)"
        )
    return int(field.field_id)


def written_schema(options: KeyOptions, came: spark.StructType) -> spark.StructType:
    """Return the columns of a batch that the table gets; of a batch of deletes, its key and sequence."""
    for name in options.except_columns:
        if name not in came.names:
            raise SchemaMismatchError(
                f"the batch has no column {name!r}, which except_columns names; it has"
                f" {', '.join(came.names)}"
            )
    if options.deletes_only:
        wanted = {*options.columns, options.sequence_by}
        return spark.StructType([field for field in came.fields if field.name in wanted])
    return spark.StructType([field for field in came.fields if field.name not in options.except_columns])


def as_changes(options: KeyOptions, batch: DataFrame) -> DataFrame:
    """Return a batch with the column `DELETES`. SchemaMismatchError for a condition that Spark cannot
    resolve, or that is no boolean.
    """
    if options.deletes_only:
        return batch.withColumn(DELETES, sf.lit(True))
    if options.delete_where is None:
        return batch
    try:
        condition: Column = sf.expr(options.delete_where)
        changes = batch.withColumn(DELETES, sf.coalesce(condition, sf.lit(False)))
        kind = batch.select(condition.alias(DELETES)).schema[DELETES].dataType
    except (AnalysisException, ParseException) as error:
        raise SchemaMismatchError(
            f"delete_where is no condition over the batch's columns: {options.delete_where!r}: {error}"
        ) from error
    if not isinstance(kind, spark.BooleanType):
        raise SchemaMismatchError(
            f"delete_where must be a condition, such as \"op = 'D'\"; {options.delete_where!r} is of type"
            f" {kind.simpleString()}"
        )
    return changes


def _field(schema: Schema, name: str, option: str) -> iceberg.NestedField:
    fields = {field.name: field for field in schema.fields}
    if name not in fields:
        raise SchemaMismatchError(
            f"the table has no column {name!r}, which {option} names; it has {', '.join(fields)}"
        )
    return fields[name]
