"""How many commits a minute one table takes from writers that contend for it, and whether any starves.

    python -m benchmarks.contention
    python -m benchmarks.contention --stores far --writers 8 --seconds 60 --markdown table.md
    python -m benchmarks.contention --of items --writers 8

Each writer is a process that appends one file after another, as fast as it can; the files exist in manifests
only. Of `batches` each writer is an application of its own, as a sink is; of `items` all are workers of one
buffer zone, and each takes the next work item that is ready. `local` is a folder of this machine, synced;
`far` is the same folder with 60 ms of sleep before every request, as an object store in another zone.
`slowest ÷ mean` are the commits of the writer that got the fewest over the mean of all. Attempts and
processor time are per commit; the time is that of all writers together, lost attempts included.
"""

from __future__ import annotations

import itertools
import multiprocessing
import shutil
import sys
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from benchmarks.aims import Aim, benchmark_parser, conclude
from timeline.changes.changes import Append
from timeline.clock import SYSTEM
from timeline.names import data_file_name, ulid
from timeline.stores import LocalStore, Store
from timeline.table import Committed, Table
from timeline.versions.transactions import Transaction
from timeline.versions.work_items import WorkItem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from timeline.stores.base import CreateOutcome, Listed, Stored

WRITERS = (1, 2, 4, 8, 16)
_REQUEST_SECONDS = 0.06
_SCHEMA = Schema(NestedField(1, "id", LongType()))
_START_TIMEOUT_SECONDS = 120


class FarStore(LocalStore):
    """A local store whose every request takes 60 ms longer, and whose writers do not see each other."""

    def take_turn(self) -> AbstractContextManager[object]:
        return nullcontext()

    def create(self, path: str, data: bytes) -> CreateOutcome:
        time.sleep(_REQUEST_SECONDS)
        return super().create(path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        time.sleep(_REQUEST_SECONDS)
        super().overwrite(path, data)

    def read(self, path: str) -> Stored:
        time.sleep(_REQUEST_SECONDS)
        return super().read(path)

    def list_folder(self, folder: str) -> list[Listed]:
        time.sleep(_REQUEST_SECONDS)
        return super().list_folder(folder)

    def delete(self, paths: Iterable[str]) -> None:
        time.sleep(_REQUEST_SECONDS)
        super().delete(paths)


STORES = {"local": LocalStore, "far": FarStore}
OF = ("batches", "items")


@dataclass(frozen=True)
class Share:
    """What one writer did."""

    commits: int
    attempts: int
    cpu_seconds: float
    latencies: list[float]


@dataclass(frozen=True)
class Cell:
    """What all writers of one run did together."""

    store: str
    of: str
    """What is committed: batches of sinks, or work items of a buffer zone."""
    seconds: float
    shares: list[Share]

    @property
    def commits(self) -> int:
        return sum(share.commits for share in self.shares)

    @property
    def per_minute(self) -> float:
        return 60 * self.commits / self.seconds

    @property
    def slowest_share(self) -> float:
        return min(share.commits for share in self.shares) * len(self.shares) / max(1, self.commits)

    @property
    def attempts(self) -> float:
        return sum(share.attempts for share in self.shares) / max(1, self.commits)

    @property
    def cpu_milliseconds(self) -> float:
        return 1_000 * sum(share.cpu_seconds for share in self.shares) / max(1, self.commits)

    def latency(self, fraction: float) -> float:
        """Return the commit duration in milliseconds below which this fraction of all commits stayed."""
        taken = sorted(seconds for share in self.shares for seconds in share.latencies)
        return 1_000 * taken[min(len(taken) - 1, int(fraction * len(taken)))] if taken else 0.0


def _one_file(store: Store, batch: int) -> DataFile:
    file_id = ulid(time.time_ns() // 1_000_000, SYSTEM.random.getrandbits(80))
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=store.uri(f"data/{data_file_name(file_id, 'contention', batch, 0, 0)}"),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=50_000,
        file_size_in_bytes=2 * 1024 * 1024,
    )
    file.spec_id = 0
    return file


def _write(kind: str, location: str, items: Any, writer: int, seconds: float, gate: Any, shares: Any) -> None:
    """Commit until the time is over; the last commit may end after it, and then does not count. `items`: how
    many work items were taken, by all workers; None where batches are committed.
    """
    name = f"writer-{writer}"
    table, epoch = Table.open(STORES[kind](location)), None
    attempts, latencies = 0, []
    gate.wait(_START_TIMEOUT_SECONDS)
    cpu, end = time.process_time(), time.perf_counter() + seconds
    while True:
        batch, start = len(latencies), time.perf_counter()
        if items is None:
            transaction: Transaction | WorkItem = Transaction(name, name, name, batch, epoch)
        else:
            transaction = _next_item(items)
        committed = table.commit([Append((_one_file(table.store, batch),))], transaction=transaction)
        if not isinstance(committed, Committed):
            raise TypeError(f"batch {batch} of {name} was skipped")
        if time.perf_counter() > end:
            break
        epoch = committed.epoch
        attempts += committed.attempts
        latencies.append(time.perf_counter() - start)
    shares.put(Share(len(latencies), attempts, time.process_time() - cpu, latencies))


def _next_item(taken: Any) -> WorkItem:
    """Take the next work item, as a claim does."""
    with taken.get_lock():
        taken.value += 1
        return WorkItem("zone", taken.value - 1)


def run(work: Path, kind: str, of: str, writers: int, seconds: float) -> Cell:
    """Let so many writers contend for a new table."""
    location = str(work / f"{kind}-{of}-{writers}")
    Table.create(LocalStore(location), _SCHEMA)
    context = multiprocessing.get_context("spawn")
    gate, shares = context.Barrier(writers), context.Queue()
    items = context.Value("q", 0) if of == "items" else None
    processes = [
        context.Process(
            target=_write, args=(kind, location, items, writer, seconds, gate, shares), daemon=True
        )
        for writer in range(writers)
    ]
    for process in processes:
        process.start()
    done = [shares.get(timeout=_START_TIMEOUT_SECONDS + 2 * seconds) for _ in processes]
    for process in processes:
        process.join()
    return Cell(kind, of, seconds, done)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, report, and return the exit code."""
    parser = benchmark_parser("benchmarks.contention", __doc__, "eight writers, 10 seconds each")
    parser.add_argument("--stores", nargs="+", choices=list(STORES), default=list(STORES))
    parser.add_argument("--of", nargs="+", choices=list(OF), default=list(OF), help="what is committed")
    parser.add_argument("--writers", nargs="+", type=int, default=list(WRITERS))
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each run lasts")
    options = parser.parse_args(arguments)
    if options.quick:
        options.writers, options.seconds = [8], 10.0
    work = Path(tempfile.mkdtemp(prefix="contention-", dir=options.work))
    try:
        combined = itertools.product(options.stores, options.of, options.writers)
        cells = [run(work, kind, of, writers, options.seconds) for kind, of, writers in combined]
    finally:
        shutil.rmtree(work)
    figures = {"cells": [asdict(cell) for cell in cells]}
    return conclude(options, "", [_markdown(cells)], figures, aims(cells))


def aims(cells: Sequence[Cell]) -> list[Aim]:
    """Return the aims of eight writers on each store: commits a minute, and none starves."""
    found = []
    for store, of in itertools.product(STORES, OF):
        cell = next((c for c in cells if (c.store, c.of) == (store, of) and len(c.shares) == 8), None)
        found += [
            Aim(
                what=f"{store}: {of} a minute of eight writers",
                bound={"local": 3_000, "far": 250}[store],
                measured=cell and cell.per_minute,
                at_least=True,
            ),
            Aim(
                what=f"{store}: {of} of the slowest of eight writers over the mean",
                bound=0.5,
                measured=cell and cell.slowest_share,
                at_least=True,
            ),
        ]
    return found


def _markdown(cells: list[Cell]) -> str:
    lines = [
        "| store | of | writers | commits a minute | slowest ÷ mean | attempts"
        " | median ms | p95 ms | CPU ms |",
        "| --- | --- |" + " ---: |" * 7,
    ]
    lines += [
        f"| {cell.store} | {cell.of} | {len(cell.shares)} | {cell.per_minute:,.0f} "
        f"| {cell.slowest_share:.0%} "
        f"| {cell.attempts:.2f} | {cell.latency(0.5):.0f} | {cell.latency(0.95):.0f} "
        f"| {cell.cpu_milliseconds:.1f} |"
        for cell in cells
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
