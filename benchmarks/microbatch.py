"""Our sink and Iceberg's own, side by side in one Spark session, on the same micro-batches.

    python -m benchmarks.microbatch --quick
    python -m benchmarks.microbatch --check --json

Every run streams one folder of Parquet files, one batch per trigger, into a new table. Runs of the modes
alternate, and the first batches of *every* run, ours and the peer's alike, are discarded as warm-up: they
hold class loading, JIT compilation and the creation of the table. The figure of a batch is Spark's own
`durationMs.addBatch` in the query's progress; both sides commit within it. The sum of a run is that of all
its batches, the warm-up included, and of the wait for what still runs beside the stream at its end. Our data
files and metadata are synced to disk before a batch is acknowledged; the peer's are not.

The first batch of a new table in a new session is a figure of its own: for each of `--first-rounds` the
benchmark starts itself anew, ours and the peer's alternating. Processor time is that of the driver, its JVM
and the Python workers, per batch.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from benchmarks.aims import Aim, benchmark_parser, conclude
from benchmarks.data import PARTITION_COLUMN, SCHEMA, write_batches
from benchmarks.measure import BatchTimes, TableShape, processor_seconds, shape_of
from benchmarks.sessions import local_session
from streaming_sink import BulkInsert, Checks, FileSizing, IcebergSink, SchemaContract
from tests.jars import iceberg_runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery


MAX_FILE_BYTES = 16 * 1024 * 1024
SMALL_FILE_BYTES = 13 * 1024 * 1024
SIZING = FileSizing(max_file_bytes=MAX_FILE_BYTES, small_file_bytes=SMALL_FILE_BYTES)
PEER = "iceberg"
TEN_EXPECTATIONS = dict.fromkeys(
    (
        "event_id >= 0",
        "event_time >= '2026-01-01'",
        "user_id >= 0",
        "length(session) = 16",
        "region IS NOT NULL",
        "device IN ('phone', 'desktop', 'tablet', 'tv', 'watch')",
        "status BETWEEN 100 AND 599",
        "amount > 0",
        "latency_ms >= 0",
        "comment IS NOT NULL",
    ),
    "quarantine",
)
"""Every row meets them."""
OURS: dict[str, dict[str, Any]] = {
    "amortized": {"sizing": replace(SIZING, fill="inline")},
    "beside": {},
    "always": {"sizing": replace(SIZING, fill="inline", fill_policy="always")},
    "never": {"sizing": replace(SIZING, fill="never")},
    "limit 0": {"sizing": replace(SIZING, small_file_bytes=0)},
    "bulk_insert": {"write": BulkInsert()},
    "contract": {"contract": SchemaContract.evolving()},
    "expectations": {"checks": Checks(TEN_EXPECTATIONS)},
    "quarantine": {"checks": Checks({**TEN_EXPECTATIONS, "event_id % 100 <> 7": "quarantine"})},
}
_FAILING = {"quarantine": 100}
"""Mode → the number of rows of which one fails."""
DEFAULT = "beside"
LAYOUTS = ("unpartitioned", "partitioned")


@dataclass(frozen=True)
class Workload:
    """A stream: so many batches of so many files of so many rows."""

    rows_per_file: int
    files_per_batch: int
    batches: int

    @property
    def rows_per_batch(self) -> int:
        return self.rows_per_file * self.files_per_batch

    def folder(self, work: Path) -> Path:
        return work / "source" / f"{self.rows_per_file}x{self.files_per_batch * self.batches}"


def workload(rows_per_batch: int, batches: int) -> Workload:
    """Cut batches above 50,000 rows from files of 50,000 rows."""
    files = max(1, rows_per_batch // 50_000)
    return Workload(rows_per_batch // files, files, batches)


@dataclass
class Result(BatchTimes):
    """All runs of one mode on one workload and layout; the shape is the last run's table."""

    mode: str
    layout: str
    rows_per_batch: int
    milliseconds: list[list[int]] = field(default_factory=list)
    processor_ms: list[float] = field(default_factory=list)
    """Of the whole run, per batch; one figure a run."""
    drained: list[int] = field(default_factory=list)
    """Milliseconds of `sink.finish()` after a run, one for each."""
    shape: TableShape | None = None

    @property
    def total(self) -> float:
        """Milliseconds of all batches of a run, the first ones included, and of what was drained after them;
        the median of the runs.
        """
        return statistics.median(
            sum(run) + end for run, end in zip(self.milliseconds, self.drained, strict=True)
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, report, and return the exit code."""
    options = _parse(arguments)
    work = Path(tempfile.mkdtemp(prefix="microbatch-", dir=options.work))
    spark = _session(work)
    try:
        results = [result for rows in options.rows for result in _compare(spark, work, rows, options)]
    finally:
        spark.stop()
        shutil.rmtree(work)
    warm_up = f"`local[2]`; the first {Result.WARM_UP_BATCHES} batches of every run are discarded."
    firsts = _first_batches(options)
    figures = {"results": [_as_dict(result) for result in results], "first_batches": firsts}
    return conclude(options, warm_up, [markdown(results)], figures, aims(results, firsts))


def _first_batches(options: argparse.Namespace) -> dict[str, dict[str, list[int]]]:
    """Return layout → mode → milliseconds of the first batch of 50,000 rows, each in a new session."""
    firsts: dict[str, dict[str, list[int]]] = {}
    for layout in options.layouts:
        for _ in range(options.first_rounds):
            for mode in (DEFAULT, PEER):
                with tempfile.NamedTemporaryFile(suffix=".json") as found:
                    command = [
                        sys.executable,
                        "-m",
                        "benchmarks.microbatch",
                        "--rows",
                        "50000",
                        "--rounds",
                        "1",
                    ]
                    command += ["--batches", str(Result.WARM_UP_BATCHES + 2), "--first-rounds", "0"]
                    command += ["--layouts", layout, "--modes", mode, "--json", found.name]
                    subprocess.run(command, check=True, capture_output=True)
                    [result] = json.loads(Path(found.name).read_text())["results"]
                milliseconds = result["milliseconds"][0][0]
                firsts.setdefault(layout, {}).setdefault(mode, []).append(milliseconds)
                print(f"{layout}, first batch: {mode} {milliseconds} ms", file=sys.stderr)
    return firsts


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = benchmark_parser("benchmarks.microbatch", __doc__, "12 batches of 50,000 rows, one round")
    parser.add_argument("--rows", type=int, nargs="+", default=[50_000, 500_000, 200], help="rows per batch")
    parser.add_argument(
        "--batches", type=int, default=60, help="batches per run (a third of it at 500,000 rows)"
    )
    parser.add_argument("--rounds", type=int, default=2, help="runs of each mode, alternating")
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--modes", nargs="+", choices=[PEER, *OURS], default=[*OURS, PEER])
    parser.add_argument(
        "--first-rounds", type=int, default=3, help="new sessions of each, for the first batch of a new table"
    )
    options = parser.parse_args(arguments)
    if options.quick:
        options.rows, options.batches, options.rounds, options.first_rounds = [50_000], 12, 1, 1
    return options


def _compare(spark: SparkSession, work: Path, rows: int, options: argparse.Namespace) -> list[Result]:
    load = workload(
        rows, options.batches if rows < 500_000 else max(options.batches // 3, 2 * Result.WARM_UP_BATCHES)
    )
    source = load.folder(work)
    write_batches(source, rows=load.rows_per_file, files=load.files_per_batch * load.batches)
    results = []
    for layout in options.layouts:
        of_layout = [Result(mode, layout, load.rows_per_batch) for mode in options.modes]
        for number in range(options.rounds):
            for result in of_layout:
                _run(spark, work, source, load, result)
                print(
                    f"{layout}, {rows} rows, round {number + 1}: {result.mode} {result.median:.0f} ms",
                    file=sys.stderr,
                )
        results += of_layout
    shutil.rmtree(source)
    return results


def _run(spark: SparkSession, work: Path, source: Path, load: Workload, result: Result) -> None:
    """Stream the whole source into a new table, then measure and remove that table."""
    partition_by = [PARTITION_COLUMN] if result.layout == "partitioned" else []
    stream = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", load.files_per_batch)
        .parquet(str(source))
    )
    place = Path(tempfile.mkdtemp(dir=work))
    before = processor_seconds()
    if result.mode == PEER:
        location = work / "warehouse" / "bench" / place.name
        sink, query = None, _start_peer(spark, stream, place, partition_by)
    else:
        location = place / "table"
        sink, query = _start_ours(stream, place, location, partition_by, dict(OURS[result.mode]))
    query.awaitTermination()
    began = perf_counter()
    if sink is not None:
        sink.finish()
    result.drained.append(round((perf_counter() - began) * 1000))
    processor_ms = (processor_seconds() - before) * 1000
    durations = [
        progress["durationMs"]["addBatch"] for progress in query.recentProgress if progress["numInputRows"]
    ]
    result.milliseconds.append(durations)
    result.processor_ms.append(processor_ms / load.batches)
    result.shape = shape_of(location, SMALL_FILE_BYTES)
    expected = load.rows_per_batch * load.batches
    expected -= expected // _FAILING[result.mode] if result.mode in _FAILING else 0
    if (len(durations), result.shape.rows) != (load.batches, expected):
        raise RuntimeError(
            f"{result.mode}: {len(durations)} batches, {result.shape.rows} rows, not {expected}"
        )
    shutil.rmtree(location)
    shutil.rmtree(place)


def _start_ours(
    stream: DataFrame, place: Path, location: Path, partition_by: list[str], mode: dict[str, Any]
) -> tuple[IcebergSink, StreamingQuery]:
    sink = IcebergSink(location, **{"sizing": SIZING, "partition_by": partition_by, **mode})
    writer = stream.writeStream.foreachBatch(sink).trigger(availableNow=True)
    return sink, writer.option("checkpointLocation", str(place / "checkpoint")).start()


def _start_peer(
    spark: SparkSession, stream: DataFrame, place: Path, partition_by: list[str]
) -> StreamingQuery:
    name = f"peer.bench.`{place.name}`"
    partitioned = f"PARTITIONED BY ({', '.join(partition_by)})" if partition_by else ""
    spark.sql(
        f"CREATE TABLE {name} ({SCHEMA}) USING iceberg {partitioned} "
        f"TBLPROPERTIES ('write.target-file-size-bytes' = '{MAX_FILE_BYTES}')"
    )
    writer = stream.writeStream.format("iceberg").outputMode("append").trigger(availableNow=True)
    writer = writer.option("fanout-enabled", "true").option("checkpointLocation", str(place / "checkpoint"))
    return writer.toTable(name)


def _session(work: Path) -> SparkSession:
    settings = {
        "spark.jars": str(iceberg_runtime()),
        "spark.sql.catalog.peer": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.peer.type": "hadoop",
        "spark.sql.catalog.peer.warehouse": str(work / "warehouse"),
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
    }
    return local_session("microbatch", settings)


def markdown(results: list[Result]) -> str:
    """Return the results as a table; the ratio is to the peer's median on the same stream."""
    peers = {(r.layout, r.rows_per_batch): r.median for r in results if r.mode == PEER}
    lines = [
        "| rows a batch | layout | mode | median ms | p95 ms | sum s | ÷ Iceberg | CPU ms | files | "
        "mean MiB | bytes ≥ limit | most small files | written ÷ kept |",
        "| ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for r in results:
        assert r.shape is not None
        peer = peers.get((r.layout, r.rows_per_batch))
        cells = [
            f"{r.rows_per_batch:,}",
            r.layout,
            r.mode,
            f"{r.median:.0f}",
            f"{r.p95:.0f}",
            f"{r.total / 1000:.1f}",
            "" if peer is None else f"{r.median / peer:.2f}",
            f"{statistics.median(r.processor_ms):.0f}",
            str(r.shape.files),
            f"{r.shape.bytes / r.shape.files / 2**20:.2f}",
            f"{r.shape.share_at_size:.0%}",
            str(r.shape.most_small_files),
            f"{r.shape.written_per_kept:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def aims(results: Sequence[Result], firsts: Mapping[str, Mapping[str, Sequence[int]]]) -> list[Aim]:
    """Return the aims of the default mode, each a ratio to Iceberg's sink on the same stream."""
    found = {(r.layout, r.rows_per_batch, r.mode): r for r in results}

    def ratio(layout: str, rows: int, figure: Callable[[Result], float]) -> float | None:
        ours, peer = (found.get((layout, rows, mode)) for mode in (DEFAULT, PEER))
        return None if ours is None or peer is None else figure(ours) / figure(peer)

    listed = []
    for layout in LAYOUTS:
        for what, bound, figure in _OF_A_STREAM:
            measured = ratio(layout, 50_000, figure)
            listed.append(
                Aim(what=f"{what} of 50,000-row batches, {layout}, ÷ Iceberg", bound=bound, measured=measured)
            )
        first = firsts.get(layout, {})
        measured = (
            statistics.median(first[DEFAULT]) / statistics.median(first[PEER])
            if DEFAULT in first and PEER in first
            else None
        )
        listed.append(Aim(what=f"first batch, {layout}, ÷ Iceberg", bound=1.2, measured=measured))
    with_ten, without = (found.get(("unpartitioned", 50_000, mode)) for mode in ("expectations", DEFAULT))
    measured = with_ten.median / without.median if with_ten and without else None
    what = "median of 50,000-row batches with ten expectations, unpartitioned, ÷ without"
    listed.append(Aim(what=what, bound=1.05, measured=measured))
    measured = ratio("unpartitioned", 500_000, _median)
    listed.append(
        Aim(what="median of 500,000-row batches, unpartitioned, ÷ Iceberg", bound=0.6, measured=measured)
    )
    return listed


def _median(result: Result) -> float:
    return result.median


_OF_A_STREAM: tuple[tuple[str, float, Callable[[Result], float]], ...] = (
    ("median", 0.65, _median),
    ("95th percentile", 1.0, lambda result: result.p95),
    ("sum of all", 0.85, lambda result: result.total),
)


def _as_dict(result: Result) -> dict[str, Any]:
    return {**asdict(result), "median_ms": result.median, "p95_ms": result.p95}


if __name__ == "__main__":
    sys.exit(main())
