"""Drop a table through its catalog, without its files."""

from __future__ import annotations

from uuid import UUID

from pyiceberg.exceptions import NoSuchTableError

from timeline.catalogs.answers import unclear
from timeline.catalogs.catalog_log import CatalogLog
from timeline.errors import StoreUnavailableError
from timeline.slots.retrying import StillUnknownError, until_known

_PATIENCE_SECONDS = 60.0


def drop_from_catalog(log: CatalogLog, table_uuid: UUID) -> None:
    """Drop the table of a uuid, where the catalog has it under the log's name. No file is deleted.

    A catalog drops what has the name: the uuid is compared before each request, and one without an answer
    that comes late drops a table that was created again since. StoreUnavailableError where there is no
    clear answer for a minute.
    """

    def drop() -> None:
        try:
            if log.catalog.load_table(log.identifier).metadata.table_uuid == table_uuid:
                log.catalog.drop_table(log.identifier)
        except NoSuchTableError:
            return
        except unclear() as failure:
            raise StillUnknownError from failure

    environment = log.environment
    try:
        until_known(environment, environment.monotonic() + _PATIENCE_SECONDS)(drop)
    except StillUnknownError as failure:
        raise StoreUnavailableError(
            f"the catalog does not say whether it has dropped {log.name}. Look whether the table is there,"
            f" and try again: {failure.__cause__}",
            location=log.store.location,
        ) from failure
