"""Source files for buffer zones, and the rows of a table as pyiceberg sees them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import StaticTable

from tests.spark.streams import metadata_file

Row = tuple[int, str]


def rows_from(start: int, count: int, days: Sequence[str] = ("mon", "tue", "wed", "thu")) -> list[Row]:
    return [(number, days[number % len(days)]) for number in range(start, start + count)]


def write_parquet(path: Path, rows: Sequence[Row], **columns: Any) -> str:
    """Write a file of (id, day), and of other columns of which each row has the same value."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"id": pa.array([row[0] for row in rows], pa.int64()), "day": [row[1] for row in rows]})
    for name, value in columns.items():
        table = table.append_column(name, pa.array([value] * len(rows)))
    pq.write_table(table, path)
    return str(path)


def rows_in(location: str) -> list[Row]:
    path = metadata_file(location)
    read = [] if path is None else StaticTable.from_metadata(path).scan().to_arrow().to_pylist()
    return sorted((row["id"], row["day"]) for row in read)


def files_in(location: str) -> list[str]:
    """Return the day of each data file."""
    path = metadata_file(location)
    assert path is not None
    return sorted(str(task.file.partition[0]) for task in StaticTable.from_metadata(path).scan().plan_files())
