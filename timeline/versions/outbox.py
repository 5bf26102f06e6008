"""The outbox of a table: files of the last batch of each application that belong into a second table (R24).

Properties hold it: in the main table the entry of each application, and where all second tables are, the
former ones too; in the second table the main tables that deliver into it. A file is its manifest entry as
JSON: all that an append needs, exact for every type of partition value.

A table names another one by its location, or, in a catalog, by its name there and its uuid. A table in a
catalog names tables of the same catalog. That has no name that all processes share, so none is stored.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from timeline.errors import CorruptTableError
from timeline.manifests.partition_values import read_value, spell_value
from timeline.properties import OUTBOX_PREFIX, OUTBOXES, SECOND_TABLES


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


Raw = bytes
_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")
_NUMBERS = ("record_count", "file_size_in_bytes", "spec_id")


def describe_file(file: DataFile) -> dict[str, Any]:
    """Return a data file as values that JSON holds; what is not stated of it is left out."""
    described: dict[str, Any] = {
        "path": file.file_path,
        "partition": [spell_value(file.partition[position]) for position in range(len(file.partition))],
    }
    described |= {name: getattr(file, name) for name in _NUMBERS}
    described |= {name: dict(value) for name in _COUNTS if (value := getattr(file, name))}
    for name in _BOUNDS:
        if bounds := getattr(file, name):
            described[name] = {field: b64encode(bound).decode() for field, bound in bounds.items()}
    if file.split_offsets:
        described["split_offsets"] = list(file.split_offsets)
    if file.sort_order_id:
        described["sort_order_id"] = file.sort_order_id
    if file.key_metadata:
        described["key_metadata"] = b64encode(file.key_metadata).decode()
    return described


def read_descriptor(described: Mapping[str, Any]) -> DataFile:
    """Return the data file that `describe` described. KeyError, TypeError or ValueError for anything else."""
    by_field: dict[str, Any] = {name: _by_field(described.get(name, {}), int) for name in _COUNTS}
    by_field |= {name: _by_field(described.get(name, {}), b64decode) for name in _BOUNDS}
    key_metadata = described.get("key_metadata")
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=described["path"],
        file_format=FileFormat.PARQUET,
        partition=Record(*(read_value(value) for value in described["partition"])),
        record_count=int(described["record_count"]),
        file_size_in_bytes=int(described["file_size_in_bytes"]),
        **by_field,
        key_metadata=None if key_metadata is None else b64decode(key_metadata),
        split_offsets=described.get("split_offsets"),
        equality_ids=None,
        sort_order_id=described.get("sort_order_id", 0),
    )
    file.spec_id = int(described["spec_id"])
    return file


def to_json(value: object) -> str:
    """Return a value as compact JSON of one line."""
    return json.dumps(value, separators=(",", ":"))


def _by_field(stored: Mapping[str, Any], read: Callable[[Any], Any]) -> dict[int, Any]:
    return {int(field): read(value) for field, value in stored.items()}


_IN_CATALOG = "catalog:"


def catalog_address(identifier: Iterable[str]) -> str:
    """Return the address of a table of a catalog, such as "catalog:db.events"."""
    return _IN_CATALOG + dotted(identifier)


def dotted(identifier: Iterable[str]) -> str:
    """Return the parts of a name between dots, and the dots within a part escaped."""
    return ".".join(part.replace("%", "%25").replace(".", "%2E") for part in identifier)


def identifier_of(address: str) -> tuple[str, ...] | None:
    """Return the parts of a table's name in its catalog; None for the address of one at a location."""
    if not address.startswith(_IN_CATALOG):
        return None
    parts = address.removeprefix(_IN_CATALOG).split(".")
    return tuple(part.replace("%2E", ".").replace("%25", "%") for part in parts)
