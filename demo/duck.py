"""What DuckDB sees: the judge of all tables, and a reader that we did not write."""

from __future__ import annotations

import statistics
import time
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg

from demo.results import Extent, Survey

Connection = duckdb.DuckDBPyConnection

COLUMN, AIRCRAFT = "tailnum", "N725MQ"
SEARCH = f"search: {AIRCRAFT}"
QUERIES = {
    "scan: delay by month": (
        "SELECT month, count(*), avg(dep_delay) FROM {table} GROUP BY month ORDER BY month"
    ),
    "scan: delay by carrier": (
        "SELECT carrier, count(*), avg(arr_delay) FROM {table} GROUP BY carrier ORDER BY carrier"
    ),
    "scan: busiest routes": (
        "SELECT origin, dest, count(*) FROM {table} GROUP BY origin, dest"
        " ORDER BY count(*) DESC, origin, dest LIMIT 10"
    ),
    SEARCH: f"SELECT count(*), avg(arr_delay), max(distance) FROM {{table}} WHERE {COLUMN} = '{AIRCRAFT}'",
}
_ROUNDS = 5


@dataclass(frozen=True)
class Table:
    """A table as DuckDB addresses it: an expression for FROM, and the files behind it."""

    expression: str
    files: tuple[str, ...]


def connect() -> Connection:
    """Return a connection that reads Iceberg by the packages' extensions: nothing is downloaded."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    for path in extension_files():
        connection.load_extension(str(path))
    return connection


def extension_files() -> list[Path]:
    """Return the extension files for the DuckDB that is installed, in the order of loading."""
    return [
        Path(package.__path__[0], "extensions", f"v{duckdb.__version__}", f"{name}.duckdb_extension")
        for name, package in (("avro", duckdb_extension_avro), ("iceberg", duckdb_extension_iceberg))
    ]


def parquet_table(connection: Connection, location: Path) -> Table:
    pattern = f"{location}/**/*.parquet"
    files = connection.execute("SELECT file FROM glob(?)", [pattern]).fetchall()
    expression = f"read_parquet('{_quoted(pattern)}', hive_partitioning = true)"
    return Table(expression, tuple(file for (file,) in files))


def iceberg_table(connection: Connection, metadata: Path) -> Table:
    files = connection.execute(
        "SELECT file_path FROM iceberg_metadata(?) WHERE manifest_content = 'DATA' AND status <> 'DELETED'",
        [str(metadata)],
    ).fetchall()
    expression = f"iceberg_scan('{_quoted(metadata)}')"
    return Table(expression, tuple(_local_path(file) for (file,) in files))


def survey(connection: Connection, tables: list[Table], aircraft: list[str]) -> list[Survey]:
    """Ask the same of every table, taking turns; `aircraft` are all numbers of aircraft, in order.

    DuckDB keeps nothing of a file from one query to the next: each run opens every file that it needs.
    """
    connection.execute("SET enable_external_file_cache = false")
    times: list[dict[str, list[float]]] = [{name: [] for name in QUERIES} for _ in tables]
    answers: list[dict[str, list[tuple[object, ...]]]] = [{} for _ in tables]
    for name, query in QUERIES.items():
        for _ in range(_ROUNDS):
            for number, table in enumerate(tables):
                started = time.perf_counter()
                answers[number][name] = connection.execute(query.format(table=table.expression)).fetchall()
                times[number][name].append((time.perf_counter() - started) * 1000)
    return [
        Survey(
            rows=_count(connection, table),
            file_bytes=tuple(Path(file).stat().st_size for file in table.files),
            query_milliseconds={name: statistics.median(taken) for name, taken in times[number].items()},
            answers=answers[number],
            extents=_extents(connection, table, aircraft),
        )
        for number, table in enumerate(tables)
    ]


def _count(connection: Connection, table: Table) -> int:
    counted = connection.execute(f"SELECT count(*) FROM {table.expression}").fetchone()
    assert counted is not None
    return int(counted[0])


def _extents(connection: Connection, table: Table, aircraft: list[str]) -> tuple[Extent, ...]:
    """Return an extent per file that has any aircraft's number at all."""
    bounds = connection.execute(
        "SELECT min(stats_min_value), max(stats_max_value), sum(row_group_num_rows) FROM parquet_metadata(?)"
        f" WHERE path_in_schema = '{COLUMN}' AND stats_min_value IS NOT NULL GROUP BY file_name",
        [list(table.files)],
    ).fetchall()
    return tuple(
        Extent(position(low, aircraft), position(high, aircraft), int(rows)) for low, high, rows in bounds
    )


def position(number: str, aircraft: list[str]) -> float:
    """Return where an aircraft's number is among all of them: 0.0 for the first, 1.0 for the last."""
    return bisect_left(aircraft, number) / (len(aircraft) - 1)


def _local_path(uri: str) -> str:
    return unquote(urlparse(uri).path) if uri.startswith("file:") else uri


def _quoted(text: object) -> str:
    return str(text).replace("'", "''")
