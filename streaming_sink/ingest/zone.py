"""`BufferZone`: a buffer zone as its producers and owners use it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from planners.sizing import FileSizing
from streaming_sink.options.table_options import TableOptions, unknown_option
from streaming_sink.options.values.checks import Checks
from streaming_sink.options.values.contract import SchemaContract
from streaming_sink.options.values.tables import AnyTable, as_path_table, as_table
from streaming_sink.options.values.writes import Write
from streaming_sink.tasks.ingest.sources import is_local, overlap, spell_path
from streaming_sink.zones.audit import Audit, StagedItem
from streaming_sink.zones.backlog import Backlog
from streaming_sink.zones.given import given_to_zone
from streaming_sink.zones.records import (
    Pushed,
)
from streaming_sink.zones.stored_zone import StoredZone
from streaming_sink.zones.watched import warn_if_empty, write_watched
from streaming_sink.zones.zone_options import KEPT, ZONE_OPTIONS, KafkaTopic, Rules, SourceFolders
from timeline.stores import StorageOptions, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class BufferZone(StoredZone):
    """A buffer zone for one table.

    `location` is a folder of its own, beside the table and not in it. `table` is the table's location, a
    `PathTable`, or a `CatalogTable`; the first work item creates the table. `write`, `partition_by`,
    `sizing`, `contract`, `checks` and `table_properties` are those of `IcebergSink`, and so is `options`,
    which has all of these; with `Upsert` or `Delete` the rows of the files change those of their keys.
    `rules`: see `ingest.Rules`.
    `sources`: the folders that may have files, as a list or as `ingest.SourceFolders`.
    `announcements="kafka://host:9092/topic"`, or an `ingest.KafkaTopic`, keeps announcements in a topic.

    `audit=True` stages work items before they are published, and counts their rows; an `ingest.Audit` or a
    function checks more. False, the default of a new zone, publishes them as they are written.

    What is given is held against what the zone has stored when it is made, and stored at its first use, but
    for `storage_options`, the properties of a catalog and the settings of Kafka's client, which may hold
    secrets; of a catalog it stores the name. What a later `BufferZone(location)` is given replaces what was
    stored: an argument that is left out keeps it, None or an empty value removes it. A zone stays with its
    table: another `table` is a ValueError, as are options that no zone has. `BufferZone(location)` alone
    makes no request.
    """

    def __init__(
        self,
        location: str | os.PathLike[str],
        table: AnyTable | None = None,
        write: Write | None = KEPT,
        *,
        partition_by: Sequence[str] | None = KEPT,
        sizing: FileSizing | None = KEPT,
        contract: SchemaContract | None = KEPT,
        checks: Checks | None = KEPT,
        table_properties: Mapping[str, str] | None = KEPT,
        options: TableOptions | None = None,
        rules: Rules | None = KEPT,
        sources: Sequence[str] | SourceFolders | None = KEPT,
        audit: bool | Audit | Callable[[StagedItem], object] | None = KEPT,
        announcements: str | KafkaTopic | None = KEPT,
        storage_options: StorageOptions | None = None,
        **unknown: Any,
    ) -> None:
        if unknown:
            values = (Audit, SourceFolders, Rules)
            raise TypeError(unknown_option("BufferZone", next(iter(unknown)), ZONE_OPTIONS, values))
        place = None if table is None else as_table(table)
        if storage_options is None and place is not None:
            storage_options = place.storage_options
        said = {
            "write": write,
            "partition_by": partition_by,
            "sizing": sizing,
            "contract": contract,
            "checks": checks,
            "table_properties": table_properties,
        }
        own = {"rules": rules, "sources": sources, "audit": audit, "announcements": announcements}
        given = given_to_zone(place, said, options, storage_options, **own)
        super().__init__(
            open_store(as_path_table(location).location, storage_options), storage_options, given
        )

    def push(self, *paths: str | os.PathLike[str]) -> Pushed:
        """Announce files that exist: each lands in the table once, when a rule is met. Of a folder all files
        below are announced; a name that ends in "/" is a folder, and so is one of which there is no file.

        Durable once this returns. Announcing a file again changes nothing; a file that was replaced since is
        another one. Files of which there is none, and folders of none, are named in the answer. ValueError
        for a file outside the sources, or whose name does not end in a format: then nothing is announced; nor
        by a BufferZoneFullError. StoreUnavailableError where the store does not answer: push again.
        """
        Backlog(self).check()
        if not paths or not all(isinstance(path, str | os.PathLike) for path in paths):
            raise TypeError(f"push needs the names of files, not {paths!r}")
        sources, folders, names = self.sources, list[str](), list[str]()
        for path in (self._elsewhere(os.fspath(each)) for each in paths):
            (folders if sources.is_folder(path) else names).append(path)
        files, others = self.find(names)
        missing: list[str] = []
        for path in others:
            there = not is_local(path) or os.path.isdir(path)
            (folders if there else missing).append(path)
        unknown: list[str] = []
        for folder in folders:
            below = list(sources.below(folder, "*", self.environment.now_ms(), unknown))
            files += below
            missing += [] if below else [folder]
        return replace(self.announce(files, missing), left_out=tuple(unknown))

    def watch(self, folder: str | os.PathLike[str], pattern: str = "*") -> None:
        """From now on, announce the files below a folder that fills, whose names fit the pattern.

        Stored in the zone, for planners, which look again and again. On a disk a file is announced once it
        has not changed between two looks. The log names a folder that is empty yet. ValueError for one
        outside the zone's sources, or that a disk does not have; TypeError for a pattern that is no text.
        """
        given: Any = pattern
        if not isinstance(given, str) or not given:
            raise TypeError(f'pattern must be a pattern of file names, such as "*.parquet", not {given!r}')
        entry = (self._elsewhere(os.fspath(folder)).rstrip("/"), pattern)
        warn_if_empty(self.sources.store(entry[0]))
        write_watched(self.store, entry, self.environment)

    def _elsewhere(self, path: str) -> str:
        """Return how a source is spelled. ValueError for an empty name, and for files of the table or of the
        zone.
        """
        if not path:  # which would be the folder that the process works in, with all below it
            raise ValueError(f"a file or a folder has a name; '.' is the folder here, not {path!r}")
        for own in (self.definition.own_folder, self.store.location):
            if own and overlap(path, own):
                why = "source files lie outside of the table and the zone, whose rows would land again"
                raise ValueError(f"{why}; give them a folder of their own: {path} and {own}")
        return spell_path(path)

    def siphon(self, app_id: str | None = None) -> Callable[[DataFrame, int], None]:
        """Return a function for `foreachBatch` that stages the batches of a stream here, each once, as
        Parquet files which land in the table when a rule is met.

        `app_id` names the stream; by default the query's id. ValueError where no folder can have that name.
        """
        from streaming_sink.ingest.siphon import Siphon  # loads Spark

        return Siphon(self, app_id)
