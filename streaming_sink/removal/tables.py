"""The tables that may hold rows of a key: the one that is asked about, its quarantine, its change logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from streaming_sink.checks.quarantine_table import QUARANTINE_SCHEMA
from streaming_sink.options.values.tables import KnownTable
from streaming_sink.removal.leftovers import Leftovers, find_leftovers
from streaming_sink.removal.matching import (
    RowMatcher,
    find_key_columns,
    is_own_key,
    matcher_of,
    quarantine_matcher,
)
from streaming_sink.removal.wanted import WantedKeys
from timeline.errors import TableNotFoundError
from timeline.outbox import OpenTable, undelivered_files
from timeline.table import Table
from timeline.versions.outbox import Delivery, outbox_apps, second_tables_of

QUARANTINE, CHANGE_LOG, MAIN = "quarantine", "change log", "table"


def find_everywhere(place: KnownTable, wanted: WantedKeys, also: Sequence[str]) -> list[Leftovers]:
    """Return what is left of the keys in a table, first, and in each of its second tables: its quarantine at
    the default place, those that its commits have named, and `also`.

    TableNotFoundError where the table or one of `also` is missing; SchemaMismatchError or ValueError where
    the keys do not fit its columns.
    """
    main = place.open()
    columns = find_key_columns(wanted, main.head) if is_own_key(wanted, main.head) else None
    found = [find_leftovers(main, MAIN, matcher_of(wanted, main.head), columns)]
    for second in open_seconds(main, place, also, opener_beside(place)):
        matcher = matcher_of_second(wanted, main, second)
        found.append(find_leftovers(second, role_of(second), matcher, None, undelivered(main, second)))
    return found


def opener_beside(place: KnownTable) -> OpenTable:
    """Return what opens the tables that a table's commits name, and `also`."""
    return lambda address: place.beside(address).open()


def matcher_of_second(wanted: WantedKeys, main: Table, second: Table) -> RowMatcher:
    """Return the matcher of a second table. Raises as `matcher_of`."""
    if role_of(second) == QUARANTINE:
        return quarantine_matcher(wanted, main.head, second.head)
    return matcher_of(wanted, second.head)


def open_seconds(main: Table, place: KnownTable, also: Sequence[str], open_at: OpenTable) -> Iterator[Table]:
    """Open the second tables of a table, each once; in a catalog one that was renamed too, by its uuid.
    TableNotFoundError where one of `also` is missing.
    """
    apps = outbox_apps(main.head.properties)
    waiting = {each.location: each.table_uuid for app in apps for each in _deliveries(main, app)}
    named = {place.default_quarantine.address: None, **waiting, **second_tables_of(main.head.properties)}
    known = {str(main.head.metadata.table_uuid)}
    for second in (*(_open_given(each, open_at) for each in also), *_open_named(named, place, open_at)):
        uuid = str(second.head.metadata.table_uuid)
        if uuid not in known:
            known.add(uuid)
            yield second


def _open_given(place: str, open_at: OpenTable) -> Table:
    try:
        return open_at(place)
    except TableNotFoundError as missing:
        raise TableNotFoundError(f"there is no table of this sink at {place}", location=place) from missing


def _open_named(named: Mapping[str, str | None], place: KnownTable, open_at: OpenTable) -> Iterator[Table]:
    for address, uuid in named.items():
        found = None
        with suppress(TableNotFoundError):
            found = open_at(address)
            yield found
        is_it = found is not None and str(found.head.metadata.table_uuid) == uuid
        if uuid is not None and not is_it and (name := place.find_renamed(uuid)) is not None:
            yield open_at(place.beside(name).address)


def role_of(second: Table) -> str:
    """Return what a second table is."""
    columns = {field.name for field in second.head.schema.fields}
    is_quarantine = columns.issuperset(field.name for field in QUARANTINE_SCHEMA.fields)
    return QUARANTINE if is_quarantine else CHANGE_LOG


def undelivered(main: Table, second: Table) -> set[str]:
    """Return the locations of files that the outbox of `main` names and `second` does not have yet."""
    return {file.file_path for file in undelivered_files(main, second)}


def _deliveries(main: Table, app_id: str) -> tuple[Delivery, ...]:
    entry = main.head.outbox(app_id)
    return () if entry is None else entry.deliveries
