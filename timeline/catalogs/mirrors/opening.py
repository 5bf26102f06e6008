"""Connect to the catalog of a mirror, by its name or its properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from timeline.catalogs.clients.rest import connect_rest
from timeline.catalogs.clients.settings import REST, settings_of
from timeline.catalogs.clients.store_io import OpenStore
from timeline.catalogs.mirrors.mirroring import PointerCatalog
from timeline.catalogs.opening import connect_catalog
from timeline.clock import SYSTEM, Environment


def connect_pointers(
    catalog: str | Mapping[str, str], open_store: OpenStore, environment: Environment = SYSTEM
) -> PointerCatalog:
    """Return a catalog whose tables name metadata files, which `open_store` reaches where this process reads
    them. ValueError as `settings_of`, StoreUnavailableError where the catalog does not answer.
    """
    settings = settings_of(catalog)
    if settings.kind == REST:
        # What is read of an answer is the place of the metadata, not thousands of snapshots.
        return connect_rest(settings, environment, snapshots="refs")
    return cast("PointerCatalog", connect_catalog(catalog, environment, open_store))
