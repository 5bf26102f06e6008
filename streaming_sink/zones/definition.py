"""What a buffer zone's own file says: its table, its rules, where its files lie, and how they land."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from streaming_sink.options.table_options import SinkOptions, TableOptions, sink_options
from streaming_sink.options.values.tables import CatalogTable, PathTable
from streaming_sink.options.values.writes import BulkInsert
from streaming_sink.tasks.ingest.sources import overlap
from streaming_sink.zones.given import Given, checked_topic, remote
from streaming_sink.zones.zone_options import KEPT, Rules, SourceFolders
from timeline.errors import CorruptTableError, StoreUnavailableError
from timeline.slots.numbered import NumberedLog
from timeline.stores import StorageOptions
from timeline.stores.base import Store
from timeline.versions.outbox import identifier_of

if TYPE_CHECKING:
    from streaming_sink.zones.kafka_log import KafkaLog

_LOG = logging.getLogger("streaming_sink")
_FOLDER = "definition"
_TRIES = 8
_Wanted = Callable[["Definition | None", NumberedLog], "Definition | None"]


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


def settle_definition(
    store: Store, plans: NumberedLog, given: Given, new_id: Callable[[], str]
) -> Definition:
    """Return what a zone says of itself, made or brought up to date with what was given. Each change is an
    entry of a log, so that of two processes that change options at once the later one sees the earlier's.

    ValueError where there is no zone and no table was given, where the zone is another table's or has its
    announcements elsewhere, and for options that a sink would refuse: none is stored. CorruptTableError where
    the log of a zone that has plans is missing.
    """

    def wanted(stored: Definition | None, log: NumberedLog) -> Definition | None:
        made = _made(store, plans, given, new_id, log) if stored is None else _changed(stored, given, store)
        if made not in (None, stored):
            check_together(made)
            made.sink_options(None, given.in_catalog)
        return made

    return _settled(store, wanted)


def _settled(store: Store, wanted: _Wanted) -> Definition:
    """Return what is `wanted` of what is stored, once it is stored. None: another process has changed it."""
    log = NumberedLog(store, _FOLDER, "json")
    for _ in range(_TRIES):
        number = log.last()
        stored = _stored(store, log, number)
        found = wanted(stored, log)
        if found is None:
            continue
        if found == stored:
            return found
        if log.create(number + 1, found.to_json()):
            _LOG.info("the buffer zone has new options: %s", store.location)
            return found
    raise StoreUnavailableError(
        f"other processes keep changing the zone's options; try again: {store.location}",
        location=store.location,
    )


def _with(stored: Definition, given: Given) -> Definition:
    """Return a definition with what is given in the place of what it has."""
    options = replace(TableOptions.from_dict(stored.options), **given.options)
    wanted = replace(stored, options=options.to_dict())
    if given.in_catalog is not None and isinstance(name := given.in_catalog.catalog, str):
        wanted = replace(wanted, catalog={**(stored.catalog or {}), "name": name})
    if given.rules is not KEPT:
        wanted = replace(wanted, rules=(given.rules or Rules()).to_dict())
    if given.sources is not KEPT:
        wanted = replace(wanted, sources=(given.sources or SourceFolders()).to_dict())
    if given.audit is not KEPT:
        wanted = replace(wanted, audit=None if given.audit is None else given.audit.to_stored())
    return wanted


def read_definition(store: Store) -> Definition | None:
    """Return what a zone says of itself; None where there is none."""
    log = NumberedLog(store, _FOLDER, "json")
    return _stored(store, log, log.last())


def _stored(store: Store, log: NumberedLog, number: int) -> Definition | None:
    if not number:
        return None
    return Definition.from_json(log.existing(number), store.uri(log.path(number)))


def _made(
    store: Store, plans: NumberedLog, given: Given, new_id: Callable[[], str], log: NumberedLog
) -> Definition | None:
    where = store.location
    if plans.last():
        if log.last():
            return None
        raise CorruptTableError(
            "the zone has plans, and its definition is missing; a new one would land all of their files"
            f" again. Restore it from a copy, or make a zone at another location: {where}",
            location=where,
        )
    if given.table is None:
        raise ValueError(
            "there is no buffer zone here; `streaming-sink ingest create ZONE --table LOCATION` makes"
            f" one, as does BufferZone(zone, table): {where}"
        )
    if given.in_catalog is None:
        check_is_elsewhere(where, given.table)
    usual = Definition(
        new_id(),
        given.table,
        TableOptions().to_dict(),
        Rules().to_dict(),
        SourceFolders().to_dict(),
        "" if given.topic in (KEPT, None) else given.topic.url,
        catalog=None if given.in_catalog is None else {"name": "", "uuid": "", "location": ""},
    )
    return _with(usual, given)


def _changed(stored: Definition, given: Given, store: Store) -> Definition:
    if given.table not in (None, stored.table):
        raise ValueError(
            f"the buffer zone is for the table {stored.table}, and this is {given.table}; a zone"
            f" stays with its table, so give this one another location: {store.location}"
        )
    topic = stored.announcements if given.topic is KEPT else given.topic.url if given.topic else ""
    if topic != stored.announcements:
        raise ValueError(
            "a zone's announcements stay where they are, so give this one another location:"
            f" {store.location}: {stored.announcements or 'files of the zone'}"
        )
    return _with(stored, given)


def check_is_elsewhere(zone: str, table: str) -> None:
    """Raise ValueError where the folders of a zone and its table are not apart."""
    if overlap(zone, table):
        raise ValueError(
            "a zone has a folder of its own, and neither its nor the table's is inside of the other, where"
            f" cleaners would look at its files: {zone} and {table}"
        )


def name_table(store: Store, table_uuid: str, location: str) -> Definition:
    """Store the uuid and the location of a zone's table, which is in a catalog and was not there before, and
    return what the zone says of itself then: another process may have been first.
    """

    def named(stored: Definition | None, _: NumberedLog) -> Definition:
        assert stored is not None
        if stored.catalog is None or stored.catalog["uuid"]:
            return stored
        check_is_elsewhere(store.location, location)
        return replace(stored, catalog={**stored.catalog, "uuid": table_uuid, "location": location})

    return _settled(store, named)


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
    from streaming_sink.zones.kafka_log import KafkaLog

    return KafkaLog(checked_topic(definition.announcements), definition.id, kafka_options)
