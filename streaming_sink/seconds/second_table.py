"""What a landing asks of a table that gets rows beside the main one, and how one is opened or created."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from pyiceberg.schema import Schema

from streaming_sink.table.foreign import check_no_foreign_table
from streaming_sink.upkeep.maintenance import Maintenance
from streaming_sink.writing.writer import WriteResult
from timeline.changes.changes import Change
from timeline.errors import TableNotFoundError
from timeline.stores import StorageOptions, open_store
from timeline.table import Table
from timeline.versions.head import Head

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming_sink.reports.steps import Steps


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


def open_or_create(
    location: str,
    storage_options: StorageOptions | None,
    schema: Schema,
    check: Callable[[Head], None],
    table_properties: Mapping[str, str] | None = None,
) -> Table:
    """Open a second table, or create it with these columns. `check` raises for a table that is none such.

    Raises as a commit does, and where the files of another table format lie at the location.
    """
    store = open_store(location, storage_options)
    try:
        table = Table.open(store)
    except TableNotFoundError:
        check_no_foreign_table(store)
        table = Table.create(store, schema, table_properties=table_properties)
    check(table.head)
    table.ensure_store_is_safe()
    return table
