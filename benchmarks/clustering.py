"""Our clustering, Iceberg's `rewrite_data_files` and Delta's `OPTIMIZE ... ZORDER BY`, on the same rows.

    python -m benchmarks.clustering --quick
    python -m benchmarks.clustering --check --json

One Spark session holds all three (`local[2]`, one JVM of 4 GiB); the same three million rows of ten columns
lie in sixty files of each. Every run gets a fresh copy of its table, and the engines take turns; before
that, each has rewritten a small table that nobody measures.

`sort` sorts by one string column of as many values as rows, into files of 16 MiB, and then asks for single
values of it. `curves` orders by two and three columns into files of 1 MiB, and counts what ranges of each
column, a hundredth of the rows long, must read by the files' bounds: by pyiceberg's planning of a scan, or by
the statistics in Delta's log. After each run the table must hold the rows that the source holds.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.aims import Aim, benchmark_parser, conclude
from benchmarks.data import write_batches
from benchmarks.measure import processor_seconds, wait_for_new_workers
from benchmarks.peers import (
    Contents,
    Delta,
    Engine,
    Extent,
    Iceberg,
    IcebergTable,
    Layout,
    Ours,
    contents_of,
    session,
)
from demo.duck import connect
from planners.sizing import parse_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb
    from pyspark.sql import SparkSession

SORT_COLUMN = "session"
SORTED_FILE_BYTES = 16 * 1024 * 1024
CURVED_COLUMNS = (("session", "event_time"), ("session", "event_time", "latency_ms"))
CURVED_FILE_BYTES = 1024 * 1024
PARTS = ("sort", "curves")
_POINTS = 9
_RANGES = 24
_RANGE_SHARE = 100
"""A range holds one row in so many."""


@dataclass
class Sorting:
    """All runs of one engine, a figure each; `live` is as the last run left the table."""

    engine: str
    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    """Processor seconds of the driver, the JVM and the workers."""
    live: Extent | None = None
    point_ms: dict[str, list[float]] = field(default_factory=dict)
    """Milliseconds of every point query, by the reader."""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


@dataclass
class Curving:
    """One layout by one engine: what the ranges of each column read, on average."""

    engine: str
    layout: Layout
    seconds: float | None
    """None for the table as it was before."""
    live: Extent
    read: dict[str, tuple[float, float]]
    """Files and bytes, by the column."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, report, and return the exit code."""
    options = _parse(arguments)
    work = Path(tempfile.mkdtemp(prefix="clustering-", dir=options.work))
    spark = session(work, "clustering")
    try:
        source = work / "source"
        write_batches(source, rows=options.rows, files=options.files)
        expected = contents_of(spark.read.parquet(str(source)))
        engines = _engines(spark, work, "events", options.memory)
        for engine in engines:
            engine.fill(source)
        _warm_up(spark, work, options.memory)
        sorted_ = _sort(engines, source, expected, options) if "sort" in options.part else []
        curved = _curves(engines, source, expected, options) if "curves" in options.part else []
    finally:
        spark.stop()
        shutil.rmtree(work)
    what = (
        f"{options.rows * options.files:,} rows in {options.files} files; ours holds {options.memory} a task."
    )
    tables = [sorting_table(sorted_)] if sorted_ else []
    tables += [
        curving_table([it for it in curved if it.layout.columns == by]) for by in CURVED_COLUMNS if curved
    ]
    figures = {
        "rows": expected.rows,
        "sort": [asdict(it) for it in sorted_],
        "curves": [asdict(it) for it in curved],
    }
    return conclude(options, what, tables, figures, aims(sorted_))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = benchmark_parser("benchmarks.clustering", __doc__, "six files of 20,000 rows, one round")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rows", type=int, default=50_000, help="rows of a source file")
    parser.add_argument("--files", type=int, default=60, help="source files")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each engine, taking turns")
    parser.add_argument("--new-workers", action="store_true", help="each run of ours begins with new ones")
    parser.add_argument("--memory", default="512MiB", help="what a task of ours may hold")
    options = parser.parse_args(arguments)
    options.sorted_bytes, options.curved_bytes = SORTED_FILE_BYTES, CURVED_FILE_BYTES
    if options.quick:
        options.rows, options.files, options.rounds = 20_000, 6, 1
        options.sorted_bytes, options.curved_bytes = parse_bytes("1MiB"), parse_bytes("256KiB")
    return options


def _engines(spark: SparkSession, work: Path, table: str, memory: str) -> list[Engine]:
    return [Ours(spark, work, table, memory), Iceberg(spark, work, table), Delta(spark, work, table)]


def _warm_up(spark: SparkSession, work: Path, memory: str) -> None:
    source = work / "small"
    write_batches(source, rows=5_000, files=6)
    for engine in _engines(spark, work, "small", memory):
        engine.fill(source)
        engine.restore()
        engine.cluster(Layout(engine.strategies[0], (SORT_COLUMN,), parse_bytes("256KiB")))
        contents_of(engine.frame())


def _clustered(engine: Engine, layout: Layout, expected: Contents) -> tuple[float, float]:
    """Rewrite a fresh copy, check its rows, and return the seconds that the rewriting took, by the clock and
    of processors.
    """
    engine.restore()
    started, processor = time.perf_counter(), processor_seconds()
    engine.cluster(layout)
    seconds, processor = time.perf_counter() - started, processor_seconds() - processor
    found = contents_of(engine.frame())
    if found != expected:
        raise RuntimeError(f"{engine.name} changed the table's rows: {found}, not {expected}")
    print(
        f"{engine.name}, {layout.strategy} by {', '.join(layout.columns)}: {seconds:.2f} s", file=sys.stderr
    )
    if isinstance(engine, Ours) and engine.report is not None:
        for group in engine.report.groups:
            print(
                f"  group {group.index}, {group.outcome}: {group.seconds:.2f} s, {group.cpu_seconds:.2f} s of"
                f" processor, {group.spilled_bytes:,} bytes spilled",
                file=sys.stderr,
            )
    return seconds, processor


# ----------------------------------------------------------------------------------------------------- sort


def _sort(
    engines: list[Engine], source: Path, expected: Contents, options: argparse.Namespace
) -> list[Sorting]:
    results = [Sorting(engine.name) for engine in engines]
    runs = list(zip(engines, results, strict=True))
    keys = _some_values(source, SORT_COLUMN, _POINTS)
    with connect() as duck:
        for number in range(options.rounds):
            turn = number % len(runs)
            for engine, result in runs[turn:] + runs[:turn]:
                layout = Layout(engine.strategies[0], (SORT_COLUMN,), options.sorted_bytes)
                if options.new_workers and isinstance(engine, Ours):
                    wait_for_new_workers()
                seconds, processor = _clustered(engine, layout, expected)
                result.seconds.append(seconds)
                result.processor.append(processor)
                result.live = engine.live()
            for place, key in enumerate(keys):
                for engine, result in runs:
                    for reader, ms in _point_query(duck, engine, key).items():
                        # The first query of a round opens a table that no one has read before.
                        if place:
                            result.point_ms.setdefault(reader, []).append(ms)
    return results


def _some_values(source: Path, column: str, count: int) -> list[Any]:
    paths = sorted(source.iterdir())
    picked = random.Random(5).choices(paths, k=count)
    return [pq.read_table(path, columns=[column])[column][place].as_py() for place, path in enumerate(picked)]


def _point_query(duck: duckdb.DuckDBPyConnection, engine: Engine, key: str) -> dict[str, float]:
    """Ask for the rows of one key by each reader that can read the table, and return the milliseconds."""
    started = time.perf_counter()
    rows = engine.frame().where(f"{SORT_COLUMN} = '{key}'").collect()
    taken = {"spark": 1_000 * (time.perf_counter() - started)}
    found = [len(rows)]
    if isinstance(engine, IcebergTable):  # DuckDB's extension for Delta is not on PyPI
        started = time.perf_counter()
        query = f"SELECT * FROM iceberg_scan('{engine.metadata}') WHERE {SORT_COLUMN} = ?"
        found.append(duck.execute(query, [key]).to_arrow_table().num_rows)
        taken["duckdb"] = 1_000 * (time.perf_counter() - started)
    if set(found) != {1}:
        raise RuntimeError(f"{engine.name}: {found} rows of the key {key}, not 1")
    return taken


def aims(results: Sequence[Sorting]) -> list[Aim]:
    """Return the aims of the sort: a third of the fastest peer's time, as many files, as quick a search."""
    ours, peers = results[:1], results[1:]
    faster = files = search = None
    if ours and peers:
        best = min(peers, key=lambda it: it.median)
        faster = best.median / ours[0].median
        live = [it.live for it in (ours[0], best) if it.live is not None]
        files = abs(live[0].files / live[1].files - 1) if len(live) == 2 else None
        search = statistics.median(ours[0].point_ms["spark"]) / min(
            statistics.median(it.point_ms["spark"]) for it in peers
        )
    return [
        Aim(what="seconds of the fastest peer over ours", bound=3, measured=faster, at_least=True),
        Aim(what="difference in files from that peer", bound=0.2, measured=files),
        Aim(what="point query by Spark over the quickest peer's", bound=1, measured=search),
    ]


def sorting_table(results: list[Sorting]) -> str:
    """Return the results as a table; ratios are to ours."""
    ours = results[0]
    lines = [
        "| engine | median s | runs | ÷ ours | CPU s | ÷ | files | MiB | point query, Spark ms | DuckDB ms |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for r in results:
        assert r.live is not None
        cells = [
            r.engine,
            f"{r.median:.2f}",
            f"{min(r.seconds):.2f} to {max(r.seconds):.2f}",
            f"{r.median / ours.median:.2f}",
            f"{(processor := statistics.median(r.processor)):.2f}",
            f"{processor / statistics.median(ours.processor):.2f}",
            str(r.live.files),
            f"{r.live.bytes / 2**20:.1f}",
            *(
                f"{statistics.median(ms):.0f}" if (ms := r.point_ms.get(it)) else ""
                for it in ("spark", "duckdb")
            ),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


# --------------------------------------------------------------------------------------------------- curves


def _curves(
    engines: list[Engine], source: Path, expected: Contents, options: argparse.Namespace
) -> list[Curving]:
    results = []
    ranges = {column: _ranges(source, column) for column in CURVED_COLUMNS[-1]}
    for columns in CURVED_COLUMNS:
        engines[0].restore()
        before = Layout("as it came", columns, options.curved_bytes)
        results.append(_measured(engines[0], before, None, ranges))
        for engine in engines:
            for strategy in engine.strategies:
                layout = Layout(strategy, columns, options.curved_bytes)
                seconds, _ = _clustered(engine, layout, expected)
                results.append(_measured(engine, layout, seconds, ranges))
    return results


def _ranges(source: Path, column: str) -> list[tuple[Any, Any]]:
    """Return pairs of values between which, in the order of the column, one row in a hundred lies."""
    values = pa.chunked_array(
        [chunk for path in source.iterdir() for chunk in pq.read_table(path, columns=[column])[column].chunks]
    ).sort()
    wide = len(values) // _RANGE_SHARE
    starts = random.Random(6).sample(range(len(values) - wide), _RANGES)
    return [(values[start].as_py(), values[start + wide].as_py()) for start in starts]


def _measured(
    engine: Engine, layout: Layout, seconds: float | None, ranges: dict[str, list[tuple[Any, Any]]]
) -> Curving:
    read = {}
    for column in layout.columns:
        found = [engine.within(column, low, high) for low, high in ranges[column]]
        read[column] = (
            statistics.mean(it.files for it in found),
            statistics.mean(it.bytes for it in found),
        )
    return Curving(engine.name, layout, seconds, engine.live(), read)


def curving_table(results: list[Curving]) -> str:
    """Return the layouts by one choice of columns as a table: of all bytes, what the ranges read."""
    columns = results[0].layout.columns
    lines = [
        f"| engine | by {len(columns)} columns | s | files | MiB | "
        + " | ".join(f"read by `{it}`" for it in columns)
        + " | mean |",
        "| --- | --- | ---: | ---: | ---: |" + " ---: |" * (len(columns) + 1),
    ]
    for r in results:
        shares = {column: read / r.live.bytes for column, (_, read) in r.read.items()}
        cells = [
            r.engine,
            r.layout.strategy,
            "" if r.seconds is None else f"{r.seconds:.1f}",
            str(r.live.files),
            f"{r.live.bytes / 2**20:.1f}",
            *(f"{shares[it]:.1%} ({r.read[it][0]:.0f} files)" for it in columns),
            f"{statistics.mean(shares.values()):.1%}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
