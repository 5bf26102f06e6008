"""The whole demo, from the package's rows to the closing table."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from demo import clustered
from demo.duck import QUERIES, Survey, connect, extension_files, survey_iceberg, survey_parquet
from demo.figures import bytes_text, table_text
from demo.flights import read_flights, write_flight_files
from demo.lanes import (
    MAX_FILE_BYTES,
    SMALL_FILE_BYTES,
    IcebergLane,
    PlainLane,
    newest_metadata,
    parquet_file_bytes,
    stream_through,
)
from demo.progress import Progress
from demo.session import quiet_session

if TYPE_CHECKING:
    from pathlib import Path

    from duckdb import DuckDBPyConnection
    from pyspark.sql import SparkSession

    from demo.flights import FlightFiles


class DemoError(Exception):
    """The two tables are not what they should be."""


def run_demo(output: Path, batches: int) -> None:
    """Stream the flights through both lanes into `output`, an empty folder, and print what DuckDB sees.

    Raises DemoError where a table does not hold exactly the source's rows.
    """
    started = time.perf_counter()
    print(f"Preparing {batches} files from the flights that left New York in 2013 ...", flush=True)
    source = write_flight_files(read_flights(), output / "input", batches)

    print("Starting Spark ...", flush=True)
    spark = quiet_session("streaming-sink demo")
    plain = PlainLane(output / "plain")
    ours = IcebergLane.at(output / "iceberg")
    print(
        f"Streaming {source.rows:,} rows as {batches} micro-batches by month through both sinks:\n",
        flush=True,
    )
    try:
        stream_through(spark, source, [plain, ours], output / "checkpoints", Progress(source).show)
        duck = connect()
        _compare(duck, source, plain, ours)
        _cluster(spark, duck, source, ours)
    finally:
        spark.stop()
    print(f"\n{time.perf_counter() - started:.0f} seconds in all.")
    print(_how_to_look(newest_metadata(ours.location)))


def _compare(duck: DuckDBPyConnection, source: FlightFiles, plain: PlainLane, ours: IcebergLane) -> None:
    surveys = [survey_parquet(duck, plain.location), survey_iceberg(duck, newest_metadata(ours.location))]
    print("\nWhat DuckDB sees:\n")
    print(_comparison([plain, ours], surveys))
    full, small = bytes_text(MAX_FILE_BYTES), bytes_text(SMALL_FILE_BYTES)
    print(f"\n  * A file is full at {full}, and small below {small}.")
    _check(source.rows, surveys)
    print(f"\nBoth tables hold all {source.rows:,} rows and give equal answers.\n", flush=True)


def _cluster(spark: SparkSession, duck: DuckDBPyConnection, source: FlightFiles, ours: IcebergLane) -> None:
    before = clustered.look(duck, newest_metadata(ours.location))
    started = time.perf_counter()
    report = clustered.cluster(spark, ours.location)
    seconds = time.perf_counter() - started
    after = clustered.look(duck, newest_metadata(ours.location))
    print(clustered.effect(before, after, seconds))
    if report is None or len(report.committed) < len(report.groups):
        raise DemoError(f"clustering did not succeed: {'no plan' if report is None else report.line()}")
    if (after.rows, after.answer) != (source.rows, before.answer):
        raise DemoError(f"clustering changed the table: {after.rows:,} rows, {after.answer}")


def _comparison(lanes: list[PlainLane | IcebergLane], surveys: list[Survey]) -> str:
    tables = [survey.file_bytes for survey in surveys]
    written = [parquet_file_bytes(lane.location) for lane in lanes]
    rows = [
        ["", *(lane.name for lane in lanes)],
        ["rows", *(f"{survey.rows:,}" for survey in surveys)],
        ["files", *(f"{len(sizes):,}" for sizes in tables)],
        ["mean file size", *(bytes_text(sum(sizes) / len(sizes)) for sizes in tables)],
        ["small files *", *(f"{sum(size < SMALL_FILE_BYTES for size in sizes):,}" for sizes in tables)],
        ["size of the table", *(bytes_text(sum(sizes)) for sizes in tables)],
        ["bytes written for it", *(bytes_text(sum(sizes)) for sizes in written)],
    ]
    for query in QUERIES:
        times = (f"{survey.query_milliseconds[query]:.1f} ms" for survey in surveys)
        rows.append([f"DuckDB: {query}", *times])
    return table_text(rows)


def _check(rows: int, surveys: list[Survey]) -> None:
    for survey in surveys:
        if survey.rows != rows:
            raise DemoError(f"a table holds {survey.rows:,} rows, but the source has {rows:,}")
    if surveys[0].answers != surveys[1].answers:
        raise DemoError("DuckDB answers the same queries otherwise on the two tables")


def _how_to_look(metadata: Path) -> str:
    location = metadata.parent.parent
    loads = "\n".join(f"  LOAD '{path}';" for path in extension_files())
    return f"""
The table is in {location}. Look at it with whatever reads Iceberg.

With Python (.venv/bin/python):

  from pyiceberg.table import StaticTable
  table = StaticTable.from_metadata("{location}")
  print(table.inspect.snapshots().select(["snapshot_id", "operation"]))
  print(table.scan(row_filter="month = 7", limit=5).to_arrow())

  import streaming_sink
  for report in streaming_sink.history("{location}"):
      print(report.line())

With DuckDB:

{loads}
  SELECT month, count(*) FROM iceberg_scan('{metadata}') GROUP BY month ORDER BY month;
"""
