"""The last act: our table is clustered by aircraft, and one aircraft is asked for before and after."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.table import StaticTable

from demo.figures import bytes_text, table_text
from planners import All
from streaming_sink import clustering

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb
    from pyspark.sql import SparkSession

    from streaming_sink.clustering import ClusterReport

COLUMN, AIRCRAFT = "tailnum", "N725MQ"
QUERY = f"SELECT count(*), avg(arr_delay), max(distance) FROM iceberg_scan(?) WHERE {COLUMN} = '{AIRCRAFT}'"
# A month is one file of about 400 KiB, so that there is something to skip only in smaller ones.
TARGET_FILE_BYTES = 64 * 1024
_RUNS = 15


@dataclass(frozen=True)
class Look:
    """What the query takes on one state of the table."""

    rows: int
    """Of the whole table, as DuckDB counts them."""
    files: int
    files_to_open: int
    """Files whose bounds do not rule the aircraft out, as pyiceberg judges them."""
    rows_to_read: int
    """All rows of those files."""
    milliseconds: float
    """DuckDB's median."""
    answer: tuple[object, ...] | None


def look(duck: duckdb.DuckDBPyConnection, metadata: Path) -> Look:
    table = StaticTable.from_metadata(str(metadata))
    to_open = [task.file for task in table.scan(row_filter=f"{COLUMN} = '{AIRCRAFT}'").plan_files()]
    times = []
    for _ in range(_RUNS):
        started = time.perf_counter()
        answer = duck.execute(QUERY, [str(metadata)]).fetchone()
        times.append((time.perf_counter() - started) * 1000)
    counted = duck.execute("SELECT count(*) FROM iceberg_scan(?)", [str(metadata)]).fetchone()
    assert counted is not None
    return Look(
        rows=int(counted[0]),
        files=len(list(table.scan().plan_files())),
        files_to_open=len(to_open),
        rows_to_read=sum(file.record_count for file in to_open),
        milliseconds=statistics.median(times),
        answer=answer,
    )


def cluster(spark: SparkSession, location: Path) -> ClusterReport | None:
    """Sort each month by aircraft, and commit that as one REPLACE."""
    return clustering.schedule_and_execute(
        spark,
        str(location),
        sort_by=[COLUMN],
        select=All(),
        target_file_bytes=TARGET_FILE_BYTES,
        small_file_bytes=TARGET_FILE_BYTES * 3 // 4,
    )


def effect(before: Look, after: Look, seconds: float) -> str:
    """Return what clustering changed for the query, as text."""
    rows = [
        ["", "before", "after"],
        ["files in the table", f"{before.files:,}", f"{after.files:,}"],
        ["files that may hold it", f"{before.files_to_open:,}", f"{after.files_to_open:,}"],
        ["rows in those files", f"{before.rows_to_read:,}", f"{after.rows_to_read:,}"],
        ["DuckDB: its delays", f"{before.milliseconds:.1f} ms", f"{after.milliseconds:.1f} ms"],
    ]
    return f"""Our table, clustered by aircraft in {seconds:.1f} s, and what it takes to find one, {AIRCRAFT}:

{table_text(rows)}

  A month was one file, and is now several of {bytes_text(TARGET_FILE_BYTES)}, of which a search opens one.
  A table this small costs DuckDB its metadata, not its rows: what shrinks is what must be read."""
