"""Expectations on Spark: each row is in the table, in the quarantine or dropped, exactly once."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import functions as sf

import streaming_sink.seconds.quarantine as second
from planners import FileSizing
from streaming_sink import IcebergSink, SchemaContract, history
from streaming_sink.errors import RowsRefusedError
from streaming_sink.landing.checking import RulesOfBatches
from tests.sinks import flat_sink
from tests.spark.streams import SMALL, add_files, drain, head_of, metadata_file
from timeline.errors import SchemaMismatchError, StoreUnavailableError
from timeline.table import open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

QUARANTINE = {"id % 10 <> 3": "quarantine"}


def _sink(location: str, app_id: str | None = "app", **given: Any) -> IcebergSink:
    given.setdefault("expectations", QUARANTINE)
    return flat_sink(location, app_id=app_id, sizing=given.pop("sizing", SMALL), **given)


def _rows(spark: SparkSession, start: int, count: int, slices: int = 3) -> DataFrame:
    ids = spark.range(start, start + count, 1, slices)
    return ids.select("id", sf.concat(sf.lit("p"), sf.col("id") % 3).alias("p"), sf.array("id").alias("l"))


def _read(location: str) -> list[dict[str, Any]]:
    path = metadata_file(location)
    return [] if path is None else StaticTable.from_metadata(path).scan().to_arrow().to_pylist()


def _ids(location: str) -> Counter[int]:
    return Counter(row["id"] for row in _read(location))


def _set_aside(location: str) -> Counter[int]:
    """Return how often each id is in the quarantine."""
    return Counter(json.loads(row["row"])["id"] for row in _read(location + "__quarantine"))


def _expected(numbers: range, failing: bool) -> Counter[int]:
    return Counter(number for number in numbers if (number % 10 == 3) == failing)


ROUTES: dict[str, dict[str, Any]] = {
    "one task": {},
    "partitioned": {"partition_by": ["p"]},
    "keys from an Arrow stage": {"partition_by": ["bucket(2, p)"]},
    "bulk_insert": {"operation": "bulk_insert", "partition_by": ["p"]},
    "fills inline": {"fill": "inline", "fill_policy": "always", "partition_by": ["p"]},
    "an evolving schema": {"schema": SchemaContract.evolving()},
}


@pytest.mark.parametrize("given", ROUTES.values(), ids=ROUTES)
def test_on_every_route_each_row_is_where_it_belongs(
    spark: SparkSession, location: str, given: dict[str, Any]
) -> None:
    for number in range(3):  # a sink each: without experience the second and third batch are counted inline
        rows = _rows(spark, 100 * number, 100)
        sink = _sink(location, **given)
        sink(rows.withColumn("more", sf.lit(1)) if number and "schema" in given else rows, number)
    sink.finish()
    assert _ids(location) == _expected(range(300), failing=False)
    assert _set_aside(location) == _expected(range(300), failing=True)
    row = min(_read(location + "__quarantine"), key=lambda it: (it["batch"], it["row"]))
    assert json.loads(row["row"]) == {"id": 13, "p": "p1", "l": [13]}
    assert (row["check"], row["reason"], row["app_id"]) == ("id % 10 <> 3", "id % 10 <> 3", "app")


def test_a_shuffled_batch_makes_one_file_of_its_failing_rows(spark: SparkSession, location: str) -> None:
    sink = _sink(location, partition_by=["p"])
    sink(_rows(spark, 0, 100, slices=4), 0)
    assert sink.reports[0].route == "shuffle"
    assert head_of(location + "__quarantine").metadata.current_snapshot().summary["added-data-files"] == "1"


def test_rules_are_made_once_for_batches_of_the_same_columns(spark: SparkSession, location: str) -> None:
    """Spark takes as long to analyse ten conditions as to write a small batch."""
    sink = _sink(location, schema=SchemaContract.evolving())
    sink(_rows(spark, 0, 10), 0)
    rules, schema = RulesOfBatches(sink.options), head_of(location).schema
    first, second_batch = _rows(spark, 10, 10), _rows(spark, 20, 10)
    made = rules.of(first, schema, {})
    assert rules.of(second_batch, schema, {}) is made
    assert rules.of(second_batch.drop("l"), schema, {}) is not made


def test_a_sink_that_expects_nothing_any_more_needs_no_quarantine(spark: SparkSession, location: str) -> None:
    _sink(location)(_rows(spark, 0, 20), 0)
    assert head_of(location).outbox("app") is not None
    _sink(location, expectations=None)(_rows(spark, 20, 20), 1)
    assert head_of(location).outbox("app") is None
    shutil.rmtree(location + "__quarantine")
    _sink(location, expectations=None)(_rows(spark, 40, 20), 2)
    assert _ids(location) == _expected(range(20), failing=False) + Counter(range(20, 60))


def test_an_interval_of_months_is_quarantined_as_text_and_stops_no_stream(
    spark: SparkSession, location: str
) -> None:
    """PyArrow has no class for it, so that no Python task can look at it, at any depth."""
    months = "interval '1-2' year to month"
    rows = _rows(spark, 0, 10).selectExpr(
        "*", f"{months} lag", f"struct(array(map({months}, 1)) m) deep", "make_interval(0, 1, 0, 2) mixed"
    )
    given = {"schema": SchemaContract(new_columns="ignore"), "partition_by": ["bucket(2, p)"]}
    _sink(location, partition_by=["bucket(2, p)"])(_rows(spark, 10, 10), 0)
    _sink(location, **given)(rows, 1)
    _sink(location, **given, expectations=None)(rows, 2)
    assert _ids(location) == _expected(range(20), failing=False) + Counter(range(10))
    (text,) = (row["row"] for row in _read(location + "__quarantine") if '"id":3,' in row["row"])
    assert {name: value for name, value in json.loads(text).items() if name not in ("id", "p", "l")} == {
        "lag": "INTERVAL '1-2' YEAR TO MONTH",
        "deep": {"m": [{"INTERVAL '1-2' YEAR TO MONTH": 1}]},
        "mixed": "1 months 2 days",
    }


def test_failing_rows_make_no_partition(spark: SparkSession, location: str) -> None:
    rows = _rows(spark, 0, 50).withColumn("p", sf.when(sf.col("id") % 10 == 3, "bad").otherwise("good"))
    _sink(location, partition_by=["p"])(rows, 0)
    assert {path.name for path in Path(location, "data").iterdir()} == {"p=good"}


def test_a_row_that_fails_several_checks_is_quarantined_before_it_is_dropped(
    spark: SparkSession, location: str
) -> None:
    sink = _sink(
        location, expectations={"id % 2 = 0": "drop", "id % 3 <> 0": "quarantine", "nothing": "drop"}
    )
    rows = spark.range(12).select("id", sf.lit(None).cast("boolean").alias("nothing"))
    sink(rows, 0)
    report = sink.reports[0]
    assert sorted(_ids(location)) == [2, 4, 8, 10]
    assert sorted(_set_aside(location)) == [0, 3, 6, 9]
    assert (report.rows, report.quarantined, report.dropped) == (4, 4, 4)
    assert report.failed == {"id % 2 = 0": 6, "id % 3 <> 0": 4}
    assert "4 rows quarantined and 4 dropped (id % 2 = 0: 6, id % 3 <> 0: 4)" in report.line()
    (stored,) = history(location)
    assert (stored.failed, stored.quarantined, stored.dropped) == (report.failed, 4, 4)


@pytest.mark.parametrize("action", ["quarantine", "drop"])
def test_a_batch_of_which_every_row_fails_commits(spark: SparkSession, location: str, action: str) -> None:
    given = {"expectations": {"id < 0": action}}
    _sink(location, **given)(_rows(spark, 0, 10), 0)
    _sink(location, **given)(_rows(spark, 10, 10), 1)
    again = _sink(location, **given)
    again(_rows(spark, 10, 10), 1)
    assert again.reports[0].outcome == "skipped"
    assert _read(location) == []
    assert _set_aside(location) == Counter(range(20 if action == "quarantine" else 0))


def test_a_row_that_fails_refuse_refuses_the_batch_and_leaves_no_file(
    spark: SparkSession, location: str
) -> None:
    sink = _sink(location, expectations={"id <> 7": "refuse", **QUARANTINE})
    sink(_rows(spark, 10, 10), 0)
    files = _files(location)
    with pytest.raises(
        RowsRefusedError, match=r'10 rows.*"refuse".*nothing.*committed.*id <> 7 \(1 row\), such as {"id":7,'
    ) as refused:
        sink(_rows(spark, 0, 10), 1)
    assert (refused.value.batch, refused.value.app_id) == (1, "app")
    assert _files(location) == files
    sink(_rows(spark, 20, 10), 1)
    assert sorted(_ids(location) + _set_aside(location)) == list(range(10, 30))


def _files(location: str) -> set[Path]:
    return {
        path for place in (location, location + "__quarantine") for path in Path(place).rglob("*.parquet")
    }


@pytest.mark.parametrize(
    ("bound", "allowed"), [(0.1, True), (10, True), (0.09, False), (9, False), (0, False)]
)
def test_more_quarantined_rows_than_allowed_refuse_the_batch(
    spark: SparkSession, location: str, bound: float, allowed: bool
) -> None:
    sink = _sink(location, max_quarantined=bound)
    if allowed:
        sink(_rows(spark, 0, 100), 0)
        assert sum(_set_aside(location).values()) == 10
        return
    with pytest.raises(
        RowsRefusedError, match=r"10 of 100 rows would be.*id % 10 <> 3 \(10 rows\), such as {"
    ):
        sink(_rows(spark, 0, 100), 0)
    assert _read(location) == _read(location + "__quarantine") == []


BAD: dict[str, str] = {
    "id >": "id >: .*PARSE_SYNTAX_ERROR",
    "nope > 1": r"batch \(id, p, l\): nope > 1: .*`nope` cannot be resolved",
    "id + 1": "must be true or false.*is of type bigint: id [+] 1",
    "count(*) > 1": "not an SQL condition of one row.*AGGREGATE",
    "explode(array(true))": "not an SQL condition of one row.*UNSUPPORTED_GENERATOR",
    "rand() > 0.5": "the same whenever it is computed.*NONDETERMINISTIC",
    "row_number() OVER (ORDER BY id) > 1": "not an SQL condition of one row.*row_number",
}


@pytest.mark.usefixtures("noted_calls")
@pytest.mark.parametrize("text", BAD)
def test_what_is_no_condition_is_refused_before_anything_is_written(
    spark: SparkSession, location: str, text: str
) -> None:
    with pytest.raises(ValueError, match=BAD[text]):
        _sink(location, expectations={text: "quarantine"})(_rows(spark, 0, 10), 0)
    assert _files(location) == set()
    assert metadata_file(location) is None
    assert not Path(location + "__quarantine").exists()


def test_another_table_at_the_quarantines_location_is_refused(spark: SparkSession, location: str) -> None:
    IcebergSink(location + "__quarantine", app_id="other")(spark.range(5), 0)
    with pytest.raises(
        SchemaMismatchError, match=r"columns of quarantined rows; give.*another location.*has id"
    ):
        _sink(location)(_rows(spark, 0, 10), 0)
    assert _read(location) == []


def test_a_query_without_expectations_has_no_second_table_and_no_column_more(
    spark: SparkSession, location: str
) -> None:
    IcebergSink(location, app_id="app")(_rows(spark, 0, 10), 0)
    assert not Path(location + "__quarantine").exists()
    assert open_table(location).head.number == 2
    assert not [key for key in open_table(location).head.properties if "outbox" in key]


def test_a_batch_without_failing_rows_costs_no_version_of_the_quarantine(
    spark: SparkSession, location: str
) -> None:
    sink = _sink(location)
    sink(_rows(spark, 0, 10), 0)
    before = [head_of(it).number for it in (location, location + "__quarantine")]
    sink(_rows(spark, 14, 5), 1)
    assert [head_of(it).number for it in (location, location + "__quarantine")] == [before[0] + 1, before[1]]


def _fail_to_deliver(*_: Any) -> None:
    raise StoreUnavailableError("as after a crash between the two commits")


def test_what_a_crash_left_undelivered_is_delivered_by_the_replay_under_other_expectations(
    spark: SparkSession, location: str, checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_files(tmp_path / "source", [0])
    with monkeypatch.context() as crash:
        crash.setattr(second, "deliver", _fail_to_deliver)
        with pytest.raises(Exception, match="between the two commits"):
            drain(spark, tmp_path / "source", _sink(location, None), checkpoint)
    assert _set_aside(location) == Counter()
    changed = _sink(location, None, expectations={"id % 10 <> 4": "quarantine", "id > 50": "drop"})
    drain(spark, tmp_path / "source", changed, checkpoint)
    assert changed.reports[0].outcome == "skipped"
    assert _ids(location) == _expected(range(100), failing=False)
    assert _set_aside(location) == _expected(range(100), failing=True)


@pytest.mark.parametrize("given", [{}, {"expectations": {}}], ids=["with expectations", "without"])
def test_the_next_batch_delivers_what_was_left_first(
    spark: SparkSession, location: str, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    with monkeypatch.context() as crash:
        crash.setattr(second, "deliver", _fail_to_deliver)
        with pytest.raises(StoreUnavailableError):
            _sink(location)(_rows(spark, 0, 100), 0)
    _sink(location, **given)(_rows(spark, 100, 2), 1)
    assert _set_aside(location) == _expected(range(100), failing=True)
    assert _ids(location) == _expected(range(102), failing=False)


def test_a_quarantine_that_was_dropped_and_made_again_does_not_stop_the_stream(
    spark: SparkSession, location: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as crash:
        crash.setattr(second, "deliver", _fail_to_deliver)
        with pytest.raises(StoreUnavailableError):
            _sink(location)(_rows(spark, 0, 20), 0)
    Path(location + "__quarantine").rename(location + "-dropped")
    _sink(location)(_rows(spark, 20, 20), 1)
    assert _set_aside(location) == _expected(range(20, 40), failing=True)
    assert "dropped and created again" in caplog.text


def test_small_files_of_the_quarantine_are_merged_beside_the_stream(
    spark: SparkSession, location: str
) -> None:
    sink = _sink(location, sizing=FileSizing(max_file_bytes="256KiB", small_file_bytes="200KiB"))
    for number in range(10):
        sink(_rows(spark, 10 * number, 10), number)
        sink.finish()
    assert _set_aside(location) == _expected(range(100), failing=True)
    assert len(list(head_of(location + "__quarantine").files_below(1 << 40))) <= 9


def test_two_streams_share_a_quarantine(spark: SparkSession, location: str) -> None:
    shared = location + "__quarantine"
    _sink(location, "one")(_rows(spark, 0, 10), 0)
    _sink(location, "two")(_rows(spark, 10, 10), 0)
    _sink(location + "2", "one", quarantine=shared)(_rows(spark, 20, 10), 0)
    assert _set_aside(location) == Counter([3, 13, 23])


def test_a_column_that_a_batch_lacks_is_null_to_an_expectation(spark: SparkSession, location: str) -> None:
    sink = _sink(location, expectations={"price >= 0": "quarantine", "price IS NOT NULL OR id < 3": "drop"})
    sink(spark.range(2).select("id", (-sf.col("id")).alias("price")), 0)
    sink(spark.range(2, 4), 1)
    assert _ids(location) == Counter([0, 2])
    assert _set_aside(location) == Counter([1])
    assert (sink.reports[1].quarantined, sink.reports[1].dropped) == (0, 1)


def test_an_expectation_judges_the_values_that_are_written(spark: SparkSession, location: str) -> None:
    """One value of another type makes a column of parsed JSON text: the condition is not one of text."""
    contract = SchemaContract(mismatch="quarantine")
    given: dict[str, Any] = {"expectations": {"price >= 0 AND l[0] > 0": "quarantine"}, "schema": contract}
    _sink(location, **given)(spark.sql("SELECT 1L id, 2.5D price, array(1) l"), 0)
    texts = (
        "VALUES (2, '5.5', array('2')), (3, 'ask', array('3')), (4, '-1', array('4')), (5, null, array('x'))"
    )
    sink = _sink(location, **given)
    sink(spark.sql(f"SELECT CAST(id AS LONG) id, price, l FROM {texts} AS t(id, price, l)"), 1)
    assert [
        (row["id"], row["price"], row["l"]) for row in sorted(_read(location), key=lambda it: it["id"])
    ] == [
        (1, 2.5, [1]),
        (2, 5.5, [2]),
    ]
    aside = {json.loads(row["row"])["id"]: row for row in _read(location + "__quarantine")}
    assert {number: row["check"] for number, row in aside.items()} == {
        3: "price fits double",
        4: "price >= 0 AND l[0] > 0",
        5: "l.element fits int",
    }
    assert json.loads(aside[4]["row"]) == {"id": 4, "price": "-1", "l": ["4"]}


def test_a_rescued_value_is_null_to_an_expectation(spark: SparkSession, location: str) -> None:
    contract = SchemaContract(mismatch="rescue")
    _sink(location, schema=contract, expectations={})(spark.sql("SELECT 1L id, 2.5D price"), 0)
    sink = _sink(location, schema=contract, expectations={"price IS NOT NULL OR id = 3": "drop"})
    sink(
        spark.sql(
            "SELECT CAST(id AS LONG) id, price FROM VALUES (2, 'ask'), (3, 'ask'), (4, '4') AS t(id, price)"
        ),
        1,
    )
    assert {row["id"]: row.get("_rescued") for row in _read(location)} == {
        1: None,
        3: '{"price":"ask"}',
        4: None,
    }
    assert sink.reports[-1].dropped == 1


@pytest.mark.parametrize("case_sensitive", ["false", "true"])
def test_a_column_in_another_case_is_not_what_an_expectation_sees(
    spark: SparkSession, location: str, case_sensitive: str
) -> None:
    contract = SchemaContract(mismatch="rescue")
    _sink(location, schema=contract, expectations={})(spark.sql("SELECT 1L id, 2.5D price"), 0)
    before = spark.conf.get("spark.sql.caseSensitive")
    spark.conf.set("spark.sql.caseSensitive", case_sensitive)
    try:
        sink = _sink(location, schema=contract, expectations={"id IS NOT NULL": "quarantine"})
        sink(spark.sql("SELECT 2L ID, 2.5D price"), 1)
    finally:
        spark.conf.set("spark.sql.caseSensitive", before)
    assert _ids(location) == {1: 1}
    assert [row["row"] for row in _read(location + "__quarantine")] == ['{"ID":2,"price":2.5}']


def test_an_expectation_may_name_the_column_of_rescued_values(spark: SparkSession, location: str) -> None:
    given: dict[str, Any] = {
        "schema": SchemaContract(mismatch="rescue"),
        "expectations": {"_rescued IS NULL": "quarantine"},
    }
    _sink(location, schema=given["schema"], expectations={})(spark.sql("SELECT 1L id"), 0)
    for number, value in enumerate(("'x'", "3L", "'4'"), 1):
        _sink(location, **given)(spark.sql(f"SELECT {value} id"), number)
    assert sorted(_ids(location)) == [1, 3, 4]
    assert [row["row"] for row in _read(location + "__quarantine")] == ['{"id":"x"}']


def test_a_condition_is_analysed_over_the_tables_types(spark: SparkSession, location: str) -> None:
    contract = SchemaContract(mismatch="quarantine")
    given: dict[str, Any] = {"expectations": {"upper(p) = 'P'": "quarantine", "size(l) > 0": "quarantine"}}
    _sink(location, schema=contract, **given)(spark.sql("SELECT 1L id, 'p' p, array(1) l"), 0)
    _sink(location, schema=contract, **given)(spark.sql("SELECT 2L id, 'p' p, '[1]' l"), 1)
    assert sorted(_ids(location)) == [1]
    assert [row["check"] for row in _read(location + "__quarantine")] == ["l fits list<int>"]
