"""Keys in JSON text: quarantined rows as they came, and values that were rescued."""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

from pyiceberg.schema import Schema

from streaming_sink.purging.wanted import WantedKeys, typed

_BEGINS_JSON = ("{", "[")
_BEGINS_JSON_IN_BASE64 = ("e", "W")


class TextMatcher:
    """Finds wanted keys in JSON: in an object at any depth that has all columns of a key with its values, in
    JSON that is a text inside of JSON, also in base 64; and, in text that begins as JSON and ends too early,
    all values of a key as words.
    """

    def __init__(self, wanted: WantedKeys, schema: Schema) -> None:
        """`schema`: of the table whose rows the texts are of, for the types of the key's columns."""
        fields = {field.name: field.field_type for field in schema.fields}
        self._kinds = [(name.lower(), fields[name], name) for name in wanted.names]
        self._values = set(zip(*wanted.values(schema), strict=True))
        self._words = [[re.compile(rf"(?<!\w){re.escape(it)}(?!\w)") for it in row] for row in wanted.rows]

    def holds(self, text: str) -> bool:
        """Return whether a text holds a wanted key."""
        try:
            return self._is_in(json.loads(text))
        except ValueError:
            return self.may_hold(text)

    def may_hold(self, text: str) -> bool:
        """Return whether a text, maybe a cut one, holds all values of a key."""
        return any(all(word.search(text) for word in words) for words in self._words)

    def _is_in(self, value: Any) -> bool:
        return any(
            self._is_key(each) if isinstance(each, dict) else self.holds(each) for each in _parts(value)
        )

    def _is_key(self, found: dict[str, Any]) -> bool:
        named = {name.lower(): value for name, value in found.items()}
        values = []
        for lower, kind, name in self._kinds:
            given = named.get(lower)
            if given is None or isinstance(given, dict | list):
                return False
            try:
                values.append(
                    typed(str(given).lower() if isinstance(given, bool) else str(given), kind, name)
                )
            except ValueError:
                return False
        return tuple(values) in self._values


def _parts(value: Any) -> Iterator[dict[str, Any] | str]:
    """Yield the objects of a JSON value, and the texts in it that begin as JSON does."""
    if isinstance(value, dict):
        yield value
        for each in value.values():
            yield from _parts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _parts(each)
    elif isinstance(value, str):
        if value.lstrip().startswith(_BEGINS_JSON):
            yield value
        elif value.startswith(_BEGINS_JSON_IN_BASE64):
            try:
                inner = b64decode(value, validate=True).decode()
            except (binascii.Error, ValueError):
                return
            if inner.lstrip().startswith(_BEGINS_JSON):
                yield inner
