"""The table that a sink writes to: opened, or made by the first batch; checked at first use."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyspark.sql import types as spark

from streaming_sink.options import SinkOptions
from streaming_sink.table.parquet_properties import ignored_properties
from streaming_sink.table.schema import iceberg_schema
from streaming_sink.table.spec import partition_spec
from timeline.errors import CommitConflictError, CorruptTableError, SchemaMismatchError, TableNotFoundError
from timeline.names import VERSION_FOLDER
from timeline.plans.reservations import Reservations
from timeline.properties import DEFAULTS
from timeline.stores import open_store
from timeline.stores.base import Store
from timeline.table import Table, check_store
from timeline.versions.head import Head

_LOG = logging.getLogger("streaming_sink")


@dataclass(frozen=True)
class Target:
    """What a batch is written for: the table as it is, or as its first batch will make it."""

    table: Table | None
    schema: Schema
    spec: PartitionSpec
    properties: Mapping[str, str]

    @property
    def head(self) -> Head | None:
        """The newest head that this process has seen, or None while there is no table."""
        return None if self.table is None else self.table.head


class Destination:
    """Finds or makes the table at the options' location. Holds the one `Table` that this process has open."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._table: Table | None = None
        self._reservations: Reservations | None = None

    @property
    def store(self) -> Store:
        """The store of the table's location."""
        return (
            self._table.store
            if self._table is not None
            else open_store(self._options.location, self._options.storage_options)
        )

    @property
    def reservations(self) -> Reservations:
        """What pending clustering plans reserve, as far as this process has read them."""
        if self._reservations is None:
            self._reservations = Reservations(self.store)
        return self._reservations

    def target(self, batch: spark.StructType, fresh: bool) -> Target:
        """Return the table to write to, by its real head if `fresh`, else by the known one.

        For a table that does not exist it is made up from the batch's columns; the store is then probed, and
        nothing is published. Raises SchemaMismatchError, CorruptTableError, UnsafeStoreError or
        StoreUnavailableError.
        """
        if self._table is None:
            self._table = self._open()
        elif fresh:
            self._refresh_or_reopen(self._table)
        if self._table is not None:
            head = self._table.head
            _check_partitioning(self._options.partition_by, head.schema, head.spec, self._options.location)
            return Target(self._table, head.schema, head.spec, head.properties)
        schema = iceberg_schema(batch)
        spec = partition_spec(self._options.partition_by, schema)
        check_store(self.store)
        _tell_what_is_ignored(self._options.table_properties, schema)
        return Target(None, schema, spec, {**DEFAULTS, **self._options.table_properties})

    def create(self, target: Target) -> Table:
        """Create the table that the batch was written for, or take the one that another writer made
        meanwhile, if it is alike.
        """
        self._table = Table.create(
            self.store,
            target.schema,
            target.spec,
            table_properties=self._options.table_properties,
            store_is_checked=True,
        )
        head = self._table.head
        if head.schema.as_struct() != target.schema.as_struct() or head.spec.fields != target.spec.fields:
            raise CommitConflictError(
                "another writer created the table first, with other columns or partitions:"
                f" {self._options.location}"
            )
        return self._table

    def refresh(self) -> None:
        """Look for what others have committed, or created, meanwhile."""
        if self._table is None:
            self._table = self._open()
        else:
            self._table.refresh()

    def _refresh_or_reopen(self, table: Table) -> None:
        """A run that begins takes the table that is there now, though this object knew another one."""
        try:
            table.refresh()
        except (TableNotFoundError, CommitConflictError, CorruptTableError):
            self._table = self._reservations = None
            self._table = self._open()

    def _open(self) -> Table | None:
        store = open_store(self._options.location, self._options.storage_options)
        try:
            table = Table.open(store)
        except TableNotFoundError:
            _check_nobody_else_is_there(store)
            return None
        table.ensure_store_is_safe()
        _tell_what_is_ignored(table.head.properties, table.head.schema)
        return table


def _tell_what_is_ignored(properties: Mapping[str, str], schema: Schema) -> None:
    for name, why in ignored_properties(properties, schema).items():
        _LOG.warning("the table's property %s is not honoured: %s; files are correct without it", name, why)


def _check_nobody_else_is_there(store: Store) -> None:
    """Raise CorruptTableError where another writer's versions, whose names are not ours, lie in the place of
    ours.
    """
    for listed in store.list_folder(VERSION_FOLDER):
        if listed.path.endswith(".metadata.json"):
            raise CorruptTableError(
                f"{listed.path} was not written by this sink: it is a table of another writer, whose commits"
                f" this protocol cannot join. Use a location of its own for the stream: {store.location}"
            )


def _check_partitioning(wanted: Sequence[str], schema: Schema, spec: PartitionSpec, location: str) -> None:
    if not wanted:
        return
    asked = [(each.source_id, str(each.transform)) for each in partition_spec(wanted, schema).fields]
    has = [(each.source_id, str(each.transform)) for each in spec.fields]
    if asked != has:
        fields = (
            ", ".join(f"{each.transform}({schema.find_column_name(each.source_id)})" for each in spec.fields)
            or "nothing"
        )
        raise SchemaMismatchError(
            f"the table is partitioned by {fields}, and the sink says partition_by={list(wanted)}: leave"
            f" partition_by out to keep the table's, or write to a new table: {location}"
        )
