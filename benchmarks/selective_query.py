"""One selective query, asked by two engines that we did not write: what they plan, what they read, how long.

Spark, with Iceberg's reader: planning is from the query's text to the list of its tasks (analysis,
optimisation, and Iceberg's reading of the manifests), scanning is the rest, and scheduling what of that no
task ran: less the tasks' run time, by Spark's status store, shared by the cores. Files are those that
Iceberg's scan reports, rows those that it handed on. Adaptive execution must be off: it shows a scan's
figures only in parts.

DuckDB: planning is what EXPLAIN takes, scanning what the query takes beyond that. Files are by its own
profile, rows those of the row groups whose statistics admit the key, because it tells none.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from pyiceberg.table import StaticTable

from benchmarks.tables import newest_metadata
from demo.duck import connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CORES = 2


@dataclass(frozen=True)
class Reading:
    """One run of the query. `scheduling` is a part of `scanning`; None where an engine does not tell."""

    planning: float
    scanning: float
    scheduling: float | None
    files: int
    rows: int

    @property
    def total(self) -> float:
        return self.planning + self.scanning


def ask_spark(spark: SparkSession, location: str, column: str, key: str) -> Reading:
    context = spark.sparkContext
    group = f"query {time.perf_counter_ns()}"
    context.setJobGroup(group, group)
    started = time.perf_counter()
    frame = spark.read.format("iceberg").load(location).where(f"{column} = '{key}'")
    scan: Any = frame._jdf.queryExecution().executedPlan().collectLeaves().head()  # noqa: SLF001
    tasks = scan.inputPartitions().size()
    planned = time.perf_counter()
    found = frame.collect()
    ended = time.perf_counter()
    _check(len(found), "Spark", key)
    run_seconds = _task_seconds(spark, group) / min(_CORES, max(1, tasks))
    metrics = scan.metrics()
    return Reading(
        planning=planned - started,
        scanning=ended - planned,
        scheduling=ended - planned - run_seconds,
        files=metrics.apply("resultDataFiles").value(),
        rows=metrics.apply("numOutputRows").value(),
    )


def _task_seconds(spark: SparkSession, group: str) -> float:
    """Return how long the tasks of a job group ran, added up."""
    scala: Any = spark.sparkContext._jsc.sc()  # noqa: SLF001 - PySpark tells no times
    scala.listenerBus().waitUntilEmpty()
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [stage for job in jobs if job is not None for stage in job.stageIds]
    store = scala.statusStore()
    return sum(int(store.lastStageAttempt(stage).executorRunTime()) for stage in stages) / 1_000


def ask_duckdb(location: str, column: str, key: str) -> Reading:
    """Ask on new connections: DuckDB keeps what it has read of files, which Spark does not."""
    query = f"SELECT * FROM iceberg_scan('{newest_metadata(location)}') WHERE {column} = '{key}'"
    with connect() as duck:
        started = time.perf_counter()
        duck.execute(f"EXPLAIN {query}").fetchall()
        planning = time.perf_counter() - started
    with connect() as duck:
        duck.execute("PRAGMA enable_profiling = 'no_output'")
        started = time.perf_counter()
        found = duck.execute(query).to_arrow_table()
        total = time.perf_counter() - started
        files = _files_read(json.loads(duck.get_profiling_information(format="json")))
    _check(found.num_rows, "DuckDB", key)
    planning = min(planning, total)  # a query that only plans differs from it by chance
    return Reading(planning, total - planning, None, files, _rows_admitted(location, column, key, files))


def _files_read(operator: dict[str, Any]) -> int:
    here = int(operator.get("extra_info", {}).get("Total Files Read", 0))
    return here + sum(map(_files_read, operator["children"]))


def _rows_admitted(location: str, column: str, key: str, files: int) -> int:
    """Return the rows of all row groups whose statistics admit the key; DuckDB says files, but no rows."""
    scan = StaticTable.from_metadata(newest_metadata(location)).scan(f"{column} = '{key}'")
    paths = [task.file.file_path for task in scan.plan_files()]
    if len(paths) != files:
        raise RuntimeError(f"DuckDB read {files} files, the manifests admit {len(paths)}")
    rows = 0
    for path in paths:
        footer = pq.read_metadata(path.removeprefix("file://"))
        place = footer.schema.names.index(column)
        for group in map(footer.row_group, range(footer.num_row_groups)):
            known = group.column(place).statistics
            rows += group.num_rows if known.min <= key <= known.max else 0
    return rows


def _check(found: int, engine: str, key: str) -> None:
    if found != 1:
        raise RuntimeError(f"{engine} finds {found} rows of the key {key}, not 1")
