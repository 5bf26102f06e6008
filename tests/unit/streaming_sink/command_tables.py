"""Tables in memory that the commands are shown, each the same in every run: empty, partitioned, clustered."""

from __future__ import annotations

from pyiceberg.manifest import DataFile
from pyiceberg.typedef import Record

from streaming_sink.batch.report import BatchReport
from tests.unit.timeline.plans import plan_of
from tests.unit.timeline.world import Lake, data_file
from timeline import names
from timeline.commit.changes import Append, Replace
from timeline.plans import instants
from timeline.plans.clustering import CLUSTERING
from timeline.versions.transactions import Transaction

MIB = 1 << 20
MINUTE_MS = 60_000


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
        instants.schedule(lake.table, plan_of(CLUSTERING, group), CLUSTERING)
        for group in ((files[0], files[4]), (files[1],), (files[3],), (files[5],))
    )
    lake.table.refresh()
    lake.clock.now_ms += MINUTE_MS
    instants.claim(lake.table, inflight)
    instants.cancel(lake.table, cancelled)
    lake.store.delete([f"_timeline/clustering/{lost}-requested.avro"])
    return lake


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
