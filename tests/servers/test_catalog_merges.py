"""Merges of a sink in a table of a real REST catalog, and what Spark does to the same files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_sink import FileSizing, history
from tests.servers.catalog_case import Case, tens

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.slow]

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
