"""Open or create a table in a catalog that pyiceberg knows, by its name or its properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchNamespaceError, TableAlreadyExistsError
from pyiceberg.exceptions import NoSuchTableError as NotInCatalogError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.utils.config import Config

from timeline import properties
from timeline.catalogs.answers import unclear
from timeline.catalogs.catalog_log import CatalogLog
from timeline.clock import SYSTEM, Environment
from timeline.errors import StoreUnavailableError, TableNotFoundError
from timeline.manifests.manifest_format import check_partition_names
from timeline.manifests.manifests import ManifestFiles
from timeline.slots.retrying import StillUnknownError, until_known
from timeline.stores import local_path
from timeline.stores.base import Store
from timeline.table import Table

OpenStore = Callable[[str], Store]
"""Returns the store of a location, which the catalog has chosen."""
_OF_NEW_TABLES = {
    "write.metadata.delete-after-commit.enabled": "true",
    properties.PREVIOUS_VERSIONS_MAX: "100",
}
"""So that a table's old metadata files leave, where the catalog sees to it."""
_PATIENCE_SECONDS = 60.0


def settings_of(catalog: str | Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Return a catalog's name and its properties: those that are given, or those that are configured under
    its name in `.pyiceberg.yaml` or the environment. Sends no request.

    ValueError where nothing is configured under the name, or it is no REST catalog with an address.
    """
    if isinstance(catalog, str):
        name, known = catalog, dict[str, Any](Config().get_catalog_config(catalog) or {})
    else:
        name, known = "catalog", dict[str, Any](catalog)
        known.pop("name", None)
    if not known:
        raise ValueError(
            f"no catalog is configured under the name {name!r}: add it to .pyiceberg.yaml, set"
            f" PYICEBERG_CATALOG__{name.upper()}__URI, or give its properties in the place of its name"
        )
    scheme = str(known.get("uri", "")).partition("://")[0].lower()
    kind = known.get("py-catalog-impl") or known.pop("type", scheme)
    if str(kind).lower() not in ("rest", "http", "https") or scheme not in ("http", "https"):
        # The address may have a password in it, so it is not repeated.
        raise ValueError(
            f"the catalog {name!r} must be a REST catalog, with a uri that begins with http:// or https://;"
            f" others are not offered yet: its type is {kind or 'not said'!r}"
        )
    address = urlsplit(str(known["uri"]))
    if address.username or address.password or address.query:
        raise ValueError(
            f"the uri of the catalog {name!r} has a password or parameters in it, which errors would show;"
            ' give them as "credential", "token" or "auth"'
        )
    return name, known


def connect_catalog(catalog: str | Mapping[str, str], environment: Environment = SYSTEM) -> Catalog:
    """Return a catalog by its name or its properties. ValueError as `settings_of`, StoreUnavailableError
    where it does not answer.
    """
    from timeline.catalogs.rest import TimedRestCatalog

    name, known = settings_of(catalog)
    try:
        return TimedRestCatalog(name, environment.now_ms, **known)
    except unclear() as failure:
        raise StoreUnavailableError(f"the catalog {name!r} does not answer: {failure}") from failure


def open_in_catalog(
    catalog: Catalog,
    identifier: tuple[str, ...],
    open_store: OpenStore,
    environment: Environment = SYSTEM,
    *,
    accepts: bool = False,
) -> Table:
    """Open a table of a catalog, also one that another engine has created. `accepts` as `CatalogLog` has it.

    TableNotFoundError where there is none of this name, StoreUnavailableError where the catalog does not
    answer, UnsupportedTableError for Iceberg's format versions 1 and 3.
    """
    try:
        place = catalog.load_table(identifier).metadata.location
    except NotInCatalogError as absent:
        raise TableNotFoundError(
            f"there is no table {'.'.join(identifier)} in the catalog; a stream's first batch creates it"
        ) from absent
    except unclear() as failure:
        raise StoreUnavailableError(f"the catalog does not answer: {failure}") from failure
    store = open_store(local_path(place.rstrip("/")))  # whose characters are not escaped
    clock = getattr(catalog, "server_clock", None)
    if clock is not None:
        environment = replace(environment, now_ms=clock.now_ms)
    return Table.open_in(CatalogLog(catalog, identifier, store, ManifestFiles(store), environment, accepts))


def create_in_catalog(
    catalog: Catalog,
    identifier: tuple[str, ...],
    open_store: OpenStore,
    schema: Schema,
    spec: PartitionSpec,
    table_properties: Mapping[str, str],
    *,
    create_namespace: bool = False,
    environment: Environment = SYSTEM,
) -> Table:
    """Create an empty table where the catalog wants it, or open the one that another writer has created.

    TableNotFoundError where the namespace does not exist and is not to be created.
    """
    properties.check_properties(table_properties)
    check_partition_names(spec.partition_type(schema))
    given = {**properties.DEFAULTS, **table_properties, **_OF_NEW_TABLES}
    given[properties.NAME_MAPPING] = properties.name_mapping(schema)
    given["format-version"] = "2"

    def create() -> Table:
        try:
            if create_namespace:
                _create_namespace(catalog, identifier[:-1])
            catalog.create_table(identifier, schema, partition_spec=spec, properties=given)
        except TableAlreadyExistsError:
            pass  # another writer was first, or this one, whose answer was lost
        except NoSuchNamespaceError as absent:
            raise TableNotFoundError(
                f"the catalog has no namespace {'.'.join(identifier[:-1])}: create it there, or say"
                " create_namespace=True"
            ) from absent
        except unclear() as failure:
            raise StillUnknownError from failure
        return open_in_catalog(catalog, identifier, open_store, environment)

    try:
        return until_known(environment, environment.monotonic() + _PATIENCE_SECONDS)(create)
    except StillUnknownError as failure:
        raise StoreUnavailableError(
            f"the catalog did not say whether it has created {'.'.join(identifier)}; no row was written. Try"
            f" again, which finds out: {failure.__cause__}"
        ) from failure


def _create_namespace(catalog: Catalog, namespace: tuple[str, ...]) -> None:
    with suppress(NamespaceAlreadyExistsError):
        catalog.create_namespace(namespace)
