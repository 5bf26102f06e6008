"""The group task of clustering: the files of one group in, their rows in a new order in files of the target
size out."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from streaming_sink.tasks.batches import conform
from streaming_sink.tasks.clustering.checksum import checksum
from streaming_sink.tasks.clustering.job import GroupFailed, GroupJob, GroupResult, GroupWritten, Input
from streaming_sink.tasks.clustering.row_strategy import joins
from streaming_sink.tasks.clustering.rows import GroupRows, read_input
from streaming_sink.tasks.errors import DataFileError, GroupUnfitError, KeysError
from streaming_sink.tasks.files.cut_files import CutFiles
from streaming_sink.tasks.files.data_file_writer import DataFileWriter, GroupedFile
from streaming_sink.tasks.files.data_paths import new_data_path
from streaming_sink.tasks.files.dictionaries import DictionaryChoice
from streaming_sink.tasks.leaves import leaves
from streaming_sink.tasks.results import WrittenFile, delete_files, encode_results
from streaming_sink.tasks.spark_task import start_task
from timeline.names import clustered_file_name, data_file_name, rewritten_file_name

_ROW_GROUP_SHARE = 8
"""A row group takes at most this part of the task's memory as Arrow, beside what sorting holds."""


def rewrite_group(job: GroupJob, attempt: int) -> GroupResult:
    """Write the live rows of the group's files to new ones, in the order of its strategy.

    A group that cannot be rewritten, or whose rows would change, returns the reason and leaves no file. If
    the group is rewritten file by file, `WrittenFile.bucket` is the number of the input.
    """
    return _rewrite_file_by_file(job, attempt) if job.file_by_file else _rewrite_together(job, attempt)


def _rewrite_file_by_file(job: GroupJob, attempt: int) -> GroupResult:
    done: list[GroupWritten] = []
    for number, given in enumerate(job.inputs):
        one = replace(job, inputs=(given,), rows_per_file=max(1, given.rows), sorted_by=given.sorted_by)
        try:
            result = _rewrite_together(one, attempt)
        except BaseException:
            delete_files(job.worker.store, _files_of(done))
            raise
        if isinstance(result, GroupFailed):
            delete_files(job.worker.store, _files_of(done))
            return result
        done.append(replace(result, files=tuple(replace(file, bucket=number) for file in result.files)))
    return GroupWritten(
        files=_files_of(done),
        seconds=sum(each.seconds for each in done),
        cpu_seconds=sum(each.cpu_seconds for each in done),
        spilled_bytes=sum(each.spilled_bytes for each in done),
        deleted_rows=sum(each.deleted_rows for each in done),
    )


def _files_of(done: Iterable[GroupWritten]) -> tuple[WrittenFile, ...]:
    return tuple(file for each in done for file in each.files)


def _rewrite_together(job: GroupJob, attempt: int) -> GroupResult:
    started, cpu_started = time.perf_counter(), time.process_time()
    group = GroupRows(job)
    files = _GroupFiles(job, attempt, group)
    try:
        if joins(job.strategy) and not any(given.encrypted for given in job.inputs):
            group.join(files)
        else:
            for batch in job.strategy.rewrite(group):
                files.write(batch)
        written = files.close()
        _check_rows(job, group, written)
    except (DataFileError, GroupUnfitError, KeysError) as unfit:
        files.abort()
        return GroupFailed(str(unfit))
    except BaseException:
        files.abort()
        raise
    finally:
        group.close()
    return GroupWritten(
        files=written,
        seconds=time.perf_counter() - started,
        cpu_seconds=time.process_time() - cpu_started,
        spilled_bytes=group.counts.spilled_bytes,
        ranges=group.ranges,
        deleted_rows=group.deleted_rows,
    )


def _check_rows(job: GroupJob, group: GroupRows, written: tuple[WrittenFile, ...]) -> None:
    """Check that the new files hold the live rows of the old ones: by their number, and by a checksum if the
    job asks for it.
    """
    rows = sum(file.rows for file in written)
    if rows != group.share_rows:
        raise GroupUnfitError(
            f"strategy {job.strategy_name!r} returned other rows than it received: {rows:,} instead of"
            f" {group.share_rows:,}; nothing of the group is published"
        )
    if not job.checksum:
        return
    before = checksum(group.share())
    outputs = [Input(file.path, file.rows, encrypted=file.key_metadata is not None) for file in written]
    after = checksum(batch for output in outputs for batch in read_input(job, output))
    if before != after:
        raise GroupUnfitError(
            f"strategy {job.strategy_name!r} returned other rows than it received: as many, with checksum"
            f" {after:016x} instead of {before:016x}; nothing of the group is published"
        )


class _GroupFiles(CutFiles):
    """The files of a group, cut at a number of rows."""

    def __init__(self, job: GroupJob, attempt: int, group: GroupRows) -> None:
        super().__init__(job.worker.store, job.partition)
        self._job = job
        self._attempt = attempt
        self._group = group
        self._columns = leaves(job.worker.schema)
        self._dictionaries = DictionaryChoice(self._columns)
        self._group_bytes = min(job.worker.parquet.row_group_bytes, job.memory_bytes // _ROW_GROUP_SHARE)

    def write(self, batch: pa.RecordBatch) -> None:
        # A custom strategy may have reordered columns; bounds are by position.
        super().write(conform(batch, self._job.worker.schema))

    @property
    def cuts_left(self) -> tuple[int, ...]:
        """The rows of a range, about as many as planned, are spread evenly."""
        job, limit = self._job, self._job.rows_per_file
        if job.range_ends and not (job.has_remainder and job.part == len(job.range_ends)):
            files = max(1, round(self._group.share_rows / limit))
            limit = -(-self._group.share_rows // files)
        return (limit - self._rows,)

    def _open(self) -> GroupedFile:
        path = new_data_path(self._job.worker, self._job.partition, self._file_name)
        sorted_by = self._job.sorted_by
        file = DataFileWriter(self._job.worker, self._columns, self._dictionaries, path, sorted_by)
        return GroupedFile(file, self._group_bytes)

    def _file_name(self, file_id: str) -> str:
        group, app_id = self._job, self._job.worker.ids.app_id
        number = group.index, len(self._closed), self._attempt
        if group.file_by_file:
            return rewritten_file_name(group.inputs[0].path, file_id, app_id, *number)
        if group.order is None:
            return data_file_name(file_id, app_id, *number)
        return clustered_file_name(file_id, group.order, group.level, *number)


@contextmanager
def _system_memory() -> Iterator[None]:
    """Let Arrow allocate from the system's pool, which reuses pages that are mapped already.

    Arrow's default pool returns large allocations, and faults their pages in again: sorting is 10 to 20 %
    slower with it. Later tasks of the worker use the default pool again.
    """
    usual = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(usual)


class GroupTask:
    """The function that `DataFrame.mapInArrow` runs for one group; the rows that come only start it."""

    def __init__(self, job: GroupJob) -> None:
        self._job = job

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _, attempt = start_task(self._job.worker.fast_workers)
        for _ in batches:
            with _system_memory():
                result = encode_results([rewrite_group(self._job, attempt)])
            yield result
