"""The calendar of a file's dates and times: Spark 2 wrote the hybrid one, Julian until 1582-10-04."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from streaming_sink.tasks.errors import RowsDoNotFitError
from streaming_sink.tasks.leaves import leaf_arrays

_VERSION = b"org.apache.spark.version"
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_FIRST_DAY = -141_427
"""1582-10-15: from this day on both calendars are one."""
_FIRST_SECOND = -2_208_988_800
"""1900-01-01 in UTC: from then on Spark changes no time. From 1582 to 1899 it moves one by the difference of
the writer's zone from its local mean time; see its RebaseDateTime.
"""
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def is_hybrid(said: Mapping[bytes, bytes] | None) -> bool:
    """Return whether a file's dates and times are of the hybrid calendar, by what its writer says: those of
    Spark 2, and of later ones by their LEGACY rebase modes.
    """
    said = said or {}
    return said.get(_VERSION, b"")[:2] in (b"1.", b"2.") or not said.keys().isdisjoint(_LEGACY)


def check_is_gregorian(rows: pa.Table) -> None:
    """Raise RowsDoNotFitError for a date or time that is another one in the hybrid calendar."""
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        for leaf in leaf_arrays(column):
            _check_leaf(name, leaf)


def _check_leaf(name: str, leaf: pa.Array) -> None:
    if pa.types.is_date(leaf.type):
        numbers, first = leaf.cast(pa.date32()).cast(pa.int32()), _FIRST_DAY
        what = "date before 1582-10-15"
    elif pa.types.is_timestamp(leaf.type):
        numbers, first = leaf.cast(pa.int64()), _FIRST_SECOND * _TICKS[leaf.type.unit]
        what = "time before 1900-01-01"
    else:
        return
    least = pc.min(numbers).as_py()
    if least is not None and least < first:
        raise RowsDoNotFitError(
            f"column {name} has a {what} in the hybrid calendar, as Spark 2 wrote it, or a LEGACY rebase"
            " mode; write the file anew with Spark 3 or later and datetimeRebaseModeInWrite CORRECTED, of"
            " spark.sql.parquet or spark.sql.avro, and for INT96 spark.sql.parquet.int96RebaseModeInWrite"
        )
