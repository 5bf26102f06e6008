"""Changes by key in a table of a real REST catalog, and what Spark does to it meanwhile (R31)."""

from __future__ import annotations

import os
import time
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from streaming_sink import Append, Checks, FileSizing, Upsert, cdc
from streaming_sink.commands.cli import main
from streaming_sink.errors import KeyConflictError
from streaming_sink.reading.duplicate_keys import check_keys
from tests.servers import faults_of_catalogs
from tests.servers.keyed_case import KeyedCase, Row
from tests.servers.rest_catalog import RestCatalog
from tests.servers.sql import Sql
from tests.tiers import only_in_soak
from timeline.errors import SchemaMismatchError
from timeline.versions.keys import TableKey
from timeline.versions.tombstones import tombstones_of

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.slow]

DAY_SECONDS = 24 * 3600
MODES = ["copy-on-write", "merge-on-read"]


@pytest.fixture
def case(running: tuple[RestCatalog, Sql], spark: SparkSession) -> KeyedCase:
    return KeyedCase(*running, spark)


# -------------------------------------------------------------------------------- what others do


def test_a_key_that_others_insert_again_is_there_twice_until_its_next_change(case: KeyedCase) -> None:
    case.change(0, (1, 1, "a"), (2, 1, "a"))
    case.insert((1, 2, "theirs"))
    assert case.rows() == [(1, 1, "a"), (1, 2, "theirs"), (2, 1, "a")]
    report = case.change(1, (1, 3, "b"), (2, 3, "b"))
    assert report.changes == {"updated": 2, "repeated": 1}
    assert case.rows() == [(1, 3, "b"), (2, 3, "b")]


@pytest.mark.parametrize("mode", ["merge-on-read", pytest.param("copy-on-write", marks=only_in_soak)])
def test_rows_that_others_delete_are_gone_and_an_older_change_inserts_them(
    case: KeyedCase, mode: str
) -> None:
    case.change(0, (1, 5, "a"), (2, 5, "a"), (3, 5, "a"))
    case.set_mode(mode)
    case.do("DELETE FROM {t} WHERE id < 3")
    assert case.rows() == [(3, 5, "a")]
    assert bool(case.delete_files()) == (mode == "merge-on-read")
    # The very same changes again, in the same process, which knew the rows: they are not there any more.
    report = case.change(1, (1, 5, "a"), (2, 4, "older"), (3, 4, "older"))
    assert report.changes == {"inserted": 2, "late": 1}
    assert case.rows() == [(1, 5, "a"), (2, 4, "older"), (3, 5, "a")]


def test_a_delete_by_a_sink_is_remembered(case: KeyedCase) -> None:
    case.change(0, (1, 5, "a"), (2, 5, "a"))
    case.delete(0, (1, 6))
    assert case.change(1, (1, 4, "older"), (2, 6, "b")).changes == {"updated": 1, "late": 1}
    assert case.rows() == [(2, 6, "b")]
    assert case.change(2, (1, 7, "newer")).changes == {"inserted": 1}


@pytest.mark.parametrize("mode", ["copy-on-write", pytest.param("merge-on-read", marks=only_in_soak)])
def test_rows_that_others_update_and_merge_are_found(case: KeyedCase, mode: str) -> None:
    case.change(0, *((key, 1, "a") for key in range(6)))
    case.set_mode(mode)
    case.do("UPDATE {t} SET v = 'theirs', at = 9 WHERE id IN (1, 2)")
    case.do(
        "MERGE INTO {t} t USING (SELECT * FROM VALUES (3, 9, 'm'), (7, 9, 'm') AS s(id, at, v)) s"
        " ON t.id = s.id WHEN MATCHED THEN UPDATE SET at = s.at, v = s.v"
        " WHEN NOT MATCHED THEN INSERT (id, at, v) VALUES (s.id, s.at, s.v)"
    )
    report = case.change(1, (1, 5, "late"), (2, 10, "b"), (3, 10, "b"), (7, 10, "b"), (5, 2, "b"))
    assert report.changes == {"updated": 4, "late": 1}
    left = [(0, 1, "a"), (1, 9, "theirs"), (2, 10, "b"), (3, 10, "b"), (4, 1, "a"), (5, 2, "b"), (7, 10, "b")]
    assert case.rows() == left


def test_rows_that_are_deleted_by_value_stop_the_stream_before_a_row_is_written(case: KeyedCase) -> None:
    case.change(0, (1, 1, "a"), (2, 1, "a"))
    first = case.snapshots()[0]
    case.delete_by_value(1)
    before, files = case.snapshots(), case.data_files()
    for sink in (case.sink, case.new_sink()):
        with pytest.raises(KeyConflictError, match="deleted rows of the table by their values"):
            case.change(1, (2, 2, "b"), sink=sink)
    assert (case.snapshots(), case.data_files()) == (before, files)
    case.call("rollback_to_snapshot", snapshot_id=first)
    case.change(1, (2, 2, "b"))
    assert case.rows() == [(1, 1, "a"), (2, 2, "b")]


@pytest.mark.parametrize(
    "statements",
    [
        ["ALTER TABLE {t} DROP COLUMN id"],
        ["ALTER TABLE {t} DROP COLUMN at", "ALTER TABLE {t} ADD COLUMN at BIGINT"],
        ["ALTER TABLE {t} DROP COLUMN id", "ALTER TABLE {t} ADD COLUMN id STRING"],
    ],
)
def test_a_column_of_the_key_that_is_dropped_or_has_another_type_stops_the_stream(
    case: KeyedCase, statements: list[str]
) -> None:
    case.change(0, (1, 1, "a"))
    for statement in statements:
        case.do(statement)
    files = case.data_files()
    for sink in (case.sink, case.new_sink()):
        with pytest.raises(KeyConflictError, match=r"its columns (id|at) were dropped"):
            case.change(1, (1, 2, "b"), sink=sink)
    assert case.data_files() == files


def test_a_column_of_the_key_that_is_renamed_or_widened_is_the_same(case: KeyedCase) -> None:
    case.do("CREATE TABLE {t} (id INT, at INT, v STRING)")
    rows = "SELECT * FROM VALUES (1, 1, 'a', false), (2, 1, 'a', false) AS s(id, at, v, gone)"
    case.sink(case.spark.sql(rows), 0)
    case.do("ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT")
    case.do("ALTER TABLE {t} RENAME COLUMN id TO number")
    with pytest.raises(SchemaMismatchError, match="no column 'id', which key names"):
        case.change(1, (1, 2, "b"))
    renamed = case.new_sink(write=Upsert(key=["number"], sequence_by="at"))
    values = [(1, 2, "b"), (3, 2, "b")]
    report = renamed(case.spark.createDataFrame(values, "number long, at int, v string"), 1)
    assert report.changes == {"inserted": 1, "updated": 1}
    assert sorted(map(tuple, case.do("SELECT * FROM {t}"))) == [(1, 2, "b"), (2, 1, "a"), (3, 2, "b")]


@pytest.mark.parametrize("scope", ["table", "partition"])
def test_another_partitioning_stops_keys_that_are_unique_in_each_partition(
    case: KeyedCase, monkeypatch: pytest.MonkeyPatch, scope: str
) -> None:
    sink = case.new_sink(write=Upsert(key=["id"], sequence_by="at", key_scope=scope), partition_by=["v"])
    again = case.new_sink(write=Upsert(key=["id"], sequence_by="at", key_scope=scope))

    def change(sink: Any, number: int, *rows: Any) -> Any:
        return sink(case.spark.createDataFrame(list(rows), "id long, at long, v string"), number)

    change(sink, 0, (1, 1, "a"))
    case.meanwhile(
        monkeypatch, lambda: case.do("ALTER TABLE {t} REPLACE PARTITION FIELD v WITH truncate(1, v)")
    )
    if scope == "partition":
        with pytest.raises(KeyConflictError, match="has changed the table's partition spec"):
            change(sink, 1, (1, 2, "a"))
        with pytest.raises(KeyConflictError, match="needs one partition spec"):
            change(again, 1, (1, 2, "a"))
        assert case.rows() == [(1, 1, "a")]
    else:
        change(sink, 1, (1, 2, "a"))
        change(again, 2, (1, 3, "a"))
        assert case.rows() == [(1, 3, "a")]


def test_a_rollback_brings_rows_back_and_leaves_what_is_remembered_of_deletes(case: KeyedCase) -> None:
    case.change(0, (1, 1, "a"), (2, 1, "a"))
    first = case.snapshots()[0]
    case.change(1, (1, 5, "b"), gone=[(2, 5, "")])
    case.call("rollback_to_snapshot", snapshot_id=first)
    assert case.rows() == [(1, 1, "a"), (2, 1, "a")]
    # The row that left is no reason for a change to be late; the delete of key 2 is one, and its row is back.
    assert case.change(2, (1, 4, "c"), (2, 4, "c")).changes == {"updated": 1, "late": 1}
    assert case.rows() == [(1, 4, "c"), (2, 1, "a")]
    assert case.change(3, (1, 6, "d"), (2, 6, "d")).changes == {"updated": 2}
    assert case.rows() == [(1, 6, "d"), (2, 6, "d")]


def test_files_without_field_ids_are_looked_at_by_name_unless_a_column_was_renamed(case: KeyedCase) -> None:
    case.change(0, (1, 1, "a"))

    def add_file(key: int) -> None:
        path = str(case.catalog.warehouse / f"{case.name}-{key}.parquet")
        pq.write_table(pa.table({"id": [1, key], "at": [2, 2], "v": ["theirs"] * 2}), path)
        case.loaded().add_files([path])

    add_file(2)
    assert case.change(1, (1, 3, "b"), (2, 3, "b")).changes == {"updated": 2, "repeated": 1}
    assert case.rows() == [(1, 3, "b"), (2, 3, "b")]
    add_file(3)
    case.do("ALTER TABLE {t} RENAME COLUMN v TO w")
    batch = case.spark.createDataFrame([(3, 4, "c", False)], "id long, at long, w string, gone boolean")
    with pytest.raises(Exception, match="has no field ids"):
        case.new_sink()(batch, 2)


@pytest.mark.parametrize("index", [pytest.param("scan", marks=only_in_soak), "index"])
def test_compaction_expiry_and_orphan_removal_between_batches_change_nothing(
    case: KeyedCase, index: str
) -> None:
    """Files are aged by a week, so that Spark's orphan removal would take what it does not know."""
    write = Upsert(
        key=["id"], sequence_by="at", delete_where="gone", except_columns=["gone"], key_index=index
    )
    sink = case.new_sink(write=write)
    for number in range(3):
        case.change(number, *((key, number, "a") for key in range(20)), gone=[(99, number, "")], sink=sink)
        sink.finish()
    case.insert((100, 1, "theirs"))
    case.call("expire_snapshots", older_than="TIMESTAMP '2100-01-01 00:00:00'", retain_last=1)
    case.change(3, (100, 2, "b"), sink=sink)
    sink.finish()
    case.call("rewrite_position_delete_files", options="map('rewrite-all', 'true')")
    case.call("rewrite_data_files", options="map('rewrite-all', 'true')")
    case.call("rewrite_manifests")
    week_ago = time.time() - 7 * DAY_SECONDS
    for file in case.folder().rglob("*"):
        os.utime(file, (week_ago, week_ago))
    removed = case.call("remove_orphan_files")
    assert not [path for (path,) in removed if "_timeline" in path]
    late = case.change(4, (99, 1, "late"), (100, 3, "c"), (5, 9, "b"), sink=case.new_sink(write=write))
    assert late.changes == {"updated": 2, "late": 1}
    assert case.rows() == sorted(
        [*((key, 2, "a") for key in range(20) if key != 5), (5, 9, "b"), (100, 3, "c")]
    )


def test_what_is_remembered_of_deletes_would_be_an_orphan_beside_the_data(
    case: KeyedCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A negative control: what no snapshot names leaves with Spark's orphan removal, unless it is hidden."""
    monkeypatch.setattr("timeline.catalogs.catalog_log.CatalogLog.tombstone_folder", "data")
    case.change(0, (1, 1, "a"), gone=[(2, 1, "")])
    (tombstone,) = tombstones_of(case.table.open().head.properties)
    week_ago = time.time() - 7 * DAY_SECONDS
    for file in case.folder().rglob("*"):
        os.utime(file, (week_ago, week_ago))
    assert tombstone.location.rpartition("/")[2] in "".join(
        path for (path,) in case.call("remove_orphan_files")
    )
    with pytest.raises(Exception, match="a file of deleted keys is missing"):
        case.change(1, (2, 0, "late"), sink=case.new_sink())


# ------------------------------------------------------------------- what others do during a batch


_UNCHANGED: list[Row] = [(1, 2, "b"), (2, 2, "b"), (3, 1, "a"), (4, 2, "b")]
_MEANWHILE: dict[str, tuple[str, list[Row], list[str]]] = {
    "delete mine": ("DELETE FROM {t} WHERE id = 1", _UNCHANGED, MODES),
    "delete another": ("DELETE FROM {t} WHERE id = 3", [it for it in _UNCHANGED if it[0] != 3], MODES[1:]),
    "update": (
        "UPDATE {t} SET at = 9, v = 'theirs' WHERE id IN (1, 3)",
        [(1, 9, "theirs"), (2, 2, "b"), (3, 9, "theirs"), (4, 2, "b")],
        MODES,
    ),
    "merge": (
        "MERGE INTO {t} t USING (SELECT * FROM VALUES (2, 9, 'm'), (4, 9, 'm') AS s(id, at, v)) s"
        " ON t.id = s.id WHEN MATCHED THEN UPDATE SET at = s.at, v = s.v"
        " WHEN NOT MATCHED THEN INSERT (id, at, v) VALUES (s.id, s.at, s.v)",
        [(1, 2, "b"), (2, 9, "m"), (3, 1, "a"), (4, 9, "m")],
        MODES,
    ),
    "insert": (
        "INSERT INTO {t} (id, at, v) VALUES (1, 1, 'older'), (4, 1, 'older')",
        _UNCHANGED,
        MODES[:1],
    ),
    "compaction": (
        "CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))",
        _UNCHANGED,
        MODES[:1],
    ),
    "manifests": ("CALL lake.system.rewrite_manifests('{name}')", _UNCHANGED, MODES[:1]),
    "a column": ("ALTER TABLE {t} ADD COLUMN w STRING", _UNCHANGED, MODES[:1]),
}


_SECOND_MODES = (("delete mine", MODES[0]), ("update", MODES[1]), ("merge", MODES[0]))
"""Of statements that change rows in two modes every run has one, and both modes."""


@pytest.mark.parametrize(
    ("theirs", "mode"),
    [
        pytest.param(theirs, mode, marks=[only_in_soak] if (theirs, mode) in _SECOND_MODES else [])
        for theirs, (*_, modes) in _MEANWHILE.items()
        for mode in modes
    ],
)
def test_what_others_do_while_a_batch_commits_is_looked_at(
    case: KeyedCase, monkeypatch: pytest.MonkeyPatch, theirs: str, mode: str
) -> None:
    statement, left, _ = _MEANWHILE[theirs]
    case.change(0, (1, 1, "a"), (2, 1, "a"), (3, 1, "a"))
    case.set_mode(mode)
    case.meanwhile(monkeypatch, lambda: case.do(statement))
    report = case.change(1, (1, 2, "b"), (2, 2, "b"), (4, 2, "b"))
    assert report.outcome == "committed"
    assert case.rows() == left


def test_without_a_second_look_a_key_is_there_twice(
    case: KeyedCase, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """A negative control."""
    case.change(0, (1, 1, "a"))
    case.meanwhile(monkeypatch, lambda: case.insert((2, 1, "theirs")))
    request.addfinalizer(patch.stopall)
    faults_of_catalogs.switch_on("keys are looked for once")
    case.change(1, (2, 2, "b"))
    assert case.rows() == [(1, 1, "a"), (2, 1, "theirs"), (2, 2, "b")]


def test_a_key_that_is_renamed_while_a_batch_commits_is_looked_for_by_its_field_id(
    case: KeyedCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.change(0, (1, 1, "a"))

    def rename() -> None:
        case.do("ALTER TABLE {t} RENAME COLUMN id TO number")
        case.do("INSERT INTO {t} (number, at, v) VALUES (2, 1, 'theirs')")

    case.meanwhile(monkeypatch, rename)
    case.change(1, (1, 2, "b"), (2, 2, "b"))
    left = case.do("SELECT number, at, v FROM {t} WHERE number < 1000 ORDER BY 1")
    assert left == [[1, 2, "b"], [2, 2, "b"]]


@pytest.mark.parametrize("fault", ["none", "keys are known by numbers"])
@pytest.mark.parametrize("how", [pytest.param("fast-forward", marks=only_in_soak), "cherry-pick"])
def test_rows_of_a_branch_that_main_gets_during_a_batch_are_looked_at(
    case: KeyedCase,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    how: str,
    fault: str,
) -> None:
    """Their files have older sequence numbers than the head that the batch has looked at. A negative control:
    compared by these numbers, the key is there twice.
    """
    case.change(0, (1, 1, "a"))
    if how == "fast-forward":
        case.do("ALTER TABLE {t} CREATE BRANCH theirs")
        case.insert((2, 1, "theirs"), branch="theirs")
        happens = f"CALL lake.system.fast_forward('{case.name}', 'main', 'theirs')"
    else:
        happens = (
            f"CALL lake.system.cherrypick_snapshot('{case.name}', {case.insert_staged((2, 1, 'theirs'))})"
        )
    case.meanwhile(monkeypatch, lambda: case.do(happens))
    request.addfinalizer(patch.stopall)
    faults_of_catalogs.switch_on(fault)
    case.change(1, (2, 2, "b"))
    assert case.rows() == [(1, 1, "a"), *([(2, 1, "theirs")] if fault != "none" else []), (2, 2, "b")]


@pytest.mark.parametrize("fault", ["none", "rows that a rollback brings back are not looked at"])
def test_rows_that_a_rollback_brings_back_during_a_batch_are_looked_at(
    case: KeyedCase, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, fault: str
) -> None:
    case.change(0, (1, 1, "a"), (2, 1, "a"))
    first = case.snapshots()[0]
    case.set_mode("merge-on-read")
    case.do("DELETE FROM {t} WHERE id = 1")
    assert case.delete_files() == 1
    case.meanwhile(monkeypatch, lambda: case.call("rollback_to_snapshot", snapshot_id=first))
    request.addfinalizer(patch.stopall)
    faults_of_catalogs.switch_on(fault)
    case.change(1, (1, 2, "b"))
    assert case.rows() == [*([(1, 1, "a")] if fault != "none" else []), (1, 2, "b"), (2, 1, "a")]


def test_deletes_of_spark_that_span_data_files_are_applied(case: KeyedCase) -> None:
    case.change(0, *((key, 1, "a") for key in range(4)))
    case.change(1, *((key, 1, "a") for key in range(4, 8)))
    case.set_mode("merge-on-read")
    case.do("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.granularity'='partition')")
    case.do("DELETE FROM {t} WHERE id IN (1, 5)")
    assert case.change(2, (1, 1, "b"), (5, 1, "b"), (6, 2, "b")).changes == {"inserted": 2, "updated": 1}
    kept = [(key, 1, "a") for key in (0, 2, 3, 4, 7)]
    assert case.rows() == sorted([*kept, (1, 1, "b"), (5, 1, "b"), (6, 2, "b")])


def test_delete_files_of_both_are_merged_and_folded_beside_the_stream(case: KeyedCase) -> None:
    sizing = FileSizing(max_file_bytes="64KiB", small_file_bytes="1KiB", fold_above=0.5)
    sink = case.new_sink(sizing=sizing)
    case.change(0, *((key, 1, "a") for key in range(500)), sink=sink)
    case.set_mode("merge-on-read")
    for number in range(1, 14):
        case.change(number, (number, 2, "b"), sink=sink)
        case.do(f"DELETE FROM {{t}} WHERE id = {100 + number}")
    assert not [it for it in sink.finish() if it.outcome == "failed"]
    left = {key: (key, 1, "a") for key in range(500) if not 100 < key < 114}
    left |= {key: (key, 2, "b") for key in range(1, 14)}
    assert case.rows() == sorted(left.values())
    assert case.delete_files() < 20
    case.change(14, *((key, 3, "c") for key in range(300)), sink=sink)
    sink.finish()
    left |= {key: (key, 3, "c") for key in range(300)}
    assert case.rows() == sorted(left.values())


# ---------------------------------------------------------------------------------- other writes


def test_partial_updates_beside_updates_of_others(case: KeyedCase) -> None:
    sink = case.new_sink(write=Upsert(key=["id"], sequence_by="at", partial_update=True))

    def change(number: int, *rows: Any) -> Any:
        return sink(case.spark.createDataFrame(list(rows), "id long, at long, v string, w string"), number)

    change(0, (1, 1, "a", "a"), (2, 1, "a", "a"))
    case.set_mode("merge-on-read")
    case.do("UPDATE {t} SET v = 'theirs' WHERE id = 1")
    change(1, (1, 2, None, "b"), (2, 2, "b", None))
    assert sorted(map(tuple, case.do("SELECT id, at, v, w FROM {t}"))) == [
        (1, 2, "theirs", "b"),
        (2, 2, "b", "a"),
    ]


def test_what_dms_brings_lands_as_elsewhere(case: KeyedCase) -> None:
    sink = case.new_sink(write=cdc.upsert(key=["id"]))

    def change(number: int, *rows: Any) -> Any:
        batch = case.spark.createDataFrame(list(rows), "Op string, lsn long, id long, v string")
        return sink(cdc.dms(batch, sequence="lsn"), number)

    change(0, ("I", 1, 1, "a"), ("I", 2, 2, "a"))
    case.do("DELETE FROM {t} WHERE id = 1")
    change(1, ("U", 3, 1, "b"), ("D", 4, 2, "a"), ("I", 5, 3, "a"))
    assert change(2, ("U", 3, 2, "late")).changes == {"late": 1}
    assert sorted(map(tuple, case.do("SELECT id, v FROM {t}"))) == [(1, "b"), (3, "a")]


def test_changes_that_fail_a_check_are_quarantined(case: KeyedCase) -> None:
    sink = case.new_sink(checks=Checks({"at > 0": "quarantine"}))
    case.change(0, (1, 1, "a"), sink=sink)
    case.insert((1, 2, "theirs"))
    report = case.change(1, (1, 3, "b"), (1, -1, "bad"), sink=sink)
    assert (report.quarantined, report.changes) == (1, {"updated": 1, "repeated": 1})
    assert case.rows() == [(1, 3, "b")]


def test_an_insert_by_a_sink_is_refused_unless_it_says_that_its_keys_are_new(case: KeyedCase) -> None:
    case.change(0, (1, 1, "a"))
    batch = case.spark.createDataFrame([(2, 1, "b")], "id long, at long, v string")
    with pytest.raises(KeyConflictError, match="allow_duplicates=True"):
        case.new_sink(write=Append(), app_id="inserts")(batch, 0)
    case.new_sink(write=Append(allow_duplicates=True), app_id="inserts")(batch, 0)
    assert case.rows() == [(1, 1, "a"), (2, 1, "b")]


def test_a_table_with_rows_gets_its_key_by_the_command(case: KeyedCase) -> None:
    case.do("CREATE TABLE {t} (id BIGINT, at BIGINT, v STRING)")
    case.insert((1, 1, "theirs"), (1, 2, "again"))
    with pytest.raises(KeyConflictError, match="streaming-sink key --catalog NAME --table"):
        case.change(0, (1, 2, "a"))
    known = ["--catalog-option", f"uri={case.catalog.uri}", "--catalog-option", "type=rest"]
    declare = ["key", *known, "--table", case.name, "--columns", "id", "--sequence-by", "at", "--declare"]
    assert main(declare) == 1  # the key is there twice
    case.do("DELETE FROM {t} WHERE at = 1")
    case.delete_by_value(5)
    with pytest.raises(KeyConflictError, match="by their values"):
        check_keys(case.table.open().store, case.table.open().head, TableKey((1,), 2))
    case.call("rollback_to_snapshot", snapshot_id=case.snapshots()[1])
    assert main(declare) == 0
    assert case.change(1, (1, 3, "b")).changes == {"updated": 1}
    assert case.rows() == [(1, 3, "b")]


def test_a_batch_is_there_once_however_often_it_is_tried(case: KeyedCase) -> None:
    case.change(0, (1, 1, "a"), (2, 1, "a"))
    case.change(1, (1, 2, "b"), gone=[(2, 2, "")])
    assert case.change(1, (1, 2, "b"), gone=[(2, 2, "")], sink=case.new_sink()).outcome == "skipped"
    assert case.rows() == [(1, 2, "b")]
