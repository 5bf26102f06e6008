"""The keys that are to be gone: as a user spells them, and as values of a table's columns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyiceberg import types as iceberg
from pyiceberg.expressions.literals import literal
from pyiceberg.schema import Schema

from streaming_sink.table.arrow_types import arrow_schema
from timeline.errors import SchemaMismatchError

_WHOLE = re.compile("[+-]?[0-9]+")
_FINER = re.compile(r"\.[0-9]{7}")
_DECIMAL = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")


@dataclass(frozen=True)
class WantedKeys:
    """Keys by the names of their columns. Values are text, as ISO 8601 and JSON spell them."""

    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """Of each key the values, in the order of `names`."""

    @classmethod
    def of(cls, keys: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> WantedKeys:
        """Return keys that are mappings of column to value, or one of them. ValueError where there are none,
        where they have different columns, and for nulls, which equal nothing; TypeError for other values.
        """
        given: list[Any] = [keys] if isinstance(keys, Mapping) else list(keys)
        if strange := [each for each in given if not isinstance(each, Mapping)]:
            raise TypeError(f'a key maps columns to values, such as {{"user_id": 42}}, not {strange[0]!r}')
        names = tuple(given[0]) if given else ()
        if not names:
            raise ValueError("no key was named; name one, as user_id=42")
        for each in given:
            if each.keys() != set(names):
                raise ValueError(f"all keys must have the columns {', '.join(names)}, not {', '.join(each)}")
        return cls(names, tuple(tuple(_spelled(name, each[name]) for name in names) for each in given))

    @classmethod
    def parse(cls, texts: Iterable[str]) -> WantedKeys:
        """Return keys that are spelled "user_id=42", or "region=eu,user_id=42" where a key has two columns.
        ValueError as for `of`.
        """
        return cls.of(_parse(text) for text in texts)

    @classmethod
    def read(cls, lines: Iterable[str]) -> WantedKeys:
        """Return keys that are JSON objects, one a line. ValueError as for `of`, with the line's number."""
        keys = []
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                key = json.loads(line)
            except ValueError:
                key = None
            if not isinstance(key, dict):
                raise ValueError(
                    f'line {number} must be a JSON object such as {{"user_id": 42}}: {line.strip()!r}'
                )
            keys.append(key)
        return cls.of(keys)

    def __len__(self) -> int:
        return len(self.rows)

    def values(self, schema: Schema) -> list[list[Any]]:
        """Return the values of each column as pyiceberg has them in a table of this schema.

        SchemaMismatchError for a column that the table lacks or that no key has; ValueError for a value that
        its column cannot hold.
        """
        fields = [_field(schema, name) for name in self.names]
        columns = zip(*self.rows, strict=True)
        return [
            [typed(text, field.field_type, field.name) for text in column]
            for field, column in zip(fields, columns, strict=True)
        ]

    def arrays(self, schema: Schema) -> list[pa.Array]:
        """Return the values of each column in the table's Arrow types. Raises as `values`."""
        kinds = arrow_schema(Schema(*(_field(schema, name) for name in self.names)))
        return [_array(values, kind.type) for values, kind in zip(self.values(schema), kinds, strict=True)]

    def described(self) -> str:
        """Return the first keys for people, and how many more there are."""
        shown = "; ".join(
            ", ".join(f"{name}={value}" for name, value in zip(self.names, row, strict=True))
            for row in self.rows[:3]
        )
        return f"{shown} and {len(self.rows) - 3:,} more" if len(self.rows) > 3 else shown


def typed(text: str, kind: iceberg.IcebergType, name: str) -> Any:
    """Return a value of a column, as pyiceberg has it. ValueError where the column cannot hold it."""
    try:
        if isinstance(kind, iceberg.BinaryType | iceberg.FixedType):
            return bytes.fromhex(text.removeprefix("0x"))
        if isinstance(kind, iceberg.IntegerType | iceberg.LongType):
            return _whole(text, kind)  # pyiceberg's would cut off a fraction, and another key would go
        if isinstance(kind, iceberg.DecimalType):
            return _scaled(text, kind)
        if isinstance(kind, iceberg.TimestamptzType):
            text = re.sub("[Zz]$", "+00:00", text)
        if isinstance(kind, iceberg.TimeType) and _FINER.search(text):
            raise ValueError(text)  # as above
        return literal(text).to(kind).value
    except (ValueError, TypeError, ArithmeticError):
        raise ValueError(f"column {name} is of type {kind} and cannot hold {text!r}") from None


def _whole(text: str, kind: iceberg.IntegerType | iceberg.LongType) -> int:
    if not _WHOLE.fullmatch(text) or not kind.min <= int(text) <= kind.max:
        raise ValueError(text)
    return int(text)


def _scaled(text: str, kind: iceberg.DecimalType) -> Decimal:
    if not _DECIMAL.fullmatch(text):
        raise ValueError(text)
    whole, _, fraction = text.partition(".")
    unscaled = int(whole + fraction[: kind.scale].ljust(kind.scale, "0"))
    if fraction[kind.scale :].strip("0") or abs(unscaled) >= 10**kind.precision:
        raise ValueError(text)
    return Decimal(unscaled).scaleb(-kind.scale, Context(prec=kind.precision))


def _parse(text: str) -> dict[str, str]:
    key = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise ValueError(
                f"a key is COLUMN=VALUE, with commas between its columns, not {text!r}; values that have"
                " commas are for a file of keys"
            )
        key[name.strip()] = value
    return key


def _spelled(name: str, value: Any) -> str:
    if value is None:
        raise ValueError(f"a key has no null, which equals nothing: {name}")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date | time | datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, str | int | UUID):
        return str(value)
    raise ValueError(f"a key has no value of type {type(value).__name__}: {name}={value!r}")


def _field(schema: Schema, name: str) -> iceberg.NestedField:
    fields = {field.name: field for field in schema.fields}
    if name not in fields:
        raise SchemaMismatchError(f"the table has no column {name!r}; it has {', '.join(fields)}")
    return fields[name]


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    if pa.types.is_date32(kind):
        return pa.array(values, pa.int32()).cast(kind)
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)
