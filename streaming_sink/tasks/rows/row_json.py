"""Rows as JSON that Spark's `from_json` reads back exactly, and their schema beside them as DDL."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from itertools import pairwise
from json.encoder import encode_basestring
from math import isfinite, isnan
from operator import itemgetter
from typing import Any

import pyarrow as pa

from streaming_sink.tasks.leaves import as_integers

_NULL = "null"
_DAY = 86_400
_CYCLE_DAYS, _CYCLE_YEARS = 146_097, 400
"""The calendar repeats, so dates that Python lacks are counted from a year that it has."""
_BASE, _BASE_DAYS = date(2000, 1, 1), 10_957


def rows_as_json(rows: pa.RecordBatch, *, by_name: bool = False) -> tuple[list[str], list[str]]:
    """Return each row as a JSON object, and the DDL of its schema: what `from_json(row, schema)` takes.

    Every value comes back as it was, with two detours that the schema shows: a map whose keys are no strings
    is an array of entries (`map_from_entries` makes the map), and where a string is not valid UTF-8, all
    strings of its row are binary (`CAST(… AS STRING)` makes the string). A value of a type that JSON and
    Iceberg lack (an interval, for example) is text. `by_name`: columns and fields are in the order of
    their names, in whichever order they were added to a table.
    """
    if not rows.num_rows:
        return [], []
    try:
        return _encoded(rows, True, by_name)
    except UnicodeDecodeError:
        if rows.num_rows == 1:
            return _encoded(rows, False, by_name)
    texts, schemas = [], []
    for place in range(rows.num_rows):
        text, schema = rows_as_json(rows.slice(place, 1), by_name=by_name)
        texts += text
        schemas += schema
    return texts, schemas


def _encoded(rows: pa.RecordBatch, text_is_valid: bool, by_name: bool) -> tuple[list[str], list[str]]:
    coder = _Coder(text_is_valid, by_name)
    texts = coder.objects(rows.schema, rows.columns)
    return texts, [coder.fields_ddl(rows.schema, " ")] * len(texts)


class _Coder:
    """Encodes arrays, and spells their types. Strings are bytes where one of them is not valid UTF-8."""

    def __init__(self, text_is_valid: bool, by_name: bool) -> None:
        self._text_is_valid, self._by_name = text_is_valid, by_name

    def objects(self, fields: Sequence[pa.Field], columns: Sequence[pa.Array]) -> list[str]:
        """Return one JSON object for each row of some columns."""
        named = list(zip((field.name for field in fields), columns, strict=True))
        if self._by_name:
            named.sort(key=itemgetter(0))
        names = [encode_basestring(name) + ":" for name, _ in named]
        rows = zip(*(self.texts(column) for _, column in named), strict=True)
        return ["{" + ",".join(map(str.__add__, names, row)) + "}" for row in rows]

    def texts(self, array: pa.Array) -> list[str]:
        """Return every value of an array as JSON."""
        if not len(array):  # Spark sends an empty nested array without the offset that Arrow wants
            return []
        kind = array.type
        if pa.types.is_struct(kind):
            fields = [kind.field(place) for place in range(kind.num_fields)]
            texts = self.objects(fields, array.flatten()) if fields else ["{}"] * len(array)
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            values = self.texts(array.values)
            texts = ["[" + ",".join(values[begin:end]) + "]" for begin, end in _ranges(array)]
        elif pa.types.is_map(kind):
            texts = self._maps(array)
        else:
            encode = self._leaf(kind)
            return [_NULL if value is None else encode(value) for value in self._values(array)]
        if array.null_count:
            texts = [
                text if valid else _NULL
                for text, valid in zip(texts, array.is_valid().to_pylist(), strict=True)
            ]
        return texts

    def _maps(self, array: pa.MapArray) -> list[str]:
        keys, values = self.texts(array.keys), self.texts(array.items)
        if self._is_text(array.type.key_type):
            entries = [f"{key}:{value}" for key, value in zip(keys, values, strict=True)]
            return ["{" + ",".join(entries[begin:end]) + "}" for begin, end in _ranges(array)]
        entries = [f'{{"key":{key},"value":{value}}}' for key, value in zip(keys, values, strict=True)]
        return ["[" + ",".join(entries[begin:end]) + "]" for begin, end in _ranges(array)]

    def _is_text(self, kind: pa.DataType) -> bool:
        return self._text_is_valid and (pa.types.is_string(kind) or pa.types.is_large_string(kind))

    def _values(self, array: pa.Array) -> list[Any]:
        if pa.types.is_time64(array.type) or pa.types.is_timestamp(array.type):
            array = array.cast(_MICROS[pa.types.is_timestamp(array.type)](array.type))
        elif not self._text_is_valid and pa.types.is_string(array.type):
            array = array.cast(pa.binary())
        elif not self._text_is_valid and pa.types.is_large_string(array.type):
            array = array.cast(pa.large_binary())
        values: list[Any] = as_integers(array).to_pylist()
        return values

    def _leaf(self, kind: pa.DataType) -> Callable[[Any], str]:
        if self._is_text(kind):
            return encode_basestring
        if pa.types.is_timestamp(kind):
            return _instant if kind.tz else _local_time
        for is_kind, encode in _LEAVES:
            if is_kind(kind):
                return encode
        return _other

    def ddl(self, kind: pa.DataType) -> str:
        """Return a type as Spark's DDL spells it."""
        if pa.types.is_struct(kind):
            fields = [kind.field(place) for place in range(kind.num_fields)]
            return f"STRUCT<{self.fields_ddl(fields, ': ')}>"
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return f"ARRAY<{self.ddl(kind.value_type)}>"
        if pa.types.is_map(kind):
            key, value = self.ddl(kind.key_type), self.ddl(kind.item_type)
            if self._is_text(kind.key_type):
                return f"MAP<{key}, {value}>"
            return f"ARRAY<STRUCT<key: {key}, value: {value}>>"
        if pa.types.is_decimal(kind):
            return f"DECIMAL({kind.precision},{kind.scale})"
        if pa.types.is_timestamp(kind):
            return "TIMESTAMP_LTZ" if kind.tz else "TIMESTAMP_NTZ"
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return "STRING" if self._text_is_valid else "BINARY"
        return next((name for is_kind, name in _NAMES if is_kind(kind)), "STRING")

    def fields_ddl(self, fields: Sequence[pa.Field], between: str) -> str:
        return ", ".join(
            f"`{field.name.replace('`', '``')}`{between}{self.ddl(field.type)}" for field in fields
        )


def _ranges(array: pa.Array) -> list[tuple[int, int]]:
    offsets = array.offsets.to_pylist()
    return list(pairwise(offsets))


_MICROS: dict[bool, Callable[[pa.DataType], pa.DataType]] = {
    True: lambda kind: pa.timestamp("us", kind.tz),
    False: lambda _: pa.time64("us"),
}


def _real(value: float) -> str:
    if isfinite(value):
        return repr(value)
    return '"NaN"' if isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _date(days: int) -> str:
    cycles, rest = divmod(days - _BASE_DAYS, _CYCLE_DAYS)
    day = _BASE + timedelta(days=rest)
    year = day.year + _CYCLE_YEARS * cycles
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{day:%m-%d}"


def _time(micros: int) -> str:
    seconds, fraction = divmod(micros, 1_000_000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"


def _local(micros: int) -> str:
    days, rest = divmod(micros, _DAY * 1_000_000)
    return f"{_date(days)}T{_time(rest)}"


def _instant(micros: int) -> str:
    return f'"{_local(micros)}Z"'


def _local_time(micros: int) -> str:
    return f'"{_local(micros)}"'


def _other(value: Any) -> str:
    return encode_basestring(str(value))


_BYTES = (pa.binary(), pa.large_binary(), pa.string(), pa.large_string())
_LEAVES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], str]], ...] = (
    (pa.types.is_boolean, lambda value: "true" if value else "false"),
    (pa.types.is_integer, str),
    (pa.types.is_floating, _real),
    (pa.types.is_decimal, lambda value: format(value, "f")),
    (pa.types.is_date32, lambda days: f'"{_date(days)}"'),
    (pa.types.is_time64, lambda micros: f'"{_time(micros)}"'),
    (lambda kind: kind in _BYTES, lambda value: f'"{b64encode(value).decode()}"'),
)

_NAMES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_null, "VOID"),
    (pa.types.is_boolean, "BOOLEAN"),
    (pa.types.is_int8, "TINYINT"),
    (pa.types.is_int16, "SMALLINT"),
    (pa.types.is_int32, "INT"),
    (pa.types.is_int64, "BIGINT"),
    (pa.types.is_float32, "FLOAT"),
    (pa.types.is_float64, "DOUBLE"),
    (pa.types.is_date32, "DATE"),
    (pa.types.is_binary, "BINARY"),
    (pa.types.is_large_binary, "BINARY"),
)
