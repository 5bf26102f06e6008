"""Which files of a work item are registered as they are: copied, or by reference where they lie (R28)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from planners.ingestion.buffering import PlannedItem
from streaming_sink.tasks.ingest.profile_task import SourceProfile, SourceRejected
from streaming_sink.tasks.ingest.register_task import RegisterTask, SourceToRegister
from streaming_sink.tasks.ingest.sources import Sources, overlap
from streaming_sink.tasks.job import WorkerJob
from timeline.changes.references import AllowReferences, allows_references, is_reference
from timeline.table import Table
from timeline.versions.head import Head

_TOGETHER = 64
"""Files that one task registers at most: a task that fails is run again for no more."""
_PLAIN = re.compile(r"[A-Za-z0-9/:._=@+,-]+")
"""Readers take the name of a file in other characters for an escaped one, each in its own way."""


@dataclass(frozen=True)
class Registering:
    """Says of the files of a zone which are registered, and which of these stay where they are."""

    table: str
    zone: str
    by_reference: bool

    def files(self, item: PlannedItem, profiles: Iterable[SourceProfile]) -> list[SourceToRegister]:
        """Return the files that are registered."""
        found = [(it, item.files[it.number]) for it in profiles if it.rewritten is None]
        return [
            SourceToRegister(it.number, file, it.parts[0][0], it.rows, self._stays(file.path))
            for it, file in found
        ]

    def _stays(self, path: str) -> bool:
        """Return whether a file is registered where it is. What streams have staged in the zone is deleted
        some time after it has landed; and readers of the table reach no other store than the table's.
        """
        if not self.by_reference or overlap(self.zone, path):
            return False
        return _scheme(path) == _scheme(self.table) and _PLAIN.fullmatch(path) is not None

    def registered_before(
        self, head: Head, item: PlannedItem, profiles: Iterable[SourceProfile]
    ) -> list[SourceRejected]:
        """Return the files whose names the table has by reference already, with why they do not land."""
        why = "the table has this file by reference already; write new rows to a file of another name"
        staying = [it for it in self.files(item, profiles) if it.stays]
        live = head.find_all_live(it.file.path for it in staying)
        return [SourceRejected(it.number, why) for it in staying if it.file.path in live]


def _scheme(location: str) -> str:
    scheme, separator, _ = location.partition("://")
    return scheme if separator else ""


def register_tasks(
    job: WorkerJob, sources: Sources, files: Sequence[SourceToRegister], most: int
) -> list[RegisterTask]:
    """Return the tasks that register the files: `most` of them, or more where these are many."""
    tasks = max(min(most, len(files)), -(-len(files) // _TOGETHER))
    return [RegisterTask(job, sources, files[at::tasks]) for at in range(tasks)]


def allow_references(table: Table, locations: Iterable[str]) -> None:
    """Have the table allow files by reference, where some of the files are and it does not yet."""
    own = table.store.location
    if any(is_reference(own, each) for each in locations) and not allows_references(table.head):
        table.commit([AllowReferences()])
