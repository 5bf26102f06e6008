"""What Spark's side bears: very many partitions in a batch, tasks in a job, and small files in a plan.

    python -m benchmarks.wide --quick
    python -m benchmarks.wide --check --json

*Partitions*: a batch with ten rows for each. *Tasks*: a bulk insert whose tasks have rows of ten partitions,
so that each writes ten files. *Small files*: one pass of bin-packing over the files of one partition, which
are copies of a file of ten rows. A step that fails, or does not leave all rows, fails the benchmark.
"""

from __future__ import annotations

import random
import resource
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from benchmarks.aims import Aim, benchmark_parser, conclude
from benchmarks.measure import processor_seconds
from benchmarks.sessions import local_session
from streaming_sink import BulkInsert, Clustering, IcebergSink
from timeline.changes.changes import Append
from timeline.names import data_file_name, ulid
from timeline.stores import open_store
from timeline.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

ROWS = 10
"""Rows of a partition, of a task in a partition, and of a small file."""
BOUND_MIB = 1_024
_BELOW_BYTES = 100 * 1024 * 1024
_A_COMMIT = 4_096


@dataclass
class Result:
    """What one step took; the memory is the most that the driver's Python has had until its end."""

    what: str
    count: int
    files: int
    """Files that its commits added or took away."""
    seconds: float
    processor: float
    driver_mib: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, report, and return the exit code."""
    parser = benchmark_parser("benchmarks.wide", __doc__, "a hundredth of each count")
    options = parser.parse_args(arguments)
    divisor = 100 if options.quick else 1
    work = Path(tempfile.mkdtemp(prefix="wide-", dir=options.work))
    spark = local_session("wide", {})
    try:
        _write(spark, IcebergSink(str(work / "warm"), app_id="wide"), ROWS, 1)
        results = [
            _partitions(spark, work, 10_000 // divisor),
            _tasks(spark, work, 1_000 // divisor),
            _small_files(spark, work, 100_000 // divisor),
        ]
    finally:
        spark.stop()
        shutil.rmtree(work)
    introduction = "`local[2]`, 4 GiB for the JVM; one run of each, in this order."
    aim = Aim(
        what="MiB of the driver's Python, all three",
        bound=BOUND_MIB,
        measured=None if options.quick else max(it.driver_mib for it in results),
    )
    return conclude(options, introduction, [_table(results)], {"results": [*map(asdict, results)]}, [aim])


def _partitions(spark: SparkSession, work: Path, count: int) -> Result:
    location = work / "partitions"
    sink = IcebergSink(str(location), partition_by=["part"], app_id="wide")
    rows = count * ROWS
    return _measured(
        "partitions of a batch", count, rows, location, lambda: _write(spark, sink, rows, 2, count)
    )


def _tasks(spark: SparkSession, work: Path, count: int) -> Result:
    location = work / "tasks"
    sink = IcebergSink(str(location), BulkInsert(), partition_by=["part"], app_id="wide")
    rows = count * ROWS * 10
    return _measured("tasks of a job", count, rows, location, lambda: _write(spark, sink, rows, count, 10))


def _small_files(spark: SparkSession, work: Path, count: int) -> Result:
    location = work / "small"
    _write(spark, IcebergSink(str(location), app_id="wide"), ROWS, 1)
    _add_copies(Table.open(open_store(str(location))), count - 1)
    packing = Clustering(every_commits=1, strategy="bin_pack")
    sink = IcebergSink(str(location), clustering=packing, app_id="wide")
    rows = (count + 1) * ROWS
    return _measured(
        "small files of a pass", count, rows, location, lambda: _write(spark, sink, ROWS, 1, batch=1)
    )


def _write(
    spark: SparkSession, sink: IcebergSink, rows: int, tasks: int, partitions: int = 1, batch: int = 0
) -> None:
    numbers = spark.range(0, rows, 1, tasks)
    sink(numbers.selectExpr("id", f"id % {partitions} part", "cast(id as string) text"), batch)


def _add_copies(table: Table, count: int) -> None:
    """Add copies of the table's one file."""
    (first,) = table.head.live_files()
    content, rng = Path(first.location).read_bytes(), random.Random(0)
    for start in range(0, count, _A_COMMIT):
        files = []
        for number in range(start, min(count, start + _A_COMMIT)):
            time_id = ulid(table.head.metadata.last_updated_ms, rng.getrandbits(80))
            path = Path(first.location).parent / data_file_name(time_id, "copy", number, 0, 0)
            path.write_bytes(content)
            files.append(
                DataFile.from_args(
                    content=DataFileContent.DATA,
                    file_path=str(path),
                    file_format=FileFormat.PARQUET,
                    partition=Record(),
                    record_count=first.rows,
                    file_size_in_bytes=first.bytes,
                    sort_order_id=0,
                )
            )
            files[-1].spec_id = 0
        table.commit([Append(tuple(files))], open_below_bytes=_BELOW_BYTES)


def _measured(what: str, count: int, wanted_rows: int, location: Path, step: Callable[[], None]) -> Result:
    before, _ = _live(location)
    began, processor = time.monotonic(), processor_seconds()
    step()
    seconds, processor = time.monotonic() - began, processor_seconds() - processor
    after, rows = _live(location)
    if rows != wanted_rows:
        raise RuntimeError(f"{what}: {rows} rows are in the table, and not {wanted_rows}")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    result = Result(what, count, len(before ^ after), seconds, processor, memory)
    print(f"{what}: {count:,}: {seconds:.1f} s", file=sys.stderr)
    return result


def _live(location: Path) -> tuple[set[str], int]:
    if not location.exists():
        return set(), 0
    files = list(Table.open(open_store(str(location))).head.live_files())
    return {it.location for it in files}, sum(it.rows for it in files)


def _table(results: Sequence[Result]) -> str:
    lines = [
        "| step | files added or removed | s | CPU s | CPU ms a file | driver MiB |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {it.count:,} {it.what} | {it.files:,} | {it.seconds:.1f} | {it.processor:.1f}"
        f" | {1_000 * it.processor / it.files:.2f} | {it.driver_mib} |"
        for it in results
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
