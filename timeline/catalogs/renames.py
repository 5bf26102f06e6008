"""Find tables of a catalog by their uuid or their folder: a catalog knows tables by their names, and these
may change, their namespaces too, while a renamed table stays in the folder of its first name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pydantic import ValidationError
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table.metadata import TableMetadata

from timeline.catalogs.answers import is_access_refused, unclear
from timeline.errors import StoreUnavailableError, UnsupportedTableError
from timeline.stores import local_path

_Name = tuple[str, ...]
_NONE_SUCH = (NoSuchTableError, NoSuchNamespaceError, UnsupportedTableError, FileNotFoundError)
"""Dropped since, or a view; of another format; or a table whose metadata was deleted, so that it is lost."""


def find_by_uuid(
    catalog: Catalog, namespace: _Name, table_uuid: str, *, everywhere: bool = True
) -> _Name | None:
    """Return the name of the table of a uuid, or None where none has it: of the tables of a namespace, and
    then, `everywhere`, of those of all others that this user may read. Loads one after the other: for what is
    lost, not for what is usual.
    """
    every = _load_all(catalog, namespace, everywhere=everywhere)
    return next((name for name, it in every if str(it.table_uuid) == table_uuid), None)


def find_sharer(
    catalog: Catalog, namespace: _Name, table: TableMetadata, *, everywhere: bool = False
) -> str | None:
    """Return the name of another table whose folder is that of a table: of a namespace, or `everywhere`, as
    `find_by_uuid`.
    """
    folder = local_path(table.location.rstrip("/"))
    found = (
        ".".join(name)
        for name, it in _load_all(catalog, namespace, everywhere=everywhere)
        if it.table_uuid != table.table_uuid and local_path(it.location.rstrip("/")) == folder
    )
    return next(found, None)


def _load_all(catalog: Catalog, own: _Name, *, everywhere: bool) -> Iterator[tuple[_Name, TableMetadata]]:
    forget = getattr(catalog, "forget_table", None)
    try:
        for namespace in _namespaces(catalog, own) if everywhere else (own,):
            is_own = namespace == own
            for identifier in _ask(catalog.list_tables, namespace, is_own) or ():
                loaded = _ask(catalog.load_table, identifier, is_own)
                if forget is not None:
                    forget(identifier)
                if loaded is not None:
                    yield tuple(identifier), loaded.metadata
    except unclear() as failure:
        raise StoreUnavailableError(
            f"the catalog does not answer, so which other tables it has is not known: {failure}"
        ) from failure


def _namespaces(catalog: Catalog, own: _Name) -> Iterator[_Name]:
    """Yield a namespace, and then all others, those within others too."""
    yield own
    seen, left = set[_Name](), list[_Name]([()])
    while left:
        found = map(tuple, _ask(catalog.list_namespaces, left.pop(), is_own=False) or ())
        fresh = sorted(set(found) - seen)
        seen.update(fresh)
        left += fresh
        yield from (each for each in fresh if each != own)


def _ask(call: Callable[[Any], Any], name: Any, is_own: bool) -> Any:
    """Return what a catalog has of a name; None where there is none such. Of another namespace than the
    sink's own also where this user may not read it, or this release cannot.
    """
    try:
        return call(name)
    except _NONE_SUCH:
        return None
    except (NotImplementedError, ValidationError):
        if is_own:
            raise
        return None
    except Exception as failure:
        if is_own or not is_access_refused(failure):
            raise
        return None
