"""Keys as a user spells them find rows by columns of every type; others are refused with the column."""

from __future__ import annotations

import datetime as dt
import re
from contextlib import suppress
from decimal import Decimal
from itertools import count
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from streaming_sink.removal.matching import matcher_of
from streaming_sink.removal.texts import TextMatcher
from streaming_sink.removal.wanted import WantedKeys
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.tasks.rows.row_json import rows_as_json
from tests.unit.streaming_sink.removal.people import write_rows
from timeline.stores import MemoryStore
from timeline.table import Table

_numbers = count()
_AT = dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.timezone.utc)
_ID = UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
TYPES: dict[str, tuple[iceberg.PrimitiveType, list[Any], Any]] = {
    "int": (iceberg.IntegerType(), [1, 42, None], "42"),
    "long": (iceberg.LongType(), [-(2**62), -42], -42),
    "boolean": (iceberg.BooleanType(), [False, True], True),
    "string": (iceberg.StringType(), ["", "a,b=c", "é"], "a,b=c"),
    "date": (iceberg.DateType(), [dt.date(1960, 1, 1), dt.date(2026, 1, 2)], "2026-01-02"),
    "time": (iceberg.TimeType(), [dt.time(1), dt.time(3, 4, 5, 6)], dt.time(3, 4, 5, 6)),
    "timestamp": (iceberg.TimestampType(), [_AT.replace(tzinfo=None)], "2026-01-02T03:04:05.000006"),
    "timestamptz": (iceberg.TimestamptzType(), [_AT], _AT),
    "decimal": (iceberg.DecimalType(9, 2), [Decimal("1.50"), Decimal("-1.50")], "-1.5"),
    "uuid": (iceberg.UUIDType(), [UUID(int=0), _ID], _ID),
    "binary": (iceberg.BinaryType(), [b"", b"\x00\xff"], "0x00ff"),
    "fixed": (iceberg.FixedType(2), [b"ab", b"\x00\xff"], b"\x00\xff"),
}


def make_table(*fields: NestedField) -> Table:
    return Table.create(MemoryStore(f"wanted-{next(_numbers)}"), Schema(*fields), store_is_checked=True)


def positions(table: Table, columns: dict[str, pa.Array], wanted: WantedKeys) -> list[int]:
    """The rows that are found in a file of these columns."""
    rows = zip(*(column.to_pylist() for column in columns.values()), strict=True)
    (file,) = write_rows(table, [dict(zip(columns, row, strict=True)) for row in rows])
    path = table.store.relative(file.file_path)
    return list(matcher_of(wanted, table.head).find(table.store, path))


@pytest.mark.parametrize("name", TYPES)
def test_a_key_of_each_type_is_found(name: str) -> None:
    kind, values, wanted = TYPES[name]
    table = make_table(NestedField(1, "k", kind, required=False))
    column = pa.array(values, arrow_schema(table.head.schema).field("k").type)
    found = positions(table, {"k": column}, WantedKeys.of([{"k": wanted}]))
    assert found == [len(values) - 1 if values[-1] is not None and name != "string" else 1]


def test_a_key_of_two_columns_is_found_by_both_in_any_order() -> None:
    table = make_table(
        NestedField(1, "region", iceberg.StringType(), required=False),
        NestedField(2, "id", iceberg.LongType(), required=False),
    )
    columns = {"region": pa.array(["eu", "us", "eu", None]), "id": pa.array([1, 42, 42, 42])}
    assert positions(table, columns, WantedKeys.parse(["id=42,region=eu"])) == [2]
    two = WantedKeys.read(['{"region": "eu", "id": 1}', "", '{"id": 42, "region": "us"}'])
    assert positions(table, columns, two) == [0, 1]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (iceberg.IntegerType(), "99999999999"),
        (iceberg.LongType(), "4.5"),
        (iceberg.LongType(), "4_2"),
        (iceberg.LongType(), str(2**63)),
        (iceberg.DecimalType(9, 2), "1.505"),
        (iceberg.DecimalType(3, 2), "12.5"),
        (iceberg.DateType(), "yesterday"),
        (iceberg.UUIDType(), "42"),
        (iceberg.BinaryType(), "0xzz"),
        (iceberg.BooleanType(), "maybe"),
    ],
    ids=str,
)
def test_a_value_that_the_column_cannot_hold_is_refused(kind: iceberg.PrimitiveType, value: str) -> None:
    table = make_table(NestedField(1, "k", kind, required=False))
    with pytest.raises(ValueError, match=re.escape(f"column k is of type {kind} and cannot hold {value!r}")):
        matcher_of(WantedKeys.of([{"k": value}]), table.head)


def test_a_column_that_no_key_has_is_refused() -> None:
    table = make_table(NestedField(1, "k", iceberg.DoubleType(), required=False))
    with pytest.raises(TypeError, match="double cannot be part of a key"):
        matcher_of(WantedKeys.of([{"k": "1.5"}]), table.head)


@pytest.mark.parametrize("line", ["42", '["a"]', "{", "user_id=42"])
def test_a_line_that_is_no_key_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(ValueError, match="line 2 must be a JSON object such as"):
        WantedKeys.read(['{"user_id": 1}', line])


def test_no_key_is_refused() -> None:
    with pytest.raises(ValueError, match="no key was named"):
        WantedKeys.read(["", "  "])
    with pytest.raises(ValueError, match=r"a key has no value of type float: k=1\.5"):
        WantedKeys.of([{"k": 1.5}])


def test_a_key_may_be_given_alone_and_is_a_mapping() -> None:
    assert WantedKeys.of({"a": 1, "b": "x"}) == WantedKeys.of([{"a": 1, "b": "x"}])
    with pytest.raises(TypeError, match=r'a key maps columns to values, such as {"user_id": 42}, not 42'):
        WantedKeys.of([42])  # type: ignore[list-item]


_QUARANTINED = {
    **{name: (kind, max(it for it in given if it is not None)) for name, (kind, given, _) in TYPES.items()},
    "long decimal": (iceberg.DecimalType(20, 2), Decimal("123456789012345678.25")),
    "small decimal": (iceberg.DecimalType(10, 8), Decimal("0.00000001")),
}


@pytest.mark.parametrize("name", _QUARANTINED)
def test_a_row_that_the_sink_has_quarantined_is_found_by_its_key(name: str) -> None:
    kind, value = _QUARANTINED[name]
    schema = Schema(NestedField(1, "k", kind, required=False))
    arrow = pa.binary() if name == "fixed" else arrow_schema(schema).field("k").type  # as Spark sends it
    rows = pa.RecordBatch.from_arrays([pa.array([value], arrow)], ["k"])
    (text,), _ = rows_as_json(rows)
    assert TextMatcher(WantedKeys.of({"k": value}), schema).holds(text)
    others = {"k": 7} if name != "boolean" else {"k": not value}
    with suppress(ValueError):  # of a type that has no 7
        assert not TextMatcher(WantedKeys.of(others), schema).holds(text)


@pytest.mark.parametrize(
    "text", ["[" * 5000, '{"v": ' * 400 + "1" + "}" * 400, '{"v": "' + "[" * 5000 + '"}']
)
def test_text_that_is_nested_deeply_ends_no_search(text: str) -> None:
    schema = Schema(NestedField(1, "k", iceberg.LongType(), required=False))
    assert not TextMatcher(WantedKeys.of({"k": 42}), schema).holds(text)
    assert TextMatcher(WantedKeys.of({"k": 42}), schema).holds(text + " 42 ")


@pytest.mark.parametrize(
    ("kind", "key", "text"),
    [
        (iceberg.LongType(), 42, '{"k": " 42\\t"}'),
        (iceberg.LongType(), 42, '\ufeff{"k": 42}'),
        (iceberg.DecimalType(9, 2), "1.50", '{"k": " 1.5 "}'),
        (iceberg.DateType(), "2026-01-02", '{"k": "2026-1-2"}'),
        (iceberg.TimestampType(), "2026-01-02T03:04:05.060000", '{"k": " 2026-1-2 3:4:5.06"}'),
        (iceberg.TimestampType(), "2026-01-02T00:00:00", '{"k": "2026-1-2"}'),
        (iceberg.TimestamptzType(), "2026-01-02T03:04:05.600000+00:00", '{"k": "2026-1-2T3:4:5.6Z"}'),
    ],
    ids=str,
)
def test_a_key_is_found_as_spark_casts_it_from_text(kind: iceberg.PrimitiveType, key: Any, text: str) -> None:
    schema = Schema(NestedField(1, "k", kind, required=False))
    assert TextMatcher(WantedKeys.of({"k": key}), schema).holds(text)


def test_spaces_are_part_of_a_key_of_text() -> None:
    schema = Schema(NestedField(1, "k", iceberg.StringType(), required=False))
    assert not TextMatcher(WantedKeys.of({"k": "1"}), schema).holds('{"k": " 1"}')
    assert TextMatcher(WantedKeys.of({"k": " 1"}), schema).holds('{"k": " 1"}')


def test_a_number_with_a_huge_exponent_is_not_written_out() -> None:
    schema = Schema(NestedField(1, "k", iceberg.DecimalType(9, 2), required=False))
    assert not TextMatcher(WantedKeys.of({"k": 42}), schema).holds('{"k": 1e999999999}')


def test_a_time_in_zulu_is_one_in_utc_and_a_finer_one_is_refused() -> None:
    schema = Schema(NestedField(1, "k", iceberg.TimestamptzType(), required=False))
    zulu, other = (WantedKeys.of({"k": f"2026-01-02T03:04:05{it}"}).values(schema) for it in ("Z", "+00:00"))
    assert zulu == other
    clock = Schema(NestedField(1, "k", iceberg.TimeType(), required=False))
    with pytest.raises(ValueError, match=r"cannot hold '12:00:00\.1234567'"):
        WantedKeys.of({"k": "12:00:00.1234567"}).values(clock)
