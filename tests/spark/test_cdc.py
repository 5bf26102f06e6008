"""Changes of Debezium, DMS and Delta, landed by key."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.table import StaticTable

from streaming_sink import IcebergSink, cdc
from tests.spark.streams import metadata_file
from timeline.errors import SchemaMismatchError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

_ROW = "struct<id: bigint, name: string>"


def _sink(tmp_path: Path) -> IcebergSink:
    return IcebergSink(str(tmp_path / "t"), app_id="a", operation="upsert", key=["id"], **cdc.CHANGES)


def _rows(tmp_path: Path) -> list[tuple[Any, ...]]:
    read = StaticTable.from_metadata(metadata_file(str(tmp_path / "t")) or "").scan().to_arrow().to_pylist()
    assert all("_op" not in row for row in read)
    return sorted(tuple(row.values()) for row in read)


def _envelopes(spark: SparkSession, source: str, *messages: tuple[Any, ...]) -> DataFrame:
    envelope = f"op string, before {_ROW}, after {_ROW}, source {source}, ts_ms bigint"
    texts = []
    for op, before, after, position in messages:
        image = [
            None if name is None else {"id": 1 if key is None else key, "name": name}
            for key, name in (before, after)
        ]
        texts.append((json.dumps({"op": op, "before": image[0], "after": image[1], "source": position}),))
    batch = spark.createDataFrame(texts, "value string")
    return batch.selectExpr(f"from_json(value, '{envelope}') AS m").select("m.*")


NOTHING = (None, None)


def test_envelopes_of_postgresql(spark: SparkSession, tmp_path: Path) -> None:
    sink, source = _sink(tmp_path), "struct<lsn: bigint, ts_ms: bigint>"
    first = _envelopes(
        spark,
        source,
        ("r", NOTHING, (1, "a"), {"lsn": None, "ts_ms": 5}),
        ("r", NOTHING, (2, "b"), {"lsn": None, "ts_ms": 5}),
        ("u", (1, "a"), (1, "a2"), {"lsn": 30, "ts_ms": 6}),
        ("c", NOTHING, (3, "c"), {"lsn": 20, "ts_ms": 6}),
    )
    sink(cdc.debezium(first), 0)
    assert _rows(tmp_path) == [(1, "a2", 30), (2, "b", 0), (3, "c", 20)]
    late = _envelopes(
        spark,
        source,
        ("u", (1, "a"), (1, "late"), {"lsn": 25, "ts_ms": 9}),
        ("d", (2, "b"), NOTHING, {"lsn": 40, "ts_ms": 9}),
    )
    sink(cdc.debezium(late.selectExpr("struct(*) AS payload")), 1)
    assert _rows(tmp_path) == [(1, "a2", 30), (3, "c", 20)]


def test_envelopes_of_mysql_are_in_the_order_of_the_binlog(spark: SparkSession, tmp_path: Path) -> None:
    source = "struct<file: string, pos: bigint, ts_ms: bigint>"
    batch = _envelopes(
        spark,
        source,
        ("u", (1, "a"), (1, "newest"), {"file": "binlog.000010", "pos": 4}),
        ("u", (1, "a"), (1, "older"), {"file": "binlog.000009", "pos": 900}),
        ("u", (1, "a"), (1, "newer"), {"file": "binlog.000009", "pos": 1000}),
    )
    _sink(tmp_path)(cdc.debezium(batch), 0)
    assert _rows(tmp_path) == [(1, "newest", (10 << 40) + 4)]


def test_a_sequence_of_ones_own(spark: SparkSession, tmp_path: Path) -> None:
    batch = _envelopes(
        spark,
        "struct<scn: string>",
        ("u", (1, "a"), (1, "new"), {"scn": "100"}),
        ("u", (1, "a"), (1, "old"), {"scn": "99"}),
    )
    with pytest.raises(SchemaMismatchError, match=r'sequence="source\.scn": scn'):
        cdc.debezium(batch)
    _sink(tmp_path)(cdc.debezium(batch, "source.scn"), 0)
    assert _rows(tmp_path) == [(1, "new", 100)]


def test_what_is_no_envelope_is_refused(spark: SparkSession) -> None:
    with pytest.raises(SchemaMismatchError, match="the batch has no 'op'; parse its messages first"):
        cdc.debezium(spark.createDataFrame([("{}",)], "value string"))


def test_changes_of_dms(spark: SparkSession, tmp_path: Path) -> None:
    sink = _sink(tmp_path)
    full = spark.createDataFrame([(1, "a", 0), (2, "b", 0)], "id bigint, name string, at bigint")
    sink(cdc.dms(full, "at"), 0)
    rows = [("U", 1, "a2", 7), ("D", 2, "b", 8), ("I", 3, "c", 9)]
    sink(cdc.dms(spark.createDataFrame(rows, "Op string, id bigint, name string, at bigint"), "at"), 1)
    assert _rows(tmp_path) == [(1, "a2", 7, 7), (3, "c", 9, 9)]


def test_changes_of_delta(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        (1, "a", "insert", 1),
        (1, "a", "update_preimage", 2),
        (1, "b", "update_postimage", 2),
        (2, "x", "insert", 1),
        (2, "x", "delete", 3),
    ]
    feed = spark.createDataFrame(rows, "id bigint, name string, _change_type string, _commit_version bigint")
    _sink(tmp_path)(cdc.delta_cdf(feed), 0)
    assert _rows(tmp_path) == [(1, "b", 5)]


def test_an_overwrite_of_a_delta_table_keeps_the_rows_that_it_inserts_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its one version deletes every row that was there, and inserts what is there now."""
    sink, kinds = _sink(tmp_path), "id bigint, name string, _change_type string, _commit_version bigint"
    sink(cdc.delta_cdf(spark.createDataFrame([(1, "a", "insert", 1), (2, "x", "insert", 1)], kinds)), 0)
    overwrite = [(1, "a", "delete", 2), (2, "x", "delete", 2), (1, "b", "insert", 2)]
    sink(cdc.delta_cdf(spark.createDataFrame(overwrite, kinds)), 1)
    assert _rows(tmp_path) == [(1, "b", 5)]
