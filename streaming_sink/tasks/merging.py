"""A fill inside a task: the rows of small files and the new rows, in one file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from planners.model import Bucket
from streaming_sink.tasks.batches import by_field_id, conform
from streaming_sink.tasks.dictionaries import DictionaryChoice
from streaming_sink.tasks.job import Merge, MergeSkipped, WorkerJob, WrittenFile
from streaming_sink.tasks.metrics import FIELD_ID, Leaf
from streaming_sink.tasks.parquet_file import ParquetFile

_GROUP_BYTES = 64 * 1024 * 1024
"""Arrow bytes of a row group of a merged file. With the batches that feed it, this is what a merge holds."""
_READ_ROWS = 64 * 1024


class _CannotMergeError(Exception):
    """The inputs cannot be merged; the new rows stand on their own."""


def merge(
    job: WorkerJob,
    columns: tuple[Leaf, ...],
    open_files: set[ParquetFile],
    bucket: Bucket,
    index: int,
    new: WrittenFile,
    rows: list[pa.RecordBatch] | None,
    path: str,
) -> Merge | MergeSkipped:
    """Write the rows of `bucket.inputs`, then those of `new`, to `path`; only missing or unfit inputs skip
    it.

    `rows` are the rows of `new` where they are still in memory; otherwise they are read back from the store.
    """
    file = ParquetFile(job, columns, DictionaryChoice(columns), path)
    open_files.add(file)
    try:
        held: list[pa.RecordBatch] = []
        held_bytes = 0
        limit = min(job.parquet.row_group_bytes, _GROUP_BYTES)
        for batch in _all_rows(job, bucket, new, rows):
            if held and held_bytes + batch.nbytes > limit:
                file.write(pa.Table.from_batches(held))
                held, held_bytes = [], 0
            held.append(batch)
            held_bytes += batch.nbytes
        file.write(pa.Table.from_batches(held, schema=job.schema))
        merged = file.close(new.partition, index)
    except (FileNotFoundError, _CannotMergeError) as error:
        file.abort()
        open_files.discard(file)
        return MergeSkipped(bucket.inputs, new.path, _reason(error))
    open_files.discard(file)
    if merged.rows != new.rows + bucket.input_rows:
        job.store.delete([path])
        said = "a file to fill holds more or fewer rows than the table says"
        reason = f"{said}: {merged.rows - new.rows} != {bucket.input_rows}"
        return MergeSkipped(bucket.inputs, new.path, reason)
    return Merge(bucket.inputs, new.path, merged)


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"a file to fill is gone, another writer replaced it: {error}"
    return str(error)


def _all_rows(
    job: WorkerJob, bucket: Bucket, new: WrittenFile, rows: list[pa.RecordBatch] | None
) -> Iterator[pa.RecordBatch]:
    for uri in bucket.inputs:
        rows_of = _file_rows(job, uri)
        while True:
            try:
                batch = next(rows_of, None)
            except FileNotFoundError:
                raise
            except (pa.ArrowException, OSError) as damage:
                raise _CannotMergeError(f"a file to fill cannot be read: {uri}: {damage}") from damage
            if batch is None:
                break
            yield batch
    if rows is None:
        yield from _file_rows(job, new.path)
    else:
        yield from rows


def _file_rows(job: WorkerJob, uri: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one data file in the table's current schema, matched by field id."""
    source: Any = job.store.open_input(job.store.relative(uri))
    try:
        reader = pq.ParquetFile(pa.PythonFile(source, mode="r"))
        _require_field_ids(job, reader.schema_arrow, uri)
        for batch in reader.iter_batches(batch_size=_READ_ROWS):
            yield conform(batch, job.schema, by_field_id)
    finally:
        source.close()


def _require_field_ids(job: WorkerJob, schema: pa.Schema, uri: str) -> None:
    present = {(field.metadata or {}).get(FIELD_ID) for field in schema}
    if None in present:
        raise _CannotMergeError(f"a file to fill has columns without field ids: {uri}")
    for field in job.partition_by:
        top = job.schema.field(field.source[0])
        if top.metadata[FIELD_ID] not in present:
            raise _CannotMergeError(f"a file to fill keeps a partition column only in its path: {uri}")
