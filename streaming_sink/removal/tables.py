"""The tables that may hold rows of a key: the one that is asked about, its quarantine, its change logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from streaming_sink.checks.quarantine_table import QUARANTINE_SCHEMA
from streaming_sink.options.values.checks import default_quarantine
from streaming_sink.removal.leftovers import Leftovers, find_leftovers
from streaming_sink.removal.matching import find_key_columns, is_own_key, matcher_of, quarantine_matcher
from streaming_sink.removal.wanted import WantedKeys
from timeline.errors import TableNotFoundError
from timeline.outbox import OpenTable, delivery_app
from timeline.stores import StorageOptions
from timeline.table import Table, open_table
from timeline.versions.outbox import Delivery, outbox_apps, second_tables_of

QUARANTINE, CHANGE_LOG, MAIN = "quarantine", "change log", "table"


def find_everywhere(
    location: str, wanted: WantedKeys, also: Sequence[str], storage_options: StorageOptions | None
) -> list[Leftovers]:
    """Return what is left of the keys in the table at `location`, first, and in each of its second tables:
    its quarantine at the default place, those that its commits have named, and `also`.

    TableNotFoundError where the table or one of `also` is missing; SchemaMismatchError or ValueError where
    the keys do not fit its columns.
    """

    def open_at(place: str) -> Table:
        return open_table(place, storage_options)

    main = open_at(location)
    columns = find_key_columns(wanted, main.head) if is_own_key(wanted, main.head) else None
    found = [find_leftovers(main, MAIN, matcher_of(wanted, main.head), columns)]
    for second in open_seconds(main, location, also, open_at):
        if role_of(second) == QUARANTINE:
            matcher = quarantine_matcher(wanted, main.head, second.head.schema)
        else:
            matcher = matcher_of(wanted, second.head)
        found.append(find_leftovers(second, role_of(second), matcher, None, undelivered(main, second)))
    return found


def open_seconds(main: Table, location: str, also: Sequence[str], open_at: OpenTable) -> Iterator[Table]:
    """Open the second tables of a table, each once. TableNotFoundError where one of `also` is missing."""
    named = [file.location for app in outbox_apps(main.head.properties) for file in _deliveries(main, app)]
    known = {str(main.head.metadata.table_uuid)}
    for place in (*also, default_quarantine(location), *second_tables_of(main.head.properties), *named):
        table = None
        with suppress(TableNotFoundError):
            table = open_at(place)
        if table is None:
            if place in also:
                raise TableNotFoundError(f"there is no table of this sink at {place}", location=place)
            continue
        uuid = str(table.head.metadata.table_uuid)
        if uuid not in known:
            known.add(uuid)
            yield table


def role_of(second: Table) -> str:
    """Return what a second table is."""
    is_quarantine = second.head.schema.as_struct() == QUARANTINE_SCHEMA.as_struct()
    return QUARANTINE if is_quarantine else CHANGE_LOG


def undelivered(main: Table, second: Table) -> set[str]:
    """Return the locations of files that the outbox of `main` names and `second` does not have yet."""
    own, its = str(main.head.metadata.table_uuid), str(second.head.metadata.table_uuid)
    found: set[str] = set()
    for app_id in outbox_apps(main.head.properties):
        entry, done = main.head.outbox(app_id), second.head.transaction(delivery_app(own, app_id))
        if entry is not None and (done is None or done.batch < entry.sequence):
            files = (file for each in entry.deliveries if each.table_uuid == its for file in each.files)
            found.update(file.file_path for file in files)
    return found


def _deliveries(main: Table, app_id: str) -> tuple[Delivery, ...]:
    entry = main.head.outbox(app_id)
    return () if entry is None else entry.deliveries
