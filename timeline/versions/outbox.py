"""The outbox of a table: files of the last batch of each application that belong into a second table (R24).

Properties hold it: in the main table the entry of each application, and where all second tables are, the
former ones too; in the second table the main tables that deliver into it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.manifest import DataFile

from timeline.errors import CorruptTableError
from timeline.properties import OUTBOX_PREFIX, OUTBOXES, SECOND_TABLES
from timeline.versions.addresses import identifier_of
from timeline.versions.descriptors import describe_file, read_descriptor, to_json


@dataclass(frozen=True, slots=True)
class Delivery:
    """Files that lie below a second table's location already, and that it is to append."""

    location: str
    """That table's address: its location, as its metadata spells it, or its name in the catalog."""
    table_uuid: str
    schema_id: int
    """The second table's schema that the files were written under."""
    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """What one commit of an application left to deliver."""

    sequence: int
    """The time of the version that put it, in milliseconds. Every version is later than its parent (R12), so
    that no two entries of a table share one.
    """
    deliveries: tuple[Delivery, ...]

    @property
    def files(self) -> tuple[DataFile, ...]:
        return tuple(file for delivery in self.deliveries for file in delivery.files)

    def to_property(self) -> str:
        deliveries = [
            {
                "location": each.location,
                "table_uuid": each.table_uuid,
                "schema_id": each.schema_id,
                "files": [describe_file(file) for file in each.files],
            }
            for each in self.deliveries
        ]
        return to_json({"sequence": self.sequence, "deliveries": deliveries})

    @classmethod
    def from_property(cls, text: str) -> OutboxEntry:
        """Return what `to_property` spelled. KeyError, TypeError or ValueError for anything else."""
        stored = json.loads(text)
        deliveries = tuple(
            Delivery(
                each["location"],
                each["table_uuid"],
                int(each["schema_id"]),
                tuple(read_descriptor(file) for file in each["files"]),
            )
            for each in stored["deliveries"]
        )
        return cls(int(stored["sequence"]), deliveries)


def outbox_of(properties: Mapping[str, str], app_id: str) -> OutboxEntry | None:
    """Return what the last commit of an application left to deliver, delivered since or not; None where it
    left nothing.
    """
    text = properties.get(OUTBOX_PREFIX + app_id)
    if text is None:
        return None
    try:
        return OutboxEntry.from_property(text)
    except (KeyError, TypeError, ValueError, AttributeError) as failure:
        raise CorruptTableError(
            f"the outbox of application {app_id!r} cannot be read, so which files are still to be delivered"
            f" is not known; nothing was changed. Restore the newest version from a copy: {text[:200]!r}",
            app_id=app_id,
        ) from failure


def outbox_apps(properties: Mapping[str, str]) -> list[str]:
    """Return the applications that have an entry in the outbox."""
    return sorted(key.removeprefix(OUTBOX_PREFIX) for key in properties if key.startswith(OUTBOX_PREFIX))


def second_tables_of(properties: Mapping[str, str]) -> dict[str, str | None]:
    """Return all tables that this one has left files for: address → uuid; None where it is at a location, and
    no uuid is stated. CorruptTableError where that cannot be read.
    """
    text = properties.get(SECOND_TABLES, "[]")
    try:
        stated = [(each, None) if isinstance(each, str) else each for each in json.loads(text)]
        return {str(address): None if uuid is None else str(uuid) for address, uuid in stated}
    except (ValueError, TypeError) as failure:
        raise CorruptTableError(
            f"to which tables this one delivers cannot be read from property {SECOND_TABLES}; nothing was"
            f" changed. Restore the newest version from a copy: {text[:200]!r}"
        ) from failure


def second_tables_to_property(tables: Mapping[str, str | None]) -> str:
    """Return the property that `second_tables_of` reads: locations alone, and names in a catalog with their
    uuids.
    """
    stated = [
        address if identifier_of(address) is None else [address, tables[address]]
        for address in sorted(tables)
    ]
    return json.dumps(stated, separators=(",", ":"))


def mains_of(properties: Mapping[str, str]) -> dict[str, str | None]:
    """Return the main tables that deliver into this one: uuid → address; None for one that was retired.

    CorruptTableError where that cannot be read: then nothing may be deleted here.
    """
    text = properties.get(OUTBOXES, "{}")
    try:
        return {str(uuid): None if at is None else str(at) for uuid, at in json.loads(text).items()}
    except (ValueError, AttributeError) as failure:
        raise CorruptTableError(
            f"which tables deliver into this one cannot be read from property {OUTBOXES}; nothing was"
            f" changed. Restore the newest version from a copy: {text[:200]!r}"
        ) from failure


def mains_to_property(mains: Mapping[str, str | None]) -> str:
    """Return the property that `mains_of` reads."""
    return to_json(dict(mains))
