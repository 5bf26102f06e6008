"""Drop a table (R17). What it has left for second tables is delivered, and these forget it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from timeline.changes.drop_changes import Drop, is_dropped
from timeline.clock import SYSTEM, Environment
from timeline.commit.version_log import VersionLog
from timeline.errors import TableDroppedError, TableNotFoundError
from timeline.manifests.manifests import ManifestFiles
from timeline.outbox import OpenTable, deliver, retire_main
from timeline.stores.base import Store
from timeline.table import Table
from timeline.versions.outbox import outbox_apps, second_tables_of


def drop_table(store: Store, open_table: OpenTable, environment: Environment = SYSTEM) -> int:
    """Let the last version of a table in version files say that it was dropped, and return its number. No
    file is deleted. A call that was cut off is completed by the next one; `open_table` opens second tables.

    TableNotFoundError where there is no table; else as `Table.commit`.
    """
    log = VersionLog(store, ManifestFiles(store), environment)
    head = log.newest()
    if head is None:
        raise TableNotFoundError(f"there is no table at {store.location}", location=store.location)
    if not is_dropped(head):
        with suppress(TableDroppedError):  # another call was first
            Table(log, head).commit([Drop()])
        head = log.newest() or head
    table = Table(log, head)
    deliver_what_is_left(table, open_table)  # from now on nothing more is left for them
    leave_second_tables(table, open_table)
    return table.head.number


def drop_with(table: Table, drop: Callable[[], None], open_table: OpenTable) -> int:
    """Drop a table of a catalog by `drop`, and return the version that it had. What it has for second tables
    is delivered before; what a writer leaves after that is lost with it, since no version can follow.
    """
    deliver_what_is_left(table, open_table)
    drop()
    leave_second_tables(table, open_table)
    return table.head.number


def deliver_what_is_left(table: Table, open_table: OpenTable) -> None:
    """Deliver what the known head has for second tables, of all applications. As `deliver`; but where there
    is no such table any more, its rows were dropped with it.
    """
    for app_id in outbox_apps(table.head.properties):
        with suppress(TableNotFoundError):
            deliver(table, app_id, open_table)


def leave_second_tables(table: Table, open_table: OpenTable) -> None:
    """Have the second tables of a table that was dropped forget it: their cleaners would wait for it."""
    uuid = str(table.head.metadata.table_uuid)
    for address in second_tables_of(table.head.properties):
        with suppress(TableNotFoundError, ValueError):  # it is not there, or knows no such table
            retire_main(open_table(address), uuid, open_table)
