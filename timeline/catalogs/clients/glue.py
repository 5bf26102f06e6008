"""pyiceberg's Glue catalog, whose metadata files are durable, and whose requests end in bounded time."""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog import METADATA_LOCATION
from pyiceberg.catalog.glue import GLUE_MAX_RETRIES, GlueCatalog, _construct_table_input
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.serializers import FromInputFile
from pyiceberg.typedef import Identifier

from timeline.catalogs.clients.metastore import Metastore
from timeline.catalogs.clients.store_io import OpenStore
from timeline.clock import Environment

_ATTEMPTS = 3
"""Of a request, of 60 seconds each. One that Glue has got twice conflicts with itself, which is looked up."""


class GlueMetastore(Metastore, GlueCatalog):
    """The catalog of AWS Glue, or of a server that speaks its language."""

    def __init__(self, name: str, open_store: OpenStore, environment: Environment, **given: Any) -> None:
        super().__init__(name, open_store, environment, **{GLUE_MAX_RETRIES: _ATTEMPTS, **given})

    def read_pointer(self, identifier: Identifier) -> str | None:
        """Return the place of a table's metadata file, "" where it is no table of Iceberg; None where there
        is no table of this name.
        """
        try:
            known = self._get_glue_table(*self.identifier_to_database_and_table(identifier))
        except NoSuchTableError:
            return None
        return str(known.get("Parameters", {}).get(METADATA_LOCATION, ""))

    def move_pointer(self, identifier: Identifier, base: str, place: str) -> None:
        """Move the pointer of a table from one metadata file to another, by a compare-and-swap.
        CommitFailedException where it is no longer at `base`.
        """
        database, table = self.identifier_to_database_and_table(identifier, NoSuchTableError)
        known = self._get_glue_table(database, table)
        if known.get("Parameters", {}).get(METADATA_LOCATION) != base or not known.get("VersionId"):
            raise CommitFailedException("another writer was first, or Glue states no version")
        metadata = FromInputFile.table_metadata(self._store_io.new_input(place))
        wanted = _construct_table_input(table, place, metadata.properties, metadata, known, base)
        self._update_glue_table(database, table, wanted, known["VersionId"])
