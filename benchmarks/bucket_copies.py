"""What it costs to register files of the table's own bucket: their bytes sent, or copied by the store.

    python -m benchmarks.bucket_copies --files 64 --rounds 3

One task registers files of 20 MiB, without Spark, from MiniStack on the loopback; the two ways take turns. A
last round of each goes through a proxy, which counts bytes and requests; the others do not.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.far_sources import _with_ids
from streaming_sink.tasks.ingest.register_task import SourceToRegister, register
from streaming_sink.tasks.ingest.sources import Sources
from streaming_sink.tasks.job import FileIds, ParquetSettings, TaskBuckets, WorkerJob
from streaming_sink.tasks.results import WrittenFile
from tests.servers.launch import BUCKET, Server, ministack
from tests.servers.proxy import Proxy
from timeline.stores import _object_copies

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ROWS = 560_000
"""Of 20 MiB."""


@dataclass(frozen=True)
class Figures:
    """One round of a way."""

    way: str
    seconds: float
    processor_seconds: float


def file_of_rows() -> bytes:
    """Return a Parquet file of numbers and texts."""
    random = np.random.default_rng(7)
    rows = pa.table(
        {
            "id": np.arange(_ROWS),
            "x": random.random(_ROWS),
            "y": random.random(_ROWS),
            "n": random.integers(0, 1 << 40, _ROWS),
            "day": np.take(["mon", "tue", "wed"], random.integers(0, 3, _ROWS)),
            "text": [f"text {number}" for number in random.integers(0, 100_000, _ROWS)],
        }
    )
    out = io.BytesIO()
    pq.write_table(rows, out, row_group_size=_ROWS // 4)
    return out.getvalue()


def register_all(server: Server, schema: pa.Schema, folder: str, copies: bool) -> Figures:
    """Register all files of the drop folder in one task, by one of the ways."""
    drop = f"s3://{BUCKET}/drop"
    sources = Sources((drop,), server.options)
    files = list(sources.below(drop, "*.parquet", 0))
    job = WorkerJob(
        store=server.store(folder),
        schema=schema,
        partition_by=(),
        parquet=ParquetSettings(),
        metrics=dict.fromkeys(range(1, 7), "truncate(16)"),
        ids=FileIds(time.time_ns() // 1_000_000, "copies", 0),
        tasks={},
        shared=TaskBuckets(),
        rows_per_new_file=1_000_000_000,
        max_file_bytes=1 << 30,
    )
    wanted = [SourceToRegister(number, file, (), _ROWS) for number, file in enumerate(files)]
    with ExitStack() as stack:
        if not copies:
            stack.enter_context(mock.patch.object(_object_copies, "MOST_BYTES", 0))
        started, before = time.perf_counter(), time.process_time()
        found = register(job, sources, wanted, 0)
        seconds, processor = time.perf_counter() - started, time.process_time() - before
    made = [each.path for each in found if isinstance(each, WrittenFile)]
    assert len(made) == len(files)
    job.store.delete(job.store.relative(path) for path in made)
    return Figures("copied by the store" if copies else "sent", seconds, processor)


def measure(work: Path, files: int, rounds: int) -> Iterator[str]:
    """Yield the lines of the report."""
    data = file_of_rows()
    schema = _with_ids(pq.read_schema(io.BytesIO(data)))
    with ministack(work) as server:
        for number in range(files):
            server.store("drop").overwrite(f"{number:03}.parquet", data)
        time.sleep(2)
        yield f"{files} files of {len(data) / (1 << 20):.1f} MiB"
        for number in range(rounds):
            for copies in (False, True):
                it = register_all(server, schema, f"table {number} {copies}", copies)
                yield (
                    f"| {it.way} | {it.seconds:.2f} s | {it.processor_seconds:.2f} processor s |"
                    f" {it.processor_seconds / files * 1000:.1f} ms a file |"
                )
        for copies in (False, True):
            with Proxy(server.endpoint).running() as proxy:
                register_all(server.at(proxy.endpoint), schema, f"counted {copies}", copies)
                sent = sum(int(request.headers.get("content-length", 0)) for request in proxy.requests)
                requests = dict(sorted(proxy.count().items()))
            yield f"copied: {copies}; {sent:,} bytes sent; {requests}, with a LIST and the deletes"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, report, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bucket_copies", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--files", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    work = Path(tempfile.mkdtemp())
    try:
        for line in measure(work, options.files, options.rounds):
            print(line, flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
