"""How a table names another one: by its location, or, in a catalog, by its name there and its uuid.

A table in a catalog names tables of the same catalog. That has no name that all processes share, so none is
stored.
"""

from __future__ import annotations

from collections.abc import Iterable

_IN_CATALOG = "catalog:"


def catalog_address(identifier: Iterable[str]) -> str:
    """Return the address of a table of a catalog, such as "catalog:db.events"."""
    return _IN_CATALOG + dotted(identifier)


def dotted(identifier: Iterable[str]) -> str:
    """Return the parts of a name between dots, and the dots within a part escaped."""
    return ".".join(part.replace("%", "%25").replace(".", "%2E") for part in identifier)


def identifier_of(address: str) -> tuple[str, ...] | None:
    """Return the parts of a table's name in its catalog; None for the address of one at a location."""
    if not address.startswith(_IN_CATALOG):
        return None
    parts = address.removeprefix(_IN_CATALOG).split(".")
    return tuple(part.replace("%2E", ".").replace("%25", "%") for part in parts)
