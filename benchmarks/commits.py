"""What a commit alone costs on the local store, as the table's history grows. No Spark and no data files.

    python -m benchmarks.commits --quick
    python -m benchmarks.commits --check --json

`append`: every commit adds one file of ten columns with bounds. `fill`: every commit adds one file and puts
a merged one in the place of it and of the small file before, until that is full: two snapshots a commit. A
figure is the median over the hundred commits up to the mark. Manifests, lists and versions are synced to disk
before a commit returns, so the disk's own price of a synced small file stands beside the table, and the
processor time of the commits below their duration.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType, TimestamptzType

from benchmarks.aims import Aim, benchmark_parser, conclude
from timeline.changes.changes import Append, Change, Replace
from timeline.names import data_file_name, ulid
from timeline.stores import open_store
from timeline.table import Committed, Table
from timeline.versions.transactions import Transaction

if TYPE_CHECKING:
    from collections.abc import Sequence

MARKS = (100, 1_000, 2_500, 5_000, 10_000)
WORKLOADS = ("append", "fill")
_WINDOW = 100
_MIB = 1024 * 1024
_BATCH_BYTES = 2 * _MIB
_SMALL_FILE_BYTES = 13 * _MIB
_ROWS = 50_000

EVENTS = Schema(
    NestedField(1, "event_id", LongType()),
    NestedField(2, "event_time", TimestamptzType()),
    NestedField(3, "user_id", LongType()),
    NestedField(4, "session", StringType()),
    NestedField(5, "region", StringType()),
    NestedField(6, "device", StringType()),
    NestedField(7, "status", IntegerType()),
    NestedField(8, "amount", DoubleType()),
    NestedField(9, "latency_ms", DoubleType()),
    NestedField(10, "comment", StringType()),
)


@dataclass
class Stream:
    """One writer's commits to one table, batch after batch."""

    table: Table
    workload: str
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    _epoch: int | None = None
    _small: DataFile | None = None

    def commit_next(self) -> None:
        """Commit one more batch, and note how long `commit` alone took."""
        batch = len(self.seconds)
        changes = self._changes(batch)
        transaction = Transaction("benchmark", "query", "run", batch, self._epoch)
        summary = {"spark.sql.streaming.queryId": "query", "spark.sql.streaming.epochId": str(batch)}
        start, start_cpu = time.perf_counter(), time.process_time()
        committed = self.table.commit(
            changes, transaction=transaction, summary=summary, open_below_bytes=_SMALL_FILE_BYTES
        )
        self.seconds.append(time.perf_counter() - start)
        self.cpu_seconds.append(time.process_time() - start_cpu)
        if not isinstance(committed, Committed):
            raise TypeError(f"batch {batch} was skipped")
        self._epoch = committed.epoch

    def _changes(self, batch: int) -> list[Change]:
        new = self._file(batch, 0, _ROWS, _BATCH_BYTES)
        if self.workload == "append":
            return [Append((new,))]
        if self._small is None:
            self._small = new
            return [Append((new,))]
        inputs = frozenset({self._small.file_path, new.file_path})
        rows = self._small.record_count + new.record_count
        merged = self._file(batch, 1, rows, self._small.file_size_in_bytes + _BATCH_BYTES)
        self._small = merged if merged.file_size_in_bytes < _SMALL_FILE_BYTES else None
        return [Append((new,)), Replace(inputs, (merged,))]

    def _file(self, batch: int, bucket: int, rows: int, size: int) -> DataFile:
        rng = random.Random(batch * 2 + bucket)
        file_id = ulid(time.time_ns() // 1_000_000, rng.getrandbits(80))
        name = data_file_name(file_id, "benchmark", batch, bucket, 0)
        return event_file(f"{self.table.store.location}/data/{name}", Record(), batch, rows, size)


def event_file(location: str, partition: Record, value: int, rows: int, size: int) -> DataFile:
    """Return a data file of the ten columns with bounds, from a value to the next one; it does not exist."""
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=rows,
        file_size_in_bytes=size,
        column_sizes={f.field_id: size // 10 for f in EVENTS.fields},
        value_counts={f.field_id: rows for f in EVENTS.fields},
        null_value_counts={f.field_id: 0 for f in EVENTS.fields},
        nan_value_counts={8: 0, 9: 0},
        lower_bounds=_bounds(value),
        upper_bounds=_bounds(value + 1),
        split_offsets=[4],
        sort_order_id=0,
    )
    file.spec_id = 0
    return file


@lru_cache(maxsize=2_000)
def _bounds(value: int) -> dict[int, bytes]:
    return {f.field_id: _column_bound(f, value) for f in EVENTS.fields}


def _column_bound(column: NestedField, value: int) -> bytes:
    kind = column.field_type
    if isinstance(kind, StringType):
        return to_bytes(kind, f"{value:016d}")
    return to_bytes(kind, float(value) if isinstance(kind, DoubleType) else value)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, report, and return the exit code."""
    parser = benchmark_parser("benchmarks.commits", __doc__, "up to 1,000 commits")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    options = parser.parse_args(arguments)
    marks = [mark for mark in MARKS if mark <= 1_000] if options.quick else list(MARKS)
    work = Path(tempfile.mkdtemp(prefix="commits-", dir=options.work))
    try:
        synced = _synced_file_milliseconds(work)
        streams = [_run(work, workload, marks[-1]) for workload in options.workloads]
    finally:
        shutil.rmtree(work)
    figures = {
        "synced_file_ms": synced,
        "seconds": {stream.workload: stream.seconds for stream in streams},
        "cpu_seconds": {stream.workload: stream.cpu_seconds for stream in streams},
    }
    introduction = f"A synced 4 KiB file costs {synced:.2f} ms there."
    return conclude(options, introduction, [_markdown(streams, marks)], figures, aims(streams))


def _run(work: Path, workload: str, commits: int) -> Stream:
    stream = Stream(Table.create(open_store(str(work / workload)), EVENTS), workload)
    for _ in range(commits):
        stream.commit_next()
    return stream


def _synced_file_milliseconds(folder: Path) -> float:
    """Return the median price of creating, writing and syncing one small file."""
    taken = []
    for number in range(50):
        start = time.perf_counter()
        with (folder / f"{number}.probe").open("wb") as file:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
        taken.append(time.perf_counter() - start)
    return 1_000 * statistics.median(taken)


def _markdown(streams: list[Stream], marks: list[int]) -> str:
    header = " | ".join(f"at {mark:,}" for mark in marks)
    lines = [f"| median ms a commit | {header} |", "| --- |" + " ---: |" * len(marks)]
    for stream in streams:
        for label, taken in (("", stream.seconds), (", processor time", stream.cpu_seconds)):
            cells = " | ".join(f"{_milliseconds_at(taken, mark):.1f}" for mark in marks)
            lines.append(f"| {stream.workload}{label} | {cells} |")
    return "\n".join(lines)


def aims(streams: Sequence[Stream]) -> list[Aim]:
    """Return the aims: a commit's cost does not grow with the history, and stays below 20 ms."""
    found = []
    for stream in streams:
        at = {m: _milliseconds_at(stream.seconds, m) for m in MARKS if m <= len(stream.seconds)}
        growth = at[10_000] / at[2_500] if 10_000 in at else None
        slowest = max((ms for mark, ms in at.items() if mark >= 1_000), default=None)
        what = f"{stream.workload}: median at 10,000 commits over that at 2,500"
        found.append(Aim(what=what, bound=1.2, measured=growth))
        what = f"{stream.workload}: slowest median from 1,000 commits on, ms"
        found.append(Aim(what=what, bound=20, measured=slowest))
    return found


def _milliseconds_at(seconds: list[float], mark: int) -> float:
    return 1_000 * statistics.median(seconds[max(0, mark - _WINDOW) : mark])


if __name__ == "__main__":
    sys.exit(main())
