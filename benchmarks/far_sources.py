"""How fast one task takes small source files from an object store far away: 60 ms a request.

    python -m benchmarks.far_sources --files 4000 --check --json

The tasks of a work item run here without Spark, on files of a folder whose every request takes 60 ms longer.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.aims import Aim, benchmark_parser, conclude
from benchmarks.contention import FarStore
from benchmarks.ingestion import write_files
from streaming_sink.tasks.ingest.consolidation_task import Share, consolidate
from streaming_sink.tasks.ingest.profile_task import ProfileJob, SourceProfile, profile
from streaming_sink.tasks.ingest.sources import Sources
from streaming_sink.tasks.job import FileIds, ParquetSettings, PartitionSource, TaskBuckets, WorkerJob
from timeline.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROWS = 200
_BUCKET = "far://bucket"


class FarSources(Sources):
    """Files of a local folder under names of a bucket."""

    def __init__(self, folder: Path) -> None:
        super().__init__((_BUCKET,))
        self._stores[_BUCKET] = FarStore(str(folder))


@dataclass(frozen=True)
class Figures:
    """One step of a task over all files."""

    step: str
    files: int
    seconds: float
    processor_seconds: float

    @property
    def files_a_second(self) -> float:
        return self.files / self.seconds


def measure(work: Path, files: int) -> list[Figures]:
    """Profile the files of a folder, and consolidate them, each in one task."""
    write_files(work / "drop", files, _ROWS)
    sources = FarSources(work / "drop")
    listed = enumerate(sources.below(_BUCKET, "*.parquet", 0))
    numbered = tuple(listed)
    schema = _with_ids(pq.read_schema(work / "drop" / f"{0:06}.parquet"))
    by_day = (PartitionSource("day", ("day",), "identity"),)

    started, before = time.perf_counter(), time.process_time()
    found = profile(ProfileJob(sources, numbered, schema, by_day))
    profiled = Figures("profile", files, time.perf_counter() - started, time.process_time() - before)
    assert sum(isinstance(each, SourceProfile) for each in found) == files

    job = WorkerJob(
        store=open_store(str(work / "table")),
        schema=schema,
        partition_by=by_day,
        parquet=ParquetSettings(),
        metrics={},
        ids=FileIds(time.time_ns() // 1_000_000, "far", 0),
        tasks={},
        shared=TaskBuckets(),
        rows_per_new_file=1_000_000_000,
        max_file_bytes=12 * 1024 * 1024,
    )
    started, before = time.perf_counter(), time.process_time()
    consolidate(job, Share(sources, numbered), 0)
    written = Figures("consolidate", files, time.perf_counter() - started, time.process_time() - before)
    return [profiled, written]


def _with_ids(schema: pa.Schema) -> pa.Schema:
    return pa.schema(
        [
            pa.field(field.name, field.type, metadata={"PARQUET:field_id": str(number)})
            for number, field in enumerate(schema, start=1)
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, report, and return the exit code."""
    parser = benchmark_parser("benchmarks.far_sources", __doc__, "1,000 files")
    parser.add_argument("--files", type=int, default=4_000)
    options = parser.parse_args(arguments)
    work = Path(tempfile.mkdtemp(dir=options.work))
    try:
        figures = measure(work, 1_000 if options.quick else options.files)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    lines = [
        "| step | files | seconds | processor s | files a second |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {it.step} | {it.files:,} | {it.seconds:.1f} | {it.processor_seconds:.1f} |"
        f" {it.files_a_second:,.0f} |"
        for it in figures
    ]
    aims = [
        Aim(what=f"files a second, {it.step}", bound=1_000, measured=it.files_a_second, at_least=True)
        for it in figures
    ]
    introduction = "One task, 60 ms a request."
    found = {"steps": [asdict(it) for it in figures]}
    return conclude(options, introduction, ["\n".join(lines)], found, aims)


if __name__ == "__main__":
    sys.exit(main())
