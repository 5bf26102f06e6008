"""Replays on Spark: a quarantined row comes into its table once, whoever replays, and whatever is killed."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import functions as sf

import streaming_sink.replaying.replay as replaying
import streaming_sink.seconds.quarantine as second
from streaming_sink import Checks, IcebergSink, SchemaContract, parse_json, replay
from streaming_sink.commands.cli import main
from streaming_sink.errors import (
    CommitConflictError,
    SchemaMismatchError,
    StoreUnavailableError,
    TableNotFoundError,
)
from tests.sinks import flat_sink, replay_options
from tests.spark.streams import SMALL, add_files, drain, head_of, metadata_file
from tests.tiers import only_in_soak

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

POSITIVE = {"price >= 0": "quarantine"}
NEVER = {"id < 0": "quarantine"}


def _land(location: str, rows: DataFrame, batch: int = 0, **given: Any) -> None:
    given.setdefault("expectations", POSITIVE)
    flat_sink(location, app_id="app", sizing=SMALL, **given)(rows, batch)


def _orders(spark: SparkSession, start: int = 0) -> DataFrame:
    """Ten orders, of which three have a price below 0."""
    price = sf.when(sf.col("id") % 10 < 3, -sf.col("id") - 1).otherwise(sf.col("id"))
    return spark.range(start, start + 10).select("id", price.cast("double").alias("price"))


def _read(location: str) -> list[dict[str, Any]]:
    path = metadata_file(location)
    return [] if path is None else StaticTable.from_metadata(path).scan().to_arrow().to_pylist()


def _ids(location: str) -> Counter[int]:
    return Counter(row["id"] for row in _read(location))


def _waiting(location: str) -> list[int]:
    rows = _read(location + "__quarantine")
    marks = {row["replayed_row_id"] for row in rows}
    return sorted(json.loads(row["row"])["id"] for row in rows if row["row"] and row["row_id"] not in marks)


def test_rows_come_into_the_table_once_and_are_marked(spark: SparkSession, location: str) -> None:
    _land(location, _orders(spark))
    assert _waiting(location) == [0, 1, 2]
    (report,) = replay(
        spark, location, where="price < -1 AND `check` = 'price >= 0'", set={"price": "-price"}
    )
    assert (report.outcome, report.rows, report.quarantined) == ("committed", 2, 0)
    assert _waiting(location) == [0]
    assert sorted(row["price"] for row in _read(location)) == [2, 3, 3, 4, 5, 6, 7, 8, 9]
    (rest,) = replay(spark, location)
    assert rest.rows == 1
    assert replay(spark, location) == []
    assert _ids(location) == Counter(range(10))


@pytest.mark.parametrize("moment", ["after it has read", "before it writes"])
def test_of_two_replays_at_once_one_is_told_to_run_again(
    spark: SparkSession, location: str, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    _land(location, _orders(spark))
    land, read = IcebergSink.__call__, replaying.waiting_rows

    def other_operator() -> None:
        with monkeypatch.context() as inner:
            inner.setattr(IcebergSink, "__call__", land)
            inner.setattr(replaying, "waiting_rows", read)
            replay(spark, location, where="id = 1")

    def land_second(sink: IcebergSink, rows: DataFrame, number: int) -> None:
        other_operator()
        land(sink, rows, number)

    def read_first(*given: Any) -> DataFrame:
        rows = read(*given)
        other_operator()
        return rows

    with monkeypatch.context() as racing:
        if moment == "before it writes":
            racing.setattr(IcebergSink, "__call__", land_second)
        else:
            racing.setattr(replaying, "waiting_rows", read_first)
        with pytest.raises(CommitConflictError, match=r"another replay.*call it again"):
            replay(spark, location, where="id < 2")
    assert _ids(location) == Counter([1, *range(3, 10)])
    assert _waiting(location) == [0, 2]
    replay(spark, location)
    assert _ids(location) == Counter(range(10))


def _fail_to_deliver(*_: Any) -> None:
    raise StoreUnavailableError("as after a crash between the two commits")


def test_marks_that_a_crash_left_undelivered_are_delivered_before_rows_are_read(
    spark: SparkSession, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _land(location, _orders(spark))
    with monkeypatch.context() as crash:
        crash.setattr(second, "deliver", _fail_to_deliver)
        with pytest.raises(StoreUnavailableError, match="between the two commits"):
            replay(spark, location, where="id <> 1")
    assert _waiting(location) == [0, 1, 2]
    (report,) = replay(spark, location)
    assert report.rows == 1
    assert _ids(location) == Counter(range(10))
    assert _waiting(location) == []


def test_rows_that_fail_again_are_quarantined_again(spark: SparkSession, location: str) -> None:
    _land(location, _orders(spark))
    (report,) = replay(
        spark, location, set={"price": "price + 2"}, options=replay_options(expectations=POSITIVE)
    )
    assert (report.rows, report.quarantined) == (2, 1)
    assert _waiting(location) == [2]
    assert _ids(location) == Counter([0, 1, *range(3, 10)])


def test_a_column_that_the_rows_lack_is_null_to_an_expectation(spark: SparkSession, location: str) -> None:
    _land(location, _orders(spark))
    newer = _orders(spark, 10).withColumn("more", sf.lit(1))
    _land(location, newer, 1, schema=SchemaContract.evolving())
    (report,) = replay(
        spark,
        location,
        where="id < 3",
        options=replay_options(expectations={"more IS NOT NULL OR id < 2": "quarantine"}),
    )
    assert (report.rows, report.quarantined) == (2, 1)
    assert _waiting(location) == [2, 10, 11, 12]
    assert _ids(location) == Counter([0, 1, *range(3, 10), *range(13, 20)])


def test_rows_of_parsed_json_are_repaired_and_replayed(spark: SparkSession, location: str) -> None:
    lines = ['{"id": 1, "price": -2.5}', '{"id": 2, "price": "ask"}', '{"id": 3, "price": 3.5', '{"id": 4}']
    contract = SchemaContract(mismatch="quarantine")
    for number, texts in enumerate((['{"id": 0, "price": 0.5}'], lines)):
        sink = IcebergSink(location, app_id="app", sizing=SMALL, contract=contract, checks=Checks(POSITIVE))
        batch = spark.createDataFrame([(text,) for text in texts], "value string")
        with parse_json(batch, "value", sink) as parsed:
            sink(parsed.rows, number)
    assert _ids(location) == Counter([0, 4])
    unparsed = "__streaming_sink_unparsed"
    assert [unparsed in row["schema"] for row in _read(location + "__quarantine")].count(True) == 1
    reports = replay(spark, location)  # what does not fit is quarantined again
    assert sorted((report.rows, report.quarantined) for report in reports) == [(0, 1), (1, 1)]
    number = f"CAST(regexp_extract({unparsed}.value, '\"id\": ([0-9]+)', 1) AS LONG)"
    (report,) = replay(
        spark,
        location,
        where=f"{unparsed}.value LIKE '%3.5%'",
        set={"id": number, "price": "'3.5'", unparsed: "NULL"},
    )
    assert (report.rows, report.quarantined) == (1, 0)
    assert {row["id"]: row["price"] for row in _read(location)} == {0: 0.5, 1: -2.5, 3: 3.5, 4: None}
    assert _waiting(location) == [2]


@pytest.mark.parametrize("partition_by", [pytest.param([], marks=only_in_soak), ["t"]])
def test_a_row_that_is_refused_for_its_text_is_named_and_can_be_left_out_or_repaired(
    spark: SparkSession, location: str, partition_by: list[str]
) -> None:
    rows = spark.sql("SELECT 1L id, 'a' t UNION ALL SELECT 2L, CAST(X'FF41' AS string) ORDER BY id")
    _land(location, rows.where("id < 0"), expectations={}, partition_by=partition_by)
    _land(location, rows, 1, expectations={"id < 0": "quarantine"}, partition_by=partition_by)
    (row_id,) = (row["row_id"] for row in _read(location + "__quarantine") if '"id":2,' in row["row"])
    strict = {"schema": SchemaContract(), "partition_by": partition_by}
    with pytest.raises(
        SchemaMismatchError, match=rf"row_id <> '{row_id}': text is not valid.*: t "
    ) as refused:
        replay(spark, location, options=replay_options(**strict))
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__, "Spark's traceback says the same at length"
    (report,) = replay(spark, location, where=f"row_id <> '{row_id}'", options=replay_options(**strict))
    assert (report.rows, _ids(location)) == (1, Counter([1]))
    replay(spark, location, set={"t": "make_valid_utf8(t)"}, options=replay_options(**strict))
    assert {row["id"]: row["t"] for row in _read(location)} == {1: "a", 2: "\ufffdA"}


def test_what_a_fix_leaves_out_stays_and_what_it_makes_of_a_row_is_one_replay(
    spark: SparkSession, location: str
) -> None:
    _land(location, _orders(spark))
    twice = sf.explode(sf.expr("array(id + 100, id + 200)"))
    replay(spark, location, fix=lambda rows: rows.where("id > 0").withColumn("id", twice))
    assert _waiting(location) == [0]
    assert _ids(location) == Counter([*range(3, 10), 101, 102, 201, 202])
    with pytest.raises(ValueError, match="fix must keep the column __streaming_sink_row_id"):
        replay(spark, location, fix=lambda rows: rows.select("id", "price"))
    with pytest.raises(Exception, match="no __streaming_sink_row_id"):
        replay(
            spark,
            location,
            fix=lambda rows: rows.withColumn("__streaming_sink_row_id", sf.expr("string(null)")),
        )
    assert _waiting(location) == [0]


def _land_an_id_in_another_case(spark: SparkSession, location: str) -> SchemaContract:
    contract = SchemaContract(mismatch="quarantine")
    _land(location, _orders(spark), schema=contract)
    _land(location, spark.sql("SELECT 20L ID, 5d price"), 1, schema=contract)
    assert _ids(location) == Counter(range(3, 10))
    return contract


@pytest.mark.parametrize("drops", [False, True])
def test_a_column_in_another_case_is_set_by_its_name_and_no_value_is_lost(
    spark: SparkSession, location: str, drops: bool
) -> None:
    """A row of the first batch is replayed beside it, which spells the column as the table does."""
    _land_an_id_in_another_case(spark, location)
    dropped = ["--drop", "ID"] if drops else []
    assert main(["replay", location, "--where", "true", "--set", "id = ID", *dropped]) == 0
    assert _ids(location) == Counter([*range(10), 20])
    assert replay(spark, location) == []


def test_a_fix_that_drops_what_was_set_is_refused(spark: SparkSession, location: str) -> None:
    contract = _land_an_id_in_another_case(spark, location)
    with pytest.raises(ValueError, match="fix has lost what set says: id"):
        replay(
            spark,
            location,
            set={"id": "ID"},
            fix=lambda rows: rows.drop("ID"),
            options=replay_options(schema=contract),
        )
    assert _ids(location) == Counter(range(3, 10))


def test_rows_of_several_schemas_are_a_commit_each(spark: SparkSession, location: str) -> None:
    _land(location, _orders(spark))
    older = _orders(spark, 10).withColumn("prize", sf.col("price"))
    contract = SchemaContract(columns={"prize": SchemaContract(new_columns="ignore")})
    _land(location, older.withColumn("price", sf.lit(-1.0)), 1, schema=contract)
    _land(location, _orders(spark, 20).select("price", "id"), 2)  # a third schema, of which none is chosen
    reports = replay(
        spark,
        location,
        where="id < 20 AND price < 0 AND (prize IS NULL OR prize > 0)",
        set={"price": "coalesce(prize, -price)"},
        options=replay_options(schema=contract),
    )
    assert sorted(report.rows for report in reports) == [3, 7]
    prices = {row["id"]: row["price"] for row in _read(location)}
    assert (prices[0], prices[2], prices[19]) == (1, 3, 19)
    assert _waiting(location) == [10, 11, 12, 20, 21, 22]
    assert replay(spark, location, where="id > 99", options=replay_options(schema=contract)) == []
    (report,) = replay(spark, location, where="id > 19", options=replay_options(schema=contract))
    assert report.rows == 3
    with pytest.raises(SchemaMismatchError, match="prize"):
        replay(spark, location)


def test_one_column_of_several_types_is_a_schema_each(spark: SparkSession, location: str) -> None:
    _land(location, _orders(spark))
    texts = _orders(spark, 10).withColumn("price", sf.lit("ask"))
    odd = {"id % 10 > 2": "quarantine"}
    _land(location, texts, 1, schema=SchemaContract(mismatch="quarantine"), expectations=odd)
    (report,) = replay(spark, location, where="price IS NOT NULL AND try_cast(price AS double) < -1")
    assert (report.rows, report.quarantined) == (2, 0)
    replay(spark, location, where="string(price) = 'ask' AND price IS NOT NULL", set={"price": "null"})
    assert _ids(location) == Counter([*range(1, 20)])
    assert _waiting(location) == [0]


def test_every_type_comes_back(spark: SparkSession, location: str) -> None:
    row = spark.range(2).selectExpr(
        "id",
        "CAST(id AS int) i",
        "CAST(id AS double) / 3 AS d",
        "CAST(1.10 AS decimal(9, 2)) AS money",
        "timestamp '2026-01-01 00:00:00.123456' AS t",
        "timestamp_ntz '2026-01-01 00:00:00.123456' AS local",
        "date '1500-02-28' AS day",
        "X'00FF' AS raw",
        "map(1, 'a', 2, null) AS numbered",
        "map('k', array(map(date '2026-01-01', 1.5f))) AS deep",
        "named_struct('a', array(named_struct('m', map(1L, true)))) AS s",
        "CAST(null AS string) AS nothing",
    )
    for name in ("direct", "replayed"):
        _land(location + name, row, expectations={"id < 0": "quarantine"} if name == "replayed" else {})
    replay(spark, location + "replayed")
    direct, replayed = (sorted(map(str, _read(location + name))) for name in ("direct", "replayed"))
    assert replayed == direct
    assert len(direct) == 2


def test_each_level_of_a_type_is_rebuilt_once(
    spark: SparkSession, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nested = "map(1, 'a')"
    for _ in range(6):
        nested = f"array({nested})"
    _land(location, spark.sql(f"SELECT 1L id, {nested} deep"), expectations=NEVER)
    levels = []
    transform = sf.transform
    monkeypatch.setattr(sf, "transform", lambda *given: levels.append(1) or transform(*given))
    replay(spark, location)
    assert _read(location) == [{"id": 1, "deep": [[[[[[[(1, "a")]]]]]]]}]
    assert len(levels) == 6


def test_a_session_that_reads_other_times_is_refused(spark: SparkSession, location: str) -> None:
    rows = spark.sql("SELECT 1L id, timestamp '1500-01-01 12:34:56.123456' AS t")
    contract = SchemaContract.evolving()
    _land(location, rows, expectations={})
    _land(location, rows.selectExpr("*", "null AS unknown"), 1, schema=contract, expectations=NEVER)
    before = spark.conf.get("spark.sql.timestampType")
    try:
        spark.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
        with pytest.raises(ValueError, match="timeParserPolicy=LEGACY"):
            replay(spark, location, options=replay_options(schema=contract))
        spark.conf.unset("spark.sql.legacy.timeParserPolicy")
        spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
        replay(spark, location, options=replay_options(schema=contract))
    finally:
        spark.conf.unset("spark.sql.legacy.timeParserPolicy")
        spark.conf.set("spark.sql.timestampType", before)
    moment = datetime(1500, 1, 1, 12, 34, 56, 123456, tzinfo=timezone.utc)
    assert _read(location) == [{"id": 1, "t": moment}] * 2, "and a column of nulls alone is not added"


def test_a_replay_in_a_batch_of_a_query_is_refused(
    spark: SparkSession, location: str, checkpoint: str, tmp_path: Path
) -> None:
    _land(location, _orders(spark))
    add_files(tmp_path / "source", [0])
    refusals: list[str] = []

    def function(batch: DataFrame, _: int) -> None:
        for session in (batch.sparkSession, spark):
            try:
                replay(session, location)
            except ValueError as refusal:
                refusals.append(str(refusal))

    drain(spark, tmp_path / "source", function, checkpoint)
    assert ["foreachBatch" in each for each in refusals] == [True, True]
    replay(spark, location)
    assert _ids(location) == Counter(range(10))


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no SQL": ({"where": "id >"}, "where must be an SQL condition.*PARSE_SYNTAX_ERROR"),
    "no condition": ({"where": "id + 1"}, "where must be an SQL condition.*not a boolean"),
    "unknown in where": ({"where": "nope = 1"}, "nope.*cannot be resolved"),
    "unknown column": ({"set": {"prise": "1"}}, "prise.*price"),
    "no expression": ({"set": {"price": "count(*)"}}, "set must be SQL expressions.*price = count"),
    "no options": ({"options": {}}, "options must be TableOptions"),
}


@pytest.fixture(scope="module")
def landed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with ten orders, for tests that write nothing."""
    location = str(tmp_path_factory.mktemp("landed") / "table")
    _land(location, _orders(spark))
    return location


@pytest.mark.usefixtures("noted_calls")
@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_replayed_is_refused_and_nothing_is_written(
    spark: SparkSession, landed: str, case: str
) -> None:
    given, message = BAD[case]
    with pytest.raises((ValueError, TypeError), match=message):
        replay(spark, landed, **given)
    assert _waiting(landed) == [0, 1, 2]
    assert _ids(landed) == Counter(range(3, 10))


def test_only_a_replay_marks_rows_as_replayed(spark: SparkSession, location: str) -> None:
    _land(location, _orders(spark))
    row_id = _read(location + "__quarantine")[0]["row_id"]
    rows = _orders(spark, 10).withColumn("__streaming_sink_row_id", sf.lit(row_id))
    with pytest.raises(SchemaMismatchError, match="belong to columns that the sink adds"):
        _land(location, rows, 1)
    assert _waiting(location) == [0, 1, 2]


def test_without_a_quarantine_there_is_nothing_to_replay(spark: SparkSession, location: str) -> None:
    IcebergSink(location, app_id="app")(spark.range(3), 0)
    with pytest.raises(TableNotFoundError, match=r"no quarantine.*__quarantine"):
        replay(spark, location)


def test_rows_of_another_table_in_a_shared_quarantine_stay(spark: SparkSession, location: str) -> None:
    _land(location, _orders(spark))
    _land(location + "2", _orders(spark, 10), quarantine=location + "__quarantine")
    replay(spark, location + "2", options=replay_options(quarantine=location + "__quarantine"))
    assert _ids(location + "2") == Counter(range(10, 20))
    assert _waiting(location) == [0, 1, 2]


def test_the_command_says_what_it_did(
    spark: SparkSession, location: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _land(location, _orders(spark).withColumn("more", sf.lit(1)), expectations=POSITIVE)
    words = [
        "replay",
        location,
        "--where",
        "id < 2",
        "--set",
        "price = price + 1.5D",
        "--expect",
        "price >= 0",
    ]
    assert main(words) == 1
    version = head_of(location).number
    assert capsys.readouterr() == (
        f"1 row replayed, 1 quarantined again; version {version}\n",
        "starting Spark\n",
    )
    assert main(["replay", location, "--where", "true", "--drop", "more", "--json"]) == 0
    (said,) = json.loads(capsys.readouterr().out)
    assert (said["outcome"], said["rows"]) == ("committed", 2)
    assert main(["replay", location, "--where", "true"]) == 0
    assert capsys.readouterr().out == "nothing to replay\n"
