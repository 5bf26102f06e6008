"""What a buffer zone's own file says: its table, its rules, where its files lie, and how they land."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from planners.buffering import Rules
from planners.sizing import FileSizing
from streaming_sink.durations import Duration, duration
from streaming_sink.extras import MissingExtraError
from streaming_sink.options import SinkOptions, sink_options
from streaming_sink.table.contract import SchemaContract
from streaming_sink.zones.numbered import NumberedLog
from timeline.errors import CorruptTableError
from timeline.stores import StorageOptions
from timeline.stores.base import Created, Store

if TYPE_CHECKING:
    from streaming_sink.zones.kafka_log import KafkaLog

_LOG = logging.getLogger("streaming_sink")
_PATH = "zone.json"
DEFAULT_RULES = {"max_bytes": 1 << 30, "max_files": 10_000, "max_age_ms": 300_000, "per_partition": False}


def ingest_rules(
    *,
    max_bytes: int | str = "1GiB",
    max_files: int = 10_000,
    max_age: Duration = "5 minutes",
    per_partition: bool = False,
) -> Rules:
    """Return the rules of a buffer zone: files that wait land once together they have `max_bytes`, or are
    `max_files`, or the oldest of them has waited for `max_age`. `per_partition` counts and waits for each
    partition apart, by the Hive-style folders of the files' paths.

    TypeError or ValueError for an amount or a time that is not above 0.
    """
    age = duration("max_age", max_age)
    if not age:
        raise ValueError(f"max_age must be above 0, such as 5 minutes, not {max_age!r}")
    return Rules(
        max_bytes=max_bytes,
        max_files=max_files,
        max_age_ms=max(1, round(age.total_seconds() * 1000)),
        per_partition=per_partition,
    )


@dataclass(frozen=True)
class Definition:
    """What the zone's own file says."""

    id: str
    table: str
    sources: tuple[str, ...]
    rules: Mapping[str, Any]
    table_options: Mapping[str, Any]
    announcements: str = ""
    """The Kafka topic that has the announcements, as a URL; "" for files in the zone."""
    max_waiting: int | None = None
    """Bytes that may be announced and not in the table before producers wait; None for any number."""
    audit: Mapping[str, Any] | None = None
    """As `Audit.to_stored`; None where items are published as they are written."""
    by_reference: bool = False
    """Whether files that are registered stay where they are."""

    def to_json(self) -> bytes:
        return json.dumps({"format": 1, **asdict(self)}, indent=1, sort_keys=True).encode()

    @classmethod
    def from_json(cls, data: bytes, where: str) -> Definition:
        try:
            stored = json.loads(data)
            return cls(
                stored["id"],
                stored["table"],
                tuple(stored["sources"]),
                stored["rules"],
                stored["table_options"],
                stored.get("announcements", ""),
                stored.get("max_waiting"),
                stored.get("audit"),
                bool(stored.get("by_reference", False)),
            )
        except (ValueError, KeyError, TypeError) as failure:
            raise CorruptTableError(
                f"the buffer zone's definition cannot be read; nothing was changed. Restore it from a copy:"
                f" {where}: {failure}",
                location=where,
            ) from failure

    def sink_options(self, storage_options: StorageOptions | None) -> SinkOptions:
        """Return the options under which work items land."""
        stored = dict(self.table_options)
        if "sizing" in stored:
            stored["sizing"] = FileSizing(**stored["sizing"])
        if "schema" in stored:
            stored["schema"] = _contract(stored["schema"])
        return sink_options(self.table, {**stored, "storage_options": remote(self.table, storage_options)})


def changed_rules(store: Store, said: Mapping[str, Any]) -> Rules:
    """Return the rules of the zone in a store, or the usual ones, with those that are said in their place;
    None says nothing. TypeError or ValueError as `ingest_rules`.
    """
    stored = _read(store)
    rules = dict(DEFAULT_RULES if stored is None else stored.rules)
    rules["max_age"] = timedelta(milliseconds=rules.pop("max_age_ms"))
    return ingest_rules(**{**rules, **{name: value for name, value in said.items() if value is not None}})


def settle_definition(
    store: Store,
    plans: NumberedLog,
    given: Mapping[str, Any],
    table_options: Mapping[str, Any],
    new_id: Callable[[], str],
) -> Definition:
    """Return what a zone's own file says, made or brought up to date with what was given.

    ValueError where there is no zone and no table was given, where the zone is another table's or has its
    announcements elsewhere, and for options that a sink would refuse: none is stored. CorruptTableError where
    the file of a zone that has plans is missing.
    """
    where = store.uri(_PATH)
    stored = _read(store)
    if stored is None and plans.last():
        stored = _read(store)  # another process may have made it just now
        if stored is None:
            raise CorruptTableError(
                "the zone has plans, and its definition is missing; a new one would land all of their files"
                f" again. Restore it from a copy, or make a zone at another location: {where}",
                location=where,
            )
    if stored is None:
        if "table" not in given:
            raise ValueError(
                "there is no buffer zone here; `streaming-sink ingest create ZONE --table LOCATION` makes"
                f" one, as does BufferZone(zone, table=location): {where}"
            )
        made = Definition(new_id(), given["table"], _default_sources(store), DEFAULT_RULES, table_options)
        made = replace(made, **given)
        check_together(made)
        made.sink_options(None)
        if isinstance(store.create(_PATH, made.to_json()), Created):
            return made
        stored = _read(store)
        if stored is None:
            raise CorruptTableError(f"no buffer zone could be made; try again: {where}", location=where)
    if given.get("table", stored.table) != stored.table:
        raise ValueError(
            f"the buffer zone is for the table {stored.table}, and this is {given['table']}; a zone"
            f" stays with its table, so give this one another location: {where}"
        )
    if given.get("announcements", stored.announcements) != stored.announcements:
        raise ValueError(
            "a zone's announcements stay where they are, so give this one another location:"
            f" {where}: {stored.announcements or 'files of the zone'}"
        )
    wanted = replace(stored, **given, table_options={**stored.table_options, **table_options})
    check_together(wanted)
    if wanted != stored:
        wanted.sink_options(None)
        _LOG.info("the buffer zone has new options: %s", where)
        store.overwrite(_PATH, wanted.to_json())
    return wanted


def check_together(definition: Definition) -> None:
    """Raise ValueError for an audit of items whose rows are changes by key, or are checked one by one."""
    by_row = [name for name in ("key", "expectations") if definition.table_options.get(name)]
    if definition.by_reference and by_row:
        raise ValueError(
            f"a zone with {by_row[0]} looks at rows one by one and registers no file as it is: leave"
            " by_reference out"
        )
    if definition.audit is not None and by_row:
        instead = ', or have it check the rows instead, by ingest.Audit(expectations=["price >= 0"])'
        raise ValueError(
            f"a zone with {by_row[0]} publishes items as they are written, since what is staged does not know"
            " the rows that others change until it is published: leave audit= out"
            f"{'' if by_row[0] == 'key' else instead}"
        )


def _read(store: Store) -> Definition | None:
    try:
        data = store.read(_PATH).data
    except FileNotFoundError:
        return None
    return Definition.from_json(data, store.uri(_PATH))


def _default_sources(store: Store) -> tuple[str, ...]:
    scheme, separator, _ = store.location.partition("://")
    return (f"{scheme}://" if separator else "/",)


def checked_topic(url: str) -> str:
    """Return the URL of a topic. ValueError for another text; MissingExtraError without Kafka's client."""
    try:
        from streaming_sink.zones.kafka_log import parse_kafka
    except ImportError as missing:
        raise MissingExtraError(
            f"pip install 'streaming-sink[kafka]' for announcements in {url}"
        ) from missing
    parse_kafka(url)
    return url


def open_log(
    definition: Definition, store: Store, kafka_options: Mapping[str, str] | None
) -> NumberedLog | KafkaLog:
    """Return the log of a zone's announcements: a topic, where it has one, or files of the zone."""
    if not definition.announcements:
        return NumberedLog(store, "log", "avro")
    from streaming_sink.zones.kafka_log import KafkaLog

    return KafkaLog(checked_topic(definition.announcements), definition.id, kafka_options)


def remote(location: str, storage_options: StorageOptions | None) -> StorageOptions | None:
    """Return the options for a location: None for a folder of this machine, which has none."""
    local = "://" not in location or location.startswith("file://")
    return None if local else storage_options


def _contract(stored: Mapping[str, Any]) -> SchemaContract:
    columns = {name: SchemaContract(**each) for name, each in stored.get("columns", {}).items()}
    return SchemaContract(**{**stored, "columns": columns})
