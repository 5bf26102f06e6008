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


def read_columns(source: Any, columns: Sequence[str], dictionaries: Sequence[str] = ()) -> pa.Table:
    """Return some columns of an open file, those of `dictionaries` as such. Pages are compared with their
    checksums. ArrowInvalid, OSError or KeyError for a file that is damaged, or lacks one.
    """
    file = pq.ParquetFile(
        pa.PythonFile(source, mode="r"),
        read_dictionary=[*dictionaries],
        page_checksum_verification=True,
    )
    if missing := [name for name in columns if name not in file.schema_arrow.names]:
        raise pa.ArrowInvalid(f"it has no column {missing[0]}")
    rows = file.read(columns=[*columns])
    check_count(rows.num_rows, file.metadata.num_rows)
    rows.validate(full=True)  # of a dictionary that is damaged, values may be beyond its end
    return rows
