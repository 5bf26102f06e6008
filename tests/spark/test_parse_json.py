"""`parse_json`: JSON text to columns, batch by batch: no text is lost, and equal texts parse equally."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import Row
from pyspark.sql import functions as sf

from streaming_sink import IcebergSink, SchemaContract, parse_json
from streaming_sink.tasks.rows.failures import UNPARSED
from tests.spark.streams import SMALL, count_marks, marked
from tests.tiers import only_in_soak
from timeline.errors import SchemaMismatchError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

RESCUING = SchemaContract(new_columns="add", new_fields="add", widening="widen", mismatch="rescue")
REFUSING = SchemaContract.evolving()


def _sink(location: Path, contract: SchemaContract = RESCUING) -> IcebergSink:
    return IcebergSink(str(location), app_id="app", sizing=SMALL, contract=contract)


def _texts(spark: SparkSession, *texts: str | None) -> DataFrame:
    return spark.createDataFrame(list(enumerate(texts)), "k int, value string")


def _land(sink: IcebergSink, batch: DataFrame, number: int) -> dict[str, str]:
    with parse_json(batch, "value", sink) as parsed:
        sink(parsed.rows, number)
        return dict(parsed.new)


def _rows(location: Path) -> list[dict[str, Any]]:
    return StaticTable.from_metadata(str(location)).scan().to_arrow().to_pylist()


def _last(location: Path, sink: IcebergSink, number: int, batch: DataFrame) -> list[dict[str, Any]]:
    """Land a batch, and return its rows."""
    before = len(_rows(location)) if number else 0
    _land(sink, batch, number)
    found = sorted(_rows(location), key=lambda row: row["k"])
    assert len(found) == before + batch.count()
    return found


def test_new_keys_become_columns_and_are_named(spark: SparkSession, tmp_path: Path) -> None:
    table, sink = tmp_path / "table", _sink(tmp_path / "table", REFUSING)
    assert _land(sink, _texts(spark, '{"id": 1, "user": {"name": "a"}, "later": null}'), 0) == {
        "id": "bigint",
        "user": "struct<name:string>",
    }
    new = _land(sink, _texts(spark, '{"id": 2, "user": {"name": "b", "age": 7}, "later": [1]}', None), 1)
    assert new == {"later": "array<bigint>", "user.age": "bigint"}
    found = sorted(_rows(table), key=lambda row: row["id"] or 9)
    assert found == [
        {"k": 0, "id": 1, "user": {"name": "a", "age": None}, "later": None},
        {"k": 0, "id": 2, "user": {"name": "b", "age": 7}, "later": [1]},
        {"k": 1, "id": None, "user": None, "later": None},
    ]


def test_the_tables_types_hold(spark: SparkSession, tmp_path: Path) -> None:
    table, sink = tmp_path / "table", _sink(tmp_path / "table", REFUSING)
    typed = spark.sql(
        "SELECT -1 AS k, 1 AS n, 1.5D AS real, CAST(1 AS DECIMAL(20,2)) AS price, DATE'2024-01-01' AS day,"
        " TIMESTAMP'2024-01-01 00:00:00Z' AS at, 'x' AS raw, map('a', 1) AS counts,"
        " array(DATE'2024-01-01') AS days"
    )
    sink(typed, 0)
    text = {
        "n": 7,
        "real": 2,
        "price": 12,
        "day": "2024-02-29",
        "at": "2024-02-29T10:00:00.5Z",
        "raw": {"a": [1, None]},
        "counts": {"b": 2, "c": None},
        "days": ["2024-02-29", None],
    }
    exact = json.dumps(text).replace('"price": 12', '"price": 12345678901234567.25')
    assert _land(sink, _texts(spark, exact), 1) == {}
    assert sink.reports[-1].why == "", "the schema stays as it is"
    (row,) = [row for row in _rows(table) if row["k"] == 0]
    assert row == {
        "k": 0,
        "n": 7,
        "real": 2.0,
        "price": Decimal("12345678901234567.25"),
        "day": dt.date(2024, 2, 29),
        "at": dt.datetime(2024, 2, 29, 10, 0, 0, 500_000, tzinfo=dt.timezone.utc),
        "raw": '{"a":[1,null]}',
        "counts": [("b", 2), ("c", None)],
        "days": [dt.date(2024, 2, 29), None],
    }
    with pytest.raises(SchemaMismatchError, match=r"1 rows hold values .* day is date in the table.*soon"):
        _land(sink, _texts(spark, '{"day": "2024-02-29"}', '{"day": "soon"}'), 2)
    _land(sink, _texts(spark, '{"n": 3000000000}'), 2)
    assert "n widened from int to long" in sink.reports[-1].why


def test_numbers_keep_their_value_beside_ones_that_do_not_fit(spark: SparkSession, tmp_path: Path) -> None:
    table, sink = tmp_path / "table", _sink(tmp_path / "table")
    sink(spark.sql("SELECT -1 AS k, 1L AS id, CAST(1 AS DECIMAL(20,2)) AS price"), 0)
    texts = ('{"id": 9007199254740993}', '{"id": 1.5}', '{"id": 12345678901234567890}', '{"id": "7"}')
    prices = ('{"price": 12345678901234567.25}', '{"price": 1e30}', '{"price": 1.239}', '{"price": "2.50"}')
    found = _last(table, sink, 1, _texts(spark, *texts, *prices))[1:]
    assert [row["id"] for row in found[:4]] == [2**53 + 1, None, None, 7]
    assert [row["_rescued"] for row in found[:4]] == [
        None,
        '{"id":"1.5"}',
        '{"id":"12345678901234567890"}',
        None,
    ]
    assert [row["price"] for row in found[4:]] == [
        Decimal("12345678901234567.25"),
        None,
        None,
        Decimal("2.50"),
    ]
    rescued = [json.loads(row["_rescued"] or "null") for row in found[4:]]
    assert rescued == [None, {"value": prices[1]}, {"value": prices[2]}, None]


@pytest.mark.parametrize("mismatch", ["rescue", pytest.param("quarantine", marks=only_in_soak), "drop"])
def test_one_value_that_is_no_number_does_not_keep_a_column_from_widening(
    spark: SparkSession, tmp_path: Path, mismatch: str
) -> None:
    contract = SchemaContract(new_columns="add", widening="widen", mismatch=mismatch)
    texts = ['{"n": 3000000000, "user": {"age": 1}, "all": [1, 2]}', '{"n": "many", "user": {"age": 2}}']
    texts += ['{"n": 1.5}', '{"n": "7", "user": {"age": 3000000000}, "all": [3000000000]}']
    texts += ['{"user": {"age": "old"}}', '{"all": [4, "x"]}', '{"n": 8}']
    seen = []
    for number, order in enumerate((texts, texts[::-1])):
        table = tmp_path / f"{number}"
        sink = _sink(table, contract)
        sink(spark.sql("SELECT 0 AS k, 0 AS n, named_struct('age', 0) AS user, array(0) AS all"), 0)
        _land(sink, _texts(spark, *order).withColumn("k", sf.lit(1)), 1)
        for path in ("n", "user.age", "all.element"):
            assert f"{path} widened from int to long" in sink.reports[-1].why
        seen.append(sorted(json.dumps(row, sort_keys=True) for row in _rows(table)))
    assert seen[0] == seen[1], "the order of the rows does not matter"
    found = [row for row in map(json.loads, seen[0]) if row["k"]]
    rescued = [row.get("_rescued") for row in found if row.get("_rescued")]
    assert sorted(row["n"] for row in found if row["n"] is not None) == [7, 8, 3_000_000_000]
    if mismatch == "rescue":
        assert len(found) == len(texts)
        assert sorted(rescued) == [
            '{"all":["4","x"]}',
            '{"n":"1.5"}',
            '{"n":"many"}',
            '{"user":{"age":"old"}}',
        ]
    else:
        assert (len(found), rescued) == (3, [])


MALFORMED = [
    "not json",
    "",
    '{"id": 1',
    '{"id": 1}{"id": 2}',
    '{"id": 1}, {"id": 2}',
    '{"id": 1}] {"id": 2}',
    '{"id": 1} x',
    '{"id": 1, "id": 2}',
    "[1]",
    "5",
    "null",
    "{'id': 1}",
    '{"id": NaN}',
]


def test_text_that_is_no_object_is_rescued_whole(spark: SparkSession, tmp_path: Path) -> None:
    table, sink = tmp_path / "table", _sink(tmp_path / "table")
    found = _last(table, sink, 0, _texts(spark, *MALFORMED, ' {"id": 7}\n'))
    assert [row["id"] for row in found] == [None] * len(MALFORMED) + [7]
    assert [json.loads(row["_rescued"])["value"] for row in found[:-1]] == MALFORMED
    assert found[-1]["_rescued"] is None


def test_malformed_text_is_refused_dropped_or_quarantined(spark: SparkSession, tmp_path: Path) -> None:
    batch = _texts(spark, '{"id": 1}', "not json")
    with pytest.raises(SchemaMismatchError, match=r"1 rows hold text .* one JSON object.*'not json'"):
        _land(_sink(tmp_path / "refused", REFUSING), batch, 0)
    for action in ("drop", "quarantine"):
        contract = SchemaContract(new_columns="add", mismatch=action)
        _land(_sink(tmp_path / action, contract), batch, 0)
        assert _rows(tmp_path / action) == [{"k": 0, "id": 1}]
    (kept,) = _rows(tmp_path / "quarantine__quarantine")
    assert "not json" in kept["row"]


KEYS = [
    '{"id": 1, "ID": 2}',
    '{"": 1}',
    '{"k": 7}',
    '{"a.b": 1}',
    '{"user": {"name": "a", "Name": "b"}}',
    '{"users": [{"n": 1}, {"N": 2}]}',
    '{"users": [{"N": 2}]}',
    '{"*": 1}',
    '{"a\\u0000b": 1}',
    '{"user": {"a\\u0000b": 1}}',
    '{"\u0130d": 1}',
    '{"u\u017fer": 1}',
]


def test_a_new_table_with_an_object_and_rescued_text_is_written_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The column of what is rescued had another field id than in the table: "another writer created it"."""
    sink = _sink(tmp_path / "table")
    _land(sink, _texts(spark, '{"id": 1, "a": {"b": 1}}', "junk"), 0)
    assert [(report.writes, report.attempts) for report in sink.reports] == [(1, 1)]
    assert len(_rows(tmp_path / "table")) == 2


def test_text_that_is_not_valid_utf8_is_malformed(spark: SparkSession, tmp_path: Path) -> None:
    text = "7B2261223A22E974E9227D"  # {"a":"\\xe9t\\xe9"}
    batch = spark.sql(
        f"SELECT 0 AS k, CAST(unhex('{text}') AS STRING) AS value UNION ALL SELECT 1, '{{\"a\": 1}}'"
    )
    with pytest.raises(
        SchemaMismatchError, match=r"1 rows hold text that is not one JSON object in valid UTF-8"
    ):
        _land(_sink(tmp_path / "refused", REFUSING), batch, 0)
    found = _last(tmp_path / "table", _sink(tmp_path / "table"), 0, batch)
    rescued = '{"value":"base64:eyJhIjoi6XTpIn0="}'
    assert found == [{"k": 0, "a": None, "_rescued": rescued}, {"k": 1, "a": 1, "_rescued": None}]


def test_a_key_that_cannot_be_a_column_rescues_the_text_and_writes_the_rest(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, sink = tmp_path / "table", _sink(tmp_path / "table")
    _land(sink, _texts(spark, '{"id": 0, "user": {"name": "x"}, "users": [{"n": 0}]}'), 0)
    batch = _texts(spark, *KEYS, '{"id": 9}').withColumn("k", sf.col("k") + 1)
    found = _last(table, sink, 1, batch)[1:]
    assert [json.loads(row["_rescued"] or "{}").get("value") for row in found[:-1]] == KEYS
    assert found[-1]["_rescued"] is None
    assert [row["id"] for row in found] == [1, *[None] * (len(KEYS) - 1), 9]
    assert found[4]["user"] == {"name": "a"}
    assert [row["k"] for row in found] == list(range(1, len(KEYS) + 2)), "the batch's own column"
    with pytest.raises(SchemaMismatchError, match=r"cannot be columns.*'ID'"):
        _land(_sink(table, REFUSING), _texts(spark, KEYS[0]), 2)


def test_whole_numbers_that_are_written_with_a_fraction_are_double(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, sink = tmp_path / "table", _sink(tmp_path / "table", REFUSING)
    large = 2**63
    found = _last(
        table,
        sink,
        0,
        _texts(
            spark,
            f'{{"a": 10.0, "b": 7, "c": -0.0, "d": {{"e": [1, 2.0]}}, "f": {large}, "g": {large}}}',
            '{"a": 20.0, "b": 8.00, "c": 1, "d": {"e": []}, "f": 1, "g": 1.0}',
        ),
    )
    assert found == [
        {"k": 0, "a": 10.0, "b": 7.0, "c": 0.0, "d": {"e": [1.0, 2.0]}, "f": str(large), "g": float(large)},
        {"k": 1, "a": 20.0, "b": 8.0, "c": 1.0, "d": {"e": []}, "f": "1", "g": 1.0},
    ]
    assert {type(row["a"]) for row in found} == {float}


def test_half_a_character_is_malformed(spark: SparkSession, tmp_path: Path) -> None:
    """JavaScript escapes the half that is left where it cuts a string, and Spark reads a question mark."""
    halves = ['{"a": "\\ud83d"}', '{"a": "\\uDE00\\uD83D"}', '{"a": "\\ud83d\\n\\ude00"}', '{"\\ud83d": 1}']
    wholes = ['{"a": "\\ud83d\\ude00"}', '{"a": "\\\\ud83d"}', '{"a": "\\u00e9"}']
    found = _last(tmp_path / "table", _sink(tmp_path / "table"), 0, _texts(spark, *halves, *wholes))
    assert [json.loads(row["_rescued"] or "{}").get("value") for row in found] == halves + [None] * len(
        wholes
    )
    assert [row["a"] for row in found] == [None] * len(halves) + [json.loads(whole)["a"] for whole in wholes]


def test_mixed_values_are_text(spark: SparkSession, tmp_path: Path) -> None:
    table, sink = tmp_path / "table", _sink(tmp_path / "table", REFUSING)
    found = _last(
        table,
        sink,
        0,
        _texts(
            spark,
            '{"a": [1, "x", {"b": 2}], "b": 1, "c": 12345678901234567890, "d": "2024-01-01", "e": 1}',
            '{"a": [], "b": true, "c": 1, "d": null, "e": 0.5}',
        ),
    )
    assert found == [
        {
            "k": 0,
            "a": ["1", "x", '{"b":2}'],
            "b": "1",
            "c": "12345678901234567890",
            "d": "2024-01-01",
            "e": 1.0,
        },
        {"k": 1, "a": [], "b": "true", "c": "1", "d": None, "e": 0.5},
    ]


def test_the_source_is_read_once_and_nothing_stays_persisted(spark: SparkSession, tmp_path: Path) -> None:
    marks, sink = tmp_path / "marks", _sink(tmp_path / "table")
    batch = marked(_texts(spark, *(f'{{"id": {n}}}' for n in range(10)), "x").coalesce(1), marks)
    _land(sink, batch, 0)
    assert count_marks(marks) == 1
    assert not batch.storageLevel.useMemory


def test_a_replayed_batch_parses_to_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    texts = [*MALFORMED, *KEYS, '{"id": 1.5, "z": [1, "x"]}', '{"id": 3, "a": {"b": null}}']
    seen = []
    for order in (texts, texts[::-1]):
        with parse_json(_texts(spark, *order).drop("k"), "value", _sink(tmp_path / "none")) as parsed:
            assert dict(parsed.new)
            seen.append((parsed.rows.schema, sorted(parsed.rows.toJSON().collect())))
    assert seen[0] == seen[1]


def test_a_column_that_is_no_text_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    batch = spark.range(1).select(sf.lit(b"{}").alias("value"))
    with (
        pytest.raises(ValueError, match=r"CAST\(value AS STRING\) AS value"),
        parse_json(batch, "value", _sink(tmp_path / "table")),
    ):
        pass


def test_a_number_with_more_digits_than_a_double_is_no_decimal_of_fewer(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, sink = tmp_path / "table", _sink(tmp_path / "table")
    sink(spark.sql("SELECT -1 AS k, CAST(1 AS DECIMAL(10,2)) AS d, CAST(1 AS DECIMAL(38,2)) AS e"), 0)
    texts = ['{"d": 1.2300000000000000000001}', '{"e": 1.239}', '{"d": 1.230, "e": 1.230}']
    _, *found = _last(table, sink, 1, _texts(spark, *texts))
    rescued = [json.loads(row["_rescued"] or "{}").get("value") for row in found]
    assert rescued == [*texts[:2], None]
    assert [(row["d"], row["e"]) for row in found] == [(None, None)] * 2 + [(Decimal("1.23"),) * 2]


@pytest.mark.parametrize(("begin", "end"), [('{"a": ', "}"), ("[", "]")])
def test_text_that_is_nested_deeply_stops_no_stream(
    spark: SparkSession, tmp_path: Path, begin: str, end: str
) -> None:
    sink = _sink(tmp_path / "table")
    deep, too_deep = (f'{{"a": {begin * levels}"]"{end * levels}}}' for levels in (99, 900))
    wide = f'{{"b": 1, "c": [{"[], " * 200}[]], "d": "{"[" * 200}"}}'
    first, second, third = _last(tmp_path / "table", sink, 0, _texts(spark, deep, too_deep, wide))
    value, levels = first["a"], 0
    while not isinstance(value, str):
        value, levels = value["a"] if isinstance(value, dict) else value[0], levels + 1
    assert (levels, value.count(begin[0])) == (31, 99 - 31)
    assert json.loads(second["_rescued"]) == {"value": too_deep}
    assert (third["a"], third["b"], third["d"]) == (None, 1, "[" * 200)


GIVEN = "op STRING, before STRUCT<id: BIGINT, day: DATE>, after STRUCT<id: BIGINT, day: DATE>"


def test_a_given_type_is_whole_where_a_half_is_null_throughout(spark: SparkSession, tmp_path: Path) -> None:
    texts = ['{"op": "c", "before": null, "after": {"id": 1, "day": "2024-01-01", "new": true}}']
    with parse_json(_texts(spark, *texts), "value", _sink(tmp_path / "t"), as_type=GIVEN) as parsed:
        (row,) = parsed.rows.collect()
        assert dict(parsed.new) == {"after.new": "boolean"}
        assert parsed.rows.schema["before"].dataType.simpleString() == "struct<id:bigint,day:date>"
    after = {"id": 1, "day": dt.date(2024, 1, 1), "new": True}
    assert (row.op, row.before, row.after.asDict()) == ("c", None, after)


def test_keys_that_no_text_has_are_null_in_a_given_type(spark: SparkSession, tmp_path: Path) -> None:
    with parse_json(
        _texts(spark, '{"after": {"id": 1}}', None), "value", _sink(tmp_path / "t"), GIVEN
    ) as parsed:
        first, second = parsed.rows.orderBy("k").collect()
    assert (first.op, first.before, first.after.asDict()) == (None, None, {"id": 1, "day": None})
    assert (second.op, second.after) == (None, None)


def test_a_text_that_a_given_type_does_not_hold_is_for_the_contract(
    spark: SparkSession, tmp_path: Path
) -> None:
    bad = '{"after": {"id": 1, "day": "soon"}}'
    texts = _texts(spark, bad, '{"after": {"id": 2, "day": "2024-01-01"}}')
    with parse_json(texts, "value", _sink(tmp_path / "t"), as_type=GIVEN) as parsed:
        rows = {row[UNPARSED] and row[UNPARSED].value: row.after for row in parsed.rows.collect()}
    assert rows == {bad: None, None: Row(day=dt.date(2024, 1, 1), id=2)}
    refusing = _sink(tmp_path / "t", REFUSING)
    with (
        pytest.raises(SchemaMismatchError, match=r"1 rows .* given type .*: after\.day is date in as_type"),
        parse_json(texts, "value", refusing, GIVEN),
    ):
        pass


@pytest.mark.parametrize(
    "kind",
    [
        *("INT", "FLOAT", "BOOLEAN", "DATE", "DECIMAL(5,2)"),
        *(pytest.param(wider, marks=only_in_soak) for wider in ("BIGINT", "DOUBLE")),
    ],
)
def test_a_value_that_is_none_does_not_make_a_given_column_text(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """In the batch that creates the table, beside values in both of their spellings."""
    spelled = {"BOOLEAN": (True, "false"), "DATE": ("2024-01-01", "2024-02-02")}.get(kind, (1, "2"))
    given = f"v {kind}, items ARRAY<STRUCT<v: {kind}>>, by MAP<STRING, {kind}>"
    texts = [
        json.dumps({"v": value, "items": [{"v": value}, None], "by": {"a": value}})
        for value in (*spelled, "none", None, [1])
    ]
    sink = _sink(tmp_path / "table", SchemaContract(mismatch="quarantine"))
    with parse_json(_texts(spark, *texts), "value", sink, as_type=given) as parsed:
        kinds = {field.name: field.dataType.simpleString() for field in parsed.rows.schema}
        rows = parsed.rows.collect()
    leaf = spark.sql(f"SELECT CAST(NULL AS {kind}) AS v").schema["v"].dataType.simpleString()
    assert (kinds["v"], kinds["items"]) == (leaf, f"array<struct<v:{leaf}>>")
    assert kinds["by"] == f"map<string,{leaf}>"
    read = [row for row in rows if row[UNPARSED] is None]
    assert len(read) == 3
    assert all(row.v == (row["items"][0].v if row["items"][0] else None) == row.by["a"] for row in read)
    assert sum(row.v is not None for row in read) == 2


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT"])
def test_a_number_beyond_a_given_double_is_one_that_it_does_not_hold(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """A column that no type is given for takes it for infinite."""
    texts, sink = _texts(spark, '{"v": 1e400}', '{"v": 0.5}'), _sink(tmp_path / "table")
    with parse_json(texts, "value", sink, as_type=f"v {kind}") as parsed:
        assert [row.v for row in parsed.rows.orderBy("k").collect()] == [None, 0.5]
    with parse_json(texts, "value", sink) as parsed:
        assert [row.v for row in parsed.rows.orderBy("k").collect()] == [float("inf"), 0.5]


def test_a_given_type_that_is_no_object_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    refused = pytest.raises(ValueError, match="as_type must be the columns of an object")
    with refused, parse_json(_texts(spark, "{}"), "value", _sink(tmp_path / "t"), as_type="bigint"):
        pass


UNLIKE: list[tuple[Any, Any]] = [
    ({"x": 1}, "flat"),
    ({"x": 1}, 5),
    ({"x": 1}, [1]),
    ([1], "flat"),
    ([{"x": 1}], [5]),
    ({"in": {"x": 1}}, {"in": True}),
    ({"in": {"x": 1}, "n": 7}, {"in": [1], "n": "many"}),
]
"""Values of a key, and one of another kind."""


@pytest.mark.parametrize(
    ("known", "mismatch"),
    [
        pytest.param(
            known,
            mismatch,
            id=f"{'known to the table' if known else 'new'}-{mismatch}",
            marks=[] if known == (mismatch == "drop") else [only_in_soak],
        )
        for known in (True, False)
        for mismatch in ("rescue", "quarantine", "drop")
    ],
)
def test_a_value_that_is_no_object_is_set_aside_alone(
    spark: SparkSession, tmp_path: Path, mismatch: str, known: bool
) -> None:
    """It made its column text, which took the objects of the other rows with it."""
    contract = SchemaContract(new_columns="add", new_fields="add", widening="widen", mismatch=mismatch)
    table, sink = tmp_path / "table", _sink(tmp_path / "table", contract)
    all_good = {f"o{place}": good for place, (good, _) in enumerate(UNLIKE)}
    bad = [json.dumps({"id": 9, f"o{place}": each}) for place, (_, each) in enumerate(UNLIKE)]
    if known:
        _land(sink, _texts(spark, json.dumps({"id": 0, **all_good})), 0)
    _land(sink, _texts(spark, *bad, json.dumps({"id": 1, **all_good}), '{"id": 2, "o1": null}'), int(known))
    found = sorted(_rows(table), key=lambda row: row["id"])
    whole = [row for row in found if row["id"] < 2]
    assert len(whole) == 1 + known
    assert [row[name] for row in whole for name in all_good] == [*all_good.values()] * len(whole)
    aside = [row for row in found if row["id"] == 9]
    assert len(found) == len(whole) + 1 + len(aside)
    rescued = [json.loads(row["_rescued"])["value"] for row in aside]
    assert sorted(rescued) == (sorted(bad) if mismatch == "rescue" else [])
    report = sink.reports[-1]
    assert report.quarantined == (len(bad) if mismatch == "quarantine" else 0)
    assert report.dropped == (len(bad) if mismatch == "drop" else 0)


def test_a_map_and_a_list_that_the_table_knows_keep_their_objects(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, sink = tmp_path / "table", _sink(tmp_path / "table", SchemaContract(mismatch="quarantine"))
    kinds = "k INT, by MAP<STRING, STRUCT<x: BIGINT>>, all ARRAY<STRUCT<x: BIGINT>>"
    sink(spark.createDataFrame([], kinds), 0)
    texts = ['{"by": {"a": {"x": 1}}, "all": [{"x": 1}]}', '{"by": {"a": 1}}', '{"by": {"b": {"x": 2}}}']
    texts += ['{"by": 1}', '{"all": [{"x": 2}, "x"]}', '{"all": [null, {"x": 3}]}', '{"all": {"x": 1}}']
    _land(sink, _texts(spark, *texts), 1)
    assert sorted((row["k"], row["by"] or None, row["all"] or None) for row in _rows(table)) == [
        (0, [("a", {"x": 1})], [{"x": 1}]),
        (2, [("b", {"x": 2})], None),
        (5, None, [None, {"x": 3}]),
    ]
    assert sink.reports[-1].quarantined == 4


def test_values_of_several_types_of_a_key_that_is_not_written_set_no_row_aside(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, texts = tmp_path / "table", ['{"id": 1, "o": {"x": 1}}', '{"id": 2, "o": "flat"}']
    contract = SchemaContract(
        mismatch="drop", new_columns="add", columns={"o": SchemaContract(new_columns="ignore")}
    )
    sink = _sink(table, contract)
    _land(sink, _texts(spark, *texts), 0)
    assert [row["id"] for row in sorted(_rows(table), key=lambda row: row["id"])] == [1, 2]


@pytest.mark.parametrize("own", ["quarantine", "rescue"])
def test_a_row_is_not_dropped_for_a_value_of_a_key_whose_own_contract_keeps_it(
    spark: SparkSession, tmp_path: Path, own: str
) -> None:
    contract = SchemaContract(
        mismatch="drop", new_columns="add", columns={"o": SchemaContract(new_columns="add", mismatch=own)}
    )
    table, sink = tmp_path / "table", _sink(tmp_path / "table", contract)
    _land(sink, _texts(spark, '{"o": {"x": 1}}'), 0)
    _land(sink, _texts(spark, '{"o": {"x": 1}}', '{"o": "flat"}'), 1)
    assert len(_rows(table)) + sink.reports[-1].quarantined == 3


def test_an_object_among_texts_of_a_new_key_sets_no_other_aside(spark: SparkSession, tmp_path: Path) -> None:
    contract = SchemaContract(new_columns="add", mismatch="drop")
    texts = ['{"op": "c"}', '{"op": "u"}', '{"op": {"x": 1}}']
    found = _last(tmp_path / "table", _sink(tmp_path / "table", contract), 0, _texts(spark, *texts))
    assert [row["op"] for row in found] == ["c", "u", '{"x":1}']


def test_lists_each_with_objects_and_text_are_text(spark: SparkSession, tmp_path: Path) -> None:
    """No text has only objects there, so nothing says that these are right."""
    found = _last(tmp_path / "table", _sink(tmp_path / "table"), 0, _texts(spark, '{"a": [1, {"b": 2}]}'))
    assert found == [{"k": 0, "a": ["1", '{"b":2}']}]


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("BINARY", ["AQI=", ""], ["AQI", "AQJ=", "A QI=", "AQI=\n", "!!", 200, True, 1.0, {"x": 1}, [1]]),
        ("TINYINT", [-128, 127, "7"], [128, -129, "x", 1.5, 2**40, True, [1]]),
        pytest.param("SMALLINT", [-(2**15), 2**15 - 1], [2**15, "1e", {"x": 1}], marks=only_in_soak),
    ],
)
def test_a_type_that_json_lacks_is_held_in_each_batch(
    spark: SparkSession, tmp_path: Path, kind: str, good: list[Any], bad: list[Any]
) -> None:
    """Bytes were a column of text where the batch had some, and of bytes where it had none."""
    given = f"v {kind}, items ARRAY<STRUCT<v: {kind}>>, by MAP<STRING, {kind}>"
    sink = _sink(tmp_path / "table", SchemaContract(mismatch="quarantine"))
    texts = [json.dumps({"v": each, "items": [{"v": each}, None], "by": {"a": each}}) for each in good]
    unfit = [json.dumps(each) for value in bad for each in ({"v": value}, {"items": [{"v": value}]})]
    unfit += [json.dumps({"by": {"a": value}}) for value in bad]
    leaf = spark.sql(f"SELECT CAST(NULL AS {kind}) AS v").schema["v"].dataType.simpleString()
    for number, batch in enumerate(([*texts, *unfit], ["{}"], texts, ['{"v": null}'])):
        with parse_json(_texts(spark, *batch), "value", sink, as_type=given) as parsed:
            kinds = {field.name: field.dataType.simpleString() for field in parsed.rows.schema}
            assert (kinds["v"], kinds["by"]) == (leaf, f"map<string,{leaf}>")
            assert kinds["items"] == f"array<struct<v:{leaf}>>"
            sink(parsed.rows, number)
    assert [report.quarantined for report in sink.reports] == [len(unfit), 0, 0, 0]
    held = [spark.sql(f"SELECT {_typed(each, kind)} AS v").first()[0] for each in good]  # type: ignore[index]
    found = [row for row in _rows(tmp_path / "table") if row["v"] is not None]
    assert sorted(row["v"] for row in found) == sorted([*held, *held])
    assert all(row["v"] == row["items"][0]["v"] == dict(row["by"])["a"] for row in found)


def _typed(value: object, kind: str) -> str:
    return f"unbase64('{value}')" if kind == "BINARY" else f"CAST('{value}' AS {kind})"


def test_bytes_that_are_none_are_refused_with_their_text(spark: SparkSession, tmp_path: Path) -> None:
    says = pytest.raises(SchemaMismatchError, match=r"1 rows .* given type .*: v is binary in as_type.*A QI=")
    sink = _sink(tmp_path / "table", REFUSING)
    with says, parse_json(_texts(spark, '{"v": "A QI="}'), "value", sink, as_type="v BINARY"):
        pass
