"""The table of quarantined rows: its columns, which are the same for every stream, and its properties."""

from __future__ import annotations

from pyiceberg import types as iceberg
from pyiceberg.schema import Schema

from timeline.errors import SchemaMismatchError, TimelineError
from timeline.versions.head import Head

_COLUMNS: tuple[tuple[str, iceberg.PrimitiveType, bool, str], ...] = (
    ("row_id", iceberg.StringType(), True, "unique for each quarantined row, and never used again"),
    ("quarantined_at", iceberg.TimestamptzType(), True, "the time of the batch that brought the row"),
    ("app_id", iceberg.StringType(), True, "the application whose batch it was"),
    ("query_id", iceberg.StringType(), True, "the streaming query of that batch"),
    ("batch", iceberg.LongType(), True, "the number of that batch"),
    ("check", iceberg.StringType(), True, "the first check that the row failed"),
    ("column", iceberg.StringType(), False, "the column at fault, where it is one"),
    ("reason", iceberg.StringType(), True, "all checks that the row failed, or what is wrong with its value"),
    ("row", iceberg.StringType(), True, "the row as it came: a JSON object for Spark's from_json"),
    ("schema", iceberg.StringType(), True, "the schema of that object, as DDL"),
    ("source", iceberg.StringType(), False, "topic, partition, offset, file path, where the row had them"),
)
QUARANTINE_SCHEMA = Schema(
    *(
        iceberg.NestedField(number, name, kind, required=required, doc=doc)
        for number, (name, kind, required, doc) in enumerate(_COLUMNS, 1)
    )
)
QUARANTINE_PROPERTIES = {
    # What a task holds of failing rows, beside the rows of the table.
    "write.parquet.row-group-size-bytes": str(16 * 1024 * 1024)
}


class RowsRefusedError(TimelineError):
    """Rows fail a check whose action is "refuse", or more rows fail than `max_quarantined` allows. Nothing of
    the batch was committed.
    """


def check_is_quarantine(head: Head) -> None:
    """Raise SchemaMismatchError for a table that is not one of quarantined rows."""
    if head.schema.as_struct() != QUARANTINE_SCHEMA.as_struct() or head.spec.fields:
        columns = ", ".join(field.name for field in head.schema.fields)
        raise SchemaMismatchError(
            "the table at the quarantine's location does not have the columns of quarantined rows; give the"
            f' sink another location, quarantine="...", or drop that table: {head.metadata.location} has'
            f" {columns}",
            location=head.metadata.location,
        )
