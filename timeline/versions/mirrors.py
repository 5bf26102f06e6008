"""The mirrors of a table at a location: tables of catalogs that name its version files, for reading (R36)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from timeline import properties
from timeline.errors import CorruptTableError


def mirrors_of(table_properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of a table's mirrors, as reports call them. CorruptTableError if none can be read."""
    stated = table_properties.get(properties.MIRRORS, "[]")
    try:
        named = json.loads(stated)
    except ValueError:
        named = None
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise CorruptTableError(
            f"the property {properties.MIRRORS} was edited, and names no mirrors; nothing was changed. Remove"
            f" it, and mirror the table again: {stated[:200]!r}"
        )
    return tuple(named)


def mirrors_to_property(names: Iterable[str]) -> str:
    """Return the property that names these mirrors; the inverse of `mirrors_of`."""
    return json.dumps(sorted(set(names)))
