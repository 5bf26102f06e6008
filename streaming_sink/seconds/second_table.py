"""What a landing asks of a table that gets rows beside the main one, and how one is opened or created."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema

from streaming_sink.options.values.tables import CatalogTable, PathTable
from streaming_sink.table.foreign import check_no_foreign_table
from streaming_sink.upkeep.maintenance import Maintenance
from streaming_sink.writing.writer import WriteResult
from timeline.changes.changes import Change
from timeline.errors import TableNotFoundError, TableRenamedError
from timeline.stores.probe import check_store
from timeline.table import Table
from timeline.versions.head import Head

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming_sink.reports.reporting import Steps


class SecondTable(Protocol):
    """A second table of a sink. The main table's commit decides what it gets; a process that is killed in
    between leaves the rest to the next one.
    """

    maintenance: Maintenance

    def prepare(self, session: SparkSession, main: Table, app_id: str, steps: Steps) -> None:
        """Complete, before a batch is written, what earlier commits of the application have left."""

    def changes(self, main: Table, app_id: str, result: WriteResult) -> Sequence[Change]:
        """Return what the main table's commit of a batch says for this one."""

    def follow(self, session: SparkSession, main: Table, app_id: str, steps: Steps) -> None:
        """Bring the table what the known head of `main` has for it. No request where there is nothing."""


def open_named(table: PathTable | CatalogTable, table_uuid: str | None) -> Table:
    """Open a second table that its main one knows by a uuid; the one that has its place by now, if it was
    dropped. TableNotFoundError where there is none, TableRenamedError where it has another name.
    """
    try:
        opened = table.open()
    except TableNotFoundError:
        _check_not_renamed(table, table_uuid)
        raise
    if str(opened.head.metadata.table_uuid) != table_uuid:
        _check_not_renamed(table, table_uuid)
    return opened


def _check_not_renamed(table: PathTable | CatalogTable, table_uuid: str | None) -> None:
    name = None if table_uuid is None else table.find_renamed(table_uuid)
    if name is not None:
        raise TableRenamedError(
            f"the table was renamed: {table.location} is {name} by now, by its uuid {table_uuid}. Nothing was"
            " written there. Rename it back, or give the sink its new name",
            location=table.location,
        )


def open_or_create(
    table: PathTable | CatalogTable,
    table_uuid: str | None,
    schema: Schema,
    check: Callable[[Head], None],
    table_properties: Mapping[str, str] | None = None,
) -> Table:
    """Open a second table, as `open_named`, or create it with these columns. `check` raises for a table that
    is none such.

    Raises as a commit does, and where the files of another table format lie at the location.
    """
    try:
        opened = open_named(table, table_uuid)
    except TableRenamedError:
        raise
    except TableNotFoundError:
        if isinstance(table, PathTable):
            check_no_foreign_table(table.store())
            check_store(table.store())
        opened = table.create(schema, UNPARTITIONED_PARTITION_SPEC, table_properties or {})
    check(opened.head)
    opened.ensure_store_is_safe()
    return opened
