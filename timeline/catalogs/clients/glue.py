"""pyiceberg's Glue catalog, whose metadata files are durable, and whose requests end in bounded time."""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog.glue import GLUE_MAX_RETRIES, GlueCatalog

from timeline.catalogs.clients.metastore import Metastore
from timeline.catalogs.clients.store_io import OpenStore
from timeline.clock import Environment

_ATTEMPTS = 3
"""Of a request, of 60 seconds each. One that Glue has got twice conflicts with itself, which is looked up."""


class GlueMetastore(Metastore, GlueCatalog):
    """The catalog of AWS Glue, or of a server that speaks its language."""

    def __init__(self, name: str, open_store: OpenStore, environment: Environment, **given: Any) -> None:
        super().__init__(name, open_store, environment, **{GLUE_MAX_RETRIES: _ATTEMPTS, **given})
