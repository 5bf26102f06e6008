"""A stream that starts again on a table of a million files, beside one on a young table, in Spark.

    python -m benchmarks.restart --quick
    python -m benchmarks.restart --check --json

The files at size of either table are made up by the timeline itself (`benchmarks.big_tables`): the key index
covers them, and nothing may open them. A first run of the stream lands rows that are really there. Each
further one, in turn on one table and on the other, is a restart in a new process, from its checkpoint:
batches of changes by key in three partitions, half of them updates, with fills beside the stream, a
clustering inline every fourth batch, and `finish()`. Processor time is that of the process, its JVM and its
workers.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.aims import Aim, benchmark_parser, conclude
from benchmarks.big_tables import KEY, make_index, make_table, partition_values
from benchmarks.measure import processor_seconds
from benchmarks.sessions import local_session
from streaming_sink import Clustering, IcebergSink, Upsert
from streaming_sink.table.table_keys import table_key
from timeline.changes.key_changes import DeclareKey
from timeline.stores import open_store
from timeline.table import Table
from timeline.versions.keys import Looked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from streaming_sink import BatchReport

SIZES = (100, 1_000_000)
ROWS = 3_000
"""Rows of a batch: a thousand in each of three partitions."""
BATCHES = 8
"""Of a run."""
CHANGES = Upsert(key=KEY)
_NEW_IDS = 10**12
"""Ids of rows begin there."""
_SOURCE = (
    "event_id long, event_time timestamp, user_id long, session string, region string, device string,"
    " status int, amount double, latency_ms double, comment string, shop string"
)


@dataclass(frozen=True)
class Run:
    """What one run of the stream took, from after the start of its session. Times in seconds."""

    files: int
    first: float
    """Spark's `addBatch` of the first batch."""
    first_processor: float
    later: float
    """The median `addBatch` of the others."""
    processor: float
    """Of the whole run, passes included."""
    driver_mib: float
    """The most that the driver's Python has had."""
    filled: int
    """Small files and delete files that fills took away."""
    clustered: int
    """Files that clusterings took away."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, report, and return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["--child"]:
        return _child(Path(given[1]), int(given[2]))
    parser = benchmark_parser("benchmarks.restart", __doc__, "10,000 files in the place of a million, once")
    parser.add_argument("--rounds", type=int, default=3, help="restarts on each of the two tables")
    parser.add_argument("--keep", type=Path, help="make the tables there, or find them, and leave them")
    options = parser.parse_args(given)
    sizes, rounds = ((100, 10_000), 1) if options.quick else (SIZES, options.rounds)
    work = options.keep or Path(tempfile.mkdtemp(prefix="restart-", dir=options.work))
    try:
        for files in sizes:
            _prepare(work / str(files), files)
        runs = [_run(work / str(files), files) for _ in range(rounds) for files in sizes]
    finally:
        if not options.keep:
            shutil.rmtree(work)
    figures = {"runs": [asdict(it) for it in runs]}
    return conclude(options, "", [_markdown(runs)], figures, aims(runs, *sizes))


def _prepare(place: Path, files: int) -> None:
    """Make a table there with its key index, and begin a stream on it."""
    if place.exists():
        return
    print(f"making a table of {files:,} files", file=sys.stderr)
    make_table(place / "table", files, small_files=0)
    make_index(place / "table")
    table = Table.open(open_store(str(place / "table")))
    table.commit([DeclareKey(table_key(CHANGES, table.head.schema), Looked.at(table.head))])
    _run(place, files)


def _run(place: Path, files: int) -> Run:
    """Run the stream over some more batches, in a new process."""
    _write_batches(place / "source")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.restart", "--child", str(place), str(files)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    print(done.stdout.splitlines()[-1], file=sys.stderr)
    return Run(**json.loads(done.stdout.splitlines()[-1]))


def _write_batches(folder: Path) -> None:
    """Write more files of the source, a batch each: the first half of one has ids of the one before."""
    folder.mkdir(parents=True, exist_ok=True)
    begin = len(list(folder.iterdir()))
    for number in range(begin, begin + BATCHES):
        start = _NEW_IDS + number * (ROWS // 2)
        ids = range(start, start + ROWS)
        text = [f"{it * 0x9E3779B97F4A7C15 % 2**64:016x}" for it in ids]
        columns = {
            "event_id": pa.array(ids, pa.int64()),
            "event_time": pa.array([number * 10**6] * ROWS, pa.timestamp("us", "UTC")),
            "user_id": pa.array([it * 7919 % 100_000 for it in ids], pa.int64()),
            "session": text,
            "region": ["eu-west"] * ROWS,
            "device": ["phone"] * ROWS,
            "status": pa.array([it % 7 for it in ids], pa.int32()),
            "amount": [float(it % 1_000) for it in ids],
            "latency_ms": [it % 997 / 7 for it in ids],
            "comment": text,
            "shop": [partition_values(it % 3)[0] for it in ids],
        }
        file = folder / f"{number:05d}.parquet"
        pq.write_table(pa.table(columns), file)
        os.utime(file, (number, number))  # Spark's file source takes the oldest first


def _child(place: Path, files: int) -> int:
    spark = local_session("restart", {})
    try:
        spark.range(1).count()
        run = _stream(spark, place, files)
    finally:
        spark.stop()
    print(json.dumps(asdict(run)))
    return 0


def _stream(spark: SparkSession, place: Path, files: int) -> Run:
    began, after_first, passes = processor_seconds(), 0.0, Counter[str]()

    def count(report: BatchReport) -> None:
        nonlocal after_first
        if report.kind == "batch":
            after_first = after_first or processor_seconds()
        elif report.kind == "fill":
            passes["filled"] += report.input_files + report.merged_deletes
        else:
            passes["clustered"] += sum(it.input_files for it in report.groups)

    sink = IcebergSink(
        str(place / "table"),
        CHANGES,
        partition_by=["shop"],
        clustering=Clustering(strategy="bin_pack", every_commits=4),
        app_id="restart",
        on_report=count,
    )
    stream = spark.readStream.schema(_SOURCE).option("maxFilesPerTrigger", 1)
    writer = stream.parquet(str(place / "source")).writeStream.foreachBatch(sink).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(place / "checkpoint")).start()
    query.awaitTermination()
    sink.finish()
    times = [it["durationMs"]["addBatch"] / 1_000 for it in query.recentProgress if it["numInputRows"]]
    if len(times) != BATCHES:
        raise RuntimeError(f"the query had {len(times)} batches, and not {BATCHES}")
    return Run(
        files=files,
        first=times[0],
        first_processor=after_first - began,
        later=statistics.median(times[1:]),
        processor=processor_seconds() - began,
        driver_mib=_most_resident_mib(),
        filled=passes["filled"],
        clustered=passes["clustered"],
    )


def _most_resident_mib() -> float:
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) / 1024


def _markdown(runs: Sequence[Run]) -> str:
    lines = [
        "| files | first batch, s | its CPU s | a later one, s | whole run, CPU s | driver MiB | filled |"
        " clustered |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {it.files:,} | {it.first:.2f} | {it.first_processor:.2f} | {it.later:.2f} | {it.processor:.1f}"
        f" | {it.driver_mib:.0f} | {it.filled} | {it.clustered} |"
        for it in runs
    ]
    return "\n".join(lines)


def aims(runs: Sequence[Run], young: int, old: int) -> list[Aim]:
    """Return the aims: a restart on a large table is one on a young table, but for two seconds that a first
    look for keys may take.
    """

    def median(files: int, name: str) -> float:
        return statistics.median(getattr(it, name) for it in runs if it.files == files)

    def above(name: str) -> float:
        return median(old, name) - median(young, name)

    return [
        Aim(what=f"first batch at {old:,} files above a young table, processor s", bound=2,
            measured=above("first_processor")),
        Aim(what="a later batch, times a young table's", bound=1.5,
            measured=median(old, "later") / median(young, "later")),
        Aim(what="a whole run above a young table's, processor s", bound=5, measured=above("processor")),
        Aim(what="MiB of the driver's Python above a young table", bound=150, measured=above("driver_mib")),
        Aim(what="files that fills took away, each run", bound=1, at_least=True,
            measured=min(it.filled for it in runs)),
        Aim(what="files that clusterings took away, each run", bound=1, at_least=True,
            measured=min(it.clustered for it in runs)),
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
