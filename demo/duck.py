"""What DuckDB sees: the judge of both tables, and a reader that we did not write."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg

QUERIES = {
    # What DuckDB does before it reads a row: an Iceberg table's metadata, or a folder's listing and a footer.
    "open the table": "SELECT * FROM {table} LIMIT 0",
    "delay by month": "SELECT month, count(*), avg(dep_delay) FROM {table} GROUP BY month ORDER BY month",
    "one month's carriers": (
        "SELECT carrier, count(*), avg(arr_delay) FROM {table} WHERE month = 7"
        " GROUP BY carrier ORDER BY carrier"
    ),
    "busiest routes": (
        "SELECT origin, dest, count(*) FROM {table} GROUP BY origin, dest"
        " ORDER BY count(*) DESC, origin, dest LIMIT 10"
    ),
}
_RUNS_PER_QUERY = 7


@dataclass(frozen=True)
class Survey:
    """A table as DuckDB sees it. Query times are medians in milliseconds, by the query's name."""

    rows: int
    file_bytes: tuple[int, ...]
    query_milliseconds: dict[str, float]
    answers: dict[str, list[tuple[object, ...]]]


def connect() -> duckdb.DuckDBPyConnection:
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


def survey_parquet(connection: duckdb.DuckDBPyConnection, folder: Path) -> Survey:
    pattern = f"{folder}/**/*.parquet"
    files = connection.execute("SELECT file FROM glob(?)", [pattern]).fetchall()
    return _survey(connection, f"read_parquet('{_quoted(pattern)}', hive_partitioning = true)", files)


def survey_iceberg(connection: duckdb.DuckDBPyConnection, metadata: Path) -> Survey:
    files = connection.execute(
        "SELECT file_path FROM iceberg_metadata(?) WHERE manifest_content = 'DATA' AND status <> 'DELETED'",
        [str(metadata)],
    ).fetchall()
    return _survey(connection, f"iceberg_scan('{_quoted(metadata)}')", files)


def _survey(connection: duckdb.DuckDBPyConnection, table: str, files: list[tuple[str]]) -> Survey:
    counted = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    assert counted is not None
    milliseconds: dict[str, float] = {}
    answers: dict[str, list[tuple[object, ...]]] = {}
    for name, query in QUERIES.items():
        times = []
        for _ in range(_RUNS_PER_QUERY):
            started = time.perf_counter()
            answers[name] = connection.execute(query.format(table=table)).fetchall()
            times.append((time.perf_counter() - started) * 1000)
        milliseconds[name] = statistics.median(times)
    sizes = tuple(_local_path(path).stat().st_size for (path,) in files)
    return Survey(int(counted[0]), sizes, milliseconds, answers)


def _local_path(uri: str) -> Path:
    return Path(unquote(urlparse(uri).path)) if uri.startswith("file:") else Path(uri)


def _quoted(text: object) -> str:
    return str(text).replace("'", "''")
