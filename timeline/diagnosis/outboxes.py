"""Check the outbox of a main table, and the main tables of a second one (R24)."""

from __future__ import annotations

from collections.abc import Iterator

from timeline import properties
from timeline.diagnosis.findings import Finding, count, damage, note, some, warning
from timeline.errors import CorruptTableError, StoreUnavailableError
from timeline.outbox import OpenTable, delivery_app, find_loss, open_if_there
from timeline.table import Table
from timeline.versions.outbox import Delivery, OutboxEntry, mains_of, outbox_apps, outbox_of
from timeline.versions.transactions import state_of
from timeline.versions.version_file import Version

_LONG_MS = 3600 * 1000
"""A stream delivers right after its commit, and at its next start."""
_UNKNOWN = (StoreUnavailableError, CorruptTableError, ValueError)


def check_outbox(head: Version, open_table: OpenTable) -> Iterator[Finding]:
    """Yield what is wrong with the files that the table's last commits left to deliver."""
    stated = head.metadata.properties
    for app_id in outbox_apps(stated):
        try:
            entry = outbox_of(stated, app_id)
        except CorruptTableError as unreadable:
            yield _unreadable(str(unreadable), "this application cannot commit until it is restored")
            continue
        for delivery in () if entry is None else entry.deliveries:
            assert entry is not None
            yield from _check_delivery(head, app_id, entry, delivery, open_table)


def check_main_tables(head: Version, open_table: OpenTable) -> Iterator[Finding]:
    """Yield what is wrong with the tables that deliver into this one."""
    try:
        mains = mains_of(head.metadata.properties)
    except CorruptTableError as unreadable:
        yield _unreadable(
            str(unreadable), "nothing is delivered, and no orphan removed, until it is restored"
        )
        return
    for main_uuid, location in mains.items():
        if location is None:
            continue
        try:
            main = open_if_there(open_table, location)
        except _UNKNOWN as failure:
            yield _not_checked(location, failure)
            continue
        if main is None or str(main.head.metadata.table_uuid) != main_uuid:
            yield warning(
                kind="outbox-main-missing",
                what=f"table {main_uuid}, which delivers into this one, is not at its location: {location}",
                means="what it has not delivered is not known, so that remove_orphan_files refuses",
                repair="restore that table; if it was dropped for good, call timeline.outbox.retire_main:"
                " files that it has not delivered may then be deleted",
            )


def _check_delivery(
    head: Version, app_id: str, entry: OutboxEntry, delivery: Delivery, open_table: OpenTable
) -> Iterator[Finding]:
    main_uuid = str(head.metadata.table_uuid)
    try:
        second = open_if_there(open_table, delivery.location)
        lost = None if second is None else find_loss(second, main_uuid, delivery)
        if second is None or lost is not None:
            yield _undeliverable(app_id, delivery, lost or "there is no table")
            return
        state = state_of(second.head.properties, delivery_app(main_uuid, app_id))
        if state is not None and state.batch >= entry.sequence:
            return
        missing = _find_missing(second, delivery)
    except _UNKNOWN as failure:
        yield _not_checked(delivery.location, failure)
        return
    if missing:
        yield damage(
            kind="outbox-file-missing",
            what=f"{count(len(missing), 'file')} that application {app_id!r} left to deliver"
            f" {'is' if len(missing) == 1 else 'are'} missing: {some(missing)}",
            means=f"something other than this sink deleted them. A delivery would make {delivery.location}"
            " unreadable: stop the stream",
            repair="find what deletes files there. Restore them byte for byte from a backup, or from the"
            " bucket's earlier object versions",
        )
    elif (age_ms := head.metadata.last_updated_ms - entry.sequence) > _LONG_MS:
        yield warning(
            kind="outbox-undelivered",
            what=f"{_rows(delivery)} of application {app_id!r} wait for their delivery to"
            f" {delivery.location} since {age_ms // 1000:,} s of the table's time",
            means="they are kept and are delivered when the stream starts; until then they are in no table",
            repair="restart the stream; if it has ended for good, call timeline.outbox.deliver_all",
        )


def _undeliverable(app_id: str, delivery: Delivery, why: str) -> Finding:
    return damage(
        kind="outbox-undeliverable",
        what=f"{_rows(delivery)} of application {app_id!r} cannot be delivered to {delivery.location}: {why}",
        means="the second table was dropped, and these rows with it. This table is whole, and the stream goes"
        " on with a new second table",
        repair="restore the second table if it was not dropped on purpose: before the stream starts, since"
        f" its next batch forgets {some([file.file_path for file in delivery.files])}",
    )


def _find_missing(second: Table, delivery: Delivery) -> list[str]:
    missing = []
    for file in delivery.files:
        try:
            second.store.open_input(second.store.relative(file.file_path)).close()
        except FileNotFoundError:
            missing.append(file.file_path)
    return missing


def _rows(delivery: Delivery) -> str:
    return count(sum(file.record_count for file in delivery.files), "row")


def _unreadable(what: str, means: str) -> Finding:
    return damage(
        kind="outbox-unreadable",
        what=what,
        means=means,
        repair="restore the newest version from a backup, or copy the property from the version before:"
        f" {properties.OUTBOX_PREFIX}<app_id>, {properties.OUTBOXES}",
    )


def _not_checked(location: str, failure: Exception) -> Finding:
    return note(
        kind="outbox-not-checked",
        what=f"{location} could not be read: {failure}",
        means="whether deliveries between the two tables are complete could not be seen from here",
        repair="none needed for this table; run the doctor on the other one, with its credentials",
    )
