"""Which table: by its location, with what its store takes, or by its name in a catalog."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from planners.values import APART, Value, check_has_no_password
from streaming_sink.options.values.catalog_tables import CatalogTable, check_given_storage
from streaming_sink.options.values.checks import default_quarantine
from timeline.dropping import drop_table
from timeline.errors import MirrorForkedError, StoreUnavailableError
from timeline.stores import StorageOptions, open_store
from timeline.stores.base import Store
from timeline.table import Table

__all__ = ["AnyTable", "CatalogTable", "KnownTable", "PathTable", "as_path_table", "as_table"]


@dataclass(frozen=True, repr=False)
class PathTable(Value):
    """A table at a location: a folder, or a URL such as "s3://lake/events".

    `storage_options` are obstore's (endpoint, region, credentials), or a picklable callable without arguments
    that returns them; the driver and each task call it. They are in no repr and no dict. `mirror`: a table
    of a catalog that names the newest version, for reading by others, and that nothing writes to; a sink
    brings it up to date after each batch, beside the stream (docs/catalogs.md).
    """

    location: str
    storage_options: StorageOptions | None = field(default=None, metadata=APART, compare=False)
    mirror: CatalogTable | None = field(default=None, metadata={"of": CatalogTable.from_dict})

    def __post_init__(self) -> None:
        given: Any = self.location
        location = os.fspath(given) if isinstance(given, os.PathLike) else given
        if not isinstance(location, str) or not location.strip():
            raise ValueError(f"location must be a path or a URL such as s3://lake/events, not {location!r}")
        object.__setattr__(self, "location", check_has_no_password("location", location))
        check_given_storage(self.storage_options)
        mirror: Any = self.mirror
        if not isinstance(mirror, CatalogTable | None):
            raise TypeError(
                f'mirror must be a table in a catalog, as CatalogTable("db.t", "lake"), not {mirror!r}'
            )

    def called(self, place: str) -> str:
        """Return how reports call the table, whose store spells its location so."""
        return place

    @property
    def address(self) -> str:
        """How other tables at locations name it."""
        return self.store().location

    def check(self) -> None:
        """Raise ValueError for a location or storage options that no store takes, and for a mirror as that
        says. Sends no request.
        """
        self.store()
        if self.mirror is not None:
            self.mirror.check_mirror()

    def store(self) -> Store:
        """Return the store of the location. Sends no request."""
        return open_store(self.location, self.storage_options)

    def open(self) -> Table:
        """Return the table, at its newest version. TableNotFoundError where there is none."""
        return Table.open(self.store())

    def create(self, schema: Schema, spec: PartitionSpec, table_properties: Mapping[str, str]) -> Table:
        """Create the table, or open the one that another writer has created first. Its store was probed."""
        return Table.create(
            self.store(), schema, spec, table_properties=table_properties, store_is_checked=True
        )

    def drop(self) -> int:
        """Drop the table, and return the number of the version that says so, as `drop_table`. Its mirror
        leaves the catalog after that; MirrorForkedError where that has become another table, and stays.
        """
        store = self.store()
        version = drop_table(store, lambda address: self.beside(address).open())
        if self.mirror is not None:
            try:
                self.mirror.mirror(self.storage_options).drop(store)
            except (MirrorForkedError, StoreUnavailableError) as failure:
                raise type(failure)(
                    f"the table was dropped, by version {version}, and its mirror was not: {failure}",
                    location=self.location,
                ) from failure
        return version

    def beside(self, location: str) -> PathTable:
        """Return the table at another location, reached as this one is. It has no mirror."""
        return replace(self, location=location, mirror=None)

    @property
    def default_quarantine(self) -> PathTable:
        """The table of rows that fail, unless a sink says otherwise."""
        return self.beside(default_quarantine(self.location))

    def find_renamed(self, table_uuid: str, **_: bool) -> str | None:  # noqa: ARG002 - as that of a catalog
        """Return None: a table at a location has no other name."""
        return None


KnownTable = PathTable | CatalogTable
"""A table that is given as a value."""
AnyTable = str | os.PathLike[str] | PathTable | CatalogTable
"""What is taken for a table: its location, a `PathTable`, or a `CatalogTable`."""


def as_table(table: AnyTable) -> PathTable | CatalogTable:
    """Return a table that is given as such, or by its location."""
    return table if isinstance(table, PathTable | CatalogTable) else PathTable(table)  # type: ignore[arg-type]


def as_path_table(table: AnyTable) -> PathTable:
    """Return a table at a location. ValueError for one in a catalog, which what asks does not take."""
    made = as_table(table)
    if isinstance(made, CatalogTable):
        raise ValueError(f"this is not offered for a table in a catalog yet: {made.location}")
    return made
