"""Tombstones: files of the keys that were deleted, so that an older change which comes late brings no row
back. They are state of the table: the newest version names them all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from timeline.errors import CorruptTableError
from timeline.properties import TOMBSTONES


@dataclass(frozen=True)
class TombstoneFile:
    """One file of tombstones."""

    location: str
    rows: int
    newest_ms: int
    """The time of the newest commit whose deletes it holds."""


def tombstones_of(table_properties: Mapping[str, str]) -> tuple[TombstoneFile, ...]:
    """Return the table's files of tombstones. CorruptTableError where that cannot be read."""
    text = table_properties.get(TOMBSTONES, "[]")
    try:
        return tuple(
            TombstoneFile(str(location), int(rows), int(newest))
            for location, rows, newest in json.loads(text)
        )
    except (ValueError, TypeError) as failure:
        raise CorruptTableError(
            f"which keys were deleted cannot be read from property {TOMBSTONES}; nothing was changed. Restore"
            f" the newest version from a copy: {text[:200]!r}"
        ) from failure


def tombstones_to_property(files: Iterable[TombstoneFile]) -> str:
    """Return the property that `tombstones_of` reads."""
    stored = [[each.location, each.rows, each.newest_ms] for each in files]
    return json.dumps(stored, separators=(",", ":"))
