"""A row as JSON, and its schema: what Spark's `from_json` cannot say otherwise."""

from __future__ import annotations

import json
from datetime import date

import pyarrow as pa
import pytest

from streaming_sink.tasks.rows.row_json import rows_as_json


def _rows(**columns):
    return pa.RecordBatch.from_pydict(columns)


def _raw_text(*values):
    return pa.array(values, pa.binary()).view(pa.string())


def test_nothing_is_nothing():
    assert rows_as_json(_rows(x=pa.array([], pa.int32()))) == ([], [])


def test_a_string_that_is_not_utf8_is_bytes_in_its_row_alone():
    texts, schemas = rows_as_json(
        _rows(s=_raw_text(b"ok", b"\xff"), m=pa.array([[("k", 1)]] * 2, pa.map_(pa.string(), pa.int64())))
    )
    assert schemas == [
        "`s` STRING, `m` MAP<STRING, BIGINT>",
        "`s` BINARY, `m` ARRAY<STRUCT<key: BINARY, value: BIGINT>>",
    ]
    assert json.loads(texts[0]) == {"s": "ok", "m": {"k": 1}}
    assert json.loads(texts[1]) == {"s": "/w==", "m": [{"key": "aw==", "value": 1}]}


def test_a_map_whose_keys_are_no_strings_is_an_array_of_entries():
    texts, (schema,) = rows_as_json(
        _rows(m=pa.array([[(1, "a"), (2, None)]], pa.map_(pa.int64(), pa.string())))
    )
    assert json.loads(texts[0]) == {"m": [{"key": 1, "value": "a"}, {"key": 2, "value": None}]}
    assert schema == "`m` ARRAY<STRUCT<key: BIGINT, value: STRING>>"


@pytest.mark.parametrize("year", [1, 9999, 10_000, 12_345, 0, -1, -4712, 200_000])
def test_dates_of_every_year_are_spelled(year):
    cycles = (year - 2000) // 400
    days = date(year - 400 * cycles, 2, 28).toordinal() - date(1970, 1, 1).toordinal() + 146_097 * cycles
    (text,), _ = rows_as_json(_rows(d=pa.array([days], pa.int32()).cast(pa.date32())))
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    assert json.loads(text) == {"d": f"{sign}{abs(year):04}-02-28"}


def test_rows_of_a_slice_are_its_own():
    nested = pa.array([[1], None, [], [2, 3]], pa.list_(pa.int64()))
    texts, _ = rows_as_json(_rows(l=nested, s=pa.array([{"a": n} for n in range(4)])).slice(1, 3))
    assert [json.loads(text) for text in texts] == [
        {"l": None, "s": {"a": 1}},
        {"l": [], "s": {"a": 2}},
        {"l": [2, 3], "s": {"a": 3}},
    ]


def test_a_type_that_iceberg_lacks_is_text():
    (text,), (schema,) = rows_as_json(_rows(i=pa.array([1_500_000], pa.duration("us"))))
    assert json.loads(text) == {"i": "0:00:01.500000"}
    assert schema == "`i` STRING"


def test_a_struct_without_fields_is_an_empty_object() -> None:
    rows = pa.RecordBatch.from_pydict({"v": pa.array([[{}, None], None], pa.list_(pa.struct([])))})
    assert rows_as_json(rows) == (['{"v":[{},null]}', '{"v":null}'], ["`v` ARRAY<STRUCT<>>"] * 2)
