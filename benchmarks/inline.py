"""A stream that clusters while it runs: what a micro-batch pays for it, and what the table gets.

    python -m benchmarks.inline --quick
    python -m benchmarks.inline --check --json

The batches are those of `benchmarks.microbatch`, and so is the figure: Spark's own `durationMs.addBatch`. A
pass runs after every fourth commit and sorts by `session`, a random text, so that every new file may hold any
key. Each mode runs with filling, and with `small_file_bytes=0`, where clustering alone makes the files. Runs
of the modes alternate; the first batches of every run are discarded as warm-up.

The state of the table is read from its snapshots afterwards: files, bytes, the most files that a search for
one session opens (overlap depth, by the files' bounds), and bytes rewritten, by fills and by clustering, per
byte ingested.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from benchmarks.aims import Aim, benchmark_parser, conclude
from benchmarks.data import PARTITION_COLUMN, SCHEMA, write_batches
from benchmarks.measure import BatchTimes
from benchmarks.sessions import local_session
from benchmarks.states import State, states_of
from planners import All, FileSizing
from streaming_sink import Clustering, IcebergSink

if TYPE_CHECKING:
    from collections.abc import Sequence

ROWS = 50_000
"""Rows of a batch."""
COLUMN = "session"
MAX_FILE_BYTES = 16 * 1024 * 1024
SMALL_FILE_BYTES = 13 * 1024 * 1024
PASS: dict[str, Any] = {
    "every_commits": 4,
    "sort_by": [COLUMN],
    "target_file_bytes": MAX_FILE_BYTES,
    "small_file_bytes": SMALL_FILE_BYTES,
    "max_bytes_per_pass": 4 * MAX_FILE_BYTES,
}
MODES: dict[str, Clustering | None] = {
    "none": None,
    "inline": Clustering(**PASS),
    "inline, `All()`": Clustering(**PASS, select=All()),
    "beside, `All()`": Clustering(run="beside", **PASS, select=All()),
}
FILLING = {"filling": SMALL_FILE_BYTES, "limit 0": 0}
LAYOUTS = ("unpartitioned", "partitioned")
_STATES_SHOWN = 6


@dataclass
class Result(BatchTimes):
    """All runs of one mode on one layout; the states are those of the last run's table."""

    layout: str
    filling: str
    mode: str
    WARM_UP_BATCHES = 8
    milliseconds: list[list[int]] = field(default_factory=list)
    with_pass: list[int] = field(default_factory=list)
    """addBatch of the batches that ran or began a pass, of all runs, without warm-up."""
    states: list[State] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.layout}, {self.filling}, clustering {self.mode}"

    @property
    def mean(self) -> float:
        return statistics.mean(self.warm)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, report, and return the exit code."""
    options = _parse(arguments)
    work = Path(tempfile.mkdtemp(prefix="inline-", dir=options.work))
    spark = local_session("inline", {"spark.sql.streaming.numRecentProgressUpdates": "100000"})
    try:
        write_batches(work / "source", rows=ROWS, files=options.batches)
        results = [
            Result(layout, filling, mode)
            for layout in options.layouts
            for filling in FILLING
            for mode in MODES
        ]
        for number in range(options.rounds):
            for result in results:
                _run(spark, work, options.batches, result)
                print(f"round {number + 1}: {result.name}: {result.median:.0f} ms", file=sys.stderr)
    finally:
        spark.stop()
        shutil.rmtree(work)
    introduction = (
        f"`local[2]`, {options.batches} batches of {ROWS:,} rows, {options.rounds} runs; the"
        f" first {Result.WARM_UP_BATCHES} batches of every run are discarded."
    )
    figures = {"results": [{**asdict(it), "median_ms": it.median, "p95_ms": it.p95} for it in results]}
    tables = [latencies(results), over_time(results)]
    return conclude(options, introduction, tables, figures, aims(results))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = benchmark_parser("benchmarks.inline", __doc__, "16 batches, unpartitioned, one round")
    parser.add_argument("--batches", type=int, default=60, help="batches per run")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each mode, alternating")
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    options = parser.parse_args(arguments)
    if options.quick:
        options.batches, options.rounds, options.layouts = 16, 1, [LAYOUTS[0]]
    if options.batches <= Result.WARM_UP_BATCHES + 1:
        parser.error(f"--batches must be above {Result.WARM_UP_BATCHES + 1}: the first ones are discarded")
    return options


def _run(spark: SparkSession, work: Path, batches: int, result: Result) -> None:
    """Stream the whole source into a new table, then look at that table and remove it."""
    place = Path(tempfile.mkdtemp(dir=work))
    sink = IcebergSink(
        str(place / "table"),
        partition_by=[PARTITION_COLUMN] if result.layout == "partitioned" else [],
        clustering=MODES[result.mode],
        sizing=FileSizing(
            max_file_bytes=MAX_FILE_BYTES,
            small_file_bytes=FILLING[result.filling],
            fill="inline",
            warn_small_files=0,
        ),
    )
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(work / "source"))
    writer = stream.writeStream.foreachBatch(sink).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(place / "checkpoint")).start()
    query.awaitTermination()
    sink.finish()  # a pass beside the stream outlives it
    durations = [it["durationMs"]["addBatch"] for it in query.recentProgress if it["numInputRows"]]
    result.milliseconds.append(durations)
    paired = zip(durations, sink.reports, strict=True)
    passes = [spent if "cluster" in report.milliseconds else None for spent, report in paired]
    result.with_pass += [spent for spent in passes[Result.WARM_UP_BATCHES :] if spent is not None]
    result.states = states_of(place / "table", COLUMN)
    rows = sum(report.rows for report in sink.reports)
    if (len(durations), rows) != (batches, batches * ROWS):
        raise RuntimeError(f"{result.name}: {len(durations)} batches, {rows:,} rows, not {batches * ROWS:,}")
    for report in sink.reports:
        if failed := [it for it in report.maintenance if it.outcome == "failed"]:
            raise RuntimeError(f"{result.name}: {failed[0].line()}")
    shutil.rmtree(place)


def aims(results: Sequence[Result]) -> list[Aim]:
    """Return the aims: the median does not change with clustering, and no batch waits for a pass beside."""
    of = {(it.layout, it.filling, it.mode): it for it in results}
    found = []
    for layout, filling in itertools.product(LAYOUTS, FILLING):
        none, inline, beside = (of.get((layout, filling, m)) for m in ("none", "inline", "beside, `All()`"))
        median = inline.median / none.median if inline and none else None
        mean = beside.mean / none.mean if beside and none else None
        what = f"{layout}, {filling}: median with inline clustering over none"
        found.append(Aim(what=what, bound=1.1, measured=median))
        what = f"{layout}, {filling}: mean with clustering beside the stream over none"
        found.append(Aim(what=what, bound=1.25, measured=mean))
    return found


def latencies(results: list[Result]) -> str:
    """Return what a micro-batch takes, and the table at the end; a mean is over all batches, with passes."""
    lines = [
        "| layout | files by | clustering | median ms | p95 ms | mean ms | ÷ none | with a pass, ms | files |"
        " MiB | depth | rewritten ÷ ingested |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    alone = {(it.layout, it.filling): it.mean for it in results if it.mode == "none"}
    for it in results:
        last = it.states[-1]
        cells = [
            it.layout,
            it.filling,
            it.mode,
            f"{it.median:.0f}",
            f"{it.p95:.0f}",
            f"{it.mean:.0f}",
            f"{it.mean / alone[it.layout, it.filling]:.2f}",
            f"{statistics.median(it.with_pass):.0f}" if it.with_pass else "",
            str(last.files),
            f"{last.bytes / 2**20:.0f}",
            str(last.depth),
            f"{last.rewritten_per_byte:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def over_time(results: list[Result]) -> str:
    """Return files / depth / rewritten bytes per ingested byte, at a few moments of each run."""
    batches = len(results[0].states)
    moments = [batches * number // _STATES_SHOWN - 1 for number in range(1, _STATES_SHOWN + 1)]
    lines = [
        "Files / depth / rewritten ÷ ingested after so many batches:\n",
        f"| layout | files by | clustering | {' | '.join(str(moment + 1) for moment in moments)} |",
        f"| --- | --- | --- |{' ---: |' * len(moments)}",
    ]
    for it in results:
        shown = (it.states[moment] for moment in moments)
        cells = [f"{state.files} / {state.depth} / {state.rewritten_per_byte:.1f}" for state in shown]
        lines.append(f"| {it.layout} | {it.filling} | {it.mode} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
