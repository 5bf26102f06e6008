"""Merges of a sink in a table of a real REST catalog, and what Spark does to the same files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_sink import Clustering, FileSizing, IcebergSink, clustering, history
from streaming_sink.clustering import execution
from tests.servers.catalog_case import Case, tens
from tests.tiers import only_in_soak
from timeline.catalogs.catalog_log import CatalogLog

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.slow]

DAY_SECONDS = 24 * 3600
INLINE = FileSizing(max_file_bytes="64KiB", small_file_bytes="48KiB", fill="inline", fill_policy="always")


def test_inline_fills_are_two_snapshots_of_one_commit_that_others_read(case: Case) -> None:
    filling = case.new_sink(sizing=INLINE)
    reports = [case.land(number, filling) for number in range(6)]
    assert sum(report.merged_files for report in reports) > 0
    assert case.ids() == tens(*range(6))
    assert case.do("SELECT count(*) FROM {t}.files")[0][0] < 6
    found = history(case.table)
    assert [(it.batch_id, it.version) for it in found] == [(it.batch_id, it.version) for it in reports]
    appended = [it for it in case.loaded().snapshots() if it.summary.operation.value == "append"]
    assert len(appended) == 6
    assert case.new_sink(sizing=INLINE)(case.spark.range(0), 5).outcome == "skipped"


@pytest.mark.usefixtures("no_room")
def test_inline_fills_leave_deleted_and_replaced_rows_where_they_are(case: Case) -> None:
    """Each statement comes after the sink's last look: its next batch meets it as a race."""
    filling = case.new_sink(sizing=INLINE)
    for number in range(3):
        case.land(number, filling)
    case.do("DELETE FROM {t} WHERE id = 21")  # copy on write: the input has left
    assert case.land(3, filling).attempts == 2
    case.do("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    case.land(4, filling)
    case.do("DELETE FROM {t} WHERE id = 41")  # by position: the input stays
    dropped = case.land(5, filling)
    assert dropped.dropped_fills == 1
    assert "has deletes that the replace has not applied" in dropped.why
    case.land(6, filling)
    case.do(f"CALL lake.system.rewrite_data_files('{case.name}')")
    for number in range(7, 12):
        case.land(number, filling)
    assert case.ids() == [it for it in tens(*range(12)) if it not in (21, 41)]
    assert case.do("SELECT count(*) FROM {t}.files")[0][0] < 9


def test_an_inline_fill_leaves_alone_what_it_cannot_read_and_fills_the_others(case: Case) -> None:
    case.do("CREATE TABLE {t} (id BIGINT, by STRING)")
    path = str(case.catalog.warehouse / f"{case.name}.parquet")
    pq.write_table(pa.table({"id": [1000], "by": ["theirs"]}), path)
    case.loaded().add_files([path])
    case.do("ALTER TABLE {t} SET TBLPROPERTIES ('write.format.default'='orc')")
    case.do("INSERT INTO {t} VALUES (1001, 'theirs')")
    filling, reports = case.new_sink(sizing=replace(INLINE, fill_policy="amortized")), list[Any]()
    for number in range(20):
        reports.append(case.land(number, filling))
    assert sum("has no field ids" in it.why for it in reports) == 1
    assert sum("cannot be read" in it.why for it in reports) == 1
    assert sum(it.merged_files for it in reports) > 0
    assert case.ids() == [*tens(*range(20)), 1000, 1001]
    assert path in {row[0].removeprefix("file:") for row in case.do("SELECT file_path FROM {t}.files")}


CLUSTERED = {
    "sort_by": ["id"],
    "target_file_bytes": "64KiB",
    "small_file_bytes": "48KiB",
    "checksum": True,
}


@pytest.mark.usefixtures("no_room")
@pytest.mark.parametrize("run", [pytest.param("inline", marks=only_in_soak), "beside"])
def test_a_stream_clusters_files_of_both_and_others_delete_from_them(case: Case, run: str) -> None:
    asked = Clustering(every_commits=4, run=run, **CLUSTERED)
    clustering_sink = case.new_sink(clustering=asked)
    case.land(0, clustering_sink)
    case.do("INSERT INTO {t} VALUES (1000, 'theirs')")
    case.do("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    case.do("DELETE FROM {t} WHERE id = 7")
    reports = [case.land(number, clustering_sink) for number in range(1, 4)]
    done = [*(it for report in reports for it in report.maintenance), *clustering_sink.finish()]
    [executed] = [it for it in done if it.outcome == "executed"]
    assert executed.table == reports[0].table
    assert {group.outcome for group in executed.groups} == {"committed"}
    files = case.do("SELECT count(*), max(sort_order_id) FROM {t}.data_files")
    assert files == [[1, 1]]
    assert case.ids() == [*(it for it in tens(*range(4)) if it != 7), 1000]
    case.do("DELETE FROM {t} WHERE id = 8")
    for number in range(4, 8):
        restarted = case.new_sink(clustering=asked)
        case.land(number, restarted)
        restarted.finish()
    assert case.ids() == [*(it for it in tens(*range(8)) if it not in (7, 8)), 1000]
    assert not [key for key, _ in case.do("SHOW TBLPROPERTIES {t}") if "pending-plans" in key]


def test_a_pass_leaves_out_what_others_took_and_what_it_cannot_read(case: Case) -> None:
    case.do("CREATE TABLE {t} (id BIGINT, by STRING) PARTITIONED BY (by)")
    for number in range(3):
        case.land(number)
        case.do(f"INSERT INTO {{t}} VALUES ({1000 + number}, 'theirs')")
    case.do("ALTER TABLE {t} SET TBLPROPERTIES ('write.format.default'='avro')")
    case.do("INSERT INTO {t} VALUES (1003, 'theirs')")
    path = str(case.catalog.warehouse / f"{case.name}.parquet")
    pq.write_table(pa.table({"id": [1004], "by": ["theirs"]}), path)
    case.loaded().add_files([path])
    planned = clustering.plan(case.table, **CLUSTERED)
    left = {it.path: it.reason for it in planned.left_out}
    assert "field ids" in left.pop(path)
    [avro] = left
    assert avro.endswith(".avro")
    assert "cannot be read" in left[avro]
    assert sorted(len(group.inputs) for group in planned.groups) == [3, 3]
    scheduled = clustering.schedule(case.table, **CLUSTERED)
    assert scheduled is not None
    for file in (case.catalog.warehouse / case.name.replace(".", "/")).rglob("*"):
        os.utime(file, (time.time() - 7 * DAY_SECONDS,) * 2)
    case.do(f"CALL lake.system.remove_orphan_files('{case.name}')")  # the plan stays
    case.do("DELETE FROM {t} WHERE id = 1001")  # copy on write: an input has left
    report = clustering.execute(case.spark, case.table, scheduled.plan_id)
    assert report is not None
    assert report.table == f"{case.catalog.uri}:{case.name}"
    assert sorted(group.outcome for group in report.groups) == ["committed", "dropped"]
    found = sorted(row[0] for row in case.do("SELECT id FROM {t}"))  # pyiceberg reads no Avro
    assert found == [*tens(0, 1, 2), 1000, 1002, 1003, 1004]


def test_a_plan_whose_inputs_get_deletes_while_it_runs_is_dropped(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        case.land(number)
    case.do("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    rewrite = execution.rewrite_groups

    def deleted_meanwhile(*arguments: Any) -> Any:
        case.do("DELETE FROM {t} WHERE id = 5")
        return rewrite(*arguments)

    monkeypatch.setattr(execution, "rewrite_groups", deleted_meanwhile)
    report = clustering.schedule_and_execute(case.spark, case.table, **CLUSTERED)
    assert [group.outcome for group in report.groups] == ["dropped"]
    assert "has deletes that the replace has not applied" in report.groups[0].why
    assert case.ids() == [it for it in tens(0, 1, 2) if it != 5]


def test_a_sort_order_that_another_engine_sets_meanwhile_keeps_its_id(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        case.land(number)
    send, done = CatalogLog._send, list[int]()

    def ordered_first(self: CatalogLog, candidate: Any, commit: Any) -> Any:
        if not done and candidate.head.metadata.sort_orders != candidate.base.metadata.sort_orders:
            done.append(1)
            case.do("ALTER TABLE {t} WRITE ORDERED BY by")
        return send(self, candidate, commit)

    monkeypatch.setattr(CatalogLog, "_send", ordered_first)
    report = clustering.schedule_and_execute(case.spark, case.table, **CLUSTERED)
    assert [group.outcome for group in report.groups] == ["committed"]
    orders = {it.order_id: [f.source_id for f in it.fields] for it in case.loaded().metadata.sort_orders}
    assert orders == {0: [], 1: [2], 2: [1]}
    assert case.do("SELECT DISTINCT sort_order_id FROM {t}.files") == [[2]]


def small_files_of(case: Case, writer: str) -> int:
    [[count]] = case.do(f"SELECT count(*) FROM {{t}}.files WHERE partition.by = '{writer}'")
    return int(count)


def land_in_two_partitions(case: Case, filling: IcebergSink, numbers: Iterable[int]) -> None:
    for number in numbers:
        rows = case.spark.range(number * 10, number * 10 + 10)
        filling(rows.selectExpr("id", "if(id % 2 = 0, 'a', 'b') by").coalesce(1), number)


def fill_beside_a_delete(case: Case, batches: int) -> IcebergSink:
    """Land so many batches, of which the third is followed by another engine's delete in one partition."""
    case.do("CREATE TABLE {t} (id BIGINT, by STRING) PARTITIONED BY (by)")
    filling = case.new_sink(sizing=FileSizing(max_file_bytes="64KiB", small_file_bytes="48KiB"))
    land_in_two_partitions(case, filling, range(3))
    case.do("DELETE FROM {t} WHERE by = 'a' AND id = 2")
    land_in_two_partitions(case, filling, range(3, batches))
    filling.finish()
    assert small_files_of(case, "a") == batches  # the first one was replaced by another
    return filling


def test_merging_leaves_room_where_others_have_just_rewritten(case: Case) -> None:
    fill_beside_a_delete(case, 14)
    assert small_files_of(case, "b") < 12
    assert case.ids() == [it for it in range(140) if it != 2]


@only_in_soak
def test_merging_leaves_room_where_others_rewrite_for_so_long_and_nowhere_else(case: Case) -> None:
    filling = fill_beside_a_delete(case, 30)
    assert small_files_of(case, "b") < 24
    before = case.snapshots()[-1]
    case.do("DELETE FROM {t} WHERE by = 'a' AND id = 4")  # what it reads is there when it ends
    for first in range(30, 80, 10):
        land_in_two_partitions(case, filling, range(first, first + 10))
        assert small_files_of(case, "a") <= 72
    filling.finish()
    assert small_files_of(case, "a") < 40
    assert before in case.snapshots()
    assert case.ids() == [it for it in range(800) if it not in (2, 4)]
