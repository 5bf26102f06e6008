"""Open or create a table in a catalog that pyiceberg knows, by its name or its properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, TableAlreadyExistsError
from pyiceberg.exceptions import NoSuchTableError as NotInCatalogError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from timeline import properties, stores
from timeline.catalogs.answers import new_table, unclear
from timeline.catalogs.clients.metastore import Metastore
from timeline.catalogs.clients.rest import connect_rest
from timeline.catalogs.clients.settings import GLUE, HIVE, REST, settings_of
from timeline.catalogs.clients.store_io import OpenStore
from timeline.catalogs.probed_log import Connect, ProbedLog
from timeline.clock import SYSTEM, Environment
from timeline.errors import StoreUnavailableError, TableNotFoundError
from timeline.manifests.manifest_format import check_partition_names
from timeline.manifests.manifests import ManifestFiles
from timeline.slots.retrying import StillUnknownError, until_known
from timeline.stores import local_path
from timeline.table import Table

_OF_NEW_TABLES = {
    "write.metadata.delete-after-commit.enabled": "true",
    properties.PREVIOUS_VERSIONS_MAX: "100",
}
"""So that a table's old metadata files leave, where the catalog sees to it."""
_DELETE_ENABLED = "s3.delete-enabled"
"""Iceberg's own name for it."""
_PATIENCE_SECONDS = 60.0


def connect_catalog(
    catalog: str | Mapping[str, str],
    environment: Environment = SYSTEM,
    open_store: OpenStore = stores.open_store,
) -> Catalog:
    """Return a catalog by its name or its properties. Where the client writes the metadata, it is through
    `open_store`. ValueError as `settings_of`, StoreUnavailableError where the catalog does not answer.
    """
    settings = settings_of(catalog)
    if settings.kind == REST:
        return connect_rest(settings, environment)
    try:
        return _metastore(settings.kind)(settings.name, open_store, environment, **settings.properties)
    except unclear() as failure:
        raise StoreUnavailableError(f"the catalog {settings.name!r} does not answer: {failure}") from failure


def _metastore(kind: str) -> type[Metastore]:
    """Return the class of a kind of catalog, whose package may not be installed."""
    if kind == GLUE:
        from timeline.catalogs.clients.glue import GlueMetastore

        return GlueMetastore
    if kind == HIVE:
        from timeline.catalogs.clients.hive import HiveMetastore

        return HiveMetastore
    from timeline.catalogs.clients.sql import SqlMetastore

    return SqlMetastore


def open_in_catalog(
    catalog: Catalog,
    identifier: tuple[str, ...],
    open_store: OpenStore,
    environment: Environment = SYSTEM,
    *,
    accepts: bool = False,
    connect: Connect | None = None,
) -> Table:
    """Open a table of a catalog, also one that another engine has created. `accepts` as `CatalogLog` has it.
    With `connect` the catalog is probed before the first commit (R33); without it the caller knows it.

    TableNotFoundError where there is none of this name, StoreUnavailableError where the catalog does not
    answer, UnsupportedTableError for Iceberg's format versions 1 and 3.
    """
    try:
        loaded = catalog.load_table(identifier)
    except NotInCatalogError as absent:
        raise TableNotFoundError(
            f"there is no table {'.'.join(identifier)} in the catalog; a stream's first batch creates it"
        ) from absent
    except unclear() as failure:
        raise StoreUnavailableError(f"the catalog does not answer: {failure}") from failure
    # The characters of its location are not escaped.
    store = open_store(local_path(loaded.metadata.location.rstrip("/")))
    clock = getattr(catalog, "server_clock", None)
    if clock is not None:
        environment = replace(environment, now_ms=clock.now_ms)
    manifests = ManifestFiles(store)
    keeps = _find_ban_of_deletes({**catalog.properties, **loaded.config})
    log = ProbedLog(catalog, identifier, store, manifests, environment, accepts, keeps, connect, open_store)
    return Table.open_in(log)


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
    connect: Connect | None = None,
) -> Table:
    """Create an empty table where the catalog wants it, or open the one that another writer has created.
    `connect` as in `open_in_catalog`.

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
                catalog.create_namespace_if_not_exists(identifier[:-1])
            with new_table():
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
        return open_in_catalog(catalog, identifier, open_store, environment, connect=connect)

    try:
        return until_known(environment, environment.monotonic() + _PATIENCE_SECONDS)(create)
    except StillUnknownError as failure:
        raise StoreUnavailableError(
            f"the catalog did not say whether it has created {'.'.join(identifier)}; no row was written. Try"
            f" again, which finds out: {failure.__cause__}"
        ) from failure


def _find_ban_of_deletes(config: Mapping[str, object]) -> str:
    """Return why clients of a catalog delete no files, by what it says to them; "" where they may."""
    stated = str(config.get(_DELETE_ENABLED, "true"))
    return f"the catalog says {_DELETE_ENABLED}={stated}" if stated.lower() == "false" else ""
