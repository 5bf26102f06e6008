"""Changes by key: what a sink says of them, and whether a table and a batch fit it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from streaming_sink.tasks.job import DELETES
from timeline.errors import SchemaMismatchError
from timeline.versions.keys import KEY_SCOPES, TABLE_SCOPE, TableKey

KEY_OPTIONS = ("key", "sequence_by", "delete_where", "key_scope", "null_keys", "except_columns")
"""The options of changes by key, by their names."""
UPSERT = "upsert"
DELETE = "delete"
NULL_KEYS = ("refuse", "insert")

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


@dataclass(frozen=True, kw_only=True)
class KeyOptions:
    """The options of a sink with `operation="upsert"` or "delete"."""

    columns: tuple[str, ...]
    sequence_by: str | None = None
    delete_where: str | None = None
    scope: str = TABLE_SCOPE
    null_keys: str = "refuse"
    except_columns: tuple[str, ...] = ()
    deletes_only: bool = False

    def of_table(self, schema: Schema) -> TableKey:
        """Return the key by the field ids of a table. SchemaMismatchError for a column that the table lacks,
        or whose type cannot be a key's or a sequence's; each names the column.
        """
        ids = []
        for name in self.columns:
            field = _field(schema, name, "key")
            if not isinstance(field.field_type, _HASHED):
                raise SchemaMismatchError(
                    f"a key's column cannot be of type {field.field_type}, of which equal values have no one"
                    f" spelling: cast it, or choose another column for key: {name}"
                )
            ids.append(field.field_id)
        return TableKey(tuple(ids), self._sequence_id(schema), self.scope)

    def _sequence_id(self, schema: Schema) -> int | None:
        if self.sequence_by is None:
            return None
        field = _field(schema, self.sequence_by, "sequence_by")
        if not isinstance(field.field_type, _ORDERED):
            raise SchemaMismatchError(
                "sequence_by must be a column of type int, long, date or timestamp, since the larger value"
                f" wins: {self.sequence_by} is {field.field_type}; cast it, as in"
                f" withColumn({self.sequence_by!r}, ...)"
            )
        return int(field.field_id)

    def written_schema(self, came: spark.StructType) -> spark.StructType:
        """Return the columns of a batch that the table gets; of a batch of deletes, its key and sequence."""
        for name in self.except_columns:
            if name not in came.names:
                raise SchemaMismatchError(
                    f"the batch has no column {name!r}, which except_columns names; it has"
                    f" {', '.join(came.names)}"
                )
        if self.deletes_only:
            wanted = {*self.columns, self.sequence_by}
            return spark.StructType([field for field in came.fields if field.name in wanted])
        return spark.StructType([field for field in came.fields if field.name not in self.except_columns])

    def changes(self, batch: DataFrame) -> DataFrame:
        """Return a batch with the column `DELETES`. SchemaMismatchError for a condition that Spark cannot
        resolve, or that is no boolean.
        """
        if self.deletes_only:
            return batch.withColumn(DELETES, sf.lit(True))
        if self.delete_where is None:
            return batch
        try:
            condition: Column = sf.expr(self.delete_where)
            changes = batch.withColumn(DELETES, sf.coalesce(condition, sf.lit(False)))
            kind = batch.select(condition.alias(DELETES)).schema[DELETES].dataType
        except (AnalysisException, ParseException) as error:
            raise SchemaMismatchError(
                f"delete_where is no condition over the batch's columns: {self.delete_where!r}: {error}"
            ) from error
        if not isinstance(kind, spark.BooleanType):
            raise SchemaMismatchError(
                f"delete_where must be a condition, such as \"op = 'D'\"; {self.delete_where!r} is of type"
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


def key_options(operation: str, given: Mapping[str, Any]) -> KeyOptions | None:
    """Return the options of changes by key, checked; None for an operation that only inserts.

    Raises TypeError or ValueError that names the option, its value, and what to do.
    """
    named = [name for name in KEY_OPTIONS if given.get(name)]
    if operation not in (UPSERT, DELETE):
        if named:
            raise ValueError(
                f'{named[0]} needs operation="upsert" or operation="delete"; the operation is {operation!r}:'
                f" {named[0]}={given[named[0]]!r}"
            )
        return None
    columns = _names("key", given.get("key"), 'key=["user_id"]')
    if not columns:
        raise ValueError(f'operation={operation!r} needs the columns of the key, such as key=["user_id"]')
    sequence_by, delete_where = given.get("sequence_by"), given.get("delete_where")
    for name, value in (("sequence_by", sequence_by), ("delete_where", delete_where)):
        if value is not None and not (isinstance(value, str) and value.strip()):
            raise TypeError(f"{name} must be text, or left out; it is {value!r}")
    if operation == DELETE and delete_where is not None:
        raise ValueError(
            f'operation="delete" deletes the key of every row; leave out delete_where={delete_where!r}, or'
            ' say operation="upsert"'
        )
    if sequence_by in columns:
        raise ValueError(
            f"sequence_by says which of two rows of one key is newer, so it is no column of the key:"
            f" {sequence_by!r}"
        )
    excepted = _names("except_columns", given.get("except_columns") or (), 'except_columns=["op"]')
    if both := [name for name in excepted if name in (*columns, sequence_by)]:
        raise ValueError(f"except_columns cannot leave out the key or the sequence: {both[0]!r}")
    return KeyOptions(
        columns=columns,
        sequence_by=sequence_by,
        delete_where=delete_where,
        scope=_one_of("key_scope", given.get("key_scope") or TABLE_SCOPE, KEY_SCOPES),
        null_keys=_one_of("null_keys", given.get("null_keys") or NULL_KEYS[0], NULL_KEYS),
        except_columns=excepted,
        deletes_only=operation == DELETE,
    )


def _names(option: str, value: Any, example: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) and name for name in value):
        raise TypeError(f"{option} must be a list of columns, such as {example}, not {value!r}")
    if len(set(value)) < len(value):
        raise ValueError(f"{option} names a column twice: {list(value)}")
    return tuple(value)


def _one_of(option: str, value: Any, known: Sequence[str]) -> str:
    if value not in known:
        raise ValueError(f"{option} must be one of {', '.join(known)}, not {value!r}")
    return str(value)
