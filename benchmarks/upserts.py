"""Changes by key: our sink, Iceberg's MERGE and Delta's on the same table and the same batches.

    python -m benchmarks.upserts --quick
    python -m benchmarks.upserts --check --json
    python -m benchmarks.upserts --only delta --keys random --types int --json delta.json
    python -m benchmarks.upserts --only ours --keys random --types int --add delta.json --check

Every writer gets the same rows first, then a stream of batches: by default 50,000 changes each, of which 50 %
are updates of rows that the table has, 5 % deletes, and the rest inserts. Keys are integers or UUIDs as text;
in *random* order, where old rows of any age change, or *growing*, where most that change are young.
Partitioned tables have eight regions, in each of which a key is unique. `benchmarks.keyed_writers` has the
configurations.

The figure of a batch is Spark's `durationMs.addBatch`; the first batches of a run are discarded. Processor
time is that of the driver, its JVM and the Python workers from the first batch that counts until nothing runs
beside the stream any more, by the batches that count. After the run each table is read whole, and asked for
single keys, by Spark, and by DuckDB where that reads it; and its rows are compared with those that Spark
makes of the base and the changes. A run that a machine has no time for is several, whose JSON `--add` puts
together: the figures of one workload belong to one machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.aims import benchmark_parser, conclude
from benchmarks.keyed_data import ORDERS, TYPES, Workload, write_rows
from benchmarks.keyed_results import Result, aims, markdown
from benchmarks.keyed_runs import Run
from benchmarks.keyed_writers import SESSION, WRITERS
from benchmarks.peers import session

if TYPE_CHECKING:
    from collections.abc import Sequence

_LAYOUTS = ("unpartitioned", "partitioned")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, report, and return the exit code."""
    options = _parse(arguments)
    results = [
        Result.from_dict(each) for path in options.add for each in json.loads(path.read_text())["results"]
    ]
    work = Path(tempfile.mkdtemp(prefix="upserts-", dir=options.work))
    spark = session(work, "upserts")
    for key, value in SESSION.items():
        spark.conf.set(key, value)
    try:
        for load in _workloads(options):
            source = load.folder(options.source or work / "source")
            if not source.exists():
                write_rows(load, source)
            run = Run(spark, work, load, source)
            for name in options.only:
                result = run.of(WRITERS[name])
                results.append(result)
                print(f"{load.name}: {name} {result.median:.0f} ms", file=sys.stderr)
    finally:
        spark.stop()
        shutil.rmtree(work)
    introduction = (
        f"`local[2]`, {options.rows:,} rows, {options.batches} batches of {options.changes:,} changes; the"
        f" first {Result.warm_up_of(options.batches)} of every run are discarded."
    )
    figures = {"results": [each.as_dict() for each in results]}
    return conclude(options, introduction, markdown(results), figures, aims(results))


def _workloads(options: argparse.Namespace) -> list[Workload]:
    return [
        Workload(options.rows, options.batches, options.changes, kind, order, layout == "partitioned")
        for kind in options.types
        for order in options.keys
        for layout in options.layouts
    ]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = benchmark_parser("benchmarks.upserts", __doc__, "500,000 rows, 4 batches, one workload")
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the table before the stream")
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--changes", type=int, default=50_000, help="a batch")
    parser.add_argument("--only", nargs="+", choices=WRITERS, default=list(WRITERS), metavar="WRITER")
    parser.add_argument("--types", nargs="+", choices=TYPES, default=list(TYPES), help="of keys")
    parser.add_argument("--keys", nargs="+", choices=ORDERS, default=list(ORDERS), help="their order")
    parser.add_argument("--layouts", nargs="+", choices=_LAYOUTS, default=list(_LAYOUTS))
    parser.add_argument("--source", type=Path, help="a folder that keeps the rows for other runs")
    parser.add_argument(
        "--add",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="figures of other runs, as --json wrote",
    )
    options = parser.parse_args(arguments)
    if options.quick:
        options.rows, options.batches = 500_000, 4
        options.types, options.keys, options.layouts = ["int"], ["random"], ["unpartitioned"]
    return options


if __name__ == "__main__":
    sys.exit(main())
