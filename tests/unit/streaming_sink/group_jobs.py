"""One clustering group of made-up rows in a store, and the job that rewrites it, without Spark."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from planners.clustering.sort_fields import SortField
from planners.clustering.strategies import Strategy
from streaming_sink.tasks.clustering.group_task import rewrite_group
from streaming_sink.tasks.clustering.job import GroupJob, GroupWritten, Input
from streaming_sink.tasks.clustering.strategies import make_strategy
from streaming_sink.tasks.files.data_file_writer import DataFileWriter
from streaming_sink.tasks.files.dictionaries import DictionaryChoice
from streaming_sink.tasks.job import FileIds, ParquetSettings, TaskBuckets, WorkerJob
from streaming_sink.tasks.leaves import leaves

MIB = 1024 * 1024


def arrow_field(name, kind, number, nullable=True):
    return pa.field(name, kind, nullable=nullable, metadata={"PARQUET:field_id": str(number)})


SCHEMA = pa.schema(
    [
        arrow_field("id", pa.int64(), 1),
        arrow_field("score", pa.float64(), 2),
        arrow_field("text", pa.string(), 3),
        arrow_field("at", pa.timestamp("us"), 4),
        arrow_field("day", pa.date32(), 5),
        arrow_field("price", pa.decimal128(12, 2), 6),
        arrow_field("ok", pa.bool_(), 7),
        arrow_field("place", pa.struct([arrow_field("town", pa.string(), 9)]), 8),
        arrow_field("tags", pa.list_(arrow_field("element", pa.string(), 11)), 10),
    ]
)


def random_rows(count, seed=0):
    random = Random(seed)

    def maybe(value):
        return None if random.random() < 0.05 else value

    return pa.RecordBatch.from_pylist(
        [
            {
                "id": maybe(random.randrange(-50, 50)),
                "score": maybe(random.choice([random.gauss(0, 1), float("nan"), float("inf"), -0.0, 0.0])),
                "text": maybe(random.choice("aáßz😀") * random.randrange(4)),
                "at": maybe(datetime(2020, 1, 1) + timedelta(hours=random.randrange(5000))),  # noqa: DTZ001
                "day": maybe(date(2020, 1, 1) + timedelta(days=random.randrange(500))),
                "price": maybe(Decimal(random.randrange(-9999, 9999)).scaleb(-2)),
                "ok": maybe(random.random() < 0.5),
                "place": maybe({"town": maybe(random.choice(["Ulm", "Bonn"]))}),
                "tags": maybe([maybe("x")] * random.randrange(3)),
            }
            for _ in range(count)
        ],
        schema=SCHEMA,
    )


def group_job(store, files, *, sort_by=(), strategy="sort", schema=SCHEMA, **more):
    worker = WorkerJob(
        store=store,
        schema=schema,
        partition_by=(),
        parquet=ParquetSettings(),
        metrics={leaf.field_id: "full" for leaf in leaves(schema)},
        ids=FileIds(1_700_000_000_000, "cluster", 0),
        tasks={},
        shared=TaskBuckets(),
        rows_per_new_file=0,
        max_file_bytes=1,
    )
    inputs = []
    for number, rows in enumerate(files):
        columns = leaves(rows.schema)
        made = replace(worker, schema=rows.schema)
        file = DataFileWriter(made, columns, DictionaryChoice(columns), f"data/in-{number}.parquet")
        file.write(pa.Table.from_batches([rows]))
        inputs.append(Input(file.close((), 0).path, rows.num_rows))
    job = GroupJob(
        index=3,
        worker=worker,
        inputs=tuple(inputs),
        partition=(),
        sort_by=tuple(map(SortField.parse, sort_by)),
        strategy_name=strategy,
        strategy=make_strategy(Strategy(strategy), {}),
        rows_per_file=10**9,
        memory_bytes=512 * MIB,
        checksum=True,
    )
    return replace(job, **more)


def written(job):
    """Return the tables that a group's new files hold, as they stand in the store."""
    result = rewrite_group(job, attempt=5)
    assert isinstance(result, GroupWritten), result
    return result, [read_file(job.worker.store, file.path) for file in result.files]


def read_file(store, uri):
    return pq.read_table(pa.BufferReader(store.read(store.relative(uri)).data))


def multiset(tables):
    return Counter(repr(row) for table in tables for row in table.to_pylist())
