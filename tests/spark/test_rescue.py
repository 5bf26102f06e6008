"""Values that do not fit the table's columns: converted, rescued in the row, or why the row fails."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock, patch

import pytest
from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from streaming_sink import IcebergSink, SchemaContract
from streaming_sink.checks import rules
from streaming_sink.checks.quarantine_table import RowsRefusedError
from streaming_sink.checks.rules import converted
from tests.sinks import flat_sink
from tests.spark.streams import SMALL
from tests.tiers import only_in_soak
from timeline.errors import SchemaMismatchError
from timeline.stores import open_store
from timeline.table import Table, open_table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

RESCUING = SchemaContract(new_columns="rescue", new_fields="rescue", widening="rescue", mismatch="rescue")


def _at(**given: int) -> dt.datetime:
    return dt.datetime(2024, **{"month": 1, "day": 1, **given})  # noqa: DTZ001 - a time without a zone


def _sink(location: Path, contract: SchemaContract, **given: Any) -> IcebergSink:
    return flat_sink(str(location), app_id="app", sizing=SMALL, schema=contract, **given)


def _rows(location: Path) -> list[dict[str, Any]]:
    found = StaticTable.from_metadata(str(location)).scan().to_arrow().to_pylist()
    for row in found:
        if row.get("_rescued") is not None:
            row["_rescued"] = json.loads(row["_rescued"])
    return sorted(found, key=lambda row: row["k"])


def _frame(spark: SparkSession, schema: str, *rows: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), schema)


def test_what_does_not_fit_is_in_the_row_itself_as_json(spark: SparkSession, tmp_path: Path) -> None:
    table, sink = tmp_path / "table", _sink(tmp_path / "table", RESCUING)
    columns = "k int, n int, at timestamp_ntz, place struct<lat: float>, tags array<int>, m map<string, int>"
    sink(_frame(spark, columns, (0, 0, _at(), ((0.5,)), [1], {"a": 1})), 0)
    assert "_rescued" not in _rows(table)[0], "the column comes when it is needed"
    odd = "k int, n string, at string, place struct<lat: double, lon: double>, tags array<string>"
    sink(
        _frame(
            spark,
            f"{odd}, m map<string, bigint>, extra struct<a: int, at: timestamp_ntz>",
            (1, "7", "2024-01-01 10:00:00.5", (0.5, None), ["1", None], {"a": 1}, None),
            (
                2,
                "x",
                "10:00",
                (0.1, 2.0),
                ["1", "x"],
                {"a": 2**40, "b": 1},
                (1, _at(microsecond=7)),
            ),
            (3, None, None, None, None, None, (None, None)),
        ),
        1,
    )
    _, fits, odd_row, nulls = _rows(table)
    assert fits == {
        "k": 1,
        "n": 7,
        "at": _at(hour=10, microsecond=500_000),
        "place": {"lat": 0.5},
        "tags": [1, None],
        "m": [("a", 1)],
        "_rescued": None,
    }
    assert odd_row == {
        "k": 2,
        "n": None,
        "at": None,
        "place": {"lat": None},
        "tags": [1, None],
        "m": [("a", None), ("b", 1)],
        "_rescued": {
            "n": "x",
            "at": "10:00",
            "place": {"lat": 0.1, "lon": 2.0},
            "tags": ["1", "x"],
            "m": {"a": 2**40, "b": 1},
            "extra": {"a": 1, "at": "2024-01-01T00:00:00.000007"},
        },
    }
    assert nulls["_rescued"] == {"extra": {}}
    assert {name: value for name, value in nulls.items() if name not in ("k", "_rescued")} == dict.fromkeys(
        ["n", "at", "place", "tags", "m"]
    )
    assert open_table(str(table)).head.number == 4, "the schema has grown once"
    assert "goes to _rescued, of at, extra, m, n, place, tags" in sink.reports[-1].why


def test_a_foreign_column_of_the_name_is_refused_and_kept(spark: SparkSession, tmp_path: Path) -> None:
    batch = _frame(spark, "k int, _rescued string", (0, '"mine"'))
    with pytest.raises(SchemaMismatchError, match="the sink writes the column _rescued itself"):
        _sink(tmp_path / "table", RESCUING)(batch, 0)
    _sink(tmp_path / "table", SchemaContract.strict())(batch, 0)
    with pytest.raises(SchemaMismatchError, match="a column _rescued that is not the sink's"):
        _sink(tmp_path / "table", RESCUING)(_frame(spark, "k string", ("x",)), 1)
    assert _rows(tmp_path / "table") == [{"k": 0, "_rescued": "mine"}]


_CASES: list[tuple[Any, spark.DataType, iceberg.IcebergType, Any]] = [
    ("12", spark.StringType(), iceberg.IntegerType(), 12),
    ("1.5", spark.StringType(), iceberg.IntegerType(), None),
    ("3000000000", spark.StringType(), iceberg.IntegerType(), None),
    ("1.25", spark.StringType(), iceberg.DecimalType(9, 2), Decimal("1.25")),
    ("1.250", spark.StringType(), iceberg.DecimalType(9, 2), Decimal("1.25")),
    ("1.239", spark.StringType(), iceberg.DecimalType(9, 2), None),
    ("12345678.5", spark.StringType(), iceberg.DecimalType(9, 2), None),
    ("1.239", spark.StringType(), iceberg.DecimalType(38, 2), None),
    ("-01.2300", spark.StringType(), iceberg.DecimalType(38, 2), Decimal("-1.23")),
    ("1.2300000000000000000000000000000000000001", spark.StringType(), iceberg.DecimalType(9, 2), None),
    ("1.2e3", spark.StringType(), iceberg.DecimalType(9, 2), Decimal("1200.00")),
    ("0.00", spark.StringType(), iceberg.DecimalType(9, 2), Decimal("0.00")),
    ("0.001", spark.StringType(), iceberg.DecimalType(38, 2), None),
    ("1e400", spark.StringType(), iceberg.DoubleType(), None),
    ("-1e39", spark.StringType(), iceberg.FloatType(), None),
    ("1e39", spark.StringType(), iceberg.DoubleType(), 1e39),
    ("1e-400", spark.StringType(), iceberg.DoubleType(), None),
    ("0e5", spark.StringType(), iceberg.DoubleType(), 0.0),
    ("-Infinity", spark.StringType(), iceberg.DoubleType(), float("-inf")),
    ("true", spark.StringType(), iceberg.BooleanType(), True),
    ("2024-02-29", spark.StringType(), iceberg.DateType(), dt.date(2024, 2, 29)),
    ("2024-02-30", spark.StringType(), iceberg.DateType(), None),
    ("2024-02-29T10:00", spark.StringType(), iceberg.DateType(), None),
    ("2024", spark.StringType(), iceberg.DateType(), None),
    ("10:00", spark.StringType(), iceberg.TimestampType(), None),
    ("2024-02-29", spark.StringType(), iceberg.TimestampType(), None),
    ("2024-02-29T10:00Z", spark.StringType(), iceberg.TimestampType(), None),
    ("2024-02-29T10:00", spark.StringType(), iceberg.TimestampType(), _at(month=2, day=29, hour=10)),
    ("2024-02-29 10:00:00.1234567", spark.StringType(), iceberg.TimestampType(), None),
    ("2024-02-29 10:00:00.1234567Z", spark.StringType(), iceberg.TimestamptzType(), None),
    ("2024-02-29 10:00:00.123456789", spark.StringType(), iceberg.TimestamptzType(), None),
    (1.5, spark.DoubleType(), iceberg.IntegerType(), None),
    (2.0, spark.DoubleType(), iceberg.IntegerType(), 2),
    (1e300, spark.DoubleType(), iceberg.LongType(), None),
    (0.1, spark.DoubleType(), iceberg.FloatType(), None),
    (float("inf"), spark.DoubleType(), iceberg.FloatType(), float("inf")),
    (2**53 + 1, spark.LongType(), iceberg.DoubleType(), None),
    (2**53, spark.LongType(), iceberg.DoubleType(), 2.0**53),
    (2**63 - 1, spark.LongType(), iceberg.DoubleType(), None),
    (2.0**63, spark.DoubleType(), iceberg.LongType(), None),
    (-(2.0**63), spark.DoubleType(), iceberg.LongType(), -(2**63)),
    (2.0**31, spark.FloatType(), iceberg.IntegerType(), None),
    (2.0**31 - 1, spark.DoubleType(), iceberg.IntegerType(), 2**31 - 1),
    (Decimal("1.005"), spark.DecimalType(9, 3), iceberg.DecimalType(9, 2), None),
    (Decimal("1.010"), spark.DecimalType(9, 3), iceberg.DecimalType(9, 2), Decimal("1.01")),
    (0.12, spark.DoubleType(), iceberg.DecimalType(9, 2), Decimal("0.12")),
    (0.123, spark.DoubleType(), iceberg.DecimalType(9, 2), None),
    (12, spark.LongType(), iceberg.StringType(), "12"),
    (dt.date(2024, 2, 29), spark.DateType(), iceberg.StringType(), "2024-02-29"),
]


def test_a_value_is_converted_only_where_nothing_is_lost(spark: SparkSession) -> None:
    columns = [
        converted(sf.lit(value).cast(kind), kind, into).alias(f"c{place}")
        for place, (value, kind, into, _) in enumerate(_CASES)
    ]
    found = spark.range(1).select(*columns).first()
    assert found is not None
    wrong = [
        (case, seen)
        for case, seen in zip(_CASES, found, strict=True)
        if seen != case[3] or type(seen) is not type(case[3])
    ]
    assert wrong == []


@pytest.mark.parametrize("action", ["rescue", "drop"])
def test_columns_of_nested_values_grow_with_their_depth_and_not_by_its_power(
    spark: SparkSession, tmp_path: Path, action: str
) -> None:
    depth = 7

    def nested(k: int, leaf: str) -> DataFrame:
        lists, structs = ("".join([kind * depth, leaf, ")" * depth]) for kind in ("array(", "struct("))
        return spark.sql(f"SELECT {k} AS k, {lists} AS l, {structs} AS s")

    table, sink = tmp_path / "table", _sink(tmp_path / "table", SchemaContract(mismatch=action))
    sink(nested(1, "1"), 0)
    made = Mock(wraps=rules.converted)
    with patch.object(rules, "converted", made):
        sink(nested(2, "'x'"), 1)
    assert made.call_count <= 3 * depth
    found = {row["k"]: row.get("_rescued") for row in _rows(table)}
    if action == "drop":
        assert found == {1: None}
    else:
        rescued = found[2]
        for name, step in (("l", 0), ("s", "col1")):
            inner = rescued[name]
            for _ in range(depth):
                inner = inner[step]
            assert inner == "x"


def test_rows_that_fail_are_dropped_or_quarantined_and_the_others_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    for action in ("drop", "quarantine"):
        table = tmp_path / action
        sink = _sink(table, SchemaContract(mismatch=action))
        sink(_frame(spark, "k int, n int", (0, 0)), 0)
        sink(_frame(spark, "k int, n string", (1, "1"), (2, "x"), (3, None)), 1)
        assert [(row["k"], row["n"]) for row in _rows(table)] == [(0, 0), (1, 1), (3, None)]
    kept = StaticTable.from_metadata(f"{table}__quarantine").scan().to_arrow().to_pylist()
    assert [(row["check"], row["column"], json.loads(row["row"])) for row in kept] == [
        ("n fits int", "n", {"k": 2, "n": "x"})
    ]


INVALID = (
    "SELECT k, CAST(unhex(t) AS STRING) AS text, transform(l, e -> CAST(unhex(e) AS STRING)) AS all FROM"
    " VALUES (1, '61', array('61')), (2, 'E974E9', array()), (3, '62', array('62', 'FF')),"
    " (4, 'F09F9880', null) AS (k, t, l)"
)


def test_text_that_is_not_valid_utf8_is_refused_dropped_or_quarantined(
    spark: SparkSession, tmp_path: Path
) -> None:
    for action in ("refuse", "drop", "quarantine"):
        table = tmp_path / action
        sink = _sink(table, SchemaContract(mismatch=action))
        sink(_frame(spark, "k int, text string, all array<string>", (0, "0", None)), 0)
        if action == "refuse":
            found = r"UTF-8; is_valid_utf8.*make_valid_utf8.*: (text|all) "
            with pytest.raises(SchemaMismatchError, match=found):
                sink(spark.sql(INVALID), 1)
            assert [row["k"] for row in _rows(table)] == [0]
        else:
            sink(spark.sql(INVALID), 1)
            written = [(row["k"], row["text"]) for row in _rows(table)]
            assert written == [(0, "0"), (1, "a"), (4, "\U0001f600")]
    kept = StaticTable.from_metadata(f"{table}__quarantine").scan().to_arrow().to_pylist()
    assert sorted(row["row"] for row in kept) == [
        '{"k":2,"text":"6XTp","all":[]}',
        '{"k":3,"text":"Yg==","all":["Yg==","/w=="]}',
    ]


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("partition_by", [(), ("text",)])
def test_text_that_is_not_valid_utf8_is_rescued_as_its_bytes(
    spark: SparkSession, tmp_path: Path, exists: bool, partition_by: tuple[str, ...]
) -> None:
    table = tmp_path / "table"
    contract = SchemaContract(mismatch="rescue")
    sink = IcebergSink(str(table), app_id="app", sizing=SMALL, partition_by=partition_by, contract=contract)
    if exists:
        sink(_frame(spark, "k int, text string, all array<string>", (0, "0", None)), 0)
        assert "_rescued" not in _rows(table)[0], "no batch pays before one has such text"
    for number in (1, 2):
        sink(spark.sql(INVALID), number)
    found = [row for row in _rows(table) if row["k"]]
    assert [(row["text"], row["all"], row["_rescued"]) for row in found[::2]] == [
        ("a", ["a"], None),
        (None, [], {"text": "base64:6XTp"}),
        ("b", ["b", None], {"all": ["b", "base64:/w=="]}),
        ("\U0001f600", None, None),
    ]
    assert found[::2] == found[1::2]


_IN_EVERY_RUN = {"refuse": "rescue", "drop": "quarantine", "quarantine": "refuse", "rescue": "drop"}
"""Of each action of the column that of the others."""


@pytest.mark.parametrize(
    ("own", "others"),
    [
        pytest.param(own, others, marks=[] if others == each else [only_in_soak])
        for own, each in _IN_EVERY_RUN.items()
        for others in _IN_EVERY_RUN
    ],
)
def test_a_column_apart_decides_about_its_own_text_that_is_not_valid_utf8(
    spark: SparkSession, tmp_path: Path, own: str, others: str
) -> None:
    table = tmp_path / "table"
    contract = SchemaContract(mismatch=others, columns={"text": SchemaContract(mismatch=own)})
    sink = _sink(table, contract)
    invalid = "CAST(unhex('E974') AS STRING)"
    texts = f"(1, 'a', 'a'), (2, {invalid}, 'b')"
    columns = "AS (k, text, other)"
    if own == "refuse":
        with pytest.raises((SchemaMismatchError, RowsRefusedError), match="text"):
            sink(spark.sql(f"SELECT * FROM VALUES {texts} {columns}"), 0)
        assert not list(table.glob("metadata/*")) or not _ids(table)
        return
    sink(spark.sql(f"SELECT * FROM VALUES {texts} {columns}"), 0)
    assert _ids(table) == ([1, 2] if own == "rescue" else [1])
    assert sink.reports[-1].dropped == (own == "drop")
    assert sink.reports[-1].quarantined == (own == "quarantine")
    both = f"SELECT 3 AS k, {invalid} AS text, {invalid} AS other"
    if others == "refuse":
        with pytest.raises((SchemaMismatchError, RowsRefusedError), match="other"):
            sink(spark.sql(both), 1)
        return
    sink(spark.sql(both), 1)
    of_both = {own, others}
    assert (3 in _ids(table)) == (of_both == {"rescue"})
    assert sink.reports[-1].quarantined == ("quarantine" in of_both)
    assert sink.reports[-1].dropped == ("drop" in of_both and "quarantine" not in of_both)


def _ids(location: Path) -> list[int]:
    return sorted(row["k"] for row in _rows(location))


def test_what_is_rescued_for_its_type_is_in_utf8(spark: SparkSession, tmp_path: Path) -> None:
    table, sink = tmp_path / "table", _sink(tmp_path / "table", RESCUING)
    sink(_frame(spark, "k int, n int", (0, 0)), 0)
    sink(spark.sql("SELECT 1 AS k, CAST(unhex('E974') AS STRING) AS n, map('a', unhex('FF')) AS m"), 1)
    text = "CAST(unhex('FF') AS STRING)"
    sink(spark.sql(f"SELECT 2 AS k, map({text}, named_struct('a', array({text}, 'x'))) AS m"), 2)
    assert [row["_rescued"] for row in _rows(table)] == [
        None,
        {"n": "base64:6XQ=", "m": {"a": "/w=="}},
        {"m": {"base64:/w==": {"a": ["base64:/w==", "x"]}}},
    ]


def test_a_row_that_a_task_sets_aside_is_in_the_quarantine_as_it_came(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    required = iceberg.NestedField(1, "k", iceberg.LongType(), required=True)
    schema = Schema(required, iceberg.NestedField(2, "n", iceberg.IntegerType(), required=False))
    Table.create(open_store(str(table)), schema)
    sink = _sink(table, SchemaContract(mismatch="quarantine"))
    sink(_frame(spark, "k long, n string", (None, " 07"), (1, " 08")), 0)
    sink(_frame(spark, "k long, n int", (None, 9), (2, 10)), 1)
    assert [(row["k"], row["n"]) for row in _rows(table)] == [(1, 8), (2, 10)]
    kept = StaticTable.from_metadata(f"{table}__quarantine").scan().to_arrow().to_pylist()
    assert sorted(row["row"] for row in kept) == ['{"k":null,"n":" 07"}', '{"k":null,"n":9}']
