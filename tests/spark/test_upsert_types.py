"""Upserts of odd keys and sequences on Spark: at the ends of their types, widened, in several spellings."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from streaming_sink import IcebergSink, SchemaContract
from tests.spark.changes import CHANGES, KEYED, Judge, as_batch, random_changes, rows_of
from tests.spark.streams import SMALL

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
WIDE = CHANGES.replace("at bigint", "at decimal(38, 0)")


def _sink(location: str, app_id: str = "app", **given: Any) -> IcebergSink:
    return IcebergSink(location, app_id=app_id, **{"sizing": SMALL, **KEYED, **given})


def test_the_smallest_sequence_is_one_like_any_other(spark: SparkSession, tmp_path: Path) -> None:
    location, smallest = str(tmp_path / "t"), -(2**63)
    sink = _sink(location)
    sink(as_batch(spark, [(1, smallest, None, None, "D"), (2, smallest, "a", "x", "I")]), 0)
    sink(as_batch(spark, [(1, smallest, "a", "tied", "I"), (3, smallest, "a", "y", "I")]), 1)
    assert rows_of(location) == [(2, smallest, "a", "x"), (3, smallest, "a", "y")]


@pytest.mark.parametrize("index", ["scan", "index"])
def test_a_sequence_may_have_38_digits(spark: SparkSession, tmp_path: Path, index: str) -> None:
    """In a batch, against rows and deletes of the table, by two writers, and tied."""
    location, judge, rng = str(tmp_path / "t"), Judge(), random.Random(index)
    sinks = [_sink(location, app, key_index=index) for app in "ab"]
    positions = [-(10**38) + 1, -(2**64), -1, 0, 2**63, 2**64, 2**64 + 1, 10**37, 10**38 - 1]
    for number in range(3):
        for sink in sinks:
            changes = random_changes(rng, 60, 20, 0, len(positions))
            wide = [(key, positions[at], *rest) for key, at, *rest in changes]
            sink(spark.createDataFrame([(key, Decimal(at), *rest) for key, at, *rest in wide], WIDE), number)
            judge.take(wide)
            assert rows_of(location) == judge.rows
            sink.finish(60)
    assert all(sink.reports[-1].changes["late"] for sink in sinks)


def test_a_sequence_of_digits_may_get_more_of_them(spark: SparkSession, tmp_path: Path) -> None:
    location, narrow = str(tmp_path / "t"), WIDE.replace("38", "4")
    sinks = [_sink(location, app, schema=SchemaContract.evolving(), key_index="index") for app in "ab"]
    for number, sink in enumerate(sinks):
        types = (narrow, WIDE)[number]
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
