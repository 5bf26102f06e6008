"""Changes by key: our sink, Iceberg's MERGE, Delta's and Hudi's upsert on the same rows and the same batches.

    python -m benchmarks.upserts --quick
    python -m benchmarks.upserts --rows 10_000_000 --batches 20 --check --json
    python -m benchmarks.upserts --only ours delta --keys random --types int --layouts unpartitioned

Every writer gets the same rows first, then a stream of batches: 50,000 changes each, of which 50 % are
updates of rows that the table has, 5 % deletes, and the rest inserts. Keys are integers or UUIDs as text;
in *random* order, where old rows of any age change, or *growing*, where most that change are young.
Partitioned tables have eight regions, in each of which a key is unique.

One stream calls all writers with each batch, and another one first each time, so that all see the machine
alike. The time of a batch is that of the call; processor time is that of this process and of all below it,
the JVM and the workers, during the call and until nothing that the writer has started runs beside the
stream any more. The first batches of a run are discarded. After the run each table is read whole, and asked
for single keys, by Spark, and by DuckDB where that reads it; and its rows are compared with those that
Spark makes of the base and the changes.

A writer whose batch takes longer than `--limit-seconds` is stopped. Those that write whole files again, and
Hudi, land `--slow-batches` batches at most. With `--batches-only` nothing is read or compared after the
stream, so that more batches fit into a short run. `--add` puts the figures of several runs together; those of
one workload belong to one run.
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
from benchmarks.keyed_hudi import Hudi, HudiRecordIndex
from benchmarks.keyed_results import Result, aims, markdown
from benchmarks.keyed_runs import Run
from benchmarks.keyed_writers import SESSION, Delta, Iceberg, IcebergCopies, IcebergVectors, Ours, OursInsert
from benchmarks.peers import session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.keyed_writers import Writer

WRITERS: dict[str, type[Writer]] = {
    each.name: each
    for each in (Ours, OursInsert, Iceberg, IcebergVectors, IcebergCopies, Delta, Hudi, HudiRecordIndex)
}
_QUICK = [Ours.name, OursInsert.name, Iceberg.name]
_LAYOUTS = ("unpartitioned", "partitioned")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, report, and return the exit code."""
    options = _parse(arguments)
    results = [
        Result.from_dict(each) for path in options.add for each in json.loads(path.read_text())["results"]
    ]
    results += [] if options.only_added else _run(options)
    names = dict.fromkeys(each.writer for each in results)
    configurations = {name: dict(WRITERS[name].configuration) for name in names}
    introduction = (
        f"`local[2]`, {options.rows:,} rows, {options.batches} batches of {options.changes:,} changes; of"
        " every run the first five batches are discarded, or the first half where that is less."
    )
    tables = [*markdown(results), _listed(configurations)]
    figures = {"configurations": configurations, "results": [each.as_dict() for each in results]}
    return conclude(options, introduction, tables, figures, aims(results))


def _run(options: argparse.Namespace) -> list[Result]:
    work = Path(tempfile.mkdtemp(prefix="upserts-", dir=options.work))
    spark = session(work, "upserts")
    for key, value in SESSION.items():
        spark.conf.set(key, value)
    results = []
    try:
        for load in _workloads(options):
            source = load.folder(options.source or work / "source")
            if not source.exists():
                write_rows(load, source)
            run = Run(spark, work, load, source, options.limit_seconds, options.batches_only)
            results += run.of([WRITERS[name] for name in options.only], options.slow_batches)
    finally:
        spark.stop()
        shutil.rmtree(work)
    return results


def _listed(configurations: dict[str, dict[str, str]]) -> str:
    lines = ["Configurations:", ""]
    for name, settings in configurations.items():
        lines.append(f"- {name}: {', '.join(f'`{key}={value}`' for key, value in settings.items())}")
    return "\n".join(lines)


def _workloads(options: argparse.Namespace) -> list[Workload]:
    return [
        Workload(options.rows, options.batches, options.changes, kind, order, layout == "partitioned")
        for kind in options.types
        for order in options.keys
        for layout in options.layouts
    ]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = benchmark_parser(
        "benchmarks.upserts", __doc__, "100,000 rows, 2 batches of 10,000 changes, three writers"
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the table before the stream")
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--slow-batches", type=int, default=4, help="of those that take long")
    parser.add_argument("--changes", type=int, default=50_000, help="a batch")
    parser.add_argument("--limit-seconds", type=float, default=300, help="for a batch; then a writer is out")
    parser.add_argument("--batches-only", action="store_true", help="read no table after the stream")
    parser.add_argument("--only", nargs="+", choices=WRITERS, metavar="WRITER", help=", ".join(WRITERS))
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
    parser.add_argument("--only-added", action="store_true", help="run nothing")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rows, options.batches, options.changes = 100_000, 2, 10_000
        options.types, options.keys, options.layouts = ["int"], ["random"], ["unpartitioned"]
    options.only = options.only or (_QUICK if options.quick else list(WRITERS))
    return options


if __name__ == "__main__":
    sys.exit(main())
