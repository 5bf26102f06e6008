"""The whole demo, from the package's rows to the last screen and the report."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from demo import duck
from demo.figures import bytes_text
from demo.flights import read_flights, write_flight_files
from demo.jars import ICEBERG, JarUnavailableError, cached, cached_path
from demo.lanes import IcebergLane, ParquetLane, SinkLane, newest_metadata
from demo.progress import Progress
from demo.report import report_html
from demo.results import Column, Results
from demo.screen import last_screen
from demo.session import quiet_session
from demo.stream import stream_through
from planners import All
from streaming_sink import clustering

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from demo.flights import FlightFiles

# A partition is one file or few, so that there is something to skip only in smaller ones.
CLUSTERED_FILE_BYTES = 64 * 1024
_DOWNLOAD_SECONDS = 120


class DemoError(Exception):
    """The tables are not what they should be."""


def run_demo(output: Path, batches: int, peer: str) -> None:
    """Stream the flights through both lanes into `output`, an empty folder, and show what DuckDB sees.

    `peer` is "iceberg", "parquet", or "auto" for the first where its JAR can be downloaded. Raises DemoError
    where a table does not hold exactly the source's rows.
    """
    started = time.perf_counter()
    lane, settings, peer_is = choose_peer(output / "peer", peer)
    print(f"Preparing {batches} files from the flights that left New York in 2013 ...", flush=True)
    flights = read_flights()
    source = write_flight_files(flights, output / "input", batches)
    aircraft = sorted(flights[duck.COLUMN].drop_null().unique().to_pylist())

    print("Starting Spark ...", flush=True)
    spark = quiet_session("streaming-sink demo", settings)
    try:
        results = _compare(spark, source, lane, SinkLane(output / "iceberg"), aircraft, peer_is)
    finally:
        spark.stop()
    report = output / "report.html"
    report.write_text(report_html(results), encoding="utf-8")
    _check(results)
    print(f"\n{last_screen(results)}\n")
    print(f"All tables hold the same {results.rows:,} rows and give equal answers.")
    print(f"{time.perf_counter() - started:.0f} seconds in all. The pictures: {os.path.relpath(report)}")
    print(_how_to_look(output / "iceberg"))


def choose_peer(location: Path, wanted: str) -> tuple[IcebergLane | ParquetLane, dict[str, str], str]:
    """Return the peer's lane, what the session needs for it, and a sentence that says what it is."""
    name = ParquetLane(location).name
    if wanted == "parquet":
        return ParquetLane(location), {}, f"“{name}” appends Parquet files to a partitioned folder."
    if not cached_path(ICEBERG).exists():
        print("Downloading Iceberg's runtime for Spark, for its sink (48 MB, once) ...", flush=True)
    try:
        jar = cached(ICEBERG, _DOWNLOAD_SECONDS)
    except JarUnavailableError as error:
        if wanted == "iceberg":
            raise DemoError(str(error)) from error
        print("  It cannot be downloaded now; a plain append of Parquet files takes its place.", flush=True)
        why = "since Iceberg's sink could not be downloaded"
        return ParquetLane(location), {}, f"“{name}” appends Parquet files to a partitioned folder, {why}."
    lane = IcebergLane(location)
    says = f"“{lane.name}” is the one that Iceberg {ICEBERG.version} itself brings for Spark."
    return lane, IcebergLane.settings(jar, location), says


def _compare(
    spark: SparkSession,
    source: FlightFiles,
    peer: IcebergLane | ParquetLane,
    ours: SinkLane,
    aircraft: list[str],
    peer_is: str,
) -> Results:
    batches = len(source.rows_per_file)
    print(
        f"Streaming {source.rows:,} rows as {batches} micro-batches by origin and carrier through both:\n",
        flush=True,
    )
    lanes = (peer, ours)
    runs = stream_through(spark, source, lanes, ours.location.parent / "checkpoints", Progress(source).show)
    written = [_parquet_bytes(lane.location) for lane in lanes]
    streamed = newest_metadata(ours.location)

    print("\nClustering ours by aircraft ...", flush=True)
    started = time.perf_counter()
    _cluster(spark, ours.location)
    seconds = time.perf_counter() - started
    clustered = newest_metadata(ours.location)
    assert streamed is not None
    assert clustered is not None

    print("Asking DuckDB ...", flush=True)
    connection = duck.connect()
    tables = [
        _table(connection, peer),
        # Iceberg keeps old versions readable: this one is the table before it was clustered.
        duck.iceberg_table(connection, streamed),
        duck.iceberg_table(connection, clustered),
    ]
    surveys = duck.survey(connection, tables, aircraft)
    return Results(
        rows=source.rows,
        batches=batches,
        peer=Column(peer.name, surveys[0], written[0], runs[0]),
        ours=Column(ours.name, surveys[1], written[1], runs[1]),
        clustered=Column("clustered", surveys[2], _parquet_bytes(ours.location), None),
        peer_is=peer_is,
        position=duck.position(duck.AIRCRAFT, aircraft),
        cluster_seconds=seconds,
    )


def _table(connection: duck.Connection, peer: IcebergLane | ParquetLane) -> duck.Table:
    if isinstance(peer, ParquetLane):
        return duck.parquet_table(connection, peer.location)
    metadata = newest_metadata(peer.location)
    assert metadata is not None
    return duck.iceberg_table(connection, metadata)


def _cluster(spark: SparkSession, location: Path) -> None:
    """Sort each partition by aircraft, and commit that as one REPLACE."""
    report = clustering.schedule_and_execute(
        spark,
        str(location),
        sort_by=[duck.COLUMN],
        select=All(),
        target_file_bytes=CLUSTERED_FILE_BYTES,
        small_file_bytes=CLUSTERED_FILE_BYTES * 3 // 4,
    )
    if not report.groups or len(report.committed) < len(report.groups):
        raise DemoError(f"clustering did not succeed: {report.line()}")


def _check(results: Results) -> None:
    for column in results.columns:
        if column.survey.rows != results.rows:
            raise DemoError(
                f"{column.name}: the table holds {column.survey.rows:,} rows, the source has {results.rows:,}"
            )
        if column.survey.answers != results.peer.survey.answers:
            raise DemoError(
                f"{column.name}: DuckDB answers otherwise than on the table of {results.peer.name}"
            )


def _parquet_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))


def _how_to_look(location: Path) -> str:
    loads = "\n".join(f"  LOAD '{path}';" for path in duck.extension_files())
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

With DuckDB (files of up to {bytes_text(CLUSTERED_FILE_BYTES)}, sorted by aircraft):

{loads}
  SELECT month, count(*) FROM iceberg_scan('{newest_metadata(location)}') GROUP BY month ORDER BY month;
"""
