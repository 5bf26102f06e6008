"""The table that a sink writes to: opened or created at the first batch, and checked against the options."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyspark.sql import types as spark

from streaming_sink.options.table_options import SinkOptions
from streaming_sink.options.values.tables import CatalogTable, PathTable
from streaming_sink.table.column_sequences import evolved_fields
from streaming_sink.table.fitting import Fit, Misfit, Path, fit_batch, new_schema
from streaming_sink.table.foreign import check_no_foreign_table
from streaming_sink.table.parquet_properties import ignored_properties
from streaming_sink.table.spec import partition_spec
from streaming_sink.table.table_keys import created_table_schema
from timeline.changes.changes import Change
from timeline.changes.schema_changes import MergeSchema, SetPartitioning
from timeline.errors import CommitConflictError, CorruptTableError, SchemaMismatchError, TableNotFoundError
from timeline.plans.reservations import Reservations
from timeline.properties import DEFAULTS
from timeline.stores.base import Store
from timeline.stores.probe import check_store
from timeline.table import Table
from timeline.versions.evolution import describe_evolution
from timeline.versions.head import Head
from timeline.versions.partitioning import describe_spec, partitions_alike
from timeline.versions.transactions import Transaction
from timeline.versions.work_items import WorkItem

_LOG = logging.getLogger("streaming_sink")
_FITTING_TRIES = 10
"""Writers that evolve a table's schema at the same time are few, and each of them wins once."""


@dataclass(frozen=True)
class Target:
    """The table that a batch is written for: the existing one, or the one that this batch will create."""

    table: Table | None
    schema: Schema
    spec: PartitionSpec
    properties: Mapping[str, str]
    evolved: str = ""
    """How this batch has evolved the table's schema and partitioning, as sentences; "" if it has not."""
    misfits: Mapping[Path, Misfit] = field(default_factory=dict)
    """Where values of the batch may not fit the schema, and what becomes of them."""

    @classmethod
    def of(cls, table: Table) -> Target:
        """Return the known head of an open table as a target, which is not fitted yet."""
        return cls(table, table.head.schema, table.head.spec, table.head.properties)

    @property
    def head(self) -> Head | None:
        """The newest head that this process has seen, or None while there is no table."""
        return None if self.table is None else self.table.head

    @property
    def version(self) -> int:
        return 0 if self.head is None else self.head.number


class Destination:
    """Opens or creates the table at the options' location. Holds the one open `Table` of this sink."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._table: Table | None = None
        self._reservations: Reservations | None = None
        self._probe: Future[None] | None = None
        self._checks_text = False

    @property
    def table(self) -> Table | None:
        """The open table; None while this process knows of none."""
        return self._table

    @property
    def name(self) -> str:
        """How reports call the table: its location, as its store spells it, or its name in its catalog."""
        return self._options.location if self.is_made_first else self.store.location

    @property
    def is_made_first(self) -> bool:
        """Whether a table must be there before rows are written for it: its catalog says where."""
        return isinstance(self._options.table, CatalogTable)

    @property
    def store(self) -> Store:
        """The store of the table's location. TableNotFoundError where only the catalog will say which."""
        if self._table is not None:
            return self._table.store
        if isinstance(self._options.table, CatalogTable):
            raise TableNotFoundError(f"there is no table yet: {self._options.location}")
        return self._options.table.store()

    @property
    def reservations(self) -> Reservations:
        """The files that pending plans reserve, as far as this process has read the plans."""
        if self._reservations is None:
            self._reservations = Reservations(self.store)
        return self._reservations

    def target(self, batch: spark.StructType, fresh: bool) -> Target:
        """Return the table to write to, with its newest head if `fresh`, else with the known one.

        If there is no table, the target is derived from the batch's columns, and nothing is published; a
        thread begins to probe the store, for `create`. Raises SchemaMismatchError, CorruptTableError,
        StoreUnavailableError, or UnsafeStoreError for the store of a table that exists.
        """
        if self._table is None:
            self._table = self._open()
        elif fresh:
            self._refresh_or_reopen(self._table)
        if self._table is not None:
            head = self._table.head
            if not self._options.contract.evolves_partitioning:
                _check_partitioning(self._options, head)
            return Target.of(self._table)
        rows = new_schema(batch, self._options.contract, self._checks_text)
        schema = created_table_schema(rows, self._options.keys)
        spec = partition_spec(self._options.partition_by, schema)
        if not self.is_made_first:
            self._begin_probe()
        _warn_about_ignored_properties(self._options.table_properties, schema)
        return Target(None, schema, spec, {**DEFAULTS, **self._options.table_properties})

    def known_schema(self) -> Schema | None:
        """Return the table's schema as this process knows it, or None where there is no table yet."""
        if self._table is None:
            self._table = self._open()
        return None if self._table is None else self._table.head.schema

    def misfits(self, target: Target, batch: spark.StructType) -> Mapping[Path, Misfit]:
        """Return where values of `batch` may not fit the target, and what becomes of them. Raises
        SchemaMismatchError for what the contract refuses.
        """
        return self._fitting(target, batch).misfits

    def _fitting(self, target: Target, batch: spark.StructType) -> Fit:
        fit = fit_batch(target.schema, batch, self._options.contract, self._checks_text)
        return replace(fit, wanted=evolved_fields(target.schema, fit.wanted, batch.names, self._options.keys))

    def fit(self, target: Target, batch: spark.StructType, transaction: Transaction | WorkItem) -> Target:
        """Return the target whose schema the rows of `batch` fit, after the table's schema and partitioning
        have evolved as the options of the sink allow: versions of their own, which pass the checks of the
        batch's transaction.

        Raises SchemaMismatchError for what the options refuse, ValueError for a partition field that none
        can have, and as a commit does.
        """
        tries = 0
        evolved: list[str] = []
        while True:
            fit = self._fitting(target, batch)
            change = self._change(target, fit, transaction)
            if change is None or target.table is None:
                return replace(target, misfits=fit.misfits, evolved="; ".join(evolved))
            before, lost = target, False
            try:
                target.table.commit([change], transaction=transaction.preparing)
            except CommitConflictError:
                # Another writer has evolved the table first, as this batch needs it or otherwise.
                tries, lost = tries + 1, True
                if tries == _FITTING_TRIES:
                    raise
            target = self.target(batch, fresh=lost)
            if is_committed(target, transaction):  # by a twin of this query
                return target
            for news in _describe_evolution(before, target):
                _LOG.info("%s: %s", self._options.location, news)
                evolved.append(news)

    def _change(self, target: Target, fit: Fit, transaction: Transaction | WorkItem) -> Change | None:
        """Return the change that the table needs next for a batch: of its schema first, whose columns may
        partition it; None where it needs none.
        """
        if fit.wanted is not None:
            return MergeSchema(fit.wanted)
        if not self._options.contract.evolves_partitioning:
            return None
        wanted = partition_spec(self._options.partition_by, target.schema)
        if partitions_alike(wanted, target.spec):
            return None
        return SetPartitioning(wanted, transaction.app_id)

    def begin_to_check_text(self) -> bool:
        """From now on, check whether text is valid UTF-8. Return whether that is new, and the contract needs
        it: tasks rescue nothing, and know no contract but that of the whole table. No batch pays for it
        before one has held such text.
        """
        contract = self._options.contract
        begins = bool(contract.rescues or contract.apart) and not self._checks_text
        self._checks_text = self._checks_text or begins
        return begins

    def create(self, target: Target) -> Table:
        """Create the table that the batch was written for. If another writer has created it first, use that
        one, provided that its schema and partition spec are equal.

        Waits for the probe: UnsafeStoreError or StoreUnavailableError if it fails, and nothing is published.
        """
        if not self.is_made_first:
            self._end_probe()
        self._table = self._options.table.create(target.schema, target.spec, self._options.table_properties)
        head = self._table.head
        if head.schema.as_struct() != target.schema.as_struct() or head.spec.fields != target.spec.fields:
            raise CommitConflictError(
                "another writer created the table first, with other columns or partitions:"
                f" {self._options.location}"
            )
        return self._table

    def _begin_probe(self) -> None:
        """Probe the store beside the batch: its files have names of their own, so only the commit relies on
        what the probe shows (R18). After one that failed beside a batch that published nothing, the next
        batch has its own.
        """
        if self._probe is None or (self._probe.done() and self._probe.exception() is not None):
            pool = ThreadPoolExecutor(1, thread_name_prefix="probe")
            self._probe = pool.submit(check_store, self.store)
            pool.shutdown(wait=False)

    def await_probe(self) -> None:
        """Return when the probe that `target` began, if any, has ended and has deleted its objects. What it
        showed is for `create` to raise: a batch without rows publishes nothing.
        """
        if self._probe is not None:
            wait([self._probe])

    def _end_probe(self) -> None:
        probe, self._probe = self._probe, None
        if probe is None:
            check_store(self.store)
        else:
            probe.result()

    def refresh(self) -> None:
        """Read what other writers have committed or created since."""
        if self._table is None:
            self._table = self._open()
        else:
            self._table.refresh()
            self._table.ensure_store_is_safe()

    def _refresh_or_reopen(self, table: Table) -> None:
        """Use the table that exists now: at the start of a run the known one may have been dropped or
        recreated.
        """
        try:
            table.refresh()
            table.ensure_store_is_safe()
        except (TableNotFoundError, CommitConflictError, CorruptTableError):
            self._table = self._reservations = None
            self._table = self._open()

    def _open(self) -> Table | None:
        try:
            table = self._options.table.open()
        except TableNotFoundError:
            for place in (each for each in self._options.tables if isinstance(each, PathTable)):
                check_no_foreign_table(place.store())
            return None
        table.ensure_store_is_safe()
        _warn_about_ignored_properties(table.head.properties, table.head.schema)
        return table


def is_committed(target: Target, transaction: Transaction | WorkItem) -> bool:
    """Return whether the table already holds the batch (R16), or the work item (R26)."""
    return target.head is not None and transaction.check(target.head.properties) is None


def _warn_about_ignored_properties(properties: Mapping[str, str], schema: Schema) -> None:
    for name, why in ignored_properties(properties, schema).items():
        _LOG.warning("the table's property %s is not honoured: %s; files are correct without it", name, why)


def _check_partitioning(options: SinkOptions, head: Head) -> None:
    wanted = options.partition_by
    if wanted and not partitions_alike(partition_spec(wanted, head.schema), head.spec):
        raise SchemaMismatchError(
            f"the table is partitioned by {describe_spec(head.spec, head.schema)}, and the sink says"
            f" partition_by={list(wanted)}: leave partition_by out to keep the table's, or change the table's"
            f' with SchemaContract(partitioning="evolve"): {options.location}'
        )


def _describe_evolution(before: Target, after: Target) -> Iterator[str]:
    if grown := describe_evolution(before.schema, after.schema):
        yield f"the table's schema has evolved: {grown}"
    if before.spec.spec_id != after.spec.spec_id:
        was, now = describe_spec(before.spec, before.schema), describe_spec(after.spec, after.schema)
        yield f"the table's partitioning has changed from {was} to {now}"
