"""A table in an Iceberg catalog, by its name there; it may also be the mirror of a table at a location."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from planners.values import APART, Value
from streaming_sink.options.values.checks import default_quarantine
from timeline.changes.changes import SetProperties
from timeline.dropping import drop_with
from timeline.stores import StorageOptions, open_store
from timeline.stores.base import Store
from timeline.table import Table
from timeline.versions.outbox import catalog_address, dotted, identifier_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from timeline.catalogs.mirrors.mirroring import Mirror

_NOWHERE_SECONDS = 300
_NOWHERE_UNTIL: dict[tuple[str, str], float] = {}
"""Tables by their names and uuids, which no namespace had."""


@dataclass(frozen=True, repr=False)
class CatalogTable(Value):
    """A table in an Iceberg catalog, by its name there: "db.events", or ("db", "odd.name").

    `catalog` is a catalog's name in `.pyiceberg.yaml` or in `PYICEBERG_CATALOG__<NAME>__…`, or its
    properties, as pyiceberg takes them: `{"type": "rest", "uri": …, "warehouse": …, "credential": …}`, or
    `{"type": "sql", "uri": "sqlite:////srv/lake.db", "warehouse": …}`, with its `"name"` in the database. The
    table is opened, also one that another engine has created; else it is created where the catalog wants it,
    by the first batch, and `create_namespace` creates its namespace too. Other engines may write to it at the
    same time. `storage_options` as of a `PathTable`; left out, files are reached as the catalog states it,
    with credentials that it vends. Properties and storage options are in no repr and no dict.

    TypeError or ValueError for a name without a namespace, a catalog that is neither, or a package that is
    not installed.
    """

    table: str | tuple[str, ...]
    catalog: str | Mapping[str, str] = field(hash=False)
    create_namespace: bool = False
    storage_options: StorageOptions | None = field(default=None, metadata=APART, compare=False)

    def __post_init__(self) -> None:
        given: Any = self.table
        name = tuple(given.split(".")) if isinstance(given, str) else given
        if not isinstance(name, tuple | list) or len(name) < 2 or not all(is_said(part) for part in name):
            raise ValueError(
                'table must be a name with its namespace, such as "db.events", or a tuple where a part has a'
                f' dot, such as ("db", "odd.name"); it is {given!r}'
            )
        object.__setattr__(self, "table", tuple(name))
        catalog: Any = self.catalog
        if not (is_said(catalog) or (isinstance(catalog, Mapping) and catalog)):
            raise TypeError(
                "catalog must be the name of a catalog, or its properties, such as"
                ' {"type": "rest", "uri": "http://localhost:8181"}'
            )
        check_given_storage(self.storage_options)

    def __repr__(self) -> str:
        named = repr(self.catalog) if isinstance(self.catalog, str) else "..."
        rest = ", create_namespace=True" if self.create_namespace else ""
        return f"CatalogTable({self.table!r}, {named}{rest})"

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON has them, but for a catalog's properties and what may hold secrets."""
        stored = super().to_dict()
        return stored if isinstance(self.catalog, str) else {**stored, "catalog": None}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any], **apart: Any) -> CatalogTable:
        """Return the table that `to_dict` made a dict of; `catalog` where it was given by its properties."""
        return super().from_dict({k: v for k, v in stored.items() if (k, v) != ("catalog", None)}, **apart)

    @property
    def location(self) -> str:
        """How reports and errors call the table: its catalog's name, or its address, and its own."""
        return f"{self._catalog_name}:{'.'.join(self.table)}"

    def called(self, place: str) -> str:  # noqa: ARG002 - as a `PathTable`
        """Return how reports call the table, wherever its files are."""
        return self.location

    @property
    def address(self) -> str:
        """How tables of the same catalog name it."""
        return catalog_address(self.table)

    @property
    def mirror_name(self) -> str:
        """How a table at a location calls this one, where it is its mirror: by what its catalog is known by
        among all others, since those of two catalogs are two mirrors. ValueError as `check`.
        """
        from timeline.catalogs.clients.settings import settings_of, shown_catalog

        return f"{shown_catalog(settings_of(self.catalog))}:{dotted(self.table)}"

    @property
    def _catalog_name(self) -> str:
        """The catalog's name; of one that is given by its properties its address, without a password."""
        from timeline.catalogs.clients.settings import shown_address

        return (
            self.catalog
            if isinstance(self.catalog, str)
            else shown_address(str(self.catalog.get("uri") or self.catalog.get("type", "catalog")))
        )

    def check(self) -> None:
        """Raise ValueError where no such catalog is configured, or it has no such names. Sends no request."""
        from timeline.catalogs.clients.settings import GLUE, HIVE, settings_of

        kind, shown = settings_of(self.catalog).kind, ".".join(self.table)
        if kind in (GLUE, HIVE) and len(self.table) != 2:
            raise ValueError(
                f"a table in Glue or Hive is named by its database and its name; this is {shown!r}"
            )
        if kind == HIVE and shown != shown.lower():
            raise ValueError(f"Hive has names in lower case alone: name it {shown.lower()!r}, not {shown!r}")

    def check_mirror(self) -> None:
        """Raise ValueError as `check`, and where it is not said which catalog a mirror is in: two processes
        would take those of two regions for one.
        """
        from timeline.catalogs.clients.settings import GLUE, settings_of

        self.check()
        settings = settings_of(self.catalog)
        if settings.kind == GLUE and not {"glue.region", "client.region", "glue.endpoint"} & set(
            settings.properties
        ):
            raise ValueError(
                "a mirror in Glue is known by its region, which the environment may say otherwise to each"
                f' process: state it in the catalog\'s properties, such as "glue.region": {self.location}'
            )

    def open(self) -> Table:
        """Return the table, as the catalog has it now. TableNotFoundError where there is none."""
        from timeline.catalogs.opening import open_in_catalog

        connect = self._connect
        return open_in_catalog(connect(), tuple(self.table), self._open_store, connect=connect)

    def accept(self) -> int:
        """Take the table as it is, after a TableReplacedError: its streams go on after their last batches,
        though these may not be in it. Return the version that says so.
        """
        from timeline.catalogs.opening import open_in_catalog

        connect, name = self._connect, tuple(self.table)
        table = open_in_catalog(connect(), name, self._open_store, accepts=True, connect=connect)
        return table.commit([SetProperties()]).version

    def create(self, schema: Schema, spec: PartitionSpec, table_properties: Mapping[str, str]) -> Table:
        """Create an empty table where the catalog wants it, or open the one that is there."""
        from timeline.catalogs.opening import create_in_catalog

        return create_in_catalog(
            self._connect(),
            tuple(self.table),
            self._open_store,
            schema,
            spec,
            table_properties,
            create_namespace=self.create_namespace,
            connect=self._connect,
        )

    def drop(self) -> int:
        """Drop the table through its catalog, and return the version that it had, as `drop_with`."""
        from timeline.catalogs.catalog_log import CatalogLog
        from timeline.catalogs.dropping import drop_from_catalog

        table = self.open()
        log, uuid = table.log, table.head.metadata.table_uuid
        assert isinstance(log, CatalogLog)
        return drop_with(
            table, lambda: drop_from_catalog(log, uuid), lambda address: self.beside(address).open()
        )

    def beside(self, name: str) -> CatalogTable:
        """Return another table of the same catalog, by its name there, or as tables and reports call it.
        ValueError for what is no name there, such as a location.
        """
        table = identifier_of(name)
        if table is None:
            own = name.removeprefix(f"{self._catalog_name}:")
            table = tuple(own.split("."))
            if len(table) < 2 or not all(table) or any(mark in own for mark in "/:"):
                raise ValueError(
                    "a table in a catalog has its second tables in the same catalog, so they are given by"
                    f" their names there, such as {'.'.join(self.table[:-1])}.rejected; this is {name!r}"
                )
        return replace(self, table=table)

    @property
    def default_quarantine(self) -> CatalogTable:
        """The table of rows that fail, unless a sink says otherwise."""
        return replace(self, table=(*self.table[:-1], default_quarantine(self.table[-1])))

    def find_renamed(self, table_uuid: str, *, recently: bool = False) -> str | None:
        """Return how reports call the table of a uuid, where it has another name in the catalog. `recently`:
        one that was nowhere some minutes ago is looked for in its namespace alone, for a page that may ask
        again and again, and on whose answer no row depends.
        """
        from timeline.catalogs.renames import find_by_uuid

        lost, now = (self.location, table_uuid), time.monotonic()
        everywhere = not recently or now >= _NOWHERE_UNTIL.get(lost, now)
        found = find_by_uuid(self._connect(), tuple(self.table[:-1]), table_uuid, everywhere=everywhere)
        if found is None and everywhere:
            _NOWHERE_UNTIL[lost] = now + _NOWHERE_SECONDS
        return None if found is None or found == self.table else replace(self, table=found).location

    def mirror(self, storage_options: StorageOptions | None) -> Mirror:
        """Return this table as one that names versions of a table at a location, whose files are reached with
        these options. StoreUnavailableError where the catalog does not answer.
        """
        from timeline.catalogs.mirrors.mirroring import Mirror
        from timeline.catalogs.mirrors.opening import connect_pointers

        catalog = connect_pointers(self.catalog, lambda location: open_store(location, storage_options))
        return Mirror(self.mirror_name, tuple(self.table), catalog, self.create_namespace)

    def _connect(self) -> Catalog:
        from timeline.catalogs.opening import connect_catalog

        return connect_catalog(self.catalog, open_store=self._open_store)

    def _open_store(self, location: str) -> Store:
        options = self.storage_options
        if options is None:
            from timeline.catalogs.clients.settings import settings_of
            from timeline.catalogs.clients.vended import vended_options

            options = vended_options(settings_of(self.catalog), tuple(self.table), location)
        return open_store(location, options)


def is_said(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def check_given_storage(given: Any) -> None:
    if not (given is None or callable(given) or isinstance(given, Mapping)):
        raise TypeError("storage_options must be a dict, or a callable without arguments that returns one")
