"""How a purge names a file: by its path below the table, and a file by reference by its whole name (R28)."""

from __future__ import annotations

from timeline.stores.base import Store, find_path


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
    return path.startswith("/") or "://" in path
