"""The table of quarantined rows: its columns, which are the same for every stream, and its properties."""

from __future__ import annotations

from typing import Any

from pyiceberg import types as iceberg
from pyiceberg.schema import Schema

from timeline.errors import SchemaMismatchError
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


def default_quarantine(location: str) -> str:
    """Return where the rows of a table are quarantined, unless its sink says otherwise: beside the table."""
    return location.rstrip("/") + "__quarantine"


def check_quarantine(location: str, quarantine: Any, max_quarantined: Any, quarantines: bool) -> None:
    """Raise TypeError or ValueError for options that quarantine nowhere, or nothing."""
    for name, value in (("quarantine", quarantine), ("max_quarantined", max_quarantined)):
        if value is not None and not quarantines:
            raise ValueError(
                f"{name} says how rows are quarantined, and no expectation quarantines any; leave it out, or"
                f' give one, as expectations={{"price >= 0": "quarantine"}}: {name}={value!r}'
            )
    if quarantine is not None:
        if not isinstance(quarantine, str) or not quarantine.strip():
            raise TypeError(f"quarantine must be the location of a table of its own, not {quarantine!r}")
        one, other = (each.rstrip("/") + "/" for each in (location, quarantine))
        if one.startswith(other) or other.startswith(one):
            raise ValueError(
                "quarantine must be the location of a table of its own, not the sink's table, and neither"
                f" folder inside of the other: location={location!r}, quarantine={quarantine!r}"
            )
    if max_quarantined is None:
        return
    if type(max_quarantined) not in (int, float):
        raise TypeError(
            "max_quarantined must be a number of rows of a batch (an int), or a share of them (a float, as"
            f" 0.01), not {max_quarantined!r}"
        )
    if not max_quarantined >= 0 or (isinstance(max_quarantined, float) and not max_quarantined <= 1):
        raise ValueError(
            "max_quarantined must be a number of rows from 0 on, or a share from 0.0 to 1.0 as a float, not"
            f" {max_quarantined!r}"
        )


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
