"""A stream that gains a column in every tenth batch: our sink, Iceberg's own writer and Delta's, compared.

    python -m benchmarks.evolution --quick
    python -m benchmarks.evolution --check --json

Every run streams one folder of Parquet files, a file a batch, into a new table; foreachBatch adds the columns
that have come by then. Ours has `SchemaContract.evolving()`, Iceberg a table that accepts any schema and
`mergeSchema`, Delta `mergeSchema`. Rounds alternate, in one Spark session, each begun by another writer. The
figure of a batch is Spark's `durationMs.addBatch`; the first batches of every run are discarded. Nobody
merges files here, so that bytes beyond those of the live files are what a change of the schema has rewritten.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sf

from benchmarks.aims import Aim, benchmark_parser, conclude
from benchmarks.data import SCHEMA, write_batches
from benchmarks.measure import BatchTimes, shape_of
from benchmarks.peers import session
from streaming_sink import FileSizing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

GROWS_EVERY = 10
_MODES = ("ours", "iceberg", "delta")


@dataclass
class Result(BatchTimes):
    """All runs of one writer."""

    mode: str
    milliseconds: list[list[int]] = field(default_factory=list)
    written_per_kept: float = 1.0
    """Bytes of all data files ever written, by those of the live ones; of the last run."""
    versions: int = 0
    """Of the table after the last run."""

    @property
    def growing(self) -> list[int]:
        """Of the batches with a new column."""
        return [value for run in self.milliseconds for value in run[GROWS_EVERY::GROWS_EVERY]]

    @property
    def growing_median(self) -> float:
        return statistics.median(self.growing)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, report, and return the exit code."""
    parser = benchmark_parser("benchmarks.evolution", __doc__, "21 batches, one round")
    parser.add_argument("--rows", type=int, default=50_000, help="rows per batch")
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each writer, alternating")
    parser.add_argument("--first", choices=_MODES, default=_MODES[0], help="the writer of the first run")
    options = parser.parse_args(arguments)
    if options.quick:
        options.batches, options.rounds = 2 * GROWS_EVERY + 1, 1
    work = Path(tempfile.mkdtemp(prefix="evolution-", dir=options.work))
    spark = session(work, "evolution")
    try:
        source = work / "source"
        write_batches(source, rows=options.rows, files=options.batches)
        results = {mode: Result(mode) for mode in _MODES}
        for number in range(options.rounds):
            # Each begins in its turn: the first run has the coldest JVM.
            first = (_MODES.index(options.first) + number) % len(_MODES)
            for mode in (*_MODES[first:], *_MODES[:first]):
                result = results[mode]
                _run(spark, work, source, options.batches, result)
                print(f"round {number + 1}: {mode} {result.median:.0f} ms", file=sys.stderr)
    finally:
        spark.stop()
        shutil.rmtree(work)
    introduction = (
        f"`local[2]`, {options.batches} batches of {options.rows:,} rows, a new column in every tenth; the "
        f"first {Result.WARM_UP_BATCHES} batches of every run are discarded."
    )
    figures = {"results": [_as_dict(result) for result in results.values()]}
    return conclude(options, introduction, [_markdown(results)], figures, _aims(results))


def _run(spark: SparkSession, work: Path, source: Path, batches: int, result: Result) -> None:
    """Stream the whole source into a new table, then measure and remove that table."""
    name = f"run{len(result.milliseconds)}"
    location = work / result.mode / "bench" / name
    append = _WRITERS[result.mode](spark, location)

    def land(batch: DataFrame, number: int) -> None:
        come = range(number // GROWS_EVERY)
        append(batch.withColumns({f"new_{each}": sf.col("user_id") + each for each in come}), number)

    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(source))
    checkpoint = work / "checkpoint"
    writer = stream.writeStream.foreachBatch(land).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    query.awaitTermination()
    durations = [each["durationMs"]["addBatch"] for each in query.recentProgress if each["numInputRows"]]
    sent, landed = spark.read.parquet(str(source)), _read(spark, result.mode, location)
    found = len(durations), len(landed.columns), landed.count()
    wanted = batches, len(sent.columns) + (batches - 1) // GROWS_EVERY, sent.count()
    if found != wanted:
        raise RuntimeError(f"{result.mode}: {found} batches, columns and rows, not {wanted}")
    result.milliseconds.append(durations)
    result.versions = _versions(location)
    if result.mode != "delta":
        result.written_per_kept = shape_of(location, 1).written_per_kept
    else:
        kept = {Path(path).name for path in _read(spark, result.mode, location).inputFiles()}
        written = list(location.rglob("*.parquet"))
        bytes_kept = sum(path.stat().st_size for path in written if path.name in kept)
        result.written_per_kept = sum(path.stat().st_size for path in written) / bytes_kept
    shutil.rmtree(location)
    shutil.rmtree(checkpoint)


def _read(spark: SparkSession, mode: str, location: Path) -> DataFrame:
    return spark.read.format("delta" if mode == "delta" else "iceberg").load(str(location))


def _versions(location: Path) -> int:
    """Return how often a table was committed to, its creation included."""
    delta = [int(path.stem) + 1 for path in location.glob("_delta_log/*.json")]
    iceberg = [int(path.name.split(".")[0][1:]) for path in location.glob("metadata/v*.metadata.json")]
    return max(delta + iceberg)


def _ours(_spark: SparkSession, location: Path) -> Callable[[DataFrame, int], None]:
    from streaming_sink import IcebergSink, SchemaContract

    return IcebergSink(str(location), sizing=FileSizing(fill="never"), contract=SchemaContract.evolving())


def _iceberg(spark: SparkSession, location: Path) -> Callable[[DataFrame, int], None]:
    name = f"iceberg.bench.{location.name}"
    spark.sql(
        f"CREATE TABLE {name} ({SCHEMA}) USING iceberg "
        "TBLPROPERTIES ('write.spark.accept-any-schema' = 'true')"
    )
    return lambda batch, _: batch.writeTo(name).option("mergeSchema", "true").append()


def _delta(_spark: SparkSession, location: Path) -> Callable[[DataFrame, int], None]:
    def append(batch: DataFrame, _number: int) -> None:
        batch.write.format("delta").mode("append").option("mergeSchema", "true").save(str(location))

    return append


_WRITERS = {"ours": _ours, "iceberg": _iceberg, "delta": _delta}


def _markdown(results: dict[str, Result]) -> str:
    lines = [
        "| writer | median ms | p95 ms | median ms of growing batches | written ÷ kept | versions |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for each in results.values():
        figures = f"{each.median:.0f} | {each.p95:.0f} | {each.growing_median:.0f}"
        lines.append(f"| {each.mode} | {figures} | {each.written_per_kept:.2f} | {each.versions} |")
    return "\n".join(lines)


def _aims(results: dict[str, Result]) -> list[Aim]:
    ours, iceberg = results["ours"], results["iceberg"]
    return [
        Aim(what="median batch ÷ Iceberg", bound=1.0, measured=ours.median / iceberg.median),
        Aim(what="95th percentile ÷ Iceberg", bound=1.0, measured=ours.p95 / iceberg.p95),
        Aim(
            what="median growing batch ÷ Iceberg",
            bound=1.0,
            measured=ours.growing_median / iceberg.growing_median,
        ),
        Aim(what="bytes written ÷ kept", bound=1.0, measured=ours.written_per_kept),
    ]


def _as_dict(result: Result) -> dict[str, Any]:
    figures = {"median_ms": result.median, "p95_ms": result.p95, "growing_median_ms": result.growing_median}
    return {**asdict(result), **figures}


if __name__ == "__main__":
    sys.exit(main())
