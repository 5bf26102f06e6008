"""Keys in JSON text: quarantined rows as they came, and values that were rescued."""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any

from pyiceberg import types as iceberg
from pyiceberg.schema import Schema

from streaming_sink.removal.wanted import WantedKeys, typed

_MOST_DIGITS = 400
"""Of a number that is written out; a double has 309 before its point at most."""
_ONE_DIGIT = re.compile(r"(?<![\d.])\d(?!\d)")
_DAY = re.compile(r"\d{4,6}-\d\d-\d\d")
_AS_WRITTEN = iceberg.StringType | iceberg.BinaryType | iceberg.FixedType
_TIMES = iceberg.DateType | iceberg.TimeType | iceberg.TimestampType | iceberg.TimestamptzType
_BEGINS_JSON = ("{", "[")
_BEGINS_JSON_IN_BASE64 = ("e", "W")


class TextMatcher:
    """Finds wanted keys in JSON: by the outermost object that has all columns of a key, at any depth, also in
    JSON that is a text inside of JSON, plain or in base 64. What is inside of that object is not looked at: a
    row that mentions another key is not a row of that key. In text that begins as JSON and ends too early,
    all values of a key are looked for as words.
    """

    def __init__(self, wanted: WantedKeys, schema: Schema) -> None:
        """`schema`: of the table whose rows the texts are of, for the types of the key's columns."""
        fields = {field.name: field.field_type for field in schema.fields}
        self._kinds = [(name.lower(), fields[name], name) for name in wanted.names]
        self._values = set(zip(*wanted.values(schema), strict=True))
        self._words = [[re.compile(rf"(?<!\w){re.escape(it)}(?!\w)") for it in row] for row in wanted.rows]

    def holds(self, text: str) -> bool:
        """Return whether a text holds a row of a wanted key."""
        try:
            return self._is_in(_parse(text))
        except (ValueError, RecursionError):  # which text that is nested deeply raises
            return self.may_hold(text)

    def may_hold(self, text: str) -> bool:
        """Return whether a text, maybe a cut one, holds all values of a key."""
        return any(all(word.search(text) for word in words) for words in self._words)

    def is_rescued(self, row: Mapping[str, Any], rescued: str) -> bool:
        """Return whether a row, of which a column of the key is null, had that value of a wanted key rescued.
        `row` has the values of its other columns of the key.
        """
        try:
            found = _parse(rescued)
        except (ValueError, RecursionError):
            return False
        return isinstance(found, dict) and self._is_key({**found, **row})

    def _is_in(self, value: Any) -> bool:
        if isinstance(value, dict):
            named = {name.lower() for name in value}
            if all(lower in named for lower, _, _ in self._kinds):
                return self._is_key(value)
            return any(self._is_in(each) for each in value.values())
        if isinstance(value, list):
            return any(self._is_in(each) for each in value)
        return isinstance(value, str) and (text := _json_in(value)) is not None and self.holds(text)

    def _is_key(self, found: Mapping[str, Any]) -> bool:
        named = {name.lower(): value for name, value in found.items()}
        return any(self._are_wanted(named, in_base64) for in_base64 in (False, True))

    def _are_wanted(self, named: Mapping[str, Any], in_base64: bool) -> bool:
        """Return whether values by lower names are a wanted key. `in_base64`: bytes are spelled so, as the
        sink does, and not in hexadecimal digits.
        """
        values = []
        for lower, kind, name in self._kinds:
            given = named.get(lower)
            if given is None or isinstance(given, dict | list):
                return False
            is_bytes = isinstance(given, str) and isinstance(kind, iceberg.BinaryType | iceberg.FixedType)
            try:
                text = (
                    b64decode(given, validate=True).hex() if is_bytes and in_base64 else _spelled(given, kind)
                )
                values.append(typed(text, kind, name))
            except ValueError:
                return False
        return tuple(values) in self._values


def _parse(text: str) -> Any:
    """Return the JSON that a text is. A float would change what a decimal has spelled. ValueError."""
    return json.loads(text.removeprefix("\ufeff"), parse_float=Decimal)


def _spelled(value: Any, kind: iceberg.IcebergType) -> str:
    """Return a value of JSON as `typed` takes it: a whole number may be spelled with a fraction of zeros, and
    what Spark casts from text with spaces around it, dates and times with one digit for two.
    """
    if isinstance(value, str) and not isinstance(kind, _AS_WRITTEN):
        text = value.strip()
        if isinstance(kind, _TIMES):
            text = _ONE_DIGIT.sub(r"0\g<0>", text)
        if isinstance(kind, iceberg.TimestampType | iceberg.TimestamptzType):
            text = text.replace(" ", "T", 1)
            text = f"{text}T00:00:00" if _DAY.fullmatch(text) else text
        return text
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, Decimal) or abs(value.adjusted()) > _MOST_DIGITS:
        return str(value)
    return str(int(value)) if value == value.to_integral_value() else f"{value:f}"


def _json_in(text: str) -> str | None:
    """Return the JSON that a text is, plain or in base 64; None where it begins otherwise."""
    if text.lstrip().startswith(_BEGINS_JSON):
        return text
    if text.startswith(_BEGINS_JSON_IN_BASE64):
        with suppress(binascii.Error, ValueError):
            inner = b64decode(text, validate=True).decode()
            return inner if inner.lstrip().startswith(_BEGINS_JSON) else None
    return None
