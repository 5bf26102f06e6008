"""Runs inside a Spark task: one group's files in, sorted files of the target size out.

A new Python worker pays for every import: nothing here imports pyiceberg.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pyarrow as pa

from streaming_sink.tasks import fast_workers
from streaming_sink.tasks.batches import conform
from streaming_sink.tasks.clustering.checksum import checksum
from streaming_sink.tasks.clustering.job import (
    GroupFailed,
    GroupJob,
    GroupResult,
    GroupWritten,
    Input,
    encode,
)
from streaming_sink.tasks.clustering.rows import GroupRows, GroupUnfitError, file_rows
from streaming_sink.tasks.dictionaries import DictionaryChoice
from streaming_sink.tasks.encryption import KeysError
from streaming_sink.tasks.job import RESULT_COLUMN, WrittenFile
from streaming_sink.tasks.metrics import leaves
from streaming_sink.tasks.parquet_file import ParquetFile
from streaming_sink.tasks.partitioning import partition_path
from timeline.errors import StoreUnavailableError
from timeline.names import DATA_FOLDER, clustered_file_name, data_file_name, rewritten_file_name, ulid

_ROW_GROUP_SHARE = 8
"""A row group takes this part of the task's memory as Arrow, while sorting goes on."""


def rewrite(job: GroupJob, attempt: int) -> GroupResult:
    """Write the rows of the group's files to new ones, in the order of its strategy.

    A group that cannot be rewritten, or whose rows would change, leaves no file behind, and the reason. Where
    the group is rewritten file by file, `WrittenFile.bucket` is the number of the input.
    """
    return _file_by_file(job, attempt) if job.file_by_file else _together(job, attempt)


def _file_by_file(job: GroupJob, attempt: int) -> GroupResult:
    done: list[GroupWritten] = []
    for number, given in enumerate(job.inputs):
        one = replace(job, inputs=(given,), rows_per_file=max(1, given.rows), sorted_by=given.sorted_by)
        try:
            result = _together(one, attempt)
        except BaseException:
            _delete(job, done)
            raise
        if isinstance(result, GroupFailed):
            _delete(job, done)
            return result
        done.append(replace(result, files=tuple(replace(file, bucket=number) for file in result.files)))
    return GroupWritten(
        files=tuple(file for each in done for file in each.files),
        seconds=sum(each.seconds for each in done),
        cpu_seconds=sum(each.cpu_seconds for each in done),
        spilled_bytes=sum(each.spilled_bytes for each in done),
    )


def _delete(job: GroupJob, done: Iterable[GroupWritten]) -> None:
    store = job.worker.store
    with suppress(StoreUnavailableError):
        store.delete([store.relative(file.path) for each in done for file in each.files])


def _together(job: GroupJob, attempt: int) -> GroupResult:
    started, cpu_started = time.perf_counter(), time.process_time()
    group = GroupRows(job)
    files = _Files(job, attempt, group)
    try:
        for batch in job.strategy.rewrite(group):
            files.write(batch)
        written = files.finish()
        _check_rows(job, group, written)
    except (GroupUnfitError, KeysError) as unfit:
        files.abort()
        return GroupFailed(str(unfit))
    except BaseException:
        files.abort()
        raise
    return GroupWritten(
        files=written,
        seconds=time.perf_counter() - started,
        cpu_seconds=time.process_time() - cpu_started,
        spilled_bytes=group.counts.spilled_bytes,
        ranges=group.ranges,
    )


def _check_rows(job: GroupJob, group: GroupRows, written: tuple[WrittenFile, ...]) -> None:
    """The new files hold the rows of the old ones: as many always, the very same where that was asked for."""
    rows = sum(file.rows for file in written)
    if rows != group.share_rows:
        raise GroupUnfitError(
            f"strategy {job.strategy_name!r} returned other rows than it was given: {rows:,} instead of"
            f" {group.share_rows:,}; nothing of the group is published"
        )
    if not job.checksum:
        return
    before = checksum(group.share())
    outputs = [Input(file.path, file.rows, file.key_metadata is not None) for file in written]
    after = checksum(batch for given in outputs for batch in file_rows(job, given))
    if before != after:
        raise GroupUnfitError(
            f"strategy {job.strategy_name!r} returned other rows than it was given: as many, with checksum"
            f" {after:016x} instead of {before:016x}; nothing of the group is published"
        )


class _Files:
    """Takes the rows in their final order, and cuts them into files at a number of rows."""

    def __init__(self, job: GroupJob, attempt: int, group: GroupRows) -> None:
        self._job = job
        self._attempt = attempt
        self._group = group
        self._columns = leaves(job.worker.schema)
        self._dictionaries = DictionaryChoice(self._columns)
        self._limit = min(job.worker.parquet.row_group_bytes, job.memory_bytes // _ROW_GROUP_SHARE)
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._rows = 0
        self._file: ParquetFile | None = None
        self._written: list[WrittenFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        # A strategy of a user's own may have moved columns: bounds go by place.
        batch = conform(batch, self._job.worker.schema)
        limit = self._rows_per_file()
        while batch.num_rows:
            rows = min(batch.num_rows, limit - self._rows)
            self._hold(batch.slice(0, rows))
            batch = batch.slice(rows)
            if self._rows == limit:
                self._close()

    def _rows_per_file(self) -> int:
        """A range has about as many rows as was asked for: they are spread evenly over its files."""
        job = self._job
        if not job.cuts or (job.has_remainder and job.part == len(job.cuts)):
            return job.rows_per_file
        files = max(1, round(self._group.share_rows / job.rows_per_file))
        return -(-self._group.share_rows // files)

    def _hold(self, batch: pa.RecordBatch) -> None:
        if self._held and self._held_bytes + batch.nbytes > self._limit:
            self._flush()
        self._held.append(batch)
        self._held_bytes += batch.nbytes
        self._rows += batch.num_rows

    def _flush(self) -> None:
        if self._file is None:
            self._file = ParquetFile(
                self._job.worker, self._columns, self._dictionaries, self._new_path(), self._job.sorted_by
            )
        self._file.write(pa.Table.from_batches(self._held))
        self._held, self._held_bytes = [], 0

    def _new_path(self) -> str:
        group, job = self._job, self._job.worker
        folder = partition_path(group.partition, job.partition_by, job.schema)
        file_id = ulid(job.ids.time_ms, int.from_bytes(os.urandom(10), "big"))
        place = group.index, len(self._written), self._attempt
        if group.file_by_file:
            name = rewritten_file_name(group.inputs[0].path, file_id, job.ids.app_id, *place)
        elif group.order is None:
            name = data_file_name(file_id, job.ids.app_id, *place)
        else:
            name = clustered_file_name(file_id, group.order, group.level, *place)
        return "/".join(part for part in (DATA_FOLDER, folder, name) if part)

    def _close(self) -> None:
        self._flush()
        assert self._file is not None
        self._written.append(self._file.close(self._job.partition, len(self._written)))
        self._file, self._rows = None, 0

    def finish(self) -> tuple[WrittenFile, ...]:
        """Write what is left, and return the files."""
        if self._rows:
            self._close()
        return tuple(self._written)

    def abort(self) -> None:
        """Delete what was written, half or whole, best effort."""
        if self._file is not None:
            self._file.abort()
        store = self._job.worker.store
        with suppress(StoreUnavailableError):
            store.delete([store.relative(file.path) for file in self._written])


@contextmanager
def _system_memory() -> Iterator[None]:
    """Let Arrow take its memory from the system, which has pages at hand that were used before.

    Its usual pool gives large pieces back, and faults them in anew: sorting is 10 to 20 % slower so. The
    worker goes on with other tasks afterwards, in the usual one.
    """
    usual = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(usual)


class ClusterTask:
    """What `DataFrame.mapInArrow` is given: rewrites its group, whatever rows come."""

    def __init__(self, job: GroupJob) -> None:
        self._job = job

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        fast_workers.switch(self._job.worker.fast_workers)
        context = TaskContext.get()
        assert context is not None
        for _ in batches:
            with _system_memory():
                result = encode(rewrite(self._job, context.taskAttemptId()))
            yield pa.RecordBatch.from_arrays([pa.array([result], pa.binary())], names=[RESULT_COLUMN])
