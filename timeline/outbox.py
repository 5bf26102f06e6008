"""Deliver what the commits of a main table left in its outbox to second tables, exactly once (R24).

The order of a writer::

    register the main table with the second one               once, before the first file is written there
    deliver  what the head's entry names, unless this process knows that it is delivered
    write    the files of the batch, below both tables
    commit   to the main table, with PutOutbox: from here on the rows are acknowledged
    deliver  the new entry
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from enum import Enum

from pyiceberg.manifest import DataFile

from timeline.changes.outbox_changes import Deliver, RegisterMain, RetireMain
from timeline.errors import CheckpointRegressionError, TableNotFoundError
from timeline.table import AlreadyCommitted, Table
from timeline.versions.outbox import Delivery, mains_of, outbox_apps
from timeline.versions.transactions import Transaction

_LOG = logging.getLogger("streaming_sink.timeline")
_QUERY = "outbox"

OpenTable = Callable[[str], Table]
"""Opens the table of an address; raises TableNotFoundError where there is none."""


class Outcome(str, Enum):
    """What became of a delivery."""

    DELIVERED = "delivered"
    DELIVERED_BEFORE = "delivered before"
    UNDELIVERABLE = "undeliverable"
    """The second table was dropped, and its files with it."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """One delivery of an application's entry, and what became of it."""

    app_id: str
    sequence: int
    delivery: Delivery
    outcome: Outcome


def delivery_app(main_uuid: str, app_id: str) -> str:
    """Return the name under which a second table remembers what an application of a main table delivered."""
    return f"outbox.{main_uuid}.{app_id}"


def find_delivered(delivery: str, mains: Collection[str]) -> tuple[str, str] | None:
    """Return the uuid of the main table and the application that `delivery_app` made a name of; None for the
    name of any other application. `mains` are the uuids of the tables that deliver.
    """
    for main_uuid in mains:
        prefix = delivery_app(main_uuid, "")
        if delivery.startswith(prefix):
            return main_uuid, delivery.removeprefix(prefix)
    return None


def register_main(second: Table, main: Table) -> None:
    """Have the cleaner of `second` keep what the outbox of `main` names. Call it before the first file is
    written below the second table; no request where it is registered already.

    ValueError where both are one table. CommitConflictError where the second table has retired it, else as
    `Table.commit`.
    """
    main_uuid, location = str(main.head.metadata.table_uuid), main.log.address
    if main_uuid == str(second.head.metadata.table_uuid):
        raise ValueError(f"a table cannot be its own second table: {location}")
    change = RegisterMain(main_uuid, location)
    if change.find_idleness(second.head) is None:
        second.commit([change])


def undelivered_files(main: Table, second: Table) -> Iterator[DataFile]:
    """Yield the files that the outbox of `main` names, and `second` does not have yet."""
    own, its = str(main.head.metadata.table_uuid), str(second.head.metadata.table_uuid)
    for app_id in outbox_apps(main.head.properties):
        entry, done = main.head.outbox(app_id), second.head.transaction(delivery_app(own, app_id))
        if entry is not None and (done is None or done.batch < entry.sequence):
            for each in entry.deliveries:
                yield from each.files if each.table_uuid == its else ()


def deliver(main: Table, app_id: str, open_table: OpenTable) -> tuple[Delivered, ...]:
    """Append the files of an application's entry, as the known head of `main` has it, to their tables, and
    return what became of each; () where there is none. Any process may, at any time, and several at once.

    A second table that was dropped and created again took the files with it: that is logged and returned as
    UNDELIVERABLE, and the stream goes on, as if it had been dropped just after the delivery.

    Raises TableNotFoundError where a second table is missing, and otherwise as `Table.commit`: what is not
    delivered stays in the outbox, and the next call delivers it.
    """
    entry = main.head.outbox(app_id)
    if entry is None:
        return ()
    return tuple(
        Delivered(app_id, entry.sequence, each, _deliver_one(main, app_id, entry.sequence, each, open_table))
        for each in entry.deliveries
    )


def deliver_all(main: Table, open_table: OpenTable) -> tuple[Delivered, ...]:
    """Deliver the entries of all applications, those of abandoned streams too; see `deliver`.

    Where one cannot be delivered, the others are all the same, and the first error is raised after them.
    """
    main.refresh()
    done: list[Delivered] = []
    failures: list[Exception] = []
    for app_id in outbox_apps(main.head.properties):
        try:
            done += deliver(main, app_id, open_table)
        except Exception as failure:  # noqa: BLE001 - raised below
            failures.append(failure)
    if failures:
        raise failures[0]
    return tuple(done)


def _deliver_one(
    main: Table, app_id: str, sequence: int, delivery: Delivery, open_table: OpenTable
) -> Outcome:
    main_uuid = str(main.head.metadata.table_uuid)
    try:
        second = open_table(delivery.location)
    except TableNotFoundError as missing:
        rows = sum(file.record_count for file in delivery.files)
        raise TableNotFoundError(
            f"{rows:,} rows of application {app_id!r} wait for their delivery into a table that is missing,"
            " and are not forgotten. Restore the table; or give these rows up: create a table there, as the"
            f" next batch of a sink with that quarantine does: {delivery.location}, {delivery.table_uuid}",
            location=delivery.location,
            app_id=app_id,
        ) from missing
    if lost := find_loss(second, main_uuid, delivery):
        _LOG.warning(
            "%d files with %d rows of application %r cannot be delivered: %s",
            len(delivery.files),
            sum(file.record_count for file in delivery.files),
            app_id,
            lost,
        )
        return Outcome.UNDELIVERABLE
    # Without an epoch, so that any process may deliver; the number alone decides what is in already.
    transaction = Transaction(delivery_app(main_uuid, app_id), _QUERY, _QUERY, sequence)
    try:
        committed = second.commit(
            [Deliver(delivery.files, main_uuid)], schema_id=delivery.schema_id, transaction=transaction
        )
    except CheckpointRegressionError:
        # A later entry is in the second table, and each is put only after the one before was delivered.
        return Outcome.DELIVERED_BEFORE
    return Outcome.DELIVERED_BEFORE if isinstance(committed, AlreadyCommitted) else Outcome.DELIVERED


def find_loss(second: Table, main_uuid: str, delivery: Delivery) -> str | None:
    """Return why the files of a delivery are lost with their table, or None where they are there."""
    metadata = second.head.metadata
    if str(metadata.table_uuid) != delivery.table_uuid:
        return (
            "the table was dropped and created again, and the files were dropped with it:"
            f" {delivery.location} was {delivery.table_uuid}, is {metadata.table_uuid}"
        )
    if mains_of(metadata.properties).get(main_uuid, "") is None:
        return f"the table has retired {main_uuid}, and may have deleted the files: {delivery.location}"
    return None


def retire_main(second: Table, main_uuid: str, open_table: OpenTable) -> None:
    """Have `second` forget a main table that was dropped, for good, so that its files can be cleaned again.

    ValueError where the main table is there still, or is not registered. What the dropped table had not
    delivered is lost with it.
    """
    location = mains_of(second.refresh().properties).get(main_uuid)
    if location is None:
        raise ValueError(f"no such table delivers into {second.store.location}: {main_uuid}")
    found = open_if_there(open_table, location)
    if found is not None and str(found.head.metadata.table_uuid) == main_uuid:
        raise ValueError(f"the table is there, and may still deliver; drop it first: {location}")
    second.commit([RetireMain(main_uuid)])


def open_if_there(open_table: OpenTable, location: str) -> Table | None:
    """Return the table at a location; None where there is none."""
    try:
        return open_table(location)
    except TableNotFoundError:
        return None
