"""What clustering is worth to one selective query, as in the table that Hudi's RFC-19 published.

    python -m benchmarks.query --quick
    python -m benchmarks.query --check --json

There, a query over 13,642 files took 130.7 s and read 20 million rows; after clustering by the queried column
it read 110 thousand rows (0.55 %) of 294 files in 56.0 s. Here, a table of as many files of 300 rows each, in
commits of a hundred files, is clustered by that column into one file of 47 before, and asked for one value
of it by two engines that we did not write. The small files are written by the code that the sink's tasks
run, but without a stream, which would take most of an hour.

A query counts as the median of its runs; none is the first of its table in its engine. See
`benchmarks.selective_query` for what is planning, and what scanning.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import StaticTable

from benchmarks.aims import Aim, benchmark_parser, conclude
from benchmarks.data import write_batches
from benchmarks.peers import Extent, contents_of, session
from benchmarks.selective_query import Reading, ask_duckdb, ask_spark
from benchmarks.tables import append_files, new_table, newest_metadata
from planners import All
from streaming_sink import clustering

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from timeline.table import Table

COLUMN = "session"
_FILES_PER_COMMIT = 100
_FEWER = 47
_SOURCE_ROWS = 100_000


@dataclass(frozen=True)
class Result:
    """All runs of the query by one engine on one state of the table."""

    engine: str
    state: str
    live: Extent
    runs: tuple[Reading, ...]

    @property
    def median(self) -> Reading:
        """The run of median duration."""
        return sorted(self.runs, key=lambda it: it.total)[len(self.runs) // 2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, report, and return the exit code."""
    options = _parse(arguments)
    work = Path(tempfile.mkdtemp(prefix="query-", dir=options.work))
    spark = session(work, "query")
    # A plan that adapts shows its scan's figures only in parts.
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        table, key, written = _filled(work, options.files, options.rows)
        before = _asked(spark, table, key, "before", options.rounds)
        clustered = _cluster(spark, table, options)
        after = _asked(spark, table, key, "after", options.rounds)
    finally:
        spark.stop()
        shutil.rmtree(work)
    results = [*before, *after]
    rows = options.files * options.rows
    introduction = (
        f"{options.files:,} files of {options.rows} rows, written in {written:.0f} s and clustered in"
        f" {clustered:.1f} s."
    )
    figures = {"cluster_seconds": clustered, "results": [asdict(it) for it in results]}
    return conclude(options, introduction, [markdown(results, rows)], figures, aims(before, after, rows))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = benchmark_parser("benchmarks.query", __doc__, "470 files, one round")
    parser.add_argument("--files", type=int, default=13_642, help="small files")
    parser.add_argument("--rows", type=int, default=300, help="rows of a file")
    parser.add_argument(
        "--rounds", type=int, default=5, help="runs of the query by each engine, taking turns"
    )
    parser.add_argument("--memory", default="2GiB", help="what a task of the clustering may hold as Arrow")
    options = parser.parse_args(arguments)
    if options.quick:
        options.files, options.rounds = 470, 1
    return options


def _filled(work: Path, files: int, rows: int) -> tuple[Table, str, float]:
    """Return a new table of so many files, a key in the middle of it, and the seconds that this took."""
    table = new_table(str(work / "table"))
    source = work / "source"
    write_batches(source, rows=_SOURCE_ROWS, files=-(-files * rows // _SOURCE_ROWS))
    key, made = "", 0
    started = time.perf_counter()
    parts = _parts(source, rows)
    while made < files:
        commit = list(islice(parts, min(_FILES_PER_COMMIT, files - made)))
        append_files(table, commit)
        made += len(commit)
        if not key and made >= files // 2:
            key = commit[-1][COLUMN][rows // 2].as_py()
    return table, key, time.perf_counter() - started


def _parts(source: Path, rows: int) -> Iterator[pa.Table]:
    held: pa.Table | None = None
    for path in sorted(source.iterdir()):
        more = pq.read_table(path)
        held = more if held is None else pa.concat_tables([held, more])
        while held.num_rows >= rows:
            yield held.slice(0, rows).combine_chunks()
            held = held.slice(rows)


def _cluster(spark: SparkSession, table: Table, options: argparse.Namespace) -> float:
    """Cluster the whole table by the queried column, and return the seconds; its rows must stay."""
    location = table.store.location
    expected = contents_of(spark.read.format("iceberg").load(location))
    target = _live(location).bytes // (options.files // _FEWER)
    started = time.perf_counter()
    report = clustering.schedule_and_execute(
        spark,
        location,
        sort_by=[COLUMN],
        select=All(),
        target_file_bytes=target,
        small_file_bytes=target * 13 // 16,
        max_bytes_per_pass="4GiB",
        max_group_files=options.files,
        memory_bytes=options.memory,
    )
    seconds = time.perf_counter() - started
    found = contents_of(spark.read.format("iceberg").load(location))
    if report.version is None or found != expected:
        raise RuntimeError(f"clustering changed the table's rows: {found}, not {expected}; {report.line()}")
    print(f"{seconds:.1f} s: {report.line()}", file=sys.stderr)
    for group in report.groups:
        print(
            f"  group {group.index}: {group.seconds:.1f} s, {group.cpu_seconds:.1f} s of processor",
            file=sys.stderr,
        )
    return seconds


def _live(location: str) -> Extent:
    tasks = list(StaticTable.from_metadata(newest_metadata(location)).scan().plan_files())
    return Extent(len(tasks), sum(task.file.file_size_in_bytes for task in tasks))


def _asked(spark: SparkSession, table: Table, key: str, state: str, rounds: int) -> list[Result]:
    """Run the query by both engines in turn; the first run of each is not measured."""
    location = table.store.location
    by_spark, by_duckdb = [], []
    for number in range(rounds + 1):
        by_spark.append(ask_spark(spark, location, COLUMN, key))
        by_duckdb.append(ask_duckdb(location, COLUMN, key))
        said = f"Spark {by_spark[-1].total:.2f} s, DuckDB {by_duckdb[-1].total:.2f} s"
        print(f"{state}, run {number}: {said}", file=sys.stderr)
    live = _live(location)
    return [
        Result("Spark", state, live, tuple(by_spark[1:])),
        Result("DuckDB", state, live, tuple(by_duckdb[1:])),
    ]


def aims(before: Sequence[Result], after: Sequence[Result], rows: int) -> list[Aim]:
    """Return the aims that RFC-19's figures set: rows read, time saved, and files, for each engine."""
    found = []
    for was, now in zip(before, after, strict=True):
        share, saved = now.median.rows / rows, 1 - now.median.total / was.median.total
        found += [
            Aim(what=f"{now.engine}: share of the rows read", bound=0.0055, measured=share),
            Aim(what=f"{now.engine}: share of the time saved", bound=0.6, measured=saved, at_least=True),
        ]
    fewer = before[0].live.files / after[0].live.files
    return [*found, Aim(what="files before over files after", bound=46, measured=fewer, at_least=True)]


def markdown(results: list[Result], rows: int) -> str:
    """Return the medians as a table; the last lines are what clustering has changed."""
    lines = [
        "| engine | table | files | of which read | rows read | of all | s | planning s | scanning s |"
        " of which scheduling s |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for r in results:
        run = r.median
        cells = [
            r.engine,
            r.state,
            f"{r.live.files:,}",
            f"{run.files:,}",
            f"{run.rows:,}",
            f"{run.rows / rows:.2%}",
            f"{run.total:.2f}",
            f"{run.planning:.2f}",
            f"{run.scanning:.2f}",
            "" if run.scheduling is None else f"{run.scheduling:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
