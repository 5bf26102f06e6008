"""Diagnose a table: what is wrong, what it means, and how to repair it. Reads, and never changes anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from timeline.clock import SYSTEM, Environment
from timeline.diagnosis.catalogs import doctor_in_catalog
from timeline.diagnosis.deletes import check_deletes
from timeline.diagnosis.facts import facts_of
from timeline.diagnosis.files import StoredFiles, WrongFiles, check_files, read_stored
from timeline.diagnosis.findings import Diagnosis, Finding, Severity, count, damage, note
from timeline.diagnosis.lineage import Lineage, read_lineage
from timeline.diagnosis.mirrors import check_mirrors, mirror_facts
from timeline.diagnosis.missing import check_every_file_is_there
from timeline.diagnosis.neighbours import (
    check_each_version_has_one_spelling,
    check_the_hint_names_the_highest_version,
)
from timeline.diagnosis.outboxes import check_main_tables, check_outbox
from timeline.diagnosis.reachable import Reachable
from timeline.diagnosis.staged import check_staged
from timeline.diagnosis.state import check_state, check_the_store_is_safe
from timeline.diagnosis.versions import check_versions
from timeline.errors import TableNotFoundError
from timeline.outbox import OpenTable
from timeline.stores import open_store
from timeline.stores.base import Store
from timeline.table import Table

if TYPE_CHECKING:
    from timeline.stores import StorageOptions

__all__ = ["Diagnosis", "Finding", "Severity", "doctor", "doctor_in_catalog"]


def doctor(
    location: str | Store,
    storage_options: StorageOptions | None = None,
    *,
    probe: bool = True,
    environment: Environment = SYSTEM,
) -> Diagnosis:
    """Look at the table at a location and return what is wrong with it, the worst first.

    Never changes the table: it reads and lists, and the probe of the store writes and removes keys of its own
    under `_timeline/probe/`, which are no files of the table; `probe=False` leaves it out. Without the right
    to write, the probe's failure is a note. The tables that this one delivers into, or gets files from, are
    looked at too, with the same `storage_options`. Writers may go on: the diagnosis is of the newest version
    when it began. It takes 10 µs of processor time and 40 bytes of memory a file, more where some are wrong.

    Raises TableNotFoundError where the location is empty, and StoreUnavailableError where the store
    cannot be read.
    """
    store = open_store(location, storage_options) if isinstance(location, str) else location
    lineage = read_lineage(store)
    found = None if lineage.head is None else Reachable(store, lineage.head)
    stored = read_stored(store, found, lineage.head)
    if not stored.every.count:
        raise TableNotFoundError(
            f"there is nothing here; is the location spelled as the stream's? {store.location}"
        )

    def open_other(location: str) -> Table:
        return Table.open(open_store(location, storage_options), environment)

    findings = _findings(store, lineage, found, stored, probe, environment, open_other)
    facts: Iterable[tuple[str, str]] = ()
    if lineage.head is not None and found is not None:
        facts = facts_of(lineage.head, found, len(lineage.versions))
        facts = (*facts, *mirror_facts(store, lineage.head))
    return Diagnosis(store.location, (), ()).extended(facts, findings)


def _findings(
    store: Store,
    lineage: Lineage,
    found: Reachable | None,
    stored: StoredFiles,
    probe: bool,
    environment: Environment,
    open_other: OpenTable,
) -> Iterator[Finding]:
    yield from check_versions(lineage)
    yield from check_each_version_has_one_spelling(lineage)
    yield from check_the_hint_names_the_highest_version(lineage, store.location)
    if not lineage.versions:
        yield from _check_there_is_a_table(lineage, stored)
    yield from _check_creates_are_finished(stored)
    # Without a head reachability cannot be determined: every file would look like an orphan.
    if lineage.head is not None and found is not None:
        yield from check_state(lineage, lineage.head, store.location)
        wrong = WrongFiles.of(found)
        yield from check_every_file_is_there(wrong)
        yield from check_files(found, wrong, stored, lineage.head)
        yield from check_staged(wrong, lineage.head)
        yield from check_deletes(found)
        yield from check_mirrors(store, lineage, lineage.head)
        yield from check_outbox(lineage.head, open_other)
        yield from check_main_tables(lineage.head, open_other)
        yield from check_the_store_is_safe(store, lineage.head, probe, environment)


def _check_there_is_a_table(lineage: Lineage, stored: StoredFiles) -> Iterator[Finding]:
    if any(path.endswith(".metadata.json") for path in lineage.strangers):
        return  # reported as a table of another writer
    yield damage(
        kind="table-missing",
        what=f"there is no version of a table, but {count(stored.every.count, 'file')}: {stored.every}",
        means="a stream that starts here is refused, or makes a new table beside these files, where their"
        " names are this sink's. If there was a table, its versions were deleted: its rows are out of sight,"
        " and their files may still be there",
        repair="stop all writers. Restore metadata/ from a backup or from the bucket's earlier object"
        " versions; else give the stream another location",
    )


def _check_creates_are_finished(stored: StoredFiles) -> Iterator[Finding]:
    if (unfinished := stored.unfinished).count:
        yield note(
            kind="unfinished-create",
            what=f"{count(unfinished.count, 'file')} of {unfinished.bytes:,} bytes that a create left"
            f" unfinished: {unfinished}",
            means="a process died in the middle of a create, or is in it now; the number after .tmp- is its"
            " process id. No reader takes such a file for anything",
            repair="none needed; delete those whose process no longer runs",
        )
