"""Find a table of a catalog by its uuid: a catalog knows tables by their names, and these may change."""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

from timeline.catalogs.answers import unclear
from timeline.errors import StoreUnavailableError


def find_by_uuid(catalog: Catalog, namespace: tuple[str, ...], table_uuid: str) -> tuple[str, ...] | None:
    """Return the name of the table of a uuid in a namespace, or None where none of its tables has it. Loads
    one after the other: for what is lost, not for what is usual.
    """
    try:
        for identifier in catalog.list_tables(namespace):
            try:
                found = catalog.load_table(identifier)
            except NoSuchTableError:  # dropped since, or a view
                continue
            if str(found.metadata.table_uuid) == table_uuid:
                return tuple(identifier)
    except NoSuchNamespaceError:
        return None
    except unclear() as failure:
        raise StoreUnavailableError(
            f"the catalog does not answer, so whether table {table_uuid} has another name is not known:"
            f" {failure}"
        ) from failure
    return None
