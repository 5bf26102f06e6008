"""Rows that are deleted by position, through fills and clustering on Spark, judged by two other engines."""

from __future__ import annotations

import pytest

from planners import All, FileSizing
from streaming_sink import IcebergSink, Upsert, clustering
from tests.readers import judges
from tests.reports import said
from tests.spark.streams import head_of
from tests.unit.streaming_sink.small_tables import delete_rows
from timeline.table import open_table

pytestmark = pytest.mark.spark

SIZING = FileSizing(max_file_bytes="64KiB", small_file_bytes="40KiB")
ROWS = 24_000
"""A full file in each of three partitions."""


def _batch(spark, number, rows):
    start = number * ROWS
    return spark.range(start, start + rows).selectExpr("id", "id % 3 AS p", "hash(id) AS noise")


def _rows(location):
    """The rows of the table, as pyiceberg and DuckDB see them."""
    found = judges.rows("pyiceberg", location)
    judges.assert_same_rows(judges.rows("duckdb", location), found, "duckdb")
    return found


def _files(location, p):
    """The data files of a partition, the largest first."""
    files = [file for file in head_of(location).live_files() if file.partition == (p,)]
    return sorted(files, key=lambda file: -file.bytes)


def _with_deletes(location):
    return {delete.refers_to for delete in head_of(location).delete_files()}


def test_fills_and_clustering_leave_deleted_rows_out_and_take_their_delete_files_away(spark, location):
    sink = IcebergSink(location, partition_by=["p"], sizing=SIZING, app_id="app")
    sink(_batch(spark, 0, ROWS), 0)
    sink(_batch(spark, 1, 300), 1)
    worn, little, gone = (_files(location, p)[0] for p in range(3))
    small = _files(location, 0)[-1]
    assert min(file.bytes for file in (worn, little, gone)) >= SIZING.small_file_bytes > small.bytes
    table = open_table(location)
    delete_rows(table, {worn.location: range(0, worn.rows, 3), small.location: [0]})
    delete_rows(table, {little.location: [5], gone.location: range(gone.rows)})
    delete_rows(table, {little.location: [6, 7]})
    left = _rows(location)
    assert left.total() == ROWS + 300 - len(range(0, worn.rows, 3)) - gone.rows - 4

    sink(_batch(spark, 2, 30), 2)
    told = said(sink.finish(120))
    assert told.startswith("filled beside the stream: "), told
    assert "2 delete files folded" in told
    assert _with_deletes(location) == {small.location, little.location}, "few of their rows are deleted"
    live = {file.location for file in head_of(location).live_files()}
    assert not live & {worn.location, gone.location}
    assert live >= {little.location, small.location}
    after = _rows(location)
    assert after.total() == left.total() + 30
    assert not left - after

    report = clustering.schedule_and_execute(
        spark,
        location,
        sort_by=["noise"],
        select=All(),
        target_file_bytes="64KiB",
        small_file_bytes="40KiB",
        max_group_bytes="1MiB",
        checksum=True,
    )
    assert {group.outcome for group in report.groups} == {"committed"}
    assert _with_deletes(location) == set()
    judges.assert_same_rows(_rows(location), after, "after clustering")
    snapshot = head_of(location).snapshot
    assert snapshot.summary["total-position-deletes"] == "0"
    assert int(snapshot.summary["total-records"]) == after.total()


def test_delete_files_of_a_full_file_are_merged_and_its_rows_stay_where_they_are(spark, location):
    sink = IcebergSink(location, partition_by=["p"], sizing=SIZING, app_id="app")
    sink(_batch(spark, 0, ROWS), 0)
    table = open_table(location)
    full = _files(location, 1)[0]
    for position in range(9):
        delete_rows(table, {full.location: [position]})
    before = _rows(location)
    sink(_batch(spark, 1, 30), 1)
    assert said(sink.finish(120)).startswith("merged beside the stream: 9 delete files -> 1, version ")
    [merged] = head_of(location).delete_files()
    assert (merged.refers_to, merged.rows) == (full.location, 9)
    after = _rows(location)
    assert after.total() == before.total() + 30
    assert not before - after


def test_a_sorted_file_is_folded_in_its_order(spark, location):
    sink = IcebergSink(location, partition_by=["p"], sizing=SIZING, app_id="app")
    sink(_batch(spark, 0, ROWS), 0)
    clustering.schedule_and_execute(spark, location, sort_by=["id"], select=All(), **_SIZES)
    table = open_table(location)
    file = _files(location, 1)[0]
    assert file.sort_order_id
    delete_rows(table, {file.location: range(100, file.rows, 2)})
    before = _rows(location)
    sink(_batch(spark, 1, 3).limit(0), 1)  # no partition is touched: nothing is folded
    assert _with_deletes(location) == {file.location}
    sink(_batch(spark, 2, 3), 2)
    sink.finish(120)
    assert _with_deletes(location) == set()
    assert before - _rows(location) == {}
    folded = [it for it in _files(location, 1) if it.sort_order_id == file.sort_order_id]
    assert len(folded) == len(_files(location, 1)) - 1
    plan = clustering.plan(location, sort_by=["id"], select=All(), **_SIZES)
    assert {path for group in plan.groups for path in group.inputs}.isdisjoint(it.location for it in folded)


def test_a_batch_by_key_finds_its_rows_where_its_own_sink_has_moved_them(spark, location, monkeypatch):
    """It would find them at last, but look for them twice."""
    monkeypatch.setattr("streaming_sink.keyed.by_key.resolve_again", lambda *_: pytest.fail("a second look"))
    sink = IcebergSink(location, Upsert(key=["id"]), sizing=SIZING, app_id="app")
    for number, ids in enumerate((range(100), range(50), range(50, 100))):
        sink(spark.range(ids.start, ids.stop).selectExpr("id", f"{number} AS batch"), number)
        folded = said(sink.finish(120))
        assert ("folded" in folded) == (number > 0), folded
    assert {number for _, number in _rows(location)} == {1, 2}


_SIZES = {"target_file_bytes": "64KiB", "small_file_bytes": "8KiB", "max_group_bytes": "1MiB"}
