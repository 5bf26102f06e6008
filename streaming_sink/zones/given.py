"""What `BufferZone` is given, checked: it replaces what the zone has stored, once that is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from streaming_sink.extras import MissingExtraError
from streaming_sink.options.table_options import TableOptions, given_options
from streaming_sink.options.values.tables import AnyTable, CatalogTable, PathTable, as_table
from streaming_sink.zones.audit import Audit, audit_option
from streaming_sink.zones.zone_options import KEPT, KafkaTopic, Rules, SourceFolders
from timeline.stores import StorageOptions, open_store


@dataclass(frozen=True)
class Given:
    """What is given; what is KEPT stays as it is stored."""

    table: str | None
    """Its location, or its address in its catalog."""
    options: Mapping[str, Any]
    """The options of `TableOptions` that are given."""
    rules: Rules | None
    sources: SourceFolders | None
    audit: Audit | None
    topic: KafkaTopic | None
    in_catalog: CatalogTable | None = None
    """The table, where it is in a catalog."""


NOTHING_GIVEN = Given(None, {}, KEPT, KEPT, KEPT, KEPT)


def given_to_zone(
    table: AnyTable | None,
    said: Mapping[str, Any],
    options: TableOptions | None,
    storage_options: StorageOptions | None,
    *,
    rules: Any,
    sources: Any,
    audit: Any,
    announcements: Any,
) -> Given:
    """Return what a zone is given: `said` are its options of the table, one by one, `options` all of them.

    TypeError or ValueError for what contradicts itself; what contradicts the stored is found where that is
    read.
    """
    given = {name: value for name, value in said.items() if value is not KEPT}
    checked = given_options(given, options)
    names = given if options is None else [each.name for each in fields(TableOptions)]
    values = {name: getattr(checked, name) for name in names}
    if checked.clustering is not None and (apart := checked.clustering.apart):
        raise ValueError(
            f"a zone stores its options as plain values, and a Clustering's {apart[0]} is none: leave it out,"
            " and cluster the table by a sink with it"
        )
    if rules is not KEPT and not isinstance(rules, Rules | None):
        raise TypeError(f'rules must be ingest.Rules, such as Rules(max_age="5 minutes"), not {rules!r}')
    place = None if table is None else as_table(table)
    if isinstance(place, PathTable) and place.mirror is not None:
        raise ValueError(
            "a buffer zone keeps no mirror: leave it out, and run `streaming-sink mirror` at times"
        )
    if isinstance(place, CatalogTable):
        place.check()
        at: str | None = place.address
    else:
        at = None if place is None else _located(place.location, storage_options)
    return Given(
        at,
        values,
        rules,
        sources if sources is KEPT else _sources(sources, storage_options),
        audit if audit is KEPT else audit_option(audit),
        announcements if announcements is KEPT else _topic(announcements),
        place if isinstance(place, CatalogTable) else None,
    )


def _sources(given: Any, storage_options: StorageOptions | None) -> SourceFolders:
    found = given if isinstance(given, SourceFolders) else SourceFolders(given or ())
    return replace(found, folders=tuple(_located(each, storage_options) for each in found.folders))


def _located(location: str, storage_options: StorageOptions | None) -> str:
    return open_store(location, remote(location, storage_options)).location


def _topic(given: Any) -> KafkaTopic | None:
    if given is None:
        return None
    topic = given if isinstance(given, KafkaTopic) else KafkaTopic(given)
    check_kafka_client(topic.url)
    return topic


def check_kafka_client(url: str) -> None:
    """Raise MissingExtraError without Kafka's client."""
    try:
        import streaming_sink.zones.kafka_log  # noqa: F401
    except ImportError as missing:
        raise MissingExtraError(
            f"pip install 'streaming-sink[kafka]' for announcements in {url}"
        ) from missing


def remote(location: str, storage_options: StorageOptions | None) -> StorageOptions | None:
    """Return the options for a location: None for a folder of this machine, which has none."""
    local = "://" not in location or location.startswith("file://")
    return None if local else storage_options
