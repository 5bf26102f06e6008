"""Upserts of odd keys and sequences on Spark: at the ends of their types, widened, in several spellings."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.table import StaticTable

from streaming_sink import IcebergSink, SchemaContract, Upsert
from streaming_sink.commands.cli import main
from tests.sinks import flat_sink
from tests.spark.changes import (
    KEYED,
    WIDE_CHANGES,
    Change,
    Judge,
    as_batch,
    as_wide_batch,
    rows_of,
    wide_changes,
)
from tests.spark.streams import SMALL, metadata_file
from tests.tiers import only_in_soak
from timeline.errors import SchemaMismatchError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def _sink(location: str, app_id: str = "app", **given: Any) -> IcebergSink:
    return flat_sink(location, app_id=app_id, **{"sizing": SMALL, **KEYED, **given})


def test_the_smallest_sequence_is_one_like_any_other(spark: SparkSession, tmp_path: Path) -> None:
    location, smallest = str(tmp_path / "t"), -(2**63)
    sink = _sink(location)
    sink(as_batch(spark, [(1, smallest, None, None, "D"), (2, smallest, "a", "x", "I")]), 0)
    sink(as_batch(spark, [(1, smallest, "a", "tied", "I"), (3, smallest, "a", "y", "I")]), 1)
    assert rows_of(location) == [(2, smallest, "a", "x"), (3, smallest, "a", "y")]


@pytest.mark.parametrize("index", ["scan", pytest.param("index", marks=only_in_soak)])
def test_a_sequence_may_have_38_digits(spark: SparkSession, tmp_path: Path, index: str) -> None:
    """In a batch, against rows and deletes of the table, by two writers, and tied."""
    location, judge, rng = str(tmp_path / "t"), Judge(), random.Random(index)
    sinks = [_sink(location, app, key_index=index) for app in "ab"]
    for number in range(3):
        for sink in sinks:
            changes = wide_changes(rng, 60, 20)
            sink(as_wide_batch(spark, changes), number)
            judge.take(changes)
            assert rows_of(location) == judge.rows
            sink.finish(60)
    assert all(sink.reports[-1].changes["late"] for sink in sinks)


def test_a_sequence_of_digits_may_get_more_of_them(spark: SparkSession, tmp_path: Path) -> None:
    location, narrow = str(tmp_path / "t"), WIDE_CHANGES.replace("38", "4")
    sinks = [_sink(location, app, schema=SchemaContract.evolving(), key_index="index") for app in "ab"]
    for number, sink in enumerate(sinks):
        types = (narrow, WIDE_CHANGES)[number]
        rows = [(1, Decimal(9000 + number), "a", "x", "U"), (2, Decimal(-9000 - number), "a", "y", "U")]
        sink(spark.createDataFrame([*rows, (3, Decimal(9), None, None, "D")], types), 0)
        sink.finish(60)
    late = [
        (1, Decimal(9000), "a", "late", "U"),
        (2, Decimal(-8999), "a", "new", "U"),
        (3, Decimal(9), "a", "late", "I"),
    ]
    sinks[0](spark.createDataFrame(late, narrow), 1)
    assert rows_of(location) == [(1, 9001, "a", "x"), (2, -8999, "a", "new")]


def test_a_delete_is_forgotten_by_the_next_one_after_its_time_to_live(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Not by time alone: a change that comes much later is late while nobody has deleted another key."""
    location = str(tmp_path / "t")
    sink = _sink(location, table_properties={"streaming-sink.tombstone-ttl-ms": "1"})
    older: list[Change] = [(1, 5, "a", "older", "U")]
    for number, changes in enumerate(
        ([(1, 9, None, None, "D"), (2, 1, "a", "x", "I")], older, [(3, 1, "a", "y", "I")], older)
    ):
        sink(as_batch(spark, changes), number)
        assert rows_of(location) == [(2, 1, "a", "x"), (3, 1, "a", "y")][: 1 + number // 2]
    assert sink.reports[-1].changes["late"] == 1
    sink(as_batch(spark, [(2, 2, None, None, "D")]), 4)
    sink(as_batch(spark, older), 5)
    assert rows_of(location) == [(1, 5, "a", "older"), (3, 1, "a", "y")]


def test_a_table_of_inserts_gets_a_sequence_of_digits(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    location = str(tmp_path / "t")
    inserts = spark.createDataFrame([(1, Decimal(10**30), "a", "x", "I")], WIDE_CHANGES).drop("op")
    IcebergSink(location, app_id="inserts")(inserts, 0)
    assert main(["key", location, "--columns", "user_id", "--sequence-by", "at", "--declare"]) == 0
    assert "it is the table's key now" in capsys.readouterr().out
    changes = [(1, Decimal(10**30 - 1), "a", "late", "U"), (2, Decimal(-1), "a", "y", "I")]
    _sink(location)(spark.createDataFrame(changes, WIDE_CHANGES), 0)
    assert rows_of(location) == [(1, 10**30, "a", "x"), (2, -1, "a", "y")]


def test_another_writer_may_widen_the_key_and_the_sequence(spark: SparkSession, tmp_path: Path) -> None:
    """The first writer looks again into files whose values do not fit the types that it has planned with."""
    location, narrow = str(tmp_path / "t"), "user_id int, at int, region string, name string, op string"
    a, b = (_sink(location, app, schema=SchemaContract.evolving(), fill_policy="never") for app in "ab")
    for number in range(2):
        a(spark.createDataFrame([(1, 1 + number, "a", "x", "I"), (2, 3, "a", "x", "I")], narrow), number)
    b(as_batch(spark, [(1, 2**40, "a", "y", "U"), (2**40, 1, "a", "z", "I"), (2, 3, "a", "y", "U")]), 0)
    a(
        spark.createDataFrame(
            [(1, 9, "a", "late", "U"), (2, 3, "a", "xx", "U"), (3, 1, "b", "n", "I")], narrow
        ),
        2,
    )
    assert rows_of(location) == [
        (1, 2**40, "a", "y"),
        (1 << 40, 1, "a", "z"),
        (2, 3, "a", "y"),
        (3, 1, "b", "n"),
    ]


def test_a_key_in_several_spellings_is_one_key(spark: SparkSession, tmp_path: Path) -> None:
    """Spark hashes what came, so they would come to several tasks, of which each writes a row."""
    location = str(tmp_path / "t")
    _sink(location)(as_batch(spark, [(0, 1, "a", "x", "I")]), 0)
    sink = _sink(location, "text", schema=SchemaContract(mismatch="rescue"))
    rows = [
        (text.format(key), at, "a", "x", "I")
        for key in range(1, 9)
        for at, text in enumerate(("{}", "0{}", "00{}", "+{}"))
    ]
    sink(spark.createDataFrame(rows, "user_id string, at bigint, region string, name string, op string"), 0)
    assert [row[:2] for row in rows_of(location)] == [(0, 1), *((key, 3) for key in range(1, 9))]


def test_tied_rows_may_hold_dates_that_python_lacks(spark: SparkSession, tmp_path: Path) -> None:
    sink = _sink(str(tmp_path / "t"), key=["k"], delete_where=None, except_columns=None)
    row = "SELECT 1L k, 1L at, make_date({}, 1, 1) d, timestamp_micros({}) t"
    first, larger = row.format(12_000, 300_000 * 10**12), row.format(12_001, -90_000 * 10**12)
    sink(spark.sql(first), 0)
    sink(spark.sql(f"{first} UNION ALL {larger}"), 1)
    assert sink.reports[-1].changes["updated"] == 1
    sink(spark.sql(f"{larger} UNION ALL {first}"), 2)
    assert sink.reports[-1].changes["unchanged"] == 1


def test_narrower_decimals_and_whole_numbers_are_the_same_keys_and_sequences(
    spark: SparkSession, tmp_path: Path
) -> None:
    location = str(tmp_path / "t")
    sink = IcebergSink(
        location, Upsert(key=["k"], sequence_by="at"), partition_by=["bucket(4, k)"], app_id="app"
    )
    wide = "cast({} as decimal(9,2)) k, cast({} as decimal(38,0)) at, cast({} as decimal(12,3)) v"
    narrow = "cast({} as decimal(5,1)) k, cast({} as bigint) at, cast({} as smallint) v"
    whole = "cast({} as int) k, cast({} as int) at, cast({} as decimal(4,2)) v"

    def batch(columns: str, *rows: tuple[str, int, str]) -> DataFrame:
        return spark.sql(" union all ".join(f"select {columns.format(*row)}" for row in rows))

    sink(batch(wide, ("1.50", 5, "0.125"), ("2.00", 5, "1"), ("9999999.99", 5, "1")), 0)
    sink(batch(narrow, ("1.5", 6, "7"), ("2.0", 4, "9"), ("3.5", 1, "3")), 1)  # newer, late and new
    with pytest.raises(SchemaMismatchError, match=r"k is int in the batch and decimal\(9, 2\)"):
        sink(batch(whole, ("2", 7, "2.25")), 2)
    sink(batch(whole.replace("int) k", "smallint) k"), ("2", 7, "2.25")), 2)
    rows = StaticTable.from_metadata(str(metadata_file(location))).scan().to_arrow().to_pylist()
    found = sorted((row["k"], row["at"], row["v"]) for row in rows)
    assert found == [
        (Decimal("1.50"), 6, Decimal("7.000")),
        (Decimal("2.00"), 7, Decimal("2.250")),
        (Decimal("3.50"), 1, Decimal("3.000")),
        (Decimal("9999999.99"), 5, Decimal("1.000")),
    ]
