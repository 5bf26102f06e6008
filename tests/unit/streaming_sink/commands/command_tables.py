"""Tables in memory that the commands are shown, each the same in every run: empty, partitioned,
repartitioned, clustered, quarantined; and one of real files, to purge.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform
from pyiceberg.typedef import Record

from streaming_sink.checks.quarantine_table import QUARANTINE_SCHEMA
from streaming_sink.reports.batch_report import BatchReport
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.data_files import data_file as written_data_file
from streaming_sink.tasks.job import FileIds, ParquetSettings, Sieve, SiftedCheck, TaskBuckets, WorkerJob
from streaming_sink.tasks.results import Sifted
from streaming_sink.tasks.rows.failures import FAILED, REPLAYED
from streaming_sink.tasks.rows.sieve import SiftingWriter
from streaming_sink.tasks.rows.write_task import TaskWriter
from tests.unit.timeline.plans import plan_of
from tests.unit.timeline.world import Lake, data_file
from timeline import names
from timeline.changes.changes import Append, Replace, SetProperties
from timeline.changes.outbox_changes import PutOutbox
from timeline.changes.schema_changes import SetPartitioning
from timeline.outbox import deliver_all, register_main
from timeline.plans import instants
from timeline.plans.clustering import CLUSTERING
from timeline.stores import MemoryStore
from timeline.table import Table
from timeline.versions.outbox import Delivery
from timeline.versions.transactions import Transaction

MIB = 1 << 20
MINUTE_MS = 60_000
_KEPT: list[Table] = []
"""A store in memory ends with its last user, and `Lake` keeps only that of the main table."""


def empty() -> Lake:
    return Lake()


def partitioned() -> Lake:
    """Three batches of `events`, a minute apart, the last with a merge, and one of `backfill` in between."""
    lake = Lake(table_properties={"write.parquet.compression-codec": "zstd"})
    first = [lake.file(1000, p=0, size=10 * MIB), lake.file(500, p=1, size=5 * MIB)]
    land(lake, "events", 0, *first)
    second = lake.file(1000, p=0, size=10 * MIB)
    land(lake, "events", 1, second)
    land(lake, "backfill", 7, lake.file(12_000, p=2, size=118 * MIB), lake.file(9_000, p=2, size=105 * MIB))
    last = lake.file(2000, p=0, size=20 * MIB)
    merged = lake.merged(first[0], second, last, size=130 * MIB)
    replace = Replace(frozenset(it.file_path for it in (first[0], second, last)), (merged,))
    why = "a fill was dropped: not live"
    land(lake, "events", 2, last, replace=replace, why=why)
    return lake


def repartitioned() -> Lake:
    """Files of a spec by `p`, and of one by buckets of `id` since."""
    lake = Lake()
    land(lake, "events", 0, lake.file(1000, p=0, size=10 * MIB), lake.file(500, p=1, size=5 * MIB))
    bucket = PartitionField(1, 0, BucketTransform(8), "id_bucket")
    lake.table.commit([SetPartitioning(PartitionSpec(bucket), "events")])
    later = data_file(
        lake.file(700).file_path.replace("p=0", "id_bucket=3"), 700, partition=Record(3), size=7 * MIB
    )
    later.spec_id = 1
    land(lake, "events", 1, later)
    # After an append alone the properties have the lengths of its manifests, which differ from run to run.
    lake.table.commit([SetProperties({"owner": "events"})])
    return lake


def clustered() -> Lake:
    """Files that are sorted, encrypted and with deletes; a plan of each state, one of them lost."""
    lake = Lake()
    curve = names.clustered_file_name(names.ulid(lake.clock.now_ms, 0), "zorder(id)", 1, 0, 0, 0)
    files = [
        *(lake.file(100 * (n + 1), p=n % 2, size=(n + 1) * MIB) for n in range(4)),
        data_file(
            lake.store.uri("data/p=0/sorted.parquet"),
            500,
            partition=Record(0),
            size=5 * MIB,
            sort_order_id=1,
        ),
        data_file(
            lake.store.uri(f"data/p=1/{curve}"), 600, partition=Record(1), size=6 * MIB, key_metadata=b"key"
        ),
    ]
    land(lake, "events", 0, *files)
    lake.add_delete_file(0, paths=(files[2].file_path, files[2].file_path), rows=7)
    _, inflight, cancelled, lost = (
        instants.schedule_plan(lake.table, plan_of(CLUSTERING, group), CLUSTERING)
        for group in ((files[0], files[4]), (files[1],), (files[3],), (files[5],))
    )
    lake.table.refresh()
    lake.clock.now_ms += MINUTE_MS
    instants.claim_plan(lake.table, inflight)
    instants.cancel_plan(lake.table, cancelled)
    lake.store.delete([f"_timeline/clustering/{lost}-requested.avro"])
    return lake


def people() -> Lake:
    """Two batches of real files."""
    lake = Lake()
    schema = arrow_schema(lake.table.head.schema)
    for batch, ids in enumerate(([1, 2], [3])):
        file = lake.file(ids, p=0)
        rows = pa.table({"id": ids, "p": [0] * len(ids)}, schema=schema)
        with lake.store.open_output(lake.store.relative(file.file_path)) as output:
            pq.write_table(rows, output)
        land(lake, "events", batch, file)
    return lake


def quarantined() -> Lake:
    """Two batches with rows that failed, of which the second is not delivered, and one row replayed."""
    lake = Lake()
    place = f"{lake.name}__quarantine"
    second = Table.create(
        MemoryStore(place), QUARANTINE_SCHEMA, environment=lake.clock.environment(9), store_is_checked=True
    )
    _KEPT.append(second)
    register_main(second, lake.table)
    row_ids = pa.array(["01JXT0000000000000000000A0-0"])
    for batch, failed in enumerate(([[0], [1], [0, 1]], [[0]])):
        lake.clock.now_ms += MINUTE_MS
        rows = {"id": range(-len(failed), 0), "price": [None if 1 in each else -1 for each in failed]}
        _set_aside(lake, second, "events", batch, rows, failed)
        if not batch:
            deliver_all(lake.table, lambda _: second)
            lake.clock.now_ms += MINUTE_MS
            rows = {"id": [1], "price": [1], REPLAYED: row_ids}
            _set_aside(lake, second, "replay-1", 0, rows, [None])
    return lake


def _set_aside(
    lake: Lake, second: Table, app_id: str, batch: int, rows: dict[str, Any], failed: list[list[int] | None]
) -> None:
    """Commit a batch whose failing rows are in real files of the quarantine, and deliver nothing."""
    head = lake.table.head
    job = WorkerJob(
        store=second.store,
        schema=arrow_schema(QUARANTINE_SCHEMA),
        partition_by=(),
        parquet=ParquetSettings(),
        metrics={},
        ids=FileIds(lake.clock.now_ms, app_id, batch),
        tasks={},
        shared=TaskBuckets(),
        rows_per_new_file=1000,
        max_file_bytes=MIB,
    )
    checks = (SiftedCheck("id >= 0", "quarantine", "id"), SiftedCheck("price IS NOT NULL", "quarantine"))
    sieve = Sieve(checks, ("id", "price"), "query", job, None, str(head.metadata.table_uuid))
    table = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
    main = TaskWriter(replace(job, store=MemoryStore(f"{lake.name}-unused"), schema=table), 0, 0)
    writer = SiftingWriter(main, TaskWriter(job, 0, 0), sieve, f"01JXT0000000000000000000A{batch}")
    verdicts = [None if each is None else "".join(f"{number}," for number in each) for each in failed]
    writer.write(pa.RecordBatch.from_pydict({**rows, FAILED: pa.array(verdicts, pa.string())}))
    files = tuple(
        written_data_file(file, second.head.spec)
        for each in writer.finish()
        if isinstance(each, Sifted)
        for file in each.files
    )
    location, uuid = second.head.metadata.location, str(second.head.metadata.table_uuid)
    delivery = Delivery(location, uuid, second.head.schema.schema_id, files)
    known = head.outbox(app_id)
    change = PutOutbox(app_id, (delivery,), None if known is None else known.sequence)
    epoch = None if head.transaction(app_id) is None else 1
    lake.table.commit([change], transaction=Transaction(app_id, "query", "run", batch, epoch))


def land(
    lake: Lake, app_id: str, batch: int, *files: DataFile, replace: Replace | None = None, why: str = ""
) -> None:
    """Commit a batch as a sink does, a minute after the commit before."""
    lake.clock.now_ms += MINUTE_MS
    report = BatchReport(
        app_id=app_id,
        batch_id=batch,
        outcome="written",
        why=why,
        rows=sum(file.record_count for file in files),
        new_files=len(files),
        new_bytes=sum(file.file_size_in_bytes for file in files),
        planned_by="forecast",
        route="one task",
        milliseconds={"plan": 1, "write": 90},
    )
    changes = [Append(files), *([replace] if replace else [])]
    transaction = Transaction(app_id, f"query of {app_id}", "run", batch)
    if lake.table.head.transaction(app_id) is not None:
        transaction = Transaction(app_id, f"query of {app_id}", "run", batch, epoch=1)
    lake.table.commit(changes, transaction=transaction, summary=report.to_summary())
