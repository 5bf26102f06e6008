"""How JSON text becomes columns: the types of a batch, and the table's where they hold the values."""

from __future__ import annotations

import pytest
from pyiceberg import types as iceberg
from pyspark.sql import types as spark

from streaming_sink import SchemaContract
from streaming_sink.parsing.columns import (
    ParsePlan,
    doubtful_numbers,
    plan_columns,
    possible_conversions,
    type_down_to,
)
from streaming_sink.parsing.inferred import BEYOND_LONG, MIXED, common_type, inferred_type


def _struct(**fields: iceberg.IcebergType) -> iceberg.StructType:
    numbered = enumerate(fields.items(), 1)
    return iceberg.StructType(*(iceberg.NestedField(n, name, kind) for n, (name, kind) in numbered))


TABLE = _struct(
    id=iceberg.LongType(),
    n=iceberg.IntegerType(),
    price=iceberg.DecimalType(9, 2),
    at=iceberg.TimestamptzType(),
    ratio=iceberg.FloatType(),
    raw=iceberg.StringType(),
    user=_struct(age=iceberg.IntegerType(), name=iceberg.StringType()),
    by_key=iceberg.MapType(1, iceberg.StringType(), 2, _struct(a=iceberg.IntegerType())),
)


def plan(
    text: str,
    table: iceberg.StructType | None = TABLE,
    contract: SchemaContract | None = None,
    failing: tuple[str, ...] = (),
    taken: tuple[str, ...] = ("value",),
    fractions: tuple[tuple[str, ...], ...] = (),
) -> ParsePlan:
    kind = inferred_type(text)
    assert isinstance(kind, spark.StructType)
    possible = {} if table is None else possible_conversions(table)
    fits = {path: each for path, each in possible.items() if ".".join(path) not in failing}
    return plan_columns(kind, table, contract or SchemaContract.evolving(), fits, fractions, taken, {})


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("VOID", "void"),
        ("OBJECT<>", "struct<>"),
        ("OBJECT<a: BIGINT, b: ARRAY<OBJECT<c: VOID>>>", "struct<a:bigint,b:array<struct<c:void>>>"),
        ("OBJECT<`a.b,<>``: `: DECIMAL(3,1), ``: DOUBLE>", "struct<a.b,<>`: :double,:double>"),
        ("ARRAY<DECIMAL(20,0)>", "array<decimal(38,0)>"),
        (
            "OBJECT<a: DECIMAL(1,0), b: DECIMAL(18,0), c: DECIMAL(19,0)>",
            "struct<a:double,b:double,c:decimal(38,0)>",
        ),
        ("OBJECT<`new\nline`: VARIANT>", "struct<new\nline:variant>"),
    ],
)
def test_the_types_of_a_batch_are_read_from_sparks_words(text: str, kind: str) -> None:
    assert inferred_type(text).simpleString() == kind


def test_common_types_do_not_depend_on_the_order() -> None:
    kinds = [
        inferred_type(text)
        for text in (
            "VOID",
            "BIGINT",
            "DOUBLE",
            "DECIMAL(20,0)",
            "STRING",
            "OBJECT<a: BIGINT>",
            "OBJECT<b: VOID>",
        )
    ]
    assert all(common_type(one, other) == common_type(other, one) for one in kinds for other in kinds)
    assert common_type(BEYOND_LONG, spark.LongType()) == BEYOND_LONG
    assert common_type(spark.StringType(), spark.LongType()) == MIXED


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("OBJECT<id: BIGINT>", "struct<id:bigint>"),
        ("OBJECT<id: VARIANT>", "struct<id:string>"),
        ("OBJECT<id: DECIMAL(21,1)>", "struct<id:string>"),  # a double would round the longs
        ("OBJECT<id: DECIMAL(20,0)>", "struct<id:string>"),
        ("OBJECT<n: BIGINT>", "struct<n:bigint>"),
        ("OBJECT<price: DOUBLE>", "struct<price:decimal(38,31)>"),
        ("OBJECT<price: VARIANT>", "struct<price:decimal(38,31)>"),
        ("OBJECT<price: OBJECT<a: BIGINT>>", "struct<price:struct<a:bigint>>"),
        ("OBJECT<ratio: BIGINT>", "struct<ratio:float>"),
        ("OBJECT<raw: OBJECT<a: BIGINT>>", "struct<raw:string>"),
        ("OBJECT<user: OBJECT<age: BIGINT, zip: STRING>>", "struct<user:struct<age:bigint,zip:string>>"),
        ("OBJECT<user: OBJECT<>>", "struct<user:struct<age:int,name:string>>"),
        ("OBJECT<user: STRING>", "struct<user:string>"),
        (
            "OBJECT<by_key: OBJECT<x: OBJECT<a: BIGINT>, y: OBJECT<b: STRING>>>",
            "struct<by_key:map<string,struct<a:bigint,b:string>>>",
        ),
        (
            "OBJECT<new: OBJECT<x: DECIMAL(30,0), y: ARRAY<VARIANT>>>",
            "struct<new:struct<x:string,y:array<string>>>",
        ),
        ("OBJECT<a: VOID, b: OBJECT<>, c: ARRAY<VOID>, d: OBJECT<e: VOID>>", "struct<>"),
    ],
)
def test_the_tables_types_win_where_they_hold_the_values(text: str, read: str) -> None:
    assert plan(text).read.simpleString() == read


def test_whole_numbers_beside_fractions_are_double_under_a_new_key() -> None:
    text = (
        "OBJECT<by_key: OBJECT<x: OBJECT<f: DECIMAL(20,0)>>, id: DECIMAL(20,0), new: DECIMAL(20,0),"
        " raw: DECIMAL(20,0), user: OBJECT<l: ARRAY<DECIMAL(20,0)>>>"
    )
    doubtful = [("by_key", "value", "f"), ("new",), ("user", "l", "element")]
    assert list(doubtful_numbers(inferred_type(text), TABLE, ())) == doubtful
    assert plan(text, fractions=tuple(doubtful[:2])).new == {
        "by_key.value.f": "double",
        "new": "double",
        "user.l": "array<string>",
    }


@pytest.mark.parametrize(
    "key", ["", "*", "a\0b", "a.b", "a`b", "VALUE", "value", "\u017f", "\u0130d", "\u212a"]
)
def test_keys_that_cannot_be_columns_are_named(key: str) -> None:
    text = f"OBJECT<`{key.replace('`', '``')}`: BIGINT, k: BIGINT, s: BIGINT>"
    assert plan(text).unfit_keys == ((key,),)
    assert set(plan(text).new) == {"k", "s"}


def test_values_are_converted_where_all_of_a_batch_convert() -> None:
    text = "OBJECT<at: STRING, n: BIGINT, user: OBJECT<age: BIGINT>>"
    assert set(plan(text).converted) == {("at",), ("n",), ("user", "age")}
    assert set(plan(text, failing=("at", "user.age")).converted) == {("n",)}


@pytest.mark.parametrize(
    ("text", "failing", "longs"),
    [
        ("OBJECT<n: VARIANT>", ("n",), [("n",)]),
        ("OBJECT<n: DOUBLE>", ("n",), [("n",)]),
        ("OBJECT<n: DECIMAL(20,0)>", ("n",), [("n",)]),
        ("OBJECT<user: OBJECT<age: VARIANT>>", ("user.age",), [("user", "age")]),
        ("OBJECT<by_key: OBJECT<x: OBJECT<a: VARIANT>>>", ("by_key.value.a",), [("by_key", "value", "a")]),
        ("OBJECT<n: BIGINT>", ("n",), []),  # read as long
        ("OBJECT<n: VARIANT>", (), []),  # the text is mixed, and its numbers fit an int
        ("OBJECT<id: VARIANT, new: VARIANT, price: VARIANT>", ("price",), []),
    ],
)
def test_longs_among_what_is_read_as_text_are_named(
    text: str, failing: tuple[str, ...], longs: list[tuple[str, ...]]
) -> None:
    assert list(plan(text, failing=failing).longs) == longs


def test_new_keys_are_named_with_their_types() -> None:
    found = plan("OBJECT<id: BIGINT, note: STRING, user: OBJECT<age: BIGINT, zip: OBJECT<a: BIGINT>>>")
    assert found.new == {"note": "string", "user.zip": "struct<a:bigint>"}
    assert plan("OBJECT<id: BIGINT>", table=None).new == {"id": "bigint"}


def test_ignored_keys_are_not_read() -> None:
    ignoring = SchemaContract(new_columns="ignore", new_fields="ignore")
    text = "OBJECT<debug: STRING, id: BIGINT, user: OBJECT<zip: STRING, age: BIGINT>>"
    assert plan(text, contract=ignoring).read.simpleString() == "struct<id:bigint,user:struct<age:bigint>>"
    whole = plan(text, table=None, contract=ignoring).read
    assert whole.fieldNames() == ["debug", "id", "user"], "everything in a new table is kept"


@pytest.mark.parametrize(
    ("text", "unfit"),
    [
        ("OBJECT<ID: BIGINT, id: BIGINT>", [("ID",)]),
        ("OBJECT<New: BIGINT, new: BIGINT>", [("new",)]),
        ("OBJECT<``: BIGINT, a: OBJECT<``: BIGINT, b: BIGINT>>", [("",), ("a", "")]),
        ("OBJECT<`a.b`: BIGINT, Value: STRING, _rescued: STRING>", [("Value",), ("_rescued",), ("a.b",)]),
        ("OBJECT<user: OBJECT<Age: BIGINT>>", [("user", "Age")]),
        ("OBJECT<by_key: OBJECT<A: OBJECT<A: BIGINT>, a: OBJECT<a: BIGINT>>>", [("by_key", "value", "A")]),
    ],
)
def test_keys_that_cannot_be_columns_are_found(text: str, unfit: list[tuple[str, ...]]) -> None:
    found = plan(text)
    assert list(found.unfit_keys) == unfit
    for path in unfit:
        kind = type_down_to(path, inferred_type(text), TABLE, spark.StringType())
        assert kind.simpleString().count("string") >= 1


@pytest.mark.parametrize(
    ("text", "mixed"),
    [
        ("OBJECT<user: VARIANT>", {("user",): TABLE.fields[6].field_type}),
        ("OBJECT<by_key: VARIANT>", {("by_key",): TABLE.fields[7].field_type}),
        ("OBJECT<by_key: OBJECT<x: OBJECT<a: BIGINT>, y: BIGINT>>", {("by_key", "value"): True}),
        ("OBJECT<new: OBJECT<z: ARRAY<VARIANT>>>", {("new", "z", "element"): None}),
        ("OBJECT<id: VARIANT, n: VARIANT, price: VARIANT, at: VARIANT, ratio: VARIANT, raw: VARIANT>", {}),
        ("OBJECT<user: OBJECT<age: VARIANT, name: VARIANT, new: VARIANT>>", {("user", "new"): None}),
        ("OBJECT<a: " * 31 + "VARIANT" + ">" * 31, {("a",) * 31: None}),
        ("OBJECT<a: " * 32 + "VARIANT" + ">" * 32, {}),
    ],
)
def test_keys_with_values_of_several_types_are_found(text: str, mixed: dict[tuple[str, ...], object]) -> None:
    """Where the table has objects or lists, or nothing, and not below the deepest level that has types."""
    found = plan(text).mixed
    assert found.keys() == mixed.keys()
    assert all(kind is True or found[path] == kind for path, kind in mixed.items())
