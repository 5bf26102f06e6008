"""Reads of Parquet files that end with all rows, or an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def check_count(rows: int, stated: int) -> None:
    """Raise ArrowInvalid unless as many rows were read as a footer states. pyarrow passes over a page of a
    kind that it does not know, as one flipped bit makes it, and ends where the shortest column does.
    """
    if rows != stated:
        raise pa.ArrowInvalid(f"its pages have {rows:,} rows, and its footer states {stated:,}")


def check_groups(footer: pq.FileMetaData) -> None:
    """Raise ArrowInvalid unless the row groups of a footer have the rows that it states."""
    rows = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
    if sum(rows) != footer.num_rows or any(each < 0 for each in rows):
        raise pa.ArrowInvalid(f"its footer states {footer.num_rows:,} rows, and {sum(rows):,} in row groups")


def read_columns(source: Any, columns: Sequence[str], dictionaries: Sequence[str] = ()) -> pa.Table:
    """Return some columns of an open file, those of `dictionaries` as such. Pages are compared with their
    checksums. ArrowInvalid or OSError for a file that is damaged, lacks one, or has nulls in one.
    """
    try:
        file = pq.ParquetFile(
            pa.PythonFile(source, mode="r"),
            read_dictionary=[*dictionaries],
            page_checksum_verification=True,
        )
        check_groups(file.metadata)
        rows = file.read(columns=[*columns]).select([*columns])
    except (LookupError, UnicodeDecodeError) as damage:
        raise pa.ArrowInvalid(f"it has not the columns {', '.join(columns)}: {damage}") from damage
    check_count(rows.num_rows, file.metadata.num_rows)
    if any(column.null_count for column in rows.columns):
        raise pa.ArrowInvalid(f"it has nulls in one of {', '.join(columns)}")
    rows.validate(full=True)  # of a dictionary that is damaged, values may be beyond its end
    return rows
