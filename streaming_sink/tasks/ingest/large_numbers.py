"""Numbers in text that no long, float or double holds, and that Arrow rounds or makes infinite in silence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Union

import pyarrow as pa
import pyarrow.compute as pc

from streaming_sink.tasks.errors import RowsDoNotFitError

Doubles = Union[bool, dict[str, "Doubles"], list["Doubles"]]  # noqa: UP007 - 3.10 has no | with a quoted name
"""Where a type has doubles that text alone has decided: by field, in items, or itself; else empty."""

_WIDE = r"^\s*[+-]?[0-9]{19,}\s*$"
_INFINITE = r"(?i)^\s*[+-]?inf(inity)?\s*$"
_VALUE = re.compile(r"[^ \t\r\n]")


def inferred_doubles(kind: pa.DataType, known: pa.DataType | None) -> Doubles:
    """Return where text of this type has doubles that `known`, the table's type, does not ask for. None: the
    table lacks it.
    """
    if pa.types.is_struct(kind):
        fields = (
            {} if known is None or not pa.types.is_struct(known) else {each.name: each.type for each in known}
        )
        found = {field.name: inferred_doubles(field.type, fields.get(field.name)) for field in kind}
        return {name: doubles for name, doubles in found.items() if doubles}
    if pa.types.is_list(kind):
        item = None if known is None or not pa.types.is_list(known) else known.value_type
        items = inferred_doubles(kind.value_type, item)
        return [items] if items else []
    return known is None and pa.types.is_float64(kind)


def check_json(data: bytes, doubles: Doubles) -> None:
    """Raise RowsDoNotFitError for a whole number that no long holds, where its column is a double that text
    alone has decided.
    """
    for value in _values(data.decode("utf-8-sig", errors="replace")):
        _check_value(value, doubles)


def _values(text: str) -> Iterator[Any]:
    """Yield the values of a text of JSON, which may be in one line or in several."""
    decoder, place = json.JSONDecoder(), 0
    while (begin := _VALUE.search(text, place)) is not None:
        value, place = decoder.raw_decode(text, begin.start())
        yield value


def _check_value(value: Any, doubles: Doubles) -> None:
    if isinstance(doubles, dict):
        for name, inner in doubles.items():
            _check_value((value or {}).get(name), inner)
    elif isinstance(doubles, list):
        for each in value or ():
            _check_value(each, doubles[0])
    elif isinstance(value, int):
        _check_long(value)


def check_json_is_finite(values: pa.Array) -> None:
    """Raise pa.ArrowInvalid for an infinite number at any depth: JSON has none, so it was too large a one."""
    kind = values.type
    if pa.types.is_floating(kind):
        if pc.any(pc.is_inf(values)).as_py():
            raise pa.ArrowInvalid(f"a number would be infinite as {kind}")
    elif pa.types.is_struct(kind):
        for each in values.flatten():
            check_json_is_finite(each)
    elif pa.types.is_list(kind):
        check_json_is_finite(values.flatten())


def check_csv(texts: pa.ChunkedArray, numbers: pa.ChunkedArray, inferred: bool) -> None:
    """Raise RowsDoNotFitError for a number that is not infinite and was read as such; and, where text alone
    has decided that the column is a double, for a whole number that no long holds.
    """
    _check_finite(pc.filter(texts, pc.is_inf(numbers)), numbers.type)
    if inferred:
        for text in _matching(texts, _WIDE):
            _check_long(int(text))


def narrowed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return doubles, or text, as floats or doubles. pa.ArrowInvalid for a number that they do not hold."""
    made = values.cast(kind)
    infinite = pc.filter(values, pc.is_inf(made))
    _check_finite(infinite.cast(pa.string()), kind)
    return made


def _check_finite(texts: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> None:
    others = pc.filter(texts, pc.invert(pc.match_substring_regex(texts, _INFINITE)))
    if len(others):
        raise pa.ArrowInvalid(f"a number would be infinite as {kind}: {others[0].as_py()[:50]}")


def _matching(texts: pa.ChunkedArray, pattern: str) -> Iterable[str]:
    found: list[str] = (
        texts.drop_null().filter(pc.match_substring_regex(texts.drop_null(), pattern)).to_pylist()
    )
    return found


def _check_long(number: int) -> None:
    if not -(1 << 63) <= number < 1 << 63:
        raise RowsDoNotFitError(
            "it holds a whole number above 64 bits, which a double would round; create the table with a"
            f" decimal column first: {str(number)[:50]}"
        )
