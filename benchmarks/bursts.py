"""Readers after a burst of changes: scans of a table by key beside scans of the same rows rewritten.

    python -m benchmarks.bursts --quick
    python -m benchmarks.bursts --rows 10_000_000 --check --json
    python -m benchmarks.bursts --only ours iceberg-mor --source /data/rows

A table of random integer keys gets 14 batches of 50,000 changes back to back, each of which changes or
deletes an old row; then `finish()` is called. Its rows are compared with those that Spark makes of the base
and the changes, and written into a second table, without a delete file. Spark, by Iceberg's own runtime, and
DuckDB scan both tables in turn: all columns, and one of them. Spark plans with its own default of 200 shuffle
partitions, which makes Iceberg split as finely as it ever does.

The delete files that may apply to a data file are counted by pyiceberg, and the splits that Spark makes of a
scan are those of its plan. Bytes are all that the burst has written, the key index included.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyiceberg.table import StaticTable

from benchmarks.aims import Aim, benchmark_parser, conclude
from benchmarks.keyed_data import Workload, write_rows
from benchmarks.keyed_runs import (
    base_rows,
    bytes_in,
    rows_that_should_be,
    without_deletes,
)
from benchmarks.keyed_writers import SESSION, Iceberg, Ours
from benchmarks.measure import processor_seconds
from benchmarks.peers import contents_of, session
from benchmarks.tables import newest_metadata
from demo.duck import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.keyed_writers import Writer

WRITERS: dict[str, type[Writer]] = {each.name: each for each in (Ours, Iceberg)}
SPARK_QUERIES = {
    "all columns": "bit_xor(xxhash64(*))",
    "one column": "sum(amount)",
}
DUCKDB_QUERIES = {
    "all columns": "bit_xor(hash(COLUMNS(*)))",
    "one column": "sum(amount)",
}
_SHUFFLE_PARTITIONS = "200"
_DELETED = 0.05
_ROUNDS = 7
_WARM_UP = 2
_MOST_DELETE_FILES = 2
_SCAN_AIMS = {"spark": 1.3, "duckdb": 1.5}


class Scan(NamedTuple):
    """What a scan takes, the median of some."""

    milliseconds: float
    processor_ms: float


@dataclass
class Burst:
    """What a burst left of one writer's table. Scans are by reader and query."""

    writer: str
    seconds: float
    """From the first batch on, until `finish()` has returned."""
    processor_seconds: float
    written_bytes: int
    data_bytes: int
    """Those of data and delete files alone."""
    files: int
    delete_files: int
    most_delete_files: int
    """Of one data file."""
    splits: int
    clean_files: int
    clean_splits: int
    scans: dict[str, Scan] = field(default_factory=dict)
    clean_scans: dict[str, Scan] = field(default_factory=dict)

    def ratio(self, query: str) -> float:
        """Return how many times as long a scan takes as of the rows rewritten."""
        return self.scans[query].milliseconds / self.clean_scans[query].milliseconds

    def processor_ratio(self, query: str) -> float:
        """Return the same of processor time, which other work on the machine blurs less."""
        return self.scans[query].processor_ms / self.clean_scans[query].processor_ms


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, report, and return the exit code."""
    options = _parse(arguments)
    bursts = _run(options)
    introduction = (
        f"`local[2]`, {options.rows:,} rows, {options.batches} batches of {options.changes:,} changes of old"
        f" rows back to back; scans are medians of {_ROUNDS - _WARM_UP}."
    )
    figures = {"bursts": [asdict(each) for each in bursts]}
    return conclude(options, introduction, [_table(bursts), _scans_table(bursts)], figures, _aims(bursts))


def _run(options: argparse.Namespace) -> list[Burst]:
    work = Path(tempfile.mkdtemp(prefix="bursts-", dir=options.work))
    load = Workload(options.rows, options.batches, options.changes, updates=1 - _DELETED, deletes=_DELETED)
    spark = session(work, "bursts")
    for key, value in SESSION.items():
        spark.conf.set(key, value)
    try:
        source = load.folder(options.source or work / "source")
        if not source.exists():
            write_rows(load, source, million=False)
        expected = contents_of(rows_that_should_be(spark, load, source, load.batches))
        bursts = []
        for name in options.only:
            writer = WRITERS[name](spark, work, load, "burst")
            bursts.append(_burst(spark, work, load, source, writer))
            if (found := writer.contents()) != expected:
                raise RuntimeError(f"{name}: {found}, not {expected}")
            shutil.rmtree(writer.location)
        return bursts
    finally:
        spark.stop()
        shutil.rmtree(work)


def _burst(spark: SparkSession, work: Path, load: Workload, source: Path, writer: Writer) -> Burst:
    writer.fill(base_rows(spark, load, source))
    before = bytes_in(writer.location), bytes_in(writer.location / "data")
    processor, started = processor_seconds(), time.perf_counter()
    stream = spark.readStream.schema(load.changes_columns).option("maxFilesPerTrigger", 1)
    changes = stream.parquet(str(source / "changes"))

    def land(batch: DataFrame, number: int) -> None:
        writer.land(batch, number, source)

    output = changes.writeStream.foreachBatch(land).trigger(availableNow=True)
    query = output.option("checkpointLocation", str(work / "checkpoints" / writer.name)).start()
    query.awaitTermination()
    writer.finish()
    seconds, processor = time.perf_counter() - started, processor_seconds() - processor
    clean = without_deletes(writer, spark, work, load)
    files, clean_files = writer.files(), clean.files()
    spark.conf.set("spark.sql.shuffle.partitions", _SHUFFLE_PARTITIONS)
    burst = Burst(
        writer.name,
        seconds,
        processor,
        bytes_in(writer.location) - before[0],
        bytes_in(writer.location / "data") - before[1],
        files.data,
        files.deletes,
        _most_delete_files(writer),
        _splits(writer),
        clean_files.data,
        _splits(clean),
    )
    _scan(writer, clean, burst)
    spark.conf.set("spark.sql.shuffle.partitions", SESSION["spark.sql.shuffle.partitions"])
    shutil.rmtree(clean.location)
    return burst


def _most_delete_files(writer: Writer) -> int:
    table = StaticTable.from_metadata(newest_metadata(str(writer.location)))
    return max(len(task.delete_files) for task in table.scan().plan_files())


def _splits(writer: Writer) -> int:
    return writer.frame().rdd.getNumPartitions()


def _scan(writer: Writer, clean: Writer, burst: Burst) -> None:
    """Have both readers scan both tables in turn, and keep the medians."""
    readers: dict[str, Callable[[Writer, str], None]] = {"spark": _by_spark, "duckdb": _by_duckdb}
    taken: dict[tuple[str, bool], list[Scan]] = {}
    for turn in range(_ROUNDS):
        for reader, read in readers.items():
            for query in SPARK_QUERIES:
                for each in (writer, clean) if turn % 2 else (clean, writer):
                    before, started = processor_seconds(), time.perf_counter()
                    read(each, query)
                    milliseconds = (time.perf_counter() - started) * 1000
                    scan = Scan(milliseconds, (processor_seconds() - before) * 1000)
                    taken.setdefault((f"{reader}, {query}", each is clean), []).append(scan)
    for (name, is_clean), found in taken.items():
        median = Scan(*map(statistics.median, zip(*found[_WARM_UP:], strict=True)))
        (burst.clean_scans if is_clean else burst.scans)[name] = median


def _by_spark(writer: Writer, query: str) -> None:
    writer.frame().selectExpr(SPARK_QUERIES[query]).collect()


def _by_duckdb(writer: Writer, query: str) -> None:
    with connect() as duck:
        table = f"iceberg_scan('{newest_metadata(str(writer.location))}')"
        duck.execute(f"SELECT {DUCKDB_QUERIES[query]} FROM {table}").fetchall()


def _table(bursts: Sequence[Burst]) -> str:
    lines = [
        "| writer | s | processor s | MiB written | of data and deletes | files | delete files |"
        " most of a file | splits | files, rewritten | splits |",
        f"|{' --- |'}{' ---: |' * 10}",
    ]
    for each in bursts:
        cells = [
            each.writer,
            f"{each.seconds:.1f}",
            f"{each.processor_seconds:.1f}",
            f"{each.written_bytes / 2**20:,.1f}",
            f"{each.data_bytes / 2**20:,.1f}",
            *map(
                str,
                (
                    each.files,
                    each.delete_files,
                    each.most_delete_files,
                    each.splits,
                    each.clean_files,
                    each.clean_splits,
                ),
            ),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _scans_table(bursts: Sequence[Burst]) -> str:
    lines = [
        "| writer | scan | ms | rewritten | ÷ | processor ms | rewritten | ÷ |",
        f"|{' --- |' * 2}{' ---: |' * 6}",
    ]
    for each in bursts:
        for name, scan in each.scans.items():
            clean = each.clean_scans[name]
            lines.append(
                f"| {each.writer} | {name} | {scan.milliseconds:,.0f} | {clean.milliseconds:,.0f}"
                f" | {each.ratio(name):.2f} | {scan.processor_ms:,.0f} | {clean.processor_ms:,.0f}"
                f" | {each.processor_ratio(name):.2f} |"
            )
    return "\n".join(lines)


def _aims(bursts: Sequence[Burst]) -> list[Aim]:
    [ours] = [each for each in bursts if each.writer == Ours.name]
    found = [
        Aim(what=f"scan ÷ of the rows rewritten, {name}", bound=bound, measured=ours.ratio(name))
        for reader, bound in _SCAN_AIMS.items()
        for name in ours.scans
        if name.startswith(reader)
    ]
    most = "delete files of one data file, most"
    return [Aim(what=most, bound=_MOST_DELETE_FILES, measured=ours.most_delete_files), *found]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = benchmark_parser("benchmarks.bursts", __doc__, "200,000 rows, 6 batches of 5,000 changes")
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the table before the burst")
    parser.add_argument("--batches", type=int, default=14)
    parser.add_argument("--changes", type=int, default=50_000, help="a batch")
    parser.add_argument("--only", nargs="+", choices=WRITERS, default=[Ours.name], help="writers")
    parser.add_argument("--source", type=Path, help="a folder that keeps the rows for other runs")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rows, options.batches, options.changes = 200_000, 6, 5_000
    return options


if __name__ == "__main__":
    sys.exit(main())
