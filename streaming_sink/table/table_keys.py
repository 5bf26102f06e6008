"""The key of a table by its field ids, from the names that a user gives."""

from __future__ import annotations

from pyiceberg import types as iceberg
from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import Schema, assign_fresh_schema_ids

from streaming_sink.options.values.writes import WriteByKey
from streaming_sink.table.column_sequences import created_schema, is_column_sequences_field
from timeline.errors import KeyConflictError, SchemaMismatchError
from timeline.manifests.entries import LiveFile
from timeline.versions.head import Head
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


def created_table_schema(rows: Schema, options: WriteByKey | None) -> Schema:
    """Return the schema of a table that is created for such rows, with the ids that it gets: a column after a
    struct has its own before the struct's fields. SchemaMismatchError as `table_key`.
    """
    schema = assign_fresh_schema_ids(created_schema(rows, options))
    if options is not None:
        table_key(options, schema)
    return schema


def table_key(options: WriteByKey, schema: Schema) -> TableKey:
    """Return the key by the field ids of a table. SchemaMismatchError for a column that the table lacks,
    or whose type cannot be a key's or a sequence's; each names the column.
    """
    ids = []
    for name in options.key:
        field = _field(schema, name, "key")
        if not isinstance(field.field_type, _HASHED):
            raise SchemaMismatchError(
                f"a key's column cannot be of type {field.field_type}, of which equal values have no one"
                f" spelling: cast it, or choose another column for key: {name}"
            )
        ids.append(field.field_id)
    return TableKey(
        tuple(ids), _sequence_id(options, schema), options.key_scope, _partial_ids(options.keeps, schema)
    )


def check_no_deletes_by_value(head: Head) -> None:
    """Raise KeyConflictError where another engine has deleted rows of a live file by their values."""
    if any(each.content == DataFileContent.EQUALITY_DELETES for each in head.delete_files()):
        for file in head.files_with_shared_deletes():
            position_deletes_of(head, file)


def check_spec(head: Head, in_partitions: bool, spec_id: int, location: str) -> None:
    """Raise KeyConflictError for a live file of another partition spec, where a key is unique in each
    partition.
    """
    if in_partitions and spec_id != head.spec.spec_id:
        raise KeyConflictError(
            "a key that is unique in each partition needs one partition spec, and the table has files of"
            f' another one; write the table again under one, or use key_scope="table": {location}',
            **head.where,
            files=[location],
        )


def position_deletes_of(head: Head, file: LiveFile) -> tuple[str, ...]:
    """Return the delete files that may apply to a data file in which keys are looked for. KeyConflictError
    where another engine has deleted rows of it by their values.
    """
    deletes = head.deletes_of(file)
    for delete in deletes:
        if delete.content == DataFileContent.EQUALITY_DELETES:
            raise KeyConflictError(
                "another engine has deleted rows of the table by their values, and this sink finds rows by"
                " their positions: let that engine rewrite the data file (rewrite_data_files), then restart"
                f" the stream: {delete.location}",
                **head.where,
                files=[delete.location],
            )
    return tuple(sorted(delete.location for delete in deletes))


def partial_columns(key: TableKey, schema: Schema) -> tuple[str, ...]:
    """Return the columns that keep their stored value where a change has a null."""
    if not key.partial:
        return ()
    fixed = {*key.column_ids, key.sequence_id}
    own = [field for field in schema.fields if not is_column_sequences_field(field)]
    if isinstance(key.partial, tuple):
        return tuple(field.name for field in own if field.field_id in key.partial)
    return tuple(field.name for field in own if field.field_id not in fixed)


def _partial_ids(partial: bool | tuple[str, ...], schema: Schema) -> bool | tuple[int, ...]:
    if isinstance(partial, bool):
        return partial
    return tuple(sorted(_field(schema, name, "partial_update").field_id for name in partial))


def _sequence_id(options: WriteByKey, schema: Schema) -> int | None:
    if options.sequence_by is None:
        return None
    field = _field(schema, options.sequence_by, "sequence_by")
    kind = field.field_type
    whole = isinstance(kind, iceberg.DecimalType) and kind.scale == 0
    if not (whole or isinstance(kind, _ORDERED)):
        raise SchemaMismatchError(
            "sequence_by must be a column of type int, long, decimal without fraction, date or timestamp,"
            f" since the larger value wins; cast it, as in withColumn({options.sequence_by!r}, ...):"
            f" {options.sequence_by} is {kind}"
        )
    return int(field.field_id)


def _field(schema: Schema, name: str, option: str) -> iceberg.NestedField:
    fields = {field.name: field for field in schema.fields}
    if name not in fields:
        raise SchemaMismatchError(
            f"the table has no column {name!r}, which {option} names; it has {', '.join(fields)}"
        )
    return fields[name]
