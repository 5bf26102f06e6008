"""How a purge names a file: by its path below the table, and a file by reference by its whole name (R28)."""

from __future__ import annotations

import re

from timeline.stores.base import Store, find_path

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:/")
"""Some engines spell a local file with one slash, as "file:/lake/t"."""


def path_of(store: Store, location: str) -> str:
    """Return the path of a file below the table; of a file elsewhere its location."""
    return find_path(store, location) or location


def own_spelling(store: Store, location: str) -> str:
    """Return a location as the table's store spells it: other engines have several spellings for one."""
    return location_of(store, path_of(store, location))


def location_of(store: Store, path: str) -> str:
    """Return the location of what `path_of` has named."""
    return path if is_elsewhere(path) else store.uri(path)


def is_elsewhere(path: str) -> bool:
    """Return whether what `path_of` has named is not below the table."""
    return path.startswith("/") or _SCHEME.match(path) is not None
