"""Changes of rows in thousands of data files: requests and files of a batch, a look and a pass stay few."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.typedef import Record

from planners.fills import FillPlan
from planners.folds import DELETE_FILES_AT_MOST
from planners.shared_deletes import DELETE_FILES_A_BATCH, SHARED_RUNS_AT_MOST
from streaming_sink.keyed.key_resolution import look, resolve_again
from streaming_sink.keyed.row_deletes import RowDeletes
from streaming_sink.options.table_options import SinkOptions
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.spec import partition_sources
from streaming_sink.tasks.files.delete_files import read_deletes_of
from streaming_sink.tasks.files.delete_merging import DeletesMerged, RunMerge, merge_shared_deletes
from streaming_sink.tasks.job import FileIds, ParquetSettings, TaskBuckets, WorkerJob
from streaming_sink.upkeep import fills
from streaming_sink.upkeep.fill_portions import divide, sharing_files
from streaming_sink.upkeep.fills import commit_merges, plan_merges
from tests.sinks import flat_options
from tests.tiers import count, longer_in_soak
from tests.unit.streaming_sink.keyed.test_by_key import changes_by_key, no_keys, target_of
from tests.unit.timeline.world import Lake, data_file
from timeline.changes.changes import Append, Change
from timeline.changes.row_deltas import RowDelta
from timeline.manifests.entries import LiveFile
from timeline.plans.reservations import Reservations

FILES = count(3_000, 10_000)
ROWS = 20_000


class Ocean(Lake):
    """A lake of thousands of data files, which exist in manifests only; its delete files are there."""

    def __init__(self, partitions: int = 1) -> None:
        super().__init__()
        self.files: list[DataFile] = []
        for number in range(FILES):
            p = number % partitions
            location = self.store.uri(f"data/p={p}/{number:06}.parquet")
            self.files.append(data_file(location, ROWS, partition=Record(p), size=2**27))
        self.table.commit([Append(tuple(self.files))])
        self.store.count()

    def delete(self, *rows: int, number: int = 1) -> int:
        """Commit a batch that deletes these rows of every data file; return how many delete files it made."""
        ids = FileIds(self.clock.now_ms, "app", number)
        positions = {file.file_path: np.array(rows) for file in self.files}
        before = look(self.table.head).leaving(positions)
        deletes = RowDeletes(self.store, ids, ParquetSettings()).write(before.live, positions)
        self.table.commit([RowDelta((self.file(p=0, size=2**27),), tuple(deletes), before.applied)])
        return len(deletes)

    def options(self) -> SinkOptions:
        return flat_options("/lake/ocean", {"fill": "beside"})

    def plan(self) -> FillPlan:
        return plan_merges(self.table.head, [(0, (0,))], self.options(), {})

    def run_pass(self, plan: FillPlan) -> int:
        """Carry out the merges of runs of a pass as its tasks do; return how many delete files they made."""
        head = self.table.head
        sources = {0: partition_sources(head.schema, head.spec)}
        [portion] = divide(plan, 1, sources, sharing=sharing_files(head, plan, 0.2))
        job = WorkerJob(
            store=self.store,
            schema=arrow_schema(head.schema),
            partition_by=(),
            parquet=ParquetSettings(),
            metrics={},
            ids=FileIds(self.clock.now_ms, "fill", 0),
            tasks={},
            shared=TaskBuckets(),
            rows_per_new_file=1,
            max_file_bytes=1,
        )
        changes: list[Change] = []
        for each in portion:
            assert isinstance(each, RunMerge)
            done = merge_shared_deletes(job, each, 0)
            assert isinstance(done, DeletesMerged)
            changes.append(fills._merge_of_deletes(plan, done))
        published = commit_merges(self.table, changes, 0, 10**7, Reservations(self.store))  # type: ignore[arg-type]
        assert published.problems == ()
        return sum(len(change.rewritten_files) for change in changes)

    def delete_files(self) -> int:
        return sum(1 for _ in self.table.head.delete_files())

    def deleted(self) -> Mapping[str, np.ndarray]:
        find = self.table.head.deletes_of
        known = {it.location: [each.location for each in find(it)] for it in self.live_data()}
        return read_deletes_of(self.store, known)

    def live_data(self) -> list[LiveFile]:
        return [file for file in self.table.head.live_files() if file.rows == ROWS]


@pytest.fixture(scope="module")
def ocean() -> Ocean:
    return Ocean()


@longer_in_soak
def test_batches_and_passes_over_thousands_of_data_files_make_few_files_and_requests(ocean: Ocean) -> None:
    for number in range(SHARED_RUNS_AT_MOST + 1):
        assert ocean.delete(number, number + 100, number=number) == DELETE_FILES_A_BATCH
        requests = ocean.store.count()
        assert requests["PUT"] <= DELETE_FILES_A_BATCH + 8
        assert requests["GET"] + requests["LIST"] <= 8
    expected = sorted([*range(SHARED_RUNS_AT_MOST + 1), *range(100, 101 + SHARED_RUNS_AT_MOST)])
    assert all(these.tolist() == expected for these in ocean.deleted().values())
    assert ocean.store.count()["GET"] == ocean.delete_files() == 5 * DELETE_FILES_A_BATCH

    plan = ocean.plan()
    assert (len(plan.run_merges), plan.delete_merges, plan.fills) == (1, (), ())
    assert ocean.run_pass(plan) == DELETE_FILES_A_BATCH
    requests = ocean.store.count()
    assert requests["PUT"] <= DELETE_FILES_A_BATCH + 8
    assert requests["GET"] <= 5 * DELETE_FILES_A_BATCH + 8
    assert ocean.delete_files() == DELETE_FILES_A_BATCH
    assert all(these.tolist() == expected for these in ocean.deleted().values())
    assert ocean.plan().is_empty
    head = ocean.table.head
    assert max(len(head.deletes_of(file)) for file in ocean.live_data()) <= DELETE_FILES_AT_MOST


def test_a_second_look_reads_each_delete_file_once() -> None:
    ocean = Ocean()
    write = changes_by_key().begin(target_of(ocean.table))
    positions = {file.file_path: np.array([7, 8]) for file in ocean.files}
    before = write.resolution.leaving(positions)
    ocean.delete(8)
    ocean.store.count()
    keys = no_keys(write)
    head = ocean.table.head
    now = resolve_again(ocean.store, before, head, keys)
    assert ocean.store.count()["GET"] <= DELETE_FILES_A_BATCH + 1
    assert all(now.positions[file.file_path].tolist() == [7] for file in ocean.files)


def test_each_partition_that_rows_leave_has_a_delete_file_at_least() -> None:
    ocean = Ocean(partitions=500)
    assert ocean.delete(3) == 500
    assert {it.partition for it in ocean.table.head.delete_files()} == {(p,) for p in range(500)}
