"""Find tables of a catalog by their uuid or their folder: a catalog knows tables by their names, and these
may change, while a renamed table stays in the folder of its first name.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table.metadata import TableMetadata

from timeline.catalogs.answers import unclear
from timeline.errors import StoreUnavailableError
from timeline.stores import local_path


def find_by_uuid(catalog: Catalog, namespace: tuple[str, ...], table_uuid: str) -> tuple[str, ...] | None:
    """Return the name of the table of a uuid in a namespace, or None where none of its tables has it. Loads
    one after the other: for what is lost, not for what is usual.
    """
    found = (name for name, it in _load_all(catalog, namespace) if str(it.table_uuid) == table_uuid)
    return next(found, None)


def find_sharer(catalog: Catalog, namespace: tuple[str, ...], table: TableMetadata) -> str | None:
    """Return the name of another table of a namespace whose folder is that of a table. As `find_by_uuid`."""
    folder = local_path(table.location.rstrip("/"))
    found = (
        ".".join(name)
        for name, it in _load_all(catalog, namespace)
        if it.table_uuid != table.table_uuid and local_path(it.location.rstrip("/")) == folder
    )
    return next(found, None)


def _load_all(
    catalog: Catalog, namespace: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], TableMetadata]]:
    try:
        for identifier in catalog.list_tables(namespace):
            try:
                yield tuple(identifier), catalog.load_table(identifier).metadata
            except NoSuchTableError:  # dropped since, or a view
                continue
    except NoSuchNamespaceError:
        return
    except unclear() as failure:
        raise StoreUnavailableError(
            f"the catalog does not answer, so which other tables it has is not known: {failure}"
        ) from failure
