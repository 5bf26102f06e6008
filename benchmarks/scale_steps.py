"""The steps of `benchmarks.scale`: each opens a table in a new process, and measures one thing it does."""

from __future__ import annotations

import statistics
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.big_tables import SMALL_FILE_BYTES, SPEC, big_file, partition_count, partition_values
from planners import FileSizing
from planners.model import TablePartition
from streaming_sink.options.table_options import SinkOptions
from streaming_sink.options.values.tables import PathTable
from streaming_sink.reading.description import describe
from streaming_sink.reading.status import status_of
from streaming_sink.upkeep.fills import plan_merges
from streaming_sink.upkeep.small_files import count_small_files
from timeline.changes.changes import Append
from timeline.diagnosis import doctor
from timeline.stores.local import LocalStore
from timeline.table import Table
from timeline.versions.keys import Looked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from timeline.stores.base import CreateOutcome, Listed, Stored

_LATER = 10


class CountingStore(LocalStore):
    """A local store that counts its requests, each of which may take longer than here."""

    def __init__(self, location: str, far_seconds: float = 0.0) -> None:
        super().__init__(location)
        self.far_seconds = far_seconds
        self.requests = self.manifests = self.bytes_read = 0

    def _count(self) -> None:
        self.requests += 1
        time.sleep(self.far_seconds)

    def create(self, path: str, data: bytes) -> CreateOutcome:
        self._count()
        return super().create(path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        self._count()
        super().overwrite(path, data)

    def read(self, path: str) -> Stored:
        self._count()
        self.manifests += path.endswith("-manifest.avro")
        stored = super().read(path)
        self.bytes_read += len(stored.data)
        return stored

    def list_folder(self, folder: str) -> list[Listed]:
        self._count()
        return super().list_folder(folder)

    def delete(self, paths: Iterable[str]) -> None:
        self._count()
        super().delete(paths)


@dataclass
class Measured:
    """What one step took."""

    store: CountingStore
    figures: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def taken(self) -> Iterator[None]:
        store = self.store
        before = store.requests, store.manifests, store.bytes_read
        start, start_cpu = time.perf_counter(), time.process_time()
        yield
        self.figures = {
            "cpu_seconds": time.process_time() - start_cpu,
            "seconds": time.perf_counter() - start,
            "requests": store.requests - before[0],
            "manifests": store.manifests - before[1],
            "bytes_read": store.bytes_read - before[2],
        }


def _append_one(table: Table, number: int) -> None:
    files = len(table.head.manifests) and _live(table)
    table.commit(
        [Append((big_file(table, number, partition_count(files), small=True),))],
        open_below_bytes=SMALL_FILE_BYTES,
    )


def _live(table: Table) -> int:
    return sum((it.added_files_count or 0) + (it.existing_files_count or 0) for it in table.head.manifests)


def _first(location: Path, far_seconds: float) -> dict[str, Any]:
    measured = Measured(CountingStore(str(location), far_seconds))
    with measured.taken():
        table = Table.open(measured.store)
        _append_one(table, time.time_ns() % 10**9)
    return measured.figures


def _later(location: Path, far_seconds: float) -> dict[str, Any]:
    measured = Measured(CountingStore(str(location), far_seconds))
    table = Table.open(measured.store)
    _append_one(table, time.time_ns() % 10**9)
    taken = []
    for _ in range(_LATER):
        with measured.taken():
            _append_one(table, time.time_ns() % 10**9)
        taken.append(measured.figures)
    return {name: statistics.median(it[name] for it in taken) for name in taken[0]}


def _fills_in(partitions: int) -> Callable[[Path, float], dict[str, Any]]:
    def run(location: Path, far_seconds: float) -> dict[str, Any]:
        measured = Measured(CountingStore(str(location), far_seconds))
        table = Table.open(measured.store)
        _append_one(table, time.time_ns() % 10**9)
        have = partition_count(_live(table))
        touched = {
            TablePartition(SPEC.spec_id, partition_values(number))
            for number in range(0, have, max(1, have // partitions))
        }
        options = SinkOptions(table=PathTable(str(location)))
        with measured.taken():
            plan_merges(table.head, touched, options, {})
            count_small_files(table.head, touched, options.small_below_bytes)
        return measured.figures

    return run


def _looking(look: Callable[[Table], object]) -> Callable[[Path, float], dict[str, Any]]:
    def run(location: Path, far_seconds: float) -> dict[str, Any]:
        measured = Measured(CountingStore(str(location), far_seconds))
        with measured.taken():
            look(Table.open(measured.store))
        return measured.figures

    return run


def _doctor(location: Path, far_seconds: float) -> dict[str, Any]:
    measured = Measured(CountingStore(str(location), far_seconds))
    with measured.taken():
        doctor(str(location))
    return measured.figures


_SIZING = FileSizing()

STEPS: dict[str, Callable[[Path, float], dict[str, Any]]] = {
    "first": _first,
    "later": _later,
    "fills 1": _fills_in(1),
    "fills": _fills_in(100),
    "fills 1,000": _fills_in(1_000),
    "keys": _looking(lambda table: Looked.at(table.head)),
    "status": _looking(lambda table: status_of(table.head, (), _SIZING.small_file_bytes, 0)),
    "describe": _looking(lambda table: describe(table.head, _SIZING)),
    "doctor": _doctor,
}
"""By their names."""
