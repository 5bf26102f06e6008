"""What the cleaner of a second table must know of the tables that deliver into it (R24).

A file that an outbox names is in no snapshot of the second table yet. So the cleaner looks in this order:

1. it raises the fence of each main table: no later commit there names a file below the cutoff;
2. it reads their outboxes: what they name stays;
3. it reads the second table: what an outbox named before was delivered before it left the outbox.
"""

from __future__ import annotations

from collections.abc import Iterator

from timeline.errors import TableNotFoundError
from timeline.outbox import OpenTable
from timeline.table import Table
from timeline.versions.head import Head
from timeline.versions.outbox import mains_of, outbox_apps


def open_mains(second: Head, open_table: OpenTable) -> list[Table]:
    """Open the main tables that deliver into a second one.

    TableNotFoundError where one is missing, or another table is in its place: reachability cannot be
    determined then.
    """
    registered = sorted(mains_of(second.properties).items())
    return [
        _open(second, uuid, location, open_table) for uuid, location in registered if location is not None
    ]


def locations_in_outboxes(main: Table) -> Iterator[str]:
    """Yield the location of every file that the outbox of a main table names, delivered since or not."""
    for app_id in outbox_apps(main.head.properties):
        if (entry := main.head.outbox(app_id)) is not None:
            yield from (file.file_path for file in entry.files)


def _open(second: Head, main_uuid: str, location: str, open_table: OpenTable) -> Table:
    found: Table | None
    try:
        found = open_table(location)
    except TableNotFoundError:
        found = None
    if found is None or str(found.head.metadata.table_uuid) != main_uuid:
        raise TableNotFoundError(
            f"table {main_uuid} delivers into this one and is not at its location, so that reachability"
            " cannot be determined; nothing was deleted. Restore it; or, if it was dropped for good, call"
            f" timeline.outbox.retire_main: {second.metadata.location}, and missing is {location}",
            location=second.metadata.location,
            version=second.number,
        )
    return found
