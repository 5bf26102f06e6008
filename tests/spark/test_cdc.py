"""Changes of Debezium, DMS and Delta, landed by key."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import functions as sf

from streaming_sink import Append, IcebergSink, SchemaContract, cdc, parse_json, replay
from streaming_sink.tasks.rows.failures import UNREADABLE
from tests.sinks import flat_sink, replay_options
from tests.spark.envelopes import MYSQL, POSTGRESQL, Envelope, envelope, parsed
from tests.spark.streams import metadata_file
from tests.tiers import only_in_soak
from timeline.errors import SchemaMismatchError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

REFUSES = "changes cannot be read or put in order"


def _sink(tmp_path: Path, **given: Any) -> IcebergSink:
    return flat_sink(str(tmp_path / "t"), app_id="a", **{"write": cdc.upsert(key=["id"]), **given})


def _rows(tmp_path: Path) -> list[tuple[Any, ...]]:
    """Return the rows, without their sequence."""
    read = StaticTable.from_metadata(metadata_file(str(tmp_path / "t")) or "").scan().to_arrow().to_pylist()
    assert all(set(row) & {"_op", "_sequence"} == {"_sequence"} for row in read)
    return sorted(tuple(value for name, value in row.items() if name != "_sequence") for row in read)


def _reasons(tmp_path: Path) -> list[str]:
    path = metadata_file(str(tmp_path / "t__quarantine")) or ""
    return sorted(row["reason"] for row in StaticTable.from_metadata(path).scan().to_arrow().to_pylist())


def _row(number: int, name: str) -> dict[str, Any]:
    return {"id": number, "name": name}


def _at(pos: int, row: int = 0) -> dict[str, Any]:
    return {"file": "binlog.000001", "pos": pos, "row": row}


def test_envelopes_of_postgresql(spark: SparkSession, tmp_path: Path) -> None:
    sink = _sink(tmp_path)
    first = [
        envelope("r", None, _row(1, "a"), {"lsn": None}),
        envelope("r", None, _row(2, "b"), {"lsn": None}),
        envelope("u", _row(1, "a"), _row(1, "a2"), {"lsn": 30, "sequence": '["28","30"]'}),
        envelope("c", None, _row(3, "c"), {"lsn": 20, "sequence": '["18","20"]'}),
    ]
    sink(cdc.debezium(parsed(spark, first, POSTGRESQL)), 0)
    assert _rows(tmp_path) == [(1, "a2"), (2, "b"), (3, "c")]
    late = [
        envelope("u", None, _row(1, "late"), {"lsn": 25, "sequence": '["22","25"]'}),
        envelope("d", _row(2, "b"), None, {"lsn": 40, "sequence": '["38","40"]'}),
    ]
    sink(cdc.debezium(parsed(spark, late, POSTGRESQL).selectExpr("struct(*) AS payload")), 1)
    assert _rows(tmp_path) == [(1, "a2"), (3, "c")]


def test_a_sequence_of_ones_own(spark: SparkSession, tmp_path: Path) -> None:
    sent = [
        envelope("u", None, _row(1, "new"), {"number": "100"}),
        envelope("u", None, _row(1, "old"), {"number": "99"}),
        envelope("u", None, _row(1, "none"), {"number": "99.5"}),
    ]
    batch = parsed(spark, sent, "struct<number: string>")
    found = cdc.debezium(batch, "source.number").collect()
    assert [row["_sequence"] for row in found] == [1002, 992, None]
    assert "source.number is no whole number" in found[2][UNREADABLE]
    _sink(tmp_path)(cdc.debezium(batch.limit(2), "source.number"), 0)
    assert _rows(tmp_path) == [(1, "new")]


def test_what_is_no_envelope_is_refused(spark: SparkSession) -> None:
    with pytest.raises(SchemaMismatchError, match="the batch has no 'op'; parse its messages first"):
        cdc.debezium(spark.createDataFrame([("{}",)], "value string"))
    mongodb = parsed(spark, [], "struct<ts_ms: bigint, ord: int>", "string")
    with pytest.raises(SchemaMismatchError, match="is text, as MongoDB's is: before string"):
        cdc.debezium(mongodb)


@pytest.mark.parametrize("absent", ["before", "after"])
def test_a_batch_may_lack_an_image_or_have_one_of_nulls(spark: SparkSession, absent: str) -> None:
    """`parse_json` makes no column of keys that are null throughout."""
    op = "c" if absent == "before" else "d"
    images = {"before": _row(1, "a"), "after": _row(1, "a"), absent: None}
    batch = parsed(spark, [envelope(op, images["before"], images["after"], _at(4))], MYSQL)
    for given in (batch.drop(absent), batch.withColumn(absent, sf.lit(None))):
        (row,) = cdc.debezium(given).collect()
        assert (row.id, row.name, row._op, row[UNREADABLE]) == (1, "a", "u" if op == "c" else "d", None)


BAD = {
    "op is null": envelope(None, None, None, None),
    "op is none of c, u, d and r: x": envelope("x", _row(8, "x"), _row(8, "x"), _at(101)),
    "a truncation (op 't')": envelope("t", None, None, _at(102)),
    "a message of the log (op 'm')": envelope("m", None, None, _at(103)),
    "nothing says what row it is of: 'before' is null": envelope("d", None, None, _at(104)),
    "nothing says what row it is of: 'after' is null": envelope("u", _row(8, "x"), None, _at(105)),
    "the position of the change cannot be read, or is too large: it takes source.file": envelope(
        "c", None, _row(8, "x"), {"file": "b"}
    ),
}


def test_changes_that_cannot_be_read_are_quarantined_whole_with_a_reason(
    spark: SparkSession, tmp_path: Path
) -> None:
    good = [envelope("c", None, _row(1, "a"), _at(4)), envelope("d", _row(2, "b"), None, _at(5))]
    batch = parsed(spark, [good[0], *BAD.values(), good[1]], MYSQL).coalesce(1)
    sink = _sink(tmp_path, schema=SchemaContract(mismatch="quarantine"))
    sink(cdc.debezium(batch), 0)
    assert _rows(tmp_path) == [(1, "a")]
    assert sink.reports[-1].quarantined == len(BAD)
    reasons = _reasons(tmp_path)
    for why, sent in BAD.items():
        (found,) = [reason for reason in reasons if why in reason]
        came = json.loads(found[found.index('{"op":') :])
        assert (came["op"], came["before"], came["after"]) == (sent["op"], sent["before"], sent["after"])
        assert (came["source"] or {}).get("pos") == (sent["source"] or {}).get("pos")


@pytest.mark.parametrize("operation", ["upsert", "insert"])
def test_without_a_quarantine_such_a_change_stops_its_batch_and_the_error_has_its_position(
    spark: SparkSession, tmp_path: Path, operation: str
) -> None:
    sink = _sink(tmp_path, **({} if operation == "upsert" else {"write": Append()}))
    bad = parsed(spark, [BAD["op is none of c, u, d and r: x"]], MYSQL)
    with pytest.raises(SchemaMismatchError, match=REFUSES + r'.*"file":"binlog.000001","pos":101'):
        sink(cdc.debezium(bad), 0)


def test_such_changes_are_dropped_where_the_contract_says_so(spark: SparkSession, tmp_path: Path) -> None:
    batch = parsed(spark, [*BAD.values(), envelope("c", None, _row(1, "a"), _at(4))], MYSQL)
    sink = _sink(tmp_path, schema=SchemaContract(mismatch="drop"))
    sink(cdc.debezium(batch), 0)
    assert (_rows(tmp_path), sink.reports[-1].dropped) == ([(1, "a")], len(BAD))


def test_a_text_that_did_not_parse_keeps_the_reason_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    texts = [json.dumps(envelope("c", None, _row(1, "a"), _at(4))), "no JSON"]
    batch = spark.createDataFrame([(text,) for text in texts], "value string")
    sink = _sink(tmp_path, schema=SchemaContract(mismatch="quarantine"))
    with parse_json(batch, "value", sink) as parsed_json:
        sink(cdc.debezium(parsed_json.rows), 0)
    assert (_rows(tmp_path), _reasons(tmp_path)) == ([(1, "a")], [DOES_NOT_PARSE])


DOES_NOT_PARSE = "the text is a JSON object whose values the columns hold"
ENVELOPE = (
    "op STRING, before STRUCT<id: BIGINT, name: STRING, on: DATE>, after STRUCT<id: BIGINT, name: STRING, on:"
    " DATE>, source STRUCT<file: STRING, pos: BIGINT, row: INT>"
)
ODD: dict[str, Envelope] = {
    "before is text": envelope("u", "x", _row(8, "x"), _at(50)),
    "after is a list": envelope("u", _row(8, "x"), [1], _at(50)),
    "after is text": envelope("u", _row(8, "x"), "gone", _at(50)),
    "after is empty text": envelope("u", _row(8, "x"), "", _at(50)),
    "source is text": envelope("u", _row(8, "x"), _row(8, "x"), "x"),
    "a key that is text": envelope("u", None, {"id": "x"}, _at(50)),
    "a key beyond a long": envelope("u", None, {"id": 2**70}, _at(50)),
    "a key with a fraction": envelope("u", None, {"id": 1.5}, _at(50)),
    "a key that is an object": envelope("u", None, {"id": {"id": 1}}, _at(50)),
    "a date that is none": envelope("u", None, {"id": 8, "on": "soon"}, _at(50)),
    "a row beyond an int": envelope("u", None, _row(8, "x"), _at(50, 2**40)),
}


@pytest.mark.parametrize(
    "exists",
    [
        pytest.param(True, id="in a later batch"),
        pytest.param(False, id="in the first batch", marks=only_in_soak),
    ],
)
def test_a_message_that_is_not_of_the_given_type_is_set_aside_alone(
    spark: SparkSession, tmp_path: Path, exists: bool
) -> None:
    """One of them made its column text for the whole batch, for good where it was the first, and an image or
    a source of text stopped the stream.
    """
    sink = _sink(tmp_path, schema=replace(SchemaContract.evolving(), mismatch="quarantine"))
    first = [envelope("c", None, _row(each, "a"), _at(each)) for each in (1, 2)]
    changes = [
        envelope("u", _row(1, "a"), {**_row(1, "b"), "new": 5}, _at(40)),
        *ODD.values(),
        envelope("u", None, {"id": "7", "name": "c", "on": "2024-01-01"}, _at(60)),
    ]
    batches = [first, changes] if exists else [[*first, *changes]]
    for batch_id, sent in enumerate(batches):
        texts = spark.createDataFrame([(json.dumps(each),) for each in sent], "value string")
        with parse_json(texts, "value", sink, as_type=ENVELOPE) as found:
            sink(cdc.debezium(found.rows), batch_id)
    read = StaticTable.from_metadata(metadata_file(str(tmp_path / "t")) or "").scan().to_arrow()
    rows = sorted(read.select(["id", "name", "on", "new"]).to_pylist(), key=lambda row: row["id"])
    assert [tuple(row.values()) for row in rows] == [
        (1, "b", None, 5),
        (2, "a", None, None),
        (7, "c", dt.date(2024, 1, 1), None),
    ]
    path = metadata_file(str(tmp_path / "t__quarantine")) or ""
    aside = StaticTable.from_metadata(path).scan().to_arrow().to_pylist()
    assert [row["reason"] for row in aside] == [DOES_NOT_PARSE] * len(ODD)
    came = sorted(json.loads(row["row"])["__streaming_sink_unparsed"]["value"] for row in aside)
    assert came == sorted(json.dumps(each) for each in ODD.values())


def test_a_message_that_is_not_of_the_given_type_is_refused_with_its_place(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = _sink(tmp_path)
    texts = spark.createDataFrame([(json.dumps(ODD["after is text"]),)], "value string")
    says = (
        r"1 rows hold values that the given type does not; .*: after is struct<.* in the text '{\"op\": \"u\""
    )
    with pytest.raises(SchemaMismatchError, match=says), parse_json(texts, "value", sink, as_type=ENVELOPE):
        pass


@pytest.mark.parametrize("mismatch", ["quarantine", pytest.param("rescue", marks=only_in_soak)])
def test_the_table_decides_what_a_column_of_objects_and_of_text_holds(
    spark: SparkSession, tmp_path: Path, mismatch: str
) -> None:
    """The envelope's type names neither, and one value of the other kind took the good ones with it."""
    sink = _sink(tmp_path, schema=replace(SchemaContract.evolving(), mismatch=mismatch))
    rows = [
        {"id": 1, "tags": {"x": 1}, "note": "a"},
        {"id": 2, "tags": "flat", "note": "b"},
        {"id": 3, "tags": "flat", "note": "c"},
        {"id": 4, "tags": {"x": 4}, "note": {"y": 1}},
        {"id": 5, "note": {"y": 2}},
    ]
    for number, sent in enumerate((rows[:1], rows)):
        texts = [(json.dumps(envelope("c", None, row, _at(row["id"]))),) for row in sent]
        with parse_json(spark.createDataFrame(texts, "value string"), "value", sink, ENVELOPE) as found:
            sink(cdc.debezium(found.rows), number)
    read = StaticTable.from_metadata(metadata_file(str(tmp_path / "t")) or "").scan().to_arrow().to_pylist()
    landed = {row["id"]: (row["tags"], row["note"]) for row in read}
    aside = {landed.pop(2, None), landed.pop(3, None)}
    assert landed == {1: ({"x": 1}, "a"), 4: ({"x": 4}, '{"y":1}'), 5: (None, '{"y":2}')}
    assert aside == ({(None, "b"), (None, "c")} if mismatch == "rescue" else {None})


ODD_KEYS: list[dict[str, Any]] = [
    {"a.b": 1},
    {"*": 1},
    {"a`b": 1},
    {"_op": 1},
    {"_sequence": 1},
    {"_rescued": 1},
    {"__streaming_sink_unreadable": 1},
]


@pytest.mark.parametrize("image", ["before", pytest.param("after", marks=only_in_soak)])
def test_a_row_with_a_key_that_cannot_be_a_column_is_set_aside_alone(
    spark: SparkSession, tmp_path: Path, image: str
) -> None:
    """One of them stopped the stream, also where the contract sets rows aside."""
    sink = _sink(tmp_path, schema=replace(SchemaContract.evolving(), mismatch="quarantine"))
    odd = [
        envelope("u", {}, {}, _at(40))
        | {"before": _row(2, "b"), "after": _row(2, "c"), image: {"id": 2, **key}}
        for key in [*ODD_KEYS, {"A B": 1} if image == "before" else {"a.c": 1}]
    ]
    good = [
        envelope("c", None, {**_row(1, "a"), "a b": 5}, _at(4)),
        envelope("c", None, _row(3, "x"), _at(5), payload={"a": 1}),
        envelope("c", None, _row(4, "y"), _at(6), payload={"op": "d", "__streaming_sink_failed": 1}),
    ]
    texts = spark.createDataFrame([(json.dumps(each),) for each in [*odd, *good]], "value string")
    with parse_json(texts, "value", sink, as_type=ENVELOPE) as found:
        sink(cdc.debezium(found.rows), 0)
    read = StaticTable.from_metadata(metadata_file(str(tmp_path / "t")) or "").scan().to_arrow().to_pylist()
    landed = sorted((row["id"], row["name"], row["a b"]) for row in read)
    assert landed == [(1, "a", 5), (3, "x", None), (4, "y", None)]
    reasons = _reasons(tmp_path)
    assert len(reasons) == len(odd)
    for sent in odd:
        (name,) = sent[image].keys() - {"id"}
        (reason,) = [each for each in reasons if f"cannot be a column of the table, {name!r}" in each]
        assert '"pos":40' in reason


def test_without_a_quarantine_such_a_row_stops_its_batch_and_the_error_has_its_key_and_place(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = _sink(tmp_path, schema=SchemaContract.evolving())
    sent = envelope("c", None, {"id": 1, "a.b": 1}, _at(77))
    texts = spark.createDataFrame([(json.dumps(sent),)], "value string")
    with (
        parse_json(texts, "value", sink, as_type=ENVELOPE) as found,
        pytest.raises(SchemaMismatchError, match=REFUSES + r""".*'a\.b'; rename it.*"pos":77"""),
    ):
        sink(cdc.debezium(found.rows), 0)


def test_a_column_of_the_source_that_is_named_as_one_of_cdc_lands_renamed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As docs/cdc.md has it."""
    sent = [
        envelope("c", None, {"id": 1, "_op": "x"}, _at(4)),
        envelope("d", {"id": 2, "_op": "y"}, None, _at(5)),
    ]
    batch = parsed(spark, sent, MYSQL, "struct<id: bigint, _op: string>")
    for image in ("before", "after"):
        renamed = sf.col(image).withField("source_op", sf.col(f"{image}._op")).dropFields("_op")
        batch = batch.withColumn(image, sf.when(sf.col(image).isNotNull(), renamed))
    sink = _sink(tmp_path)
    sink(cdc.debezium(batch), 0)
    assert _rows(tmp_path) == [(1, "x")]


@pytest.mark.usefixtures("noted_calls")
@pytest.mark.parametrize(
    ("sequence", "error", "says"),
    [
        ("rand() * 0 + 1", ValueError, "the same whenever it is computed"),
        ("CAST(rand() * 9 AS BIGINT)", ValueError, "the same whenever it is computed"),
        ("source.nothing", ValueError, "no SQL expression of one change"),
        ("max(source.pos)", ValueError, "no SQL expression of one change"),
        ("source.pos / 2", ValueError, "whole number, or text of one, and source.pos / 2 is double"),
        ("current_timestamp()", ValueError, "is timestamp; take unix_micros"),
        (5, TypeError, "sequence must be an SQL expression"),
        ("", TypeError, "sequence must be an SQL expression"),
    ],
)
def test_a_sequence_that_orders_no_change_is_refused(
    spark: SparkSession, sequence: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        cdc.debezium(parsed(spark, [], MYSQL), sequence)


def test_what_is_no_batch_no_column_and_no_option_is_refused(spark: SparkSession) -> None:
    not_a_batch: Any = 5
    for make in (cdc.debezium, cdc.delta_cdf, partial(cdc.dms, sequence="at")):
        with pytest.raises(TypeError, match=r"takes the batch, a DataFrame, .* not 5"):
            make(not_a_batch)
    none: Any = None
    with pytest.raises(TypeError, match=r"must be the name of the column that orders .* not None"):
        cdc.dms(spark.createDataFrame([], "Op string, id bigint"), none)
    with pytest.raises(ValueError, match="leave out except_columns, sequence_by, or make the write"):
        cdc.upsert(["id"], sequence_by="x", except_columns=["y"])


@pytest.mark.parametrize("name", ["op", "OP"])
def test_a_column_of_dms_in_another_case_is_refused(spark: SparkSession, name: str) -> None:
    """Its deletes landed as rows of a full load."""
    batch = spark.createDataFrame([("D", 1, 7)], f"{name} string, id bigint, at bigint")
    with pytest.raises(SchemaMismatchError, match=f"rename the column to Op if .*: {name}$"):
        cdc.dms(batch, "at")


def test_a_version_of_delta_that_twice_is_no_long_is_set_aside(spark: SparkSession, tmp_path: Path) -> None:
    sink = _sink(tmp_path, schema=SchemaContract(mismatch="quarantine"))
    rows = [(1, "x", "insert", 2**62), (2, "y", "insert", 2**62 - 1), (3, "z", "insert", None)]
    kinds = "id bigint, name string, _change_type string, _commit_version bigint"
    sink(cdc.delta_cdf(spark.createDataFrame(rows, kinds)), 0)
    assert _rows(tmp_path) == [(2, "y")]
    (null,), (large,) = (
        [each for each in _reasons(tmp_path) if why in each] for why in ("is null", "whole number below 2^62")
    )
    assert '"id":3' in null
    assert '"id":1' in large


def test_a_null_in_the_key_is_refused_with_the_place_of_its_row(spark: SparkSession, tmp_path: Path) -> None:
    sent = [envelope("c", None, _row(1, "a"), _at(4)), envelope("c", None, {"name": "b"}, _at(5))]
    with pytest.raises(
        SchemaMismatchError, match=r"null in the key's column 'id'.*the first has _sequence 1\d+50"
    ):
        _sink(tmp_path)(cdc.debezium(parsed(spark, sent, MYSQL)), 0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"key": ["list", "position"]}, "key and source_key go together"),
        ({"source_key": ["id"]}, "key and source_key go together"),
        ({"key": ["list", "position"], "source_key": ["id"]}, "add id to the key of the sink"),
        ({"key": "id", "source_key": ["id"]}, r"key must be a list of columns, such as \['id'\], not 'id'"),
    ],
)
def test_keys_by_which_a_transaction_may_lose_rows_are_refused(
    spark: SparkSession, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        cdc.debezium(parsed(spark, [], MYSQL), **options)


def test_a_quarantined_change_that_is_repaired_lands(spark: SparkSession, tmp_path: Path) -> None:
    sink = _sink(tmp_path, schema=SchemaContract(mismatch="quarantine"))
    sink(cdc.debezium(parsed(spark, [BAD["op is none of c, u, d and r: x"]], MYSQL)), 0)
    assert _rows(tmp_path) == []
    options = replay_options(write=cdc.upsert(key=["id"]))
    replay(spark, str(tmp_path / "t"), set={"_op": "'u'", "_sequence": "7"}, options=options)
    assert _rows(tmp_path) == [(8, "x")]


def test_columns_of_the_source_that_are_named_as_those_of_the_envelope_in_another_case_land(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Once the table had one, the envelope's own key passed for that column in another case: all batches
    failed, or their messages were set apart.
    """
    names = ("Op", "SOURCE", "Before", "After", "TS_MS", "Transaction")
    sink = _sink(tmp_path, schema=SchemaContract(new_columns="add", mismatch="quarantine"))
    row = f"STRUCT<id: BIGINT, {', '.join(f'{name}: STRING' for name in names)}>"
    given = f"op STRING, before {row}, after {row}, source STRUCT<file: STRING, pos: BIGINT, row: INT>"

    def message(op: str, before: int | None, after: int | None, pos: int) -> tuple[str]:
        halves = {
            half: None if number is None else {"id": number} | {name: f"{name}{pos}" for name in names}
            for half, number in (("before", before), ("after", after))
        }
        beside = {"ts_ms": 1_700_000_000_000 + pos, "transaction": {"id": "t", "total_order": pos}}
        return (json.dumps({"op": op, **halves, "source": _at(pos), **beside}),)

    batches = (
        [message("c", None, 1, 1), message("c", None, 2, 2)],
        [message("u", 1, 1, 3), message("c", None, 3, 4)],
        [message("d", 2, None, 5)],
    )
    for number, messages in enumerate(batches):
        text = spark.createDataFrame(messages, "value string")
        with parse_json(text, "value", sink, as_type=given) as found:
            assert sink(cdc.debezium(found.rows), number).quarantined == 0
    wanted = [{number} | {f"{name}{pos}" for name in names} for number, pos in ((1, 3), (3, 4))]
    assert [set(found) for found in _rows(tmp_path)] == wanted


@pytest.mark.parametrize(
    ("kind", "old"),
    [
        ("bigint", "-5"),
        ("int", "-5"),
        ("smallint", "-32767"),
        ("decimal(38,0)", "-5"),
        ("string", "0"),
        ("timestamp", "1960-01-01 00:00:00"),
        ("date", "1000-01-01"),
    ],
)
def test_a_row_of_a_full_load_is_older_than_every_change(spark: SparkSession, kind: str, old: str) -> None:
    """It had the sequence 0, or the beginning of 1970, and beat changes that were older."""
    rows = spark.createDataFrame([(None, 1, None), ("U", 1, old)], "Op string, id bigint, at string")
    changes = cdc.dms(rows.withColumn("at", sf.col("at").cast(kind)), "at")
    oldest, change = changes.select("_sequence").collect()
    assert oldest[0] < change[0]
    assert oldest[0] is not None


@pytest.mark.parametrize("name", ["_op", "_sequence", "_OP"])
def test_a_column_of_dms_or_delta_that_is_named_as_one_of_cdc_is_refused_with_what_to_do(
    spark: SparkSession, name: str
) -> None:
    """Spark said that a reference is ambiguous, or the sink that a column is there more than once."""
    for function, columns in ((cdc.dms, "Op string"), (cdc.delta_cdf, "_change_type string")):
        batch = spark.createDataFrame([], f"{columns}, _commit_version long, `{name}` string")
        given = ("_commit_version",) if function is cdc.dms else ()
        with pytest.raises(SchemaMismatchError, match=f'withColumnRenamed."{name}"'):
            function(batch, *given)  # type: ignore[operator]


def test_an_op_of_dms_that_is_a_number_cannot_be_read(spark: SparkSession) -> None:
    """It ended in Spark's own error of a cast."""
    changes = cdc.dms(spark.createDataFrame([(1, 7, 1)], "Op int, id bigint, at bigint"), "at")
    assert "Op is none of I, U and D: 1" in changes.select(UNREADABLE).collect()[0][0]


def test_changes_of_dms(spark: SparkSession, tmp_path: Path) -> None:
    sink = _sink(tmp_path)
    full = spark.createDataFrame([(1, "a", 0), (2, "b", 0)], "id bigint, name string, at bigint")
    sink(cdc.dms(full, "at"), 0)
    rows = [("U", 1, "a2", 7), ("D", 2, "b", 8), ("I", 3, "c", 9)]
    sink(cdc.dms(spark.createDataFrame(rows, "Op string, id bigint, name string, at bigint"), "at"), 1)
    assert _rows(tmp_path) == [(1, "a2", 7), (3, "c", 9)]


def test_changes_of_dms_by_a_number_of_35_digits(spark: SparkSession, tmp_path: Path) -> None:
    """Its first 16 digits are a time, and its last 19 count."""
    sink, at = (
        _sink(tmp_path, schema=SchemaContract(mismatch="quarantine")),
        "2024010112000000000000000000000",
    )
    rows = [
        (None, 1, "a", None),
        ("U", 1, "newest", at + "0010"),
        ("U", 1, "new", at + "0009"),
        ("D", 2, "b", at + "0011"),
        ("I", 2, "c", at + "0012"),
        ("d", 1, "x", at + "0013"),
        ("X", 1, "x", at + "0014"),
        ("U", 1, "x", "2024-01-01"),
    ]
    batch = spark.createDataFrame(rows, "Op string, id bigint, name string, AR_H_CHANGE_SEQ string")
    sink(cdc.dms(batch, "AR_H_CHANGE_SEQ"), 0)
    assert _rows(tmp_path) == [(1, "newest", at + "0010"), (2, "c", at + "0012")]
    whys = "Op is none of I, U and D: X", "Op is none of I, U and D: d", "nothing orders the change: AR_H"
    for why in whys:
        assert len([reason for reason in _reasons(tmp_path) if why in reason]) == 1


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
    assert _rows(tmp_path) == [(1, "b")]


def test_an_overwrite_of_a_delta_table_keeps_the_rows_that_it_inserts_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its one version deletes every row that was there, and inserts what is there now."""
    sink, kinds = _sink(tmp_path), "id bigint, name string, _change_type string, _commit_version bigint"
    sink(cdc.delta_cdf(spark.createDataFrame([(1, "a", "insert", 1), (2, "x", "insert", 1)], kinds)), 0)
    overwrite = [(1, "a", "delete", 2), (2, "x", "delete", 2), (1, "b", "insert", 2)]
    sink(cdc.delta_cdf(spark.createDataFrame(overwrite, kinds)), 1)
    assert _rows(tmp_path) == [(1, "b")]


def test_an_update_of_delta_that_changes_the_key_deletes_the_old_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink, kinds = _sink(tmp_path), "id bigint, name string, _change_type string, _commit_version bigint"
    rows = [
        (1, "a", "insert", 1),
        (2, "b", "insert", 1),
        (1, "a", "update_preimage", 2),
        (2, "a", "update_postimage", 2),
        (2, "b", "update_preimage", 2),
        (3, "b", "update_postimage", 2),
    ]
    sink(cdc.delta_cdf(spark.createDataFrame(rows, kinds)), 0)
    assert _rows(tmp_path) == [(2, "a"), (3, "b")]
    unknown = spark.createDataFrame([(3, "c", "merge", 3)], kinds)
    with pytest.raises(SchemaMismatchError, match=REFUSES + '.*_change_type is unknown: merge: {"id":3'):
        sink(cdc.delta_cdf(unknown), 1)


def test_a_stream_of_text_lands_inserts_alone_deletes_alone_and_after_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A batch of inserts has `before: null` throughout, so that no column was made of it, and the query could
    not get past it.
    """
    source, checkpoint, sink = tmp_path / "source", str(tmp_path / "checkpoint"), _sink(tmp_path)
    source.mkdir()
    kind = "id BIGINT, name STRING"
    given = (
        f"op STRING, before STRUCT<{kind}>, after STRUCT<{kind}>, source STRUCT<file: STRING, pos: BIGINT>"
    )

    def land(batch: DataFrame, number: int, as_type: str | None) -> None:
        with parse_json(batch, "value", sink, as_type=as_type) as texts:
            sink(cdc.debezium(texts.rows), number)

    sent = [
        [envelope("c", None, _row(1, "a"), _at(4)), envelope("r", None, _row(2, "b"), _at(4, 1))],
        [envelope("d", _row(1, "a"), None, _at(9))],
        [envelope("u", _row(2, "b"), _row(2, "c"), _at(12))],
    ]
    for number, envelopes in enumerate(sent):
        (source / f"{number}.txt").write_text("\n".join(map(json.dumps, envelopes)))
        query = (
            spark.readStream.text(str(source))
            .writeStream.foreachBatch(partial(land, as_type=given if number else None))
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    assert _rows(tmp_path) == [(2, "c")]
    assert [report.rows for report in sink.reports] == [2, 0, 1]
