"""What a buffer zone's own file says: its table, its rules, where its files lie, and how they land."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from streaming_sink.options.table_options import SinkOptions, TableOptions, sink_options
from streaming_sink.options.values.tables import CatalogTable, PathTable
from streaming_sink.options.values.writes import BulkInsert
from streaming_sink.tasks.ingest.sources import overlap
from streaming_sink.zones.given import check_kafka_client, remote
from streaming_sink.zones.zone_options import Rules, SourceFolders
from timeline.errors import CorruptTableError
from timeline.slots.numbered import NumberedLog
from timeline.stores import StorageOptions
from timeline.stores.base import Store
from timeline.versions.outbox import identifier_of

if TYPE_CHECKING:
    from streaming_sink.zones.kafka_log import KafkaLog


@dataclass(frozen=True)
class Definition:
    """What the zone's own file says."""

    id: str
    table: str
    """The table's location, or its address in its catalog."""
    options: Mapping[str, Any]
    """As `TableOptions.to_dict`."""
    rules: Mapping[str, Any]
    """As `Rules.to_dict`."""
    sources: Mapping[str, Any]
    """As `SourceFolders.to_dict`, with the locations of its folders."""
    announcements: str = ""
    """The Kafka topic that has the announcements, as a URL; "" for files in the zone."""
    audit: Mapping[str, Any] | None = None
    """As `Audit.to_stored`; None where items are published as they are written."""
    catalog: Mapping[str, str] | None = None
    """Of a table in a catalog: the catalog's `name`, "" for one that was given by its properties, which are
    never stored; the table's `uuid` and its `location`, once it is there.
    """

    def to_json(self) -> bytes:
        stored = {"format": 1, **asdict(self)}
        if self.catalog is None:
            del stored["catalog"]
        return json.dumps(stored, indent=1, sort_keys=True).encode()

    @classmethod
    def from_json(cls, data: bytes, where: str) -> Definition:
        try:
            stored = json.loads(data)
            stored.setdefault("catalog", None)
            return cls(**{each.name: stored[each.name] for each in fields(cls)})
        except (ValueError, KeyError, TypeError, AttributeError) as failure:
            raise CorruptTableError(
                f"the buffer zone's definition cannot be read; nothing was changed. Restore it from a copy:"
                f" {where}: {failure}",
                location=where,
            ) from failure

    @property
    def rules_of(self) -> Rules:
        return Rules.from_dict(self.rules)

    @property
    def source_folders(self) -> SourceFolders:
        return SourceFolders.from_dict(self.sources)

    @property
    def own_folder(self) -> str:
        """Where the table's files are; "" while only its catalog knows."""
        return self.table if self.catalog is None else self.catalog.get("location", "")

    def sink_options(
        self, storage_options: StorageOptions | None, given: CatalogTable | None = None
    ) -> SinkOptions:
        """Return the options under which work items land; `given` is the table in a catalog, as this process
        was given it. ValueError where it was not, and the zone has no name of the catalog.
        """
        table = self._table(storage_options) if given is None else given
        return sink_options(table, {}, TableOptions.from_dict(self.options))

    def _table(self, storage_options: StorageOptions | None) -> PathTable | CatalogTable:
        if self.catalog is None:
            return PathTable(self.table, remote(self.table, storage_options))
        identifier, name = identifier_of(self.table), self.catalog["name"]
        assert identifier is not None
        if not name:
            raise ValueError(
                f"the zone's table {'.'.join(identifier)} is in a catalog that was given by its properties,"
                " which no zone stores: give it again, as BufferZone(zone, CatalogTable(...))"
            )
        return CatalogTable(identifier, name, storage_options=storage_options)


def check_is_elsewhere(zone: str, table: str) -> None:
    """Raise ValueError where the folders of a zone and its table are not apart."""
    if overlap(zone, table):
        raise ValueError(
            "a zone has a folder of its own, and neither its nor the table's is inside of the other, where"
            f" cleaners would look at its files: {zone} and {table}"
        )


def check_together(definition: Definition) -> None:
    """Raise ValueError for options that no zone has, and for an audit of items whose rows are changes by key,
    or are checked one by one.
    """
    options = TableOptions.from_dict(definition.options)
    by_row = [
        name for name, has in (("a key", options.keys), ("expectations", options.checks.expectations)) if has
    ]
    if options.write.operation == BulkInsert.operation:
        raise ValueError("a zone plans the sizes of the files that it writes: leave out BulkInsert()")
    if options.contract.decides_by_value:
        raise ValueError(
            "a zone decides about whole files: one that does not fit is rejected with its reason, and lands"
            ' once it is written anew. Leave mismatch= and "rescue" out of its contract, and quarantine rows'
            f" by checks=: {options.contract!r}"
        )
    if options.keys is not None and options.keys.changelog_table is not None:
        raise ValueError("a zone keeps no change log; leave out changelog_table")
    if definition.source_folders.by_reference and definition.catalog is not None:
        raise ValueError(
            "files by reference are not offered for a table in a catalog: another engine's expiry deletes"
            " what no snapshot reaches, the owner's file too. Leave by_reference out, or use a table at a"
            f" location: {definition.table}"
        )
    if definition.source_folders.by_reference and by_row:
        raise ValueError(
            f"a zone with {by_row[0]} looks at rows one by one and registers no file as it is: leave"
            " by_reference out"
        )
    if definition.audit is not None and options.allow_duplicates:
        raise ValueError("what is staged says nothing of keys: leave out audit=, or allow_duplicates")
    if definition.audit is not None and by_row:
        instead = ', or have it check the rows instead, by ingest.Audit(conditions=["price >= 0"])'
        raise ValueError(
            f"a zone with {by_row[0]} publishes items as they are written, since what is staged does not know"
            " the rows that others change until it is published: leave audit= out"
            f"{'' if by_row[0] == 'a key' else instead}"
        )


def default_sources(store: Store) -> tuple[str, ...]:
    """Return where files may lie, where nothing else is said: in any folder of the kind of the zone's."""
    scheme, separator, _ = store.location.partition("://")
    return (f"{scheme}://" if separator else "/",)


def open_log(
    definition: Definition, store: Store, kafka_options: Mapping[str, str] | None
) -> NumberedLog | KafkaLog:
    """Return the log of a zone's announcements: a topic, where it has one, or files of the zone."""
    if not definition.announcements:
        return NumberedLog(store, "log", "avro")
    check_kafka_client(definition.announcements)
    from streaming_sink.zones.kafka_log import KafkaLog

    return KafkaLog(definition.announcements, definition.id, kafka_options)
