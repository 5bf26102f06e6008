"""Retention on Spark: old states go, rows stay, and a batch behind the garbage fence is written again."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from streaming_sink import FileSizing, IcebergSink, Retention, expire_snapshots, remove_orphan_files
from streaming_sink.landing import row_writing
from tests.spark.streams import SMALL, add_files, drain, head_of, ids_of, source_ids
from timeline import names, properties
from timeline.changes.changes import SetProperties
from timeline.clock import Environment
from timeline.table import open_table

pytestmark = pytest.mark.spark

DAY_MS = 24 * 3600 * 1000
BRIEF = Retention(max_snapshot_age="1 day", min_snapshots_to_keep=1, deletion_grace="2 hours")


def pass_versions(location: str, until: int, days: int) -> None:
    """Commit versions that change no data, on a machine whose clock is some days ahead."""
    table = open_table(location, environment=Environment(lambda: time.time_ns() // 1_000_000 + days * DAY_MS))
    while table.head.number < until:
        table.commit([SetProperties({"version": str(table.head.number)})])


def data_files(location: str) -> set[str]:
    return {str(path) for path in Path(location, "data").rglob("*.parquet")}


def test_old_states_go_while_a_stream_runs_and_the_report_says_so(spark, tmp_path):
    source, location = tmp_path / "source", str(tmp_path / "table")
    add_files(source, range(3))
    sink = IcebergSink(location, retention=BRIEF, sizing=replace(SMALL, fill="inline", fill_policy="always"))
    drain(spark, source, sink, str(tmp_path / "checkpoint"))
    before = data_files(location)
    pass_versions(location, 238, days=2)
    assert len(head_of(location).metadata.snapshots) == 2
    assert expire_snapshots(location, dry_run=True).waiting == 1
    assert data_files(location) == before
    pass_versions(location, 239, days=3)
    told = expire_snapshots(location, dry_run=True)
    assert len(told.files) > 0
    add_files(source, [3])
    drain(spark, source, sink, str(tmp_path / "checkpoint"))
    report = sink.reports[-1]
    assert report.version == 240
    assert report.deleted_files == len(told.files) + 1, "one more version file was old by then"
    assert report.deleted_bytes > told.bytes
    assert f"deleted {report.deleted_files} files" in report.line()
    assert before - data_files(location)
    assert not {file.path for file in told.files if Path(location, file.path).exists()}
    assert ids_of(location) == source_ids(4)
    live = {file.location for file in head_of(location).live_files()}
    assert live <= data_files(location)


def test_the_policy_of_a_sink_becomes_the_tables_with_its_first_commit(spark, tmp_path):
    source, location = tmp_path / "source", str(tmp_path / "table")
    add_files(source, range(1))
    drain(spark, source, IcebergSink(location), str(tmp_path / "checkpoint"))
    assert head_of(location).properties[properties.DELETION_GRACE_MS] == "3600000"
    add_files(source, [1])
    sink = IcebergSink(location, retention=Retention(max_snapshots=500, deletion_grace="90 minutes"))
    drain(spark, source, sink, str(tmp_path / "checkpoint"))
    said = head_of(location).properties
    assert (said[properties.MAX_SNAPSHOTS], said[properties.DELETION_GRACE_MS]) == ("500", "5400000")
    assert head_of(location).number == 3, "it took no version of its own"


def test_a_batch_whose_files_are_behind_the_fence_is_written_again(spark, tmp_path, monkeypatch):
    """Its tasks took so long that the orphan cleaner took their files meanwhile."""
    source, location = tmp_path / "source", str(tmp_path / "table")
    add_files(source, range(1))
    sink = IcebergSink(location)
    drain(spark, source, sink, str(tmp_path / "checkpoint"))
    written = []

    def slow(*given):
        result = original(*given)
        written.append({file.path for file in result.new})
        if len(written) == 1:
            pass_versions(location, 3, days=5)
            removed = remove_orphan_files(location)
            assert {str(Path(location, file.path)) for file in removed.files} == written[0]
        return result

    original = row_writing.write
    monkeypatch.setattr(row_writing, "write", slow)
    add_files(source, [1])
    drain(spark, source, sink, str(tmp_path / "checkpoint"))
    assert len(written) == 2
    cutoff = head_of(location).properties[properties.GC_CUTOFF]
    assert all(names.file_id(path) > cutoff for path in written[1])
    assert ids_of(location) == source_ids(2)


def test_a_sink_that_slept_past_the_grace_plans_on_a_newer_head(spark, tmp_path, monkeypatch):
    """Between its look at the table and its plan the known head's manifests were deleted, as rightly they may
    be.
    """
    source, location = tmp_path / "source", str(tmp_path / "table")
    add_files(source, range(1))
    drain(spark, source, IcebergSink(location, app_id="first"), str(tmp_path / "first"))

    def sleep_and_count(*arguments):
        monkeypatch.undo()
        old = {manifest.manifest_path for manifest in head_of(location).manifests}
        merging = IcebergSink(
            location, app_id="second", sizing=FileSizing(fill="inline", fill_policy="always")
        )
        merging(spark.createDataFrame([(1000, "p0", "x")], "id bigint, p string, text string"), 0)
        merging(spark.createDataFrame([(1001, "p0", "x")], "id bigint, p string, text string"), 1)
        gone = old - {manifest.manifest_path for manifest in head_of(location).manifests}
        assert gone, "the old manifest is still in use"
        for path in gone:
            Path(path).unlink()
        return count_rows(*arguments)

    count_rows = row_writing.count_rows
    monkeypatch.setattr(row_writing, "count_rows", sleep_and_count)
    sink = IcebergSink(location, app_id="third", sizing=FileSizing(fill="inline", fill_policy="always"))
    sink(spark.createDataFrame([(1002, "p0", "x")], "id bigint, p string, text string"), 0)
    assert ids_of(location) == source_ids(1) + Counter([1000, 1001, 1002])
    assert sink.reports[-1].merged_files == 1
