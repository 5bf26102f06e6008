"""Schemas and partitionings that a sink and Spark change at the same table of a real REST catalog."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_sink import FileSizing, IcebergSink, SchemaContract
from streaming_sink.errors import SchemaMismatchError
from tests.servers.catalog_case import Case, tens
from timeline.catalogs.catalog_log import CatalogLog
from timeline.properties import NAME_MAPPING, name_mapping

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.slow]

EVOLVING = SchemaContract.evolving()


def land(case: Case, sink: IcebergSink, number: int, *columns: str) -> Any:
    """Land ten rows with these columns besides."""
    rows = case.spark.range(number * 10, number * 10 + 10)
    return sink(rows.selectExpr("id", "'ours' by", *columns), number)


def before_the_commit_that(changes: str, monkeypatch: pytest.MonkeyPatch, happens: Any) -> None:
    """Let something happen before the first commit is sent that changes a field of the metadata."""
    send, done = CatalogLog._send, list[int]()

    def after_it_happened(self: CatalogLog, candidate: Any, commit: Any) -> Any:
        before, after = (getattr(it.metadata, changes) for it in (candidate.base, candidate.head))
        if not done and before != after:
            done.append(1)
            happens()
        return send(self, candidate, commit)

    monkeypatch.setattr(CatalogLog, "_send", after_it_happened)


def test_a_column_that_spark_added_and_dropped_meanwhile_gives_its_id_to_none(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else values of it, in a file that was written meanwhile, would appear in the new column."""
    sink = case.new_sink(contract=EVOLVING)
    land(case, sink, 0)

    def add_and_drop() -> None:
        case.do("ALTER TABLE {t} ADD COLUMN theirs STRING")
        case.do("ALTER TABLE {t} DROP COLUMN theirs")

    before_the_commit_that("schemas", monkeypatch, add_and_drop)
    report = land(case, sink, 1, "'new' note")
    assert "note added as string" in report.why
    assert case.do("SELECT count(*) FROM {t} WHERE note = 'new'") == [[10]]
    assert case.loaded().schema().find_field("note").field_id == 4
    assert case.ids() == tens(0, 1)


def test_columns_of_both_are_merged_by_name_and_types_are_widened(case: Case) -> None:
    sink = case.new_sink(contract=EVOLVING)
    land(case, sink, 0, "1 n")
    case.do("ALTER TABLE {t} ADD COLUMNS (a STRING, s STRUCT<x: INT>)")
    land(case, sink, 1, "cast(2 as bigint) n", "'a' a", "named_struct('x', 1, 'y', 'y') s")
    case.do("ALTER TABLE {t} ALTER COLUMN a FIRST")
    case.do("ALTER TABLE {t} RENAME COLUMN a TO b")
    land(case, sink, 2, "cast(3 as bigint) n", "'b' b", "named_struct('x', 1, 'y', 'z') s")
    assert case.do("SELECT b, n, s.y, count(*) FROM {t} GROUP BY ALL ORDER BY n") == [
        [None, 1, None, 10],
        ["a", 2, "y", 10],
        ["b", 3, "z", 10],
    ]
    assert case.ids() == tens(0, 1, 2)


def test_a_batch_lands_by_field_ids_where_its_rows_mean_the_same(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = case.new_sink(contract=EVOLVING)
    land(case, sink, 0, "'kept' note", "1 n")
    before_the_commit_that(
        "snapshots",
        monkeypatch,
        lambda: [
            case.do("ALTER TABLE {t} RENAME COLUMN note TO remark"),
            case.do("ALTER TABLE {t} ALTER COLUMN remark FIRST"),
            case.do("ALTER TABLE {t} ALTER COLUMN n TYPE BIGINT"),
        ],
    )
    assert land(case, sink, 1, "'later' note", "2 n").attempts > 1
    assert case.do("SELECT remark, n, count(*) FROM {t} GROUP BY ALL ORDER BY n") == [
        ["kept", 1, 10],
        ["later", 2, 10],
    ]


@pytest.mark.parametrize("contract", [SchemaContract.strict(), EVOLVING], ids=["strict", "evolving"])
def test_a_batch_over_a_column_that_was_dropped_is_refused_or_brings_a_new_one(
    case: Case, monkeypatch: pytest.MonkeyPatch, contract: SchemaContract
) -> None:
    case.do("CREATE TABLE {t} (id BIGINT, by STRING, note STRING)")
    sink = case.new_sink(contract=contract)
    land(case, sink, 0, "'old' note")
    before_the_commit_that("snapshots", monkeypatch, lambda: case.do("ALTER TABLE {t} DROP COLUMN note"))
    if contract == EVOLVING:
        land(case, sink, 1, "'new' note")
        assert case.do("SELECT note, count(*) FROM {t} GROUP BY note ORDER BY note") == [
            [None, 10],
            ["new", 10],
        ]
    else:
        with pytest.raises(SchemaMismatchError, match="note"):
            land(case, sink, 1, "'new' note")
        assert case.ids() == tens(0)


def test_files_without_field_ids_keep_a_column_that_was_renamed(case: Case) -> None:
    """The name mapping is extended: written anew, it had nulls for them from the next new column on."""
    case.do("CREATE TABLE {t} (id BIGINT, by STRING, a STRING)")
    path = str(case.catalog.warehouse / f"{case.name}.parquet")
    pq.write_table(pa.table({"id": [1000], "by": ["theirs"], "a": ["keep"]}), path)
    case.loaded().add_files([path])
    case.do("ALTER TABLE {t} RENAME COLUMN a TO b")
    sink = case.new_sink(contract=EVOLVING)
    land(case, sink, 0, "'ours' b", "'new' c")
    assert case.do("SELECT b, c FROM {t} WHERE id = 1000") == [["keep", None]]
    land(case, sink, 1, "'ours' b", "'again' a")
    assert case.do("SELECT b, c, a FROM {t} WHERE id = 1000") == [["keep", None, None]]
    assert case.do("SELECT DISTINCT a FROM {t} WHERE id BETWEEN 10 AND 19") == [["again"]]
    assert case.ids() == [*tens(0, 1), 1000]


def test_a_table_that_a_sink_makes_has_the_mapping_of_its_own_field_ids(case: Case) -> None:
    """The catalog assigns the ids."""
    land(case, case.new_sink(), 0, "named_struct('x', array(named_struct('y', 1))) s", "map('k', 1) m", "2 n")
    assert case.loaded().properties[NAME_MAPPING] == name_mapping(case.loaded().schema())


def test_a_fill_of_files_that_may_hold_a_new_column_is_dropped_and_the_rows_stay(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizing = FileSizing(max_file_bytes="64KiB", small_file_bytes="48KiB", fill="inline", fill_policy="always")
    filling = case.new_sink(sizing=sizing)
    land(case, filling, 0)
    land(case, filling, 1)

    def add_and_write() -> None:
        case.do("ALTER TABLE {t} ADD COLUMN note STRING")
        case.do("INSERT INTO {t} VALUES (1000, 'theirs', 'kept')")

    before_the_commit_that("snapshots", monkeypatch, add_and_write)
    report = land(case, filling, 2)
    assert report.dropped_fills == 1
    assert case.do("SELECT note FROM {t} WHERE id = 1000") == [["kept"]]
    for number in range(3, 6):
        land(case, filling, number)
    assert case.do("SELECT note FROM {t} WHERE id = 1000") == [["kept"]]
    assert case.ids() == [*tens(*range(6)), 1000]


def test_a_partitioning_that_both_change(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.do("CREATE TABLE {t} (id BIGINT, by STRING) PARTITIONED BY (by)")
    case.do("INSERT INTO {t} VALUES (1000, 'theirs')")
    contract = SchemaContract(partitioning="evolve")
    before_the_commit_that(
        "partition_specs",
        monkeypatch,
        lambda: case.do("ALTER TABLE {t} ADD PARTITION FIELD truncate(2, by)"),
    )
    sink = case.new_sink(contract=contract, partition_by=["bucket(4, id)"])
    report = land(case, sink, 0)
    assert "partitioning has changed" in report.why
    metadata = case.loaded().metadata
    fields = {(f.field_id, str(f.transform)) for it in metadata.partition_specs for f in it.fields}
    assert fields == {(1000, "identity"), (1001, "truncate[2]"), (1002, "bucket[4]")}
    case.do("ALTER TABLE {t} REPLACE PARTITION FIELD id_bucket WITH bucket(8, id)")
    case.do("INSERT INTO {t} VALUES (1001, 'theirs')")
    land(case, sink, 1)
    assert case.ids() == [*tens(0, 1), 1000, 1001]
    assert case.do("SELECT count(*) FROM {t} WHERE id = 15 AND by = 'ours'") == [[1]]
