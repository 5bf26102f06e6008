"""The buffer zone: files that producers announce wait here until a work item takes them into the table.

==========================  ============================================================================
path below the zone         what it is
==========================  ============================================================================
definition/<n>.json         which table the zone is for, and how its files land; the newest counts
watched/<digest>.json       a folder whose files planners announce
log/<n>.avro                announcements of source files
plans/<n>.avro              work items, planned from the announcements; the record of what lands together
plans/index/<n>-<n>.parquet which of these plans has which source file, derived from them
staged/<app>/<batch>/…      files that a stream has staged, until a while after they have landed
cleaned.json                up to which plan staged files were deleted
rejected/<item>-<id>.json   which files of an item cannot land, and why
_timeline/consolidation/…   claims of workers on work items, and how these ended
==========================  ============================================================================
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from planners.buffering import BufferedFile
from planners.buffering import Rules as PlannedRules
from planners.sizing import FileSizing
from streaming_sink.options.table_options import SinkOptions, TableOptions, unknown_option
from streaming_sink.table.contract import SchemaContract
from streaming_sink.table.path_table import AnyTable, as_table
from streaming_sink.table.quarantine_options import Checks
from streaming_sink.table.writes import Write
from streaming_sink.tasks.ingest.sources import Sources, overlap, spelled
from streaming_sink.zones.audit import DEFAULT_TIMEOUT_MS, Audit, Auditor, StagedItem
from streaming_sink.zones.definition import Definition, default_sources, open_log, settle_definition
from streaming_sink.zones.given import NOTHING_GIVEN, given_to_zone
from streaming_sink.zones.numbered import NumberedLog
from streaming_sink.zones.records import (
    ItemSummary,
    Plan,
    Pushed,
    decode_announcement,
    decode_plan,
    encode_announcement,
    summarize_plan,
)
from streaming_sink.zones.watched import read_watched, warn_if_empty, write_watched
from streaming_sink.zones.zone_options import KEPT, ZONE_OPTIONS, KafkaTopic, Rules, SourceFolders
from timeline.clock import SYSTEM
from timeline.errors import CorruptTableError
from timeline.names import ulid
from timeline.stores import StorageOptions, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streaming_sink.zones.kafka_log import KafkaLog

_LOG = logging.getLogger("streaming_sink")
_FILES_A_MESSAGE = 5_000


class BufferZone:
    """A buffer zone for one table.

    `location` is a folder of its own, beside the table and not in it. `table` is the table's location, or a
    `PathTable`; the first work item creates the table. `write`, `partition_by`, `sizing`, `contract`,
    `checks` and `table_properties` are those of `IcebergSink`, and so is `options`, which has all of these;
    with `Upsert` or `Delete` the rows of the files change those of their keys. `rules`: see `ingest.Rules`.
    `sources`: the folders that may have files, as a list or as `ingest.SourceFolders`.
    `announcements="kafka://host:9092/topic"`, or an `ingest.KafkaTopic`, keeps announcements in a topic.

    `audit=True` stages work items before they are published, and counts their rows; an `ingest.Audit` or a
    function checks more. False, the default of a new zone, publishes them as they are written.

    The zone stores all of this at its first use, but for `storage_options` and the settings of Kafka's
    client, which may hold secrets. What a later `BufferZone(location)` is given replaces what was stored: an
    argument that is left out keeps it, None or an empty value removes it. A zone stays with its table:
    another `table` is a ValueError.
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
            raise TypeError(unknown_option("BufferZone", next(iter(unknown)), ZONE_OPTIONS))
        place = None if table is None else as_table(table)
        if storage_options is None and place is not None:
            storage_options = place.storage_options
        self.store = open_store(as_table(location).location, storage_options)
        self.storage_options = storage_options
        said = {
            "write": write,
            "partition_by": partition_by,
            "sizing": sizing,
            "contract": contract,
            "checks": checks,
            "table_properties": table_properties,
        }
        own = {"rules": rules, "sources": sources, "audit": audit, "announcements": announcements}
        self._given = given_to_zone(place, said, options, storage_options, **own)
        self._audit, self._topic = self._given.audit, self._given.topic
        self._known: Definition | None = None
        self.environment = SYSTEM
        self._log: NumberedLog | KafkaLog | None = None
        self.plans = NumberedLog(self.store, "plans", "avro")

    def __repr__(self) -> str:
        return f"BufferZone({self.store.location!r})"

    def reopened(self) -> BufferZone:
        """Return the zone as it is stored, for use in another thread."""
        again = BufferZone(self.store.location, storage_options=self.storage_options)
        again._topic = self._topic
        return again

    @property
    def definition(self) -> Definition:
        """What the zone's own file says, which the first call writes or brings up to date.

        ValueError where there is no zone and no `table` was given, or where the zone is another table's.
        """
        if self._known is None:
            self._known = settle_definition(self.store, self.plans, self._given, self.new_id)
            self._given = NOTHING_GIVEN  # a later look changes nothing
        return self._known

    @property
    def log(self) -> NumberedLog | KafkaLog:
        """Where announcements are: files of the zone, or a topic."""
        if self._log is None:
            topic = None if self._topic is KEPT else self._topic
            self._log = open_log(self.definition, self.store, None if topic is None else topic.options)
        return self._log

    @property
    def app_id(self) -> str:
        """The application under which the table remembers the zone's work items."""
        return f"ingest-{self.definition.id}"

    def new_id(self) -> str:
        """Return a fresh ULID of this machine's clock."""
        return ulid(self.environment.now_ms(), self.environment.random.getrandbits(80))

    @property
    def rules(self) -> PlannedRules:
        """The rules by which planners plan items."""
        return self.definition.rules_of.planned()

    def refresh(self) -> None:
        """Look again at the zone's own file, which others may have changed: its rules are new then."""
        self.definition  # noqa: B018 - stores what was given
        self._known = settle_definition(self.store, self.plans, NOTHING_GIVEN, self.new_id)

    @property
    def sources(self) -> Sources:
        """Where source files may lie: the zone's own folder, and those that it was given."""
        folders = self.definition.source_folders.folders or default_sources(self.store)
        return Sources((*folders, self.store.location), self.storage_options)

    @property
    def sink_options(self) -> SinkOptions:
        """The options under which the zone's work items land."""
        return self.definition.sink_options(self.storage_options)

    def auditor(self) -> Auditor | None:
        """Return what audits items here; None for nothing. ValueError for a function that has no import."""
        stored = self.definition.audit
        return None if stored is None else Auditor.of(stored, None if self._audit is KEPT else self._audit)

    @property
    def staged_timeout_ms(self) -> int:
        """How long an item may be staged, by the table's own time, before it is unstaged."""
        stored = self.definition.audit
        return DEFAULT_TIMEOUT_MS if stored is None else int(stored["timeout_ms"])

    def push(self, *paths: str) -> Pushed:
        """Announce files that exist: each lands in the table once, when a rule is met. A name that ends in
        "/" is a folder, of which all files below are announced.

        Durable once this returns. Announcing a file again changes nothing; a file that was replaced since is
        another one. Files of which there is none, and folders of none, are named in the answer. ValueError
        for a file outside the sources, or whose name does not end in a format: then nothing is announced; nor
        by a BufferZoneFullError. StoreUnavailableError where the store does not answer: push again.
        """
        from streaming_sink.zones.backlog import Backlog

        Backlog(self).check()
        if not paths or not all(isinstance(path, str) for path in paths):
            raise TypeError(f"push needs the names of files, not {paths!r}")
        given = [self._elsewhere(path) for path in paths]
        files, missing = self.find([path for path in given if not path.endswith("/")])
        unknown: list[str] = []
        for folder in (path for path in given if path.endswith("/")):
            below = list(self.sources.below(folder, "*", self.environment.now_ms(), unknown))
            files += below
            missing += [] if below else [folder]
        return replace(self.announce(files, missing), left_out=tuple(unknown))

    def _elsewhere(self, path: str) -> str:
        """Return how a source is spelled. ValueError for files of the table or of the zone."""
        for own in (self.definition.table, self.store.location):
            if overlap(path, own):
                why = "source files lie outside of the table and the zone, whose rows would land again"
                raise ValueError(f"{why}; give them a folder of their own: {path} and {own}")
        return spelled(path)

    def watch(self, folder: str, pattern: str = "*") -> None:
        """From now on, announce the files below a folder that fills, whose names fit the pattern.

        Stored in the zone, for planners, which look again and again. On a disk a file is announced once it
        has not changed between two looks. The log names a folder that is empty yet. ValueError for one
        outside the zone's sources, or that a disk does not have.
        """
        entry = (self._elsewhere(folder).rstrip("/"), pattern)
        warn_if_empty(self.sources.store(entry[0]))
        write_watched(self.store, entry)

    def watched(self) -> list[tuple[str, str]]:
        """Return the folders that are watched now, each with the pattern of its files' names."""
        self.definition  # noqa: B018 - is refused where the zone is another table's
        return read_watched(self.store)

    def siphon(self, app_id: str | None = None) -> Callable[[DataFrame, int], None]:
        """Return a function for `foreachBatch` that stages the batches of a stream here, each once, as
        Parquet files which land in the table when a rule is met.

        `app_id` names the stream; by default the query's id. ValueError where no folder can have that name.
        """
        from streaming_sink.ingest.siphon import Siphon

        return Siphon(self, app_id)

    def find(self, paths: Iterable[str]) -> tuple[list[BufferedFile], list[str]]:
        """Return the files of these names as they are now, and the names of which there is none."""
        return self.sources.find(paths, self.environment.now_ms())

    def below(self, folder: str, pattern: str = "*") -> Iterator[BufferedFile]:
        """Yield the files below a folder whose names fit a pattern, as they are now."""
        return self.sources.below(folder, pattern, self.environment.now_ms())

    def announce(self, files: Iterable[BufferedFile], missing: Sequence[str] = ()) -> Pushed:
        """Append announcements of files to the zone's log, a message for every 5,000."""
        every = list(files)
        self.definition  # noqa: B018 - makes the zone where there is none
        for start in range(0, len(every), _FILES_A_MESSAGE):
            self.log.append(encode_announcement(self.new_id(), every[start : start + _FILES_A_MESSAGE]))
        return Pushed(len(every), sum(file.bytes for file in every), tuple(missing))

    def announced_after(self, number: int) -> Iterator[tuple[int, list[BufferedFile]]]:
        """Yield the announcements after a number of the log, with their numbers."""
        for found, data in self.log.read_after(number):
            try:
                yield found, decode_announcement(data, self.log.path(found))
            except CorruptTableError as damage:
                if not self.definition.announcements:
                    raise
                _LOG.error("a message is no announcement, and is passed over: %s", damage)

    def plan(self, number: int) -> Plan | None:
        """Return an entry of the plan log, None where there is none yet."""
        data = self.plans.read(number)
        return None if data is None else decode_plan(data, self._plan_uri(number))

    def existing_plan(self, number: int) -> Plan:
        """Return an entry of the plan log that is known to be there. CorruptTableError where it is not."""
        return decode_plan(self.plans.existing(number), self._plan_uri(number))

    def items_of_plan(self, number: int) -> list[ItemSummary]:
        """Return the work items of an entry that is known to be there. Raises as `existing_plan`."""
        return summarize_plan(self.plans.existing(number), self._plan_uri(number))

    def _plan_uri(self, number: int) -> str:
        return self.store.uri(self.plans.path(number))

    def plans_after(self, number: int) -> Iterator[tuple[int, Plan]]:
        while (plan := self.plan(number + 1)) is not None:
            number += 1
            yield number, plan
