"""The steps of `benchmarks.scale`: each opens a table in a new process, and measures one thing it does."""

from __future__ import annotations

import statistics
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Any

from benchmarks.big_tables import (
    KEY,
    MIB,
    SMALL_FILE_BYTES,
    SPEC,
    big_file,
    key_index,
    partition_count,
    partition_values,
)
from planners import FileSizing
from planners.clustering.planner import plan_clustering
from planners.clustering.policy import BySize, ClusteringPolicy, PlanStrategy
from planners.model import TablePartition
from streaming_sink.clustering.groups import match_groups
from streaming_sink.clustering.known_files import known_files
from streaming_sink.clustering.where import partitions_where
from streaming_sink.keyed.key_resolution import look
from streaming_sink.keyed.searched_files import SearchedFiles
from streaming_sink.options.table_options import SinkOptions
from streaming_sink.options.values.tables import PathTable
from streaming_sink.reading.description import describe
from streaming_sink.reading.pieces import changed_pieces
from streaming_sink.reading.status import status_of
from streaming_sink.upkeep.fills import plan_merges
from streaming_sink.upkeep.small_files import count_small_files
from timeline.changes.changes import Append
from timeline.diagnosis import doctor
from timeline.maintenance.expiry import expire_snapshots
from timeline.maintenance.orphans import remove_orphan_files
from timeline.manifests.contents import is_data
from timeline.names import DATA_FOLDER
from timeline.retention.expired import Note, SnapshotRecord
from timeline.retention.reachability import find_unreached
from timeline.stores.base import ListedObject
from timeline.stores.local import LocalStore
from timeline.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from timeline.stores.base import CreateOutcome, Listed, Stored
    from timeline.versions.head import Head

_LATER = 10
_WHERE = ",".join(f"shop={partition_values(number)[0]}" for number in range(3))
_PAGE = 1_000
"""Files of one answer to a LIST."""


class CountingStore(LocalStore):
    """A local store that counts its requests, each of which may take longer than here."""

    def __init__(self, location: str, far_seconds: float = 0.0) -> None:
        super().__init__(location)
        self.far_seconds = far_seconds
        self.requests = self.manifests = self.bytes_read = 0
        self.at_once = self._running = 0
        """The most requests at a time; those that run."""
        self._counting = Lock()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._counting:
            self.requests += 1
            self._running += 1
            self.at_once = max(self.at_once, self._running)
        try:
            time.sleep(self.far_seconds)
            yield
        finally:
            with self._counting:
                self._running -= 1

    def create(self, path: str, data: bytes) -> CreateOutcome:
        with self._counted():
            return super().create(path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        with self._counted():
            super().overwrite(path, data)

    def read(self, path: str) -> Stored:
        with self._counted():
            stored = super().read(path)
        with self._counting:
            self.manifests += path.endswith("-manifest.avro")
            self.bytes_read += len(stored.data)
        return stored

    def list_folder(self, folder: str) -> list[Listed]:
        with self._counted():
            return super().list_folder(folder)

    def delete(self, paths: Iterable[str]) -> None:
        with self._counted():
            super().delete(paths)


class WholeStore(CountingStore):
    """Lists the data files of the newest version as if they were there, a thousand by a request."""

    def list_below(self, folder: str) -> Iterator[Listed]:
        yield from super().list_below(folder)
        if folder not in ("", DATA_FOLDER):
            return
        head = Table.open(LocalStore(self.location)).head
        for manifest in filter(is_data, head.manifests):
            columns = head.manifest_files.columns(manifest)
            head.manifest_files.keep_only(())
            for number, (location, size) in enumerate(zip(columns.locations, columns.bytes, strict=True)):
                if number % _PAGE == 0:
                    with self._counted():
                        pass
                yield ListedObject(self.relative(location), size, "")


@dataclass
class Measured:
    """What one step took."""

    store: CountingStore
    figures: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def taken(self) -> Iterator[None]:
        store = self.store
        before = store.requests, store.manifests, store.bytes_read
        store.at_once = 0
        start, start_cpu = time.perf_counter(), time.process_time()
        yield
        self.figures = {
            "cpu_seconds": time.process_time() - start_cpu,
            "seconds": time.perf_counter() - start,
            "requests": store.requests - before[0],
            "at_once": store.at_once,
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


def _searched() -> SearchedFiles:
    return SearchedFiles(in_partitions=False, indexed_from=1)


def _look(table: Table, searched: SearchedFiles) -> None:
    """Look as a batch by key does before its tasks begin."""
    look(table.head)
    searched.at(table.head, key_index(table))


def _keys_later(location: Path, far_seconds: float) -> dict[str, Any]:
    measured, searched = Measured(CountingStore(str(location), far_seconds)), _searched()
    table = Table.open(measured.store)
    _look(table, searched)
    taken = []
    for _ in range(_LATER):
        _append_one(table, time.time_ns() % 10**9)
        with measured.taken():
            _look(table, searched)
        taken.append(measured.figures)
    return {name: statistics.median(it[name] for it in taken) for name in taken[0]}


def _doctor(location: Path, far_seconds: float) -> dict[str, Any]:
    measured = Measured(WholeStore(str(location), far_seconds))
    with measured.taken():
        found = doctor(measured.store)
    assert found.healthy, found.text()
    return measured.figures


def _orphans(location: Path, far_seconds: float) -> dict[str, Any]:
    measured = Measured(WholeStore(str(location), far_seconds))
    with measured.taken():
        remove_orphan_files(Table.open(measured.store), dry_run=True)
    return measured.figures


def _expiry(location: Path, far_seconds: float) -> dict[str, Any]:
    """Plan the expiry, and look for what the newest snapshot alone reaches, as if it had expired and other
    engines had commits: that asks all other snapshots, and believes no copy of a manifest.
    """
    measured = Measured(CountingStore(str(location), far_seconds))
    with measured.taken():
        table = Table.open(measured.store)
        expire_snapshots(table, max_snapshots=1, min_snapshots_to_keep=1, dry_run=True)
        head = table.head
        *kept, newest = head.metadata.snapshots
        earlier = head.metadata.model_copy(update={"snapshots": kept})
        note = Note(head.number, "", (SnapshotRecord.of(newest),), SnapshotRecord.of(kept[-1]))
        without = replace(head, version=replace(head.version, metadata=earlier))
        assert find_unreached(table.log.manifest_files, without, [note], ())
    return measured.figures


def _changes(head: Head) -> None:
    """Look at what the last ten versions have changed."""
    assert changed_pieces(head, head.number - _LATER + 1, head.number, lambda _: {})


def _cluster(head: Head, *selected: PlanStrategy) -> None:
    """Plan a pass that sorts small files by the key, and find the files of its plan."""
    policy = ClusteringPolicy(sort_by=KEY, small_file_bytes=SMALL_FILE_BYTES, select=(BySize(), *selected))
    _plan(head, policy)


def _cluster_all(head: Head, sort_by: Sequence[str]) -> None:
    """Plan the first pass, with default sizes, over files none of which was clustered before."""
    _plan(head, ClusteringPolicy(sort_by=sort_by))


def _plan(head: Head, policy: ClusteringPolicy) -> None:
    known = known_files(head, policy, {}, enough_bytes=1024 * MIB)
    plan = plan_clustering(known.files, 0, policy)
    assert not any(group.dropped for group in match_groups(head, plan, has_keys=False))


_SIZING = FileSizing()

STEPS: dict[str, Callable[[Path, float], dict[str, Any]]] = {
    "first": _first,
    "later": _later,
    "fills 1": _fills_in(1),
    "fills": _fills_in(100),
    "fills 1,000": _fills_in(1_000),
    "keys": _looking(lambda table: _look(table, _searched())),
    "keys later": _keys_later,
    "cluster": _looking(lambda table: _cluster(table.head)),
    "cluster where": _looking(lambda table: _cluster(table.head, partitions_where(table.head, _WHERE))),
    "sort all": _looking(lambda table: _cluster_all(table.head, KEY)),
    "join all": _looking(lambda table: _cluster_all(table.head, ())),
    "status": _looking(lambda table: status_of(table.head, (), _SIZING.small_file_bytes, 0)),
    "describe": _looking(lambda table: describe(table.head, _SIZING)),
    "changes": _looking(lambda table: _changes(table.head)),
    "doctor": _doctor,
    "orphans": _orphans,
    "expiry": _expiry,
}
"""By their names."""
