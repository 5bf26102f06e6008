"""One table of a real REST catalog, and what Spark does to it between the batches of a sink."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import requests
from pyspark.sql import SparkSession

from streaming_sink import CatalogTable, FileSizing, IcebergSink, Retention, drop, history
from streaming_sink.commands.cli import main
from streaming_sink.errors import (
    CommitStateUnknownError,
    SchemaMismatchError,
    StoreUnavailableError,
    TableNotFoundError,
    TableReplacedError,
    UnsupportedTableError,
)
from tests.servers import faults_of_catalogs
from tests.servers.catalog_case import Case, tens
from tests.tiers import IN_SOAK, longer_in_soak
from timeline.catalogs import catalog_log, catalog_version
from timeline.catalogs.catalog_log import CatalogLog
from timeline.changes.purge_changes import AppendNothing
from timeline.retention import grace, policy
from timeline.table import Table

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.slow]

DAY_SECONDS = 24 * 3600


def test_a_table_that_spark_made_is_opened_and_keeps_its_partitions_and_properties(case: Case) -> None:
    case.do("CREATE TABLE {t} (id BIGINT, by STRING) PARTITIONED BY (bucket(3, id)) TBLPROPERTIES ('a'='b')")
    case.do("INSERT INTO {t} VALUES (7, 'theirs')")
    report = case.land(1)
    assert report.outcome == "committed"
    assert report.table == f"{case.catalog.uri}:{case.name}"
    assert case.ids() == [7, *tens(1)]
    stated = dict(case.do("SHOW TBLPROPERTIES {t}"))
    assert stated["a"] == "b"
    assert not {"gc.enabled", "write.metadata.path"} & stated.keys()  # else its own expiry would refuse
    assert [row[0] for row in case.do("SELECT count(*) FROM {t}.partitions")] == [3]


def test_a_batch_is_there_once_however_often_it_is_tried_and_history_has_its_number(case: Case) -> None:
    first = [case.land(number) for number in range(3)]
    again = case.new_sink()
    assert case.land(2, again).outcome == "skipped"
    case.land(3, again)
    assert case.ids() == tens(0, 1, 2, 3)
    found = history(case.table)
    assert [report.batch_id for report in found] == [0, 1, 2, 3]
    assert {report.table for report in found} == {first[0].table}
    assert [report.version for report in found[:3]] == [report.version for report in first] == [1, 2, 3]
    assert [it.summary["spark.sql.streaming.epochId"] for it in case.loaded().snapshots()] == list("0123")


@pytest.mark.usefixtures("no_room")
def test_small_files_of_both_are_merged_and_deleted_rows_stay_deleted(case: Case) -> None:
    filling = case.new_sink(sizing=FileSizing(max_file_bytes="64KiB", small_file_bytes="48KiB"))
    for number in range(3):
        case.land(number, filling)
    filling.finish()
    case.do("INSERT INTO {t} VALUES (1000, 'theirs')")
    case.do("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    case.do("DELETE FROM {t} WHERE id BETWEEN 5 AND 9 OR id = 1000")
    for number in range(3, 12):
        case.land(number, filling)
    filling.finish()
    assert case.ids() == [*range(5), *range(10, 120)]
    assert case.do("SELECT count(*) FROM {t}.files")[0][0] < 12


def test_files_without_field_ids_are_left_alone_since_their_names_may_mean_other_columns(case: Case) -> None:
    """A merge that matched them by the names of today made nulls of a column that was renamed."""
    case.do("CREATE TABLE {t} (id BIGINT, by STRING, a STRING)")
    for number in range(3):
        path = str(case.catalog.warehouse / f"{case.name}-{number}.parquet")
        pq.write_table(pa.table({"id": [1000 + number], "by": ["theirs"], "a": ["keep"]}), path)
        case.loaded().add_files([path])
    case.do("ALTER TABLE {t} RENAME COLUMN a TO b")
    filling = case.new_sink(sizing=FileSizing(max_file_bytes="64KiB", small_file_bytes="48KiB"))
    for number in range(12):
        rows = case.spark.range(number * 10, number * 10 + 10).selectExpr("id", "'ours' by", "'ours' b")
        filling(rows, number)
    filling.finish()
    assert case.do("SELECT DISTINCT b FROM {t} WHERE id >= 1000") == [["keep"]]
    assert case.ids() == [*tens(*range(12)), *range(1000, 1003)]
    assert case.do("SELECT count(*) FROM {t}.files")[0][0] < 12


def test_small_files_of_a_table_that_was_of_format_version_1_are_merged(case: Case) -> None:
    case.do("CREATE TABLE {t} (id BIGINT, by STRING) TBLPROPERTIES ('format-version'='1')")
    for number in range(3):
        case.do(f"INSERT INTO {{t}} VALUES ({1000 + number}, 'theirs')")
    case.do("ALTER TABLE {t} SET TBLPROPERTIES ('format-version'='2')")
    filling = case.new_sink(sizing=FileSizing(max_file_bytes="64KiB", small_file_bytes="48KiB"))
    for number in range(9):
        case.land(number, filling)
    assert not [it for it in filling.finish() if it.outcome == "failed"]
    assert case.ids() == [*tens(*range(9)), *range(1000, 1003)]
    assert case.do("SELECT count(*) FROM {t}.files")[0][0] < 9


def test_a_write_to_a_branch_between_batches_is_a_race_like_any_other(case: Case) -> None:
    case.land(0)
    case.do("ALTER TABLE {t} CREATE BRANCH other")
    case.do("INSERT INTO lake.{name}.branch_other VALUES (1000, 'theirs')")
    assert case.land(1).attempts == 2
    assert case.ids() == tens(0, 1)
    assert case.do("SELECT count(*) FROM lake.{name}.branch_other") == [[11]]


def test_after_a_rollback_the_stream_goes_on_without_the_rows_that_left_on_purpose(case: Case) -> None:
    for number in range(3):
        case.land(number)
    case.do(f"CALL lake.system.rollback_to_snapshot('{case.name}', {case.snapshots()[0]})")
    assert case.land(2, case.new_sink()).outcome == "skipped"
    case.land(3, case.new_sink())
    assert case.ids() == tens(0, 3)


def test_a_table_that_is_replaced_stops_the_stream(case: Case) -> None:
    case.land(0)
    case.land(1)
    case.do("CREATE OR REPLACE TABLE {t} (id BIGINT, by STRING) USING iceberg")
    for sink in (case.sink, case.new_sink()):
        with pytest.raises(TableReplacedError, match="was replaced since"):
            case.land(2, sink)
    case.do("INSERT INTO {t} VALUES (7, 'theirs')")
    with pytest.raises(TableReplacedError, match="was replaced since"):
        case.land(1, case.new_sink())  # not "committed before": its rows are gone
    assert case.ids() == [7]
    assert case.table.accept() > 2
    assert case.land(1, case.new_sink()).outcome == "skipped"
    case.land(2, case.new_sink())
    assert case.ids() == [7, *tens(2)]


def test_expiry_by_spark_down_to_one_snapshot_loses_and_doubles_nothing(case: Case) -> None:
    for number in range(4):
        case.land(number)
    case.do("INSERT INTO {t} VALUES (1000, 'theirs')")
    later = "TIMESTAMP '2100-01-01 00:00:00'"
    case.do(
        f"CALL lake.system.expire_snapshots(table => '{case.name}', older_than => {later}, retain_last => 1)"
    )
    assert len(case.snapshots()) == 1
    restarted = case.new_sink()
    assert case.land(3, restarted).outcome == "skipped"
    case.land(4, restarted)
    assert case.ids() == [*tens(0, 1, 2, 3, 4), 1000]


def test_orphan_removal_by_spark_leaves_what_the_table_and_the_sink_need(case: Case) -> None:
    for number in range(3):
        case.land(number)
    folder = case.catalog.warehouse / case.name.replace(".", "/")
    week_ago = time.time() - 7 * DAY_SECONDS
    for file in folder.rglob("*"):
        os.utime(file, (week_ago, week_ago))
    case.do(f"CALL lake.system.remove_orphan_files(table => '{case.name}')")
    case.land(3)
    assert case.land(3, case.new_sink()).outcome == "skipped"
    assert case.ids() == tens(0, 1, 2, 3)


def test_columns_that_spark_adds_renames_and_drops_between_batches(case: Case) -> None:
    case.land(0)
    case.do("ALTER TABLE {t} ADD COLUMN note STRING")
    case.land(1)
    case.do("ALTER TABLE {t} DROP COLUMN note")
    case.land(2)
    assert case.ids() == tens(0, 1, 2)
    case.do("ALTER TABLE {t} RENAME COLUMN by TO writer")
    case.land(3)  # written before this writer has seen the new name: the same column, by its field id
    with pytest.raises(SchemaMismatchError, match="by"):
        case.land(4)
    assert case.ids() == tens(0, 1, 2, 3)
    assert case.do("SELECT DISTINCT writer FROM {t}") == [["ours"]]


def test_a_table_is_dropped_in_the_catalog_and_its_files_stay(case: Case) -> None:
    case.land(0)
    case.do("INSERT INTO {t} VALUES (1000, 'theirs')")
    files = [row[0].removeprefix("file:") for row in case.do("SELECT file_path FROM {t}.files")]
    assert drop(case.table) == 2
    assert case.name not in {f"{row[0]}.{row[1]}" for row in case.do("SHOW TABLES IN lake.db")}
    assert all(os.path.exists(file) for file in files)
    with pytest.raises(TableNotFoundError):
        drop(case.table)
    with pytest.raises(CommitStateUnknownError, match="was dropped"):
        case.land(1)
    case.land(1, case.new_sink())
    assert case.ids() == tens(1)


def test_another_format_version_is_refused_before_anything_is_written(case: Case) -> None:
    case.land(0)
    case.do("ALTER TABLE {t} SET TBLPROPERTIES ('format-version'='3')")
    for sink in (case.sink, case.new_sink()):
        with pytest.raises(UnsupportedTableError, match="format version 3"):
            case.land(1, sink)
    assert sorted(row[0] for row in case.do("SELECT id FROM {t}")) == tens(0)


def test_a_commit_that_nobody_races_is_one_request_to_the_catalog(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.land(0)
    sent: list[str] = []
    send = requests.Session.send

    def counting(self: Any, request: Any, **named: Any) -> Any:
        sent.append(request.method)
        return send(self, request, **named)

    monkeypatch.setattr(requests.Session, "send", counting)
    case.land(1)
    assert sent == ["POST"]
    monkeypatch.undo()
    case.do("INSERT INTO {t} VALUES (1000, 'theirs')")
    monkeypatch.setattr(requests.Session, "send", counting)
    sent.clear()
    case.land(2)
    assert sent == ["POST", "GET", "POST"]  # lost, looked, won


@pytest.mark.parametrize("days", [-1, 1], ids=["slow", "fast"])
def test_a_driver_whose_clock_is_a_day_off_commits_by_the_servers_clock(
    case: Case, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """A server refuses snapshots that are ahead of its own clock."""
    true_time = time.time_ns
    off = days * DAY_SECONDS * 10**9
    monkeypatch.setattr("timeline.clock.time.time_ns", lambda: true_time() + off)
    sink = case.new_sink()
    for number in range(2):
        case.land(number, sink)
    monkeypatch.undo()
    case.do("INSERT INTO {t} VALUES (1000, 'theirs')")
    times = [it.timestamp_ms for it in case.loaded().snapshots()]
    assert times == sorted(times)
    assert all(abs(each - time.time() * 1000) < 60_000 for each in times)
    assert case.ids() == [*tens(0, 1), 1000]


@pytest.mark.parametrize("fault", ["none", "no requirement on main"])
def test_a_rollback_while_a_commit_is_sent_is_not_undone_by_it(
    case: Case, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Without the requirement on main the rows that were removed come back: the server lets them."""
    case.land(0)
    case.land(1)
    first, send = case.snapshots()[0], CatalogLog._send

    def rolled_back_first(self: CatalogLog, candidate: Any, commit: Any) -> Any:
        if case.snapshots()[-1] == case.loaded().metadata.current_snapshot_id:
            case.do(f"CALL lake.system.rollback_to_snapshot('{case.name}', {first})")
        return send(self, candidate, commit)

    monkeypatch.setattr(CatalogLog, "_send", rolled_back_first)
    if fault != "none":
        monkeypatch.setattr(catalog_log, "catalog_commit", faults_of_catalogs.commit_without_main)
    case.land(2)
    assert case.ids() == (tens(0, 2) if fault == "none" else tens(0, 1, 2))


def test_a_namespace_is_created_where_that_is_asked_for(case: Case) -> None:
    table = CatalogTable("nowhere.t", case.catalog.properties, create_namespace=True)
    assert IcebergSink(table, app_id="app")(case.spark.range(3), 0).rows == 3


def test_a_server_that_is_away_is_named_and_nothing_was_written(spark: SparkSession) -> None:
    table = CatalogTable("db.t", {"type": "rest", "uri": "http://127.0.0.1:9"})
    with pytest.raises(StoreUnavailableError, match="does not answer"):
        IcebergSink(table, app_id="app")(spark.range(3), 0)


def test_two_creators_land_in_one_table(case: Case) -> None:
    both = [IcebergSink(case.table, app_id=app) for app in "ab"]
    for place, sink in enumerate(both):
        sink(case.spark.range(place * 3, place * 3 + 3).selectExpr("id", "'ours' by"), 0)
    assert Counter(case.ids()) == Counter(range(6))


def their_snapshots(case: Case, count: int) -> set[int]:
    """Let another engine make the table and commit to it so often; return its snapshots."""
    stated = "'history.expire.max-snapshot-age-ms'='1', 'history.expire.min-snapshots-to-keep'='1'"
    case.do(f"CREATE TABLE {{t}} (id BIGINT, by STRING) TBLPROPERTIES ({stated})")
    table = case.loaded()
    rows = pa.table({"id": [1000], "by": ["theirs"]})
    for _ in range(count):
        table.append(rows)
    return set(case.snapshots())


@pytest.fixture
def distance(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many commits stay before expiry: a hundred in the soak, and a few elsewhere, which is faster."""
    if not IN_SOAK:
        for module in (policy, grace):
            monkeypatch.setattr(module, "SAFE_DISTANCE", 8)
        monkeypatch.setattr(catalog_version, "MAINTAIN_EVERY", 4)
    return policy.SAFE_DISTANCE


@longer_in_soak
def test_snapshots_of_a_table_of_theirs_stay_until_retention_is_asked_for(case: Case, distance: int) -> None:
    count = distance * 3 // 2
    theirs = their_snapshots(case, count)
    for number in range(2):
        case.land(number)
    assert theirs <= set(case.snapshots())
    brief = Retention(max_snapshot_age="0 seconds", min_snapshots_to_keep=1)
    asked = case.new_sink(retention=brief)
    for number in range(2, 4):
        case.land(number, asked)
    left = theirs - set(case.snapshots())
    assert len(left) == count + 4 - distance, "the safe distance counts commits of any engine"
    assert case.ids() == sorted([*tens(0, 1, 2, 3), *[1000] * count])
    assert {row[0] for row in case.do("SELECT count(*) FROM {t}")} == {count + 40}


@longer_in_soak
def test_the_newest_snapshot_with_another_engines_memory_stays(case: Case, distance: int) -> None:
    case.do("CREATE TABLE {t} (id BIGINT, by STRING)")
    rows = pa.table({"id": [1000], "by": ["theirs"]})
    table = case.loaded()
    for number in range(3):
        table.append(rows, snapshot_properties={"flink.max-committed-checkpoint-id": str(number)})
    theirs = case.snapshots()
    for _ in range(distance * 6 // 5):
        table.append(rows)
    asked = case.new_sink(retention=Retention(max_snapshot_age="0 seconds", min_snapshots_to_keep=1))
    for number in range(3):
        case.land(number, asked)
    assert case.snapshots()[0] == theirs[-1]
    summary = case.loaded().snapshots()[0].summary
    assert summary["flink.max-committed-checkpoint-id"] == "2"


def test_commands_take_a_table_by_its_catalog(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        case.land(number)
    named = [
        "--catalog-option",
        f"uri={case.catalog.uri}",
        "--catalog-option",
        "type=rest",
        "--table",
        case.name,
    ]
    for command in ("describe", "files", "partitions", "snapshots", "status", "history", "doctor", "plans"):
        assert main([command, *named]) == 0, command
        assert main([command, *named, "--json"]) == 0, command
    assert main(["expire", *named, "--dry-run"]) == 0
    assert main(["orphans", *named, "--dry-run"]) == 0
    capsys.readouterr()
    assert main(["accept", *named]) == 0
    assert f"{case.name} is taken as it is" in capsys.readouterr().out
    case.do(f"CALL lake.system.rollback_to_snapshot('{case.name}', {case.snapshots()[0]})")
    assert main(["doctor", *named]) == 1
    assert "rolled-back" in capsys.readouterr().out


def test_a_file_that_others_have_added_again_outlives_its_expiry(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By main's own lists it has left, and R7's short way deletes it."""
    for module in (policy, grace):
        monkeypatch.setattr(module, "SAFE_DISTANCE", 6)
    monkeypatch.setattr(catalog_version, "MAINTAIN_EVERY", 4)
    case.land(
        0,
        case.new_sink(
            retention=Retention(
                max_snapshot_age="0 seconds", min_snapshots_to_keep=1, deletion_grace="0 seconds"
            )
        ),
    )
    table = case.table.open()
    files = [it.location for it in table.head.live_files()]
    case.do("DELETE FROM {t} WHERE id < 100")
    table.refresh()
    pass_commits(table, 10)
    assert all(map(os.path.exists, files)), "their grace is not over"
    case.loaded().add_files(files)
    table.refresh()
    pass_commits(table, 60)
    assert case.ids() == tens(0)


def pass_commits(table: Table, count: int) -> None:
    """Let a sink commit so often, without a row."""
    for _ in range(count):
        table.commit([AppendNothing()])
