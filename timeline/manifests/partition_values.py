"""Partition values as JSON: exact for every type that a manifest holds."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

_TYPES: Mapping[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "bytes": (bytes, lambda value: b64encode(value).decode(), b64decode),
    "decimal": (Decimal, str, Decimal),
    "double": (float, repr, float),
    "uuid": (UUID, str, UUID),
}
"""Values that JSON has no type for, or rounds: spelled, and read back."""


def spell_value(value: object) -> object:
    """Return a partition value as JSON holds it. TypeError for a value that no manifest holds."""
    for name, (kind, spell, _) in _TYPES.items():
        if isinstance(value, kind):
            return {name: spell(value)}
    if value is None or isinstance(value, bool | int | str):
        return value
    raise TypeError(f"not a partition value that a manifest holds: {value!r}")


def read_value(value: Any) -> object:
    """Return the value that `spell_value` spelled. KeyError, TypeError or ValueError for anything else."""
    if isinstance(value, dict):
        ((name, text),) = value.items()
        return _TYPES[name][2](text)
    return value
