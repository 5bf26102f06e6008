"""Files that are merged, with and without decoding, and where their pages are, byte by byte."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from planners.model import InputFile
from streaming_sink.tasks.files.data_file_writer import DataFileWriter
from streaming_sink.tasks.files.dictionaries import DictionaryChoice
from streaming_sink.tasks.files.metrics import ColumnMetrics
from streaming_sink.tasks.job import FileIds, ParquetSettings, TaskBuckets, WorkerJob
from streaming_sink.tasks.leaves import leaves
from streaming_sink.tasks.row_groups.compact import decode_struct
from streaming_sink.tasks.rows.fill_task import Fill, Filled, execute_fill
from timeline.clock import SYSTEM
from timeline.stores.memory import MemoryStore

COPIES, DECODES = 1, 1 << 40


def job_of(schema, metrics="truncate(16)", **settings):
    return WorkerJob(
        store=MemoryStore(),
        schema=schema,
        partition_by=(),
        parquet=ParquetSettings(**{"copied_from_bytes": COPIES, **settings}),
        metrics={leaf.field_id: metrics for leaf in leaves(schema)},
        ids=FileIds(1_700_000_000_000, "fill", 0),
        tasks={},
        shared=TaskBuckets(),
        rows_per_new_file=1 << 30,
        max_file_bytes=1 << 30,
    )


def written(job, *groups):
    """Write a file with these tables as its row groups."""
    columns = leaves(job.schema)
    path = f"data/{SYSTEM.new_id(1)}.parquet"
    file = DataFileWriter(job, columns, DictionaryChoice(columns), path)
    for group in groups:
        file.write(group)
    return file.close((), 0)


def metrics_of(*files, nans=True):
    """Return what manifests state of files; NaNs where they do."""
    return {
        it.path: ColumnMetrics(
            nulls=it.null_counts,
            nans=it.nan_counts if nans else {},
            lower=it.lower_bounds,
            upper=it.upper_bounds,
        )
        for it in files
    }


def merged(job, *files, nans=True, cuts=()):
    """Merge files, whose manifests state bounds, and NaNs where they do, into one."""
    job = replace(job, stated=metrics_of(*files, nans=nans))
    inputs = tuple(InputFile(it.path, it.rows) for it in files)
    done = execute_fill(job, Fill(0, (), (), inputs, cuts), attempt=0)
    assert isinstance(done, Filled), done
    return done.files


def decoded(job, *files):
    """The same merge, where every row is decoded."""
    [file] = merged(replace(job, parquet=replace(job.parquet, copied_from_bytes=DECODES)), *files)
    return file


def stored(job, file):
    data = job.store.read(job.store.relative(file.path)).data
    assert len(data) == file.bytes
    return data


def rows_of(job, *files):
    tables = [pq.ParquetFile(pa.BufferReader(stored(job, it))).read() for it in files]
    return pa.concat_tables(tables).to_pylist()


def walk(data):
    """Yield the pages of each column chunk, as (offset, bytes): found one by one, and by its offset index."""
    footer, _ = decode_struct(data[-8 - int.from_bytes(data[-8:-4], "little") : -8])
    for group in footer[4].value.items:
        for chunk in group[1].value.items:
            meta = chunk[3].value
            at = meta.get(11, meta[9]).value
            end, pages = at + meta[7].value, []
            while at < end:
                header, body = decode_struct(data, at)
                size = body + header[3].value - at
                if header[1].value != 2:  # a dictionary
                    pages.append((at, size))
                else:
                    assert at == meta[11].value
                at += size
            assert at == end
            assert pages[0][0] == meta[9].value
            index, _ = decode_struct(data, chunk[4].value)
            yield pages, [(it[1].value, it[2].value) for it in index[1].value.items]
