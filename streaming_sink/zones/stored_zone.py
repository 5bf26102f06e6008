"""A buffer zone as it is stored: its files wait until work items take them.

==========================  ============================================================================
path below the zone         what it is
==========================  ============================================================================
definition/<n>.json         which table the zone is for, and how its files land; the newest counts
watched/<digest>.json       a folder whose files planners announce
log/<n>.avro                announcements of source files
plans/<n>.avro              work items, planned from the announcements; the record of what lands together
plans/index/<n>-<n>.run     which of these plans has which source file, derived from them
staged/<app>/<batch>/…      files that a stream has staged, until a while after they have landed
cleaned.json                up to which plan staged files were deleted
rejected/<item>-<id>.json   which files of an item cannot land, and why
_timeline/consolidation/…   claims of workers on work items, and how these ended
==========================  ============================================================================
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from planners.ingestion.buffering import BufferedFile, PlanningRules
from streaming_sink.options.table_options import SinkOptions
from streaming_sink.tasks.ingest.sources import Sources
from streaming_sink.zones.audit import DEFAULT_TIMEOUT_MS, Audit
from streaming_sink.zones.definition import (
    Definition,
    default_sources,
    open_log,
)
from streaming_sink.zones.definition_log import check_given, name_table, settle_definition
from streaming_sink.zones.given import NOTHING_GIVEN, Given
from streaming_sink.zones.plan_marks import PlanMarks
from streaming_sink.zones.records import (
    ItemSummary,
    Plan,
    Pushed,
    decode_announcement,
    decode_plan,
    encode_announcement,
    summarize_plan,
)
from streaming_sink.zones.watched import read_watched
from streaming_sink.zones.zone_options import KEPT, KafkaTopic
from timeline.clock import SYSTEM
from timeline.errors import CorruptTableError, TableNotFoundError, TableRenamedError
from timeline.slots.numbered import NumberedLog
from timeline.stores import StorageOptions, open_store
from timeline.stores.base import Store
from timeline.table import Table
from timeline.versions.work_items import WorkItem, check_lineage

if TYPE_CHECKING:
    from streaming_sink.zones.kafka_log import KafkaLog

_LOG = logging.getLogger("streaming_sink")
_FILES_A_MESSAGE = 5_000


class StoredZone:
    """A zone that is read, planned and landed: all of a `BufferZone` but what brings files into it.

    `given` replaces what was stored once the definition is asked for.
    """

    def __init__(
        self,
        store: Store,
        storage_options: StorageOptions | None,
        given: Given = NOTHING_GIVEN,
        topic: KafkaTopic | None = KEPT,
    ) -> None:
        self.store, self.storage_options = store, storage_options
        self._given, self._topic = given, given.topic if topic is KEPT else topic
        self._in_catalog = given.in_catalog
        self.given_audit: Audit | None = given.audit
        """The audit that this process was given, whose function may be no module's; else what is stored."""
        self._known: Definition | None = None
        self.environment = SYSTEM
        self._log: NumberedLog | KafkaLog | None = None
        self.plans = NumberedLog(store, "plans", "avro")
        check_given(store, self.plans, given, self.new_id)

    def __repr__(self) -> str:
        return f"BufferZone({self.store.location!r})"

    def reopened(self) -> StoredZone:
        """Return the zone as it is stored, for use in another thread."""
        return StoredZone(
            open_store(self.store.location, self.storage_options),
            self.storage_options,
            replace(NOTHING_GIVEN, in_catalog=self._in_catalog),
            topic=self._topic,
        )

    @cached_property
    def marks(self) -> PlanMarks:
        """By which a table knows the zone's plans."""
        return PlanMarks(self.plans)

    @property
    def definition(self) -> Definition:
        """What the zone's own file says, which the first call writes or brings up to date.

        ValueError where there is no zone and no `table` was given, or where the zone is another table's.
        """
        if self._known is None:
            self._known = settle_definition(self.store, self.plans, self._given, self.new_id)
            self._given = replace(NOTHING_GIVEN, in_catalog=self._in_catalog)  # a later look changes nothing
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
        return self.environment.new_id(self.environment.now_ms())

    @property
    def rules(self) -> PlanningRules:
        """The rules by which planners plan items."""
        return self.definition.rules_of.planned()

    def refresh(self) -> None:
        """Look again at the zone's own file, which others may have changed: its rules are new then."""
        self.definition  # noqa: B018 - stores what was given
        self._known = settle_definition(self.store, self.plans, self._given, self.new_id)

    @property
    def sources(self) -> Sources:
        """Where source files may lie: the zone's own folder, and those that it was given."""
        folders = self.definition.source_folders.folders or default_sources(self.store)
        return Sources((*folders, self.store.location), self.storage_options)

    @property
    def sink_options(self) -> SinkOptions:
        """The options under which the zone's work items land."""
        return self.definition.sink_options(self.storage_options, self._in_catalog)

    @property
    def staged_timeout_ms(self) -> int:
        """How long an item may be staged, by the table's own time, before it is unstaged."""
        stored = self.definition.audit
        return DEFAULT_TIMEOUT_MS if stored is None else int(stored["timeout_ms"])

    def watched(self) -> list[tuple[str, str]]:
        """Return the folders that are watched now, each with the pattern of its files' names."""
        self.definition  # noqa: B018 - is refused where the zone is another table's
        return read_watched(self.store)

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
        return None if data is None else self._decoded(number, data)

    def existing_plan(self, number: int) -> Plan:
        """Return an entry of the plan log that is known to be there. CorruptTableError where it is not."""
        return self._decoded(number, self.plans.existing(number))

    def _decoded(self, number: int, data: bytes) -> Plan:
        plan = decode_plan(data, self._plan_uri(number))
        self.marks.know(number, plan)
        return plan

    def work_item(self, number: int) -> WorkItem:
        """Return a work item, of a plan that was read, as a transaction of the table."""
        return WorkItem(self.app_id, number, self.marks.plan_of(number))

    def check_table(self, table: Table | None) -> None:
        """Raise where an open table is not the zone's, by its uuid, or not there any more; where it is in a
        catalog, the first look stores it. None where there is none under its name.

        CorruptTableError where it has items of other plans than the zone's: the zone was restored from an
        older copy, or is a copy itself. TableRenamedError, TableNotFoundError: another table has its name.
        """
        if self.definition.catalog is not None:
            self._check_uuid(self.definition.catalog["uuid"], table)
        check_lineage({} if table is None else table.head.properties, self.app_id, self.marks.of)

    def _check_uuid(self, known: str, table: Table | None) -> None:
        found = "" if table is None else str(table.head.metadata.table_uuid)
        if table is not None and not known:
            self._known = name_table(self.store, found, table.store.location)
            assert self._known.catalog is not None
            known = self._known.catalog["uuid"]
        if found == known:
            return
        place = self.sink_options.table
        if renamed := place.find_renamed(known, recently=True):
            raise TableRenamedError(
                f"the zone's table was renamed: {place.location} is {renamed} by now, by its uuid {known}. A"
                f" zone stays with its table, so rename it back: {self.store.location}",
                location=place.location,
            )
        raise TableNotFoundError(
            f"the zone's table {place.location} was dropped: its uuid was {known}"
            f"{f', and another table has its name, {found}' if found else ''}. A zone stays with its table,"
            f" so make one at another location for a new table: {self.store.location}",
            location=place.location,
        )

    def items_of_plan(self, number: int) -> list[ItemSummary]:
        """Return the work items of an entry that is known to be there. Raises as `existing_plan`."""
        return summarize_plan(self.plans.existing(number), self._plan_uri(number))

    def _plan_uri(self, number: int) -> str:
        return self.store.uri(self.plans.path(number))

    def plans_after(self, number: int) -> Iterator[tuple[int, Plan]]:
        while (plan := self.plan(number + 1)) is not None:
            number += 1
            yield number, plan
