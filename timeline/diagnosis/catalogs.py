"""Diagnose a table in a catalog, where there are no version files, and other engines write too."""

from __future__ import annotations

from collections.abc import Iterator

from timeline import properties
from timeline.catalogs.catalog_version import CatalogVersion
from timeline.catalogs.memory import Descent, check_memory, witness_of
from timeline.diagnosis.deletes import check_deletes
from timeline.diagnosis.facts import facts_of
from timeline.diagnosis.files import StoredFiles, WrongFiles, check_files, read_stored
from timeline.diagnosis.findings import Diagnosis, Finding, count, damage, note, some, warning
from timeline.diagnosis.missing import check_every_file_is_there
from timeline.diagnosis.outboxes import check_main_tables, check_outbox
from timeline.diagnosis.reachable import Reachable
from timeline.diagnosis.staged import check_staged
from timeline.diagnosis.state import check_work_items
from timeline.errors import CorruptTableError, TableReplacedError
from timeline.outbox import OpenTable
from timeline.retention.expired import pending_notes, read_expiry_notes
from timeline.retention.policy import find_memories, lineage
from timeline.stores.base import Store
from timeline.table import Table
from timeline.versions.head import Head

_OF_NO_MEANING = "versions, hint, guards, the store's probe: the catalog keeps the metadata"


def doctor_in_catalog(table: Table, name: str, open_other: OpenTable) -> Diagnosis:
    """Look at the newest head of a table in a catalog, which reports call `name`, and return what is wrong
    with it, the worst first. Changes nothing. Raises as `Table.refresh` does.
    """
    head, store = table.refresh(), table.store
    found = Reachable(store, head.version)
    stored = read_stored(store, found, head.version)
    facts = [
        *facts_of(head.version, found),
        ("location", store.location),
        ("not looked at", _OF_NO_MEANING),
    ]
    findings = _findings(head, store, found, stored, open_other)
    return Diagnosis(name, (), ()).extended(facts, findings)


def _findings(
    head: Head, store: Store, found: Reachable, stored: StoredFiles, open_other: OpenTable
) -> Iterator[Finding]:
    version, wrong = head.version, WrongFiles.of(found)
    yield from _check_memory(head)
    yield from check_work_items(version)
    yield from check_every_file_is_there(wrong)
    yield from check_files(found, wrong, stored, version)
    yield from check_staged(wrong, version)
    yield from check_deletes(found)
    yield from check_outbox(version, open_other)
    yield from check_main_tables(version, open_other)
    yield from _check_retention(head)
    yield from _check_nothing_was_taken_early(head, store, stored)


def _check_memory(head: Head) -> Iterator[Finding]:
    """Yield what has become of the rows that the table remembers (R30)."""
    try:
        descent = check_memory(head)
    except TableReplacedError as replaced:
        yield damage(
            kind="table-replaced",
            what=str(replaced),
            means="streams of this sink stop, and nothing of them is written: batches that are remembered may"
            " have lost their rows",
            repair="if the table is what it should be, `streaming-sink accept`: its streams go on after their"
            " last batches. Else use a fresh checkpoint and a new app_id",
        )
        return
    except CorruptTableError as unreadable:
        yield damage(
            kind="memory-damaged",
            what=str(unreadable),
            means="streams of this sink stop: whether their batches are in the table is not known",
            repair="find what edits properties that begin with streaming-sink., and restore them from an"
            " older metadata file",
        )
        return
    if descent is Descent.ROLLED_BACK:
        snapshots = head.metadata.snapshots
        main = {it.snapshot_id for it in lineage(head.metadata.current_snapshot_id, snapshots)}
        left = [it.snapshot_id for it in lineage(witness_of(head).snapshot_id, snapshots)]
        left = [each for each in left if each not in main]
        yield warning(
            kind="rolled-back",
            what=f"main was set back: {count(len(left), 'snapshot')} of it left since this sink last"
            f" committed: {some(left)}",
            means="their rows are not in the table, and streams go on without them: batches that were"
            " committed are not written again",
            repair="none needed where that was the purpose. Else set main to the newest of them again, before"
            " the next commit, by the engine that set it back",
        )


def _check_retention(head: Head) -> Iterator[Finding]:
    """Yield why snapshots stay that the table's policy lets go (R32)."""
    version, stated = head.version, head.properties
    assert isinstance(version, CatalogVersion)
    if not version.states_policy:
        return
    if why := version.keeps_files:
        yield _held(
            f"the table states a policy of this sink, and nothing of it expires: {why}",
            "let the catalog or its engines expire snapshots, or allow it there",
        )
    try:
        least = properties.number(stated, properties.MIN_SNAPSHOTS_TO_KEEP)
        most = properties.number(stated, properties.MAX_SNAPSHOTS)
        properties.number(stated, properties.MAX_SNAPSHOT_AGE_MS)
        properties.number(stated, properties.DELETION_GRACE_MS)
    except ValueError as unreadable:
        yield _held(f"the table's policy cannot be read: {unreadable}", "set the property to a number")
        return
    if least > most:
        yield _held(
            f"the table's {properties.MIN_SNAPSHOTS_TO_KEEP}={least} contradicts the {most:,} that this sink"
            " keeps at most",
            "set one of them, or give the sink a Retention",
        )
    snapshots = {it.snapshot_id: it for it in head.metadata.snapshots}
    main = lineage(head.metadata.current_snapshot_id, head.metadata.snapshots)
    age = properties.number(stated, properties.MAX_SNAPSHOT_AGE_MS)
    for held in find_memories(main):
        if head.metadata.last_updated_ms - snapshots[held].timestamp_ms > 2 * age:
            yield _held(
                f"snapshot {held} holds the memory of another engine, and is older than twice what the policy"
                " keeps",
                "if that engine has left for good, remove the snapshot by Spark's expire_snapshots",
            )


def _held(what: str, repair: str) -> Finding:
    return warning(
        kind="history-held",
        what=what,
        means="no row is at risk; the table's history, and the time of each commit, grow",
        repair=repair,
    )


def _check_nothing_was_taken_early(head: Head, store: Store, stored: StoredFiles) -> Iterator[Finding]:
    """Yield which files of expired snapshots were deleted within their grace period."""
    gone = []
    notes, _ = read_expiry_notes(store, pending_notes(store, head.version.owner))
    for expiry in notes.values():
        for record in expiry.gone:
            manifests = head.manifest_files.find_list(record.manifest_list)
            needed = [record.manifest_list, *(each.manifest_path for each in manifests or ())]
            gone += [each for each in needed if store.relative(each) not in stored.of_metadata]
    if gone := sorted(set(gone)):
        yield note(
            kind="taken-early",
            what=f"{count(len(gone), 'file')} of snapshots that have expired were deleted within their"
            f" grace period: {some(gone)}",
            means="another engine expires snapshots or removes orphans here, without a grace period: a reader"
            " of such a snapshot fails",
            repair="none needed; let that engine keep more, where readers are slow",
        )
