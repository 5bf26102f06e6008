"""What an operator decides: of a work item that is held, to publish it as it is staged, or to discard it; of
files that were rejected, to replay them once what refused them has changed: the schema contract, or a right.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from planners.ingestion.buffering import BufferedFile, PlannedItem
from streaming_sink.tasks.ingest.sources import folder_partition, format_of, replayed_identity, spell_path
from streaming_sink.zones.landed import Landed, landed_in, with_rejections, write_landed
from streaming_sink.zones.ledger import Ledger, LedgerEntry, delete_claims, open_of
from streaming_sink.zones.records import Plan
from streaming_sink.zones.stored_zone import StoredZone
from timeline import names, staging
from timeline.plans.claims import instants_of
from timeline.table import AlreadyCommitted, Table
from timeline.versions.staged import find_staged
from timeline.versions.work_items import discarded_items


def publish(zone: StoredZone, number: int) -> Landed:
    """Publish what is staged of a work item, against its audit too; return what became of it.

    ValueError for an item that is not staged: nothing is changed then. Raises as `Table.commit`.
    """
    plan, item, table = _find(zone, number)
    numbered = zone.work_item(number)
    done = None
    if numbered.check(table.head.properties) is not None:
        done = staging.settle_picked(table, numbered)
        if done is None and find_staged(table.head, numbered) is None:
            raise ValueError(f"work item {number} is not staged, so that a worker has to land it first")
    if done is None:
        small = zone.sink_options.sizing.small_file_bytes
        done = staging.publish_item(table, numbered, open_below_bytes=small)
    if number in discarded_items(table.head.properties, zone.app_id):
        raise ValueError(f"work item {number} was discarded, and never lands")
    landed = with_rejections(zone.store, landed_in(table.head, zone.app_id, number))
    if not isinstance(done, AlreadyCommitted):
        oldest_ms = min(file.arrived_ms for file in item.files)
        landed = replace(landed, published_before=False, oldest_ms=oldest_ms)
    write_landed(zone.store, replace(landed, planned_ms=names.ulid_time_ms(plan.id)))
    _forget_claims(zone, plan, item)
    return landed


def discard(zone: StoredZone, number: int) -> None:
    """Settle a work item without its rows: none of its files ever lands by this item, and the zone keeps
    those that it has itself. A file lands again only as another version, or in another zone.

    ValueError for an item that has landed. Raises as `Table.commit`.
    """
    plan, item, table = _find(zone, number)
    numbered = zone.work_item(number)
    if numbered.check(table.head.properties) is None or staging.settle_picked(table, numbered) is None:
        staging.discard_item(table, numbered)
    if number not in discarded_items(table.head.properties, zone.app_id):
        raise ValueError(f"work item {number} has landed already; delete its rows where they are wrong")
    _forget_claims(zone, plan, item)


def _forget_claims(zone: StoredZone, plan: Plan, item: PlannedItem) -> None:
    claim_id, store = plan.claim_id(item), zone.store
    delete_claims(store, claim_id, instants_of(store, claim_id), names.cancelled_path(claim_id))


def _find(zone: StoredZone, number: int) -> tuple[Plan, PlannedItem, Table]:
    table = open_of(zone)
    found = [(plan, item) for _, plan in zone.plans_after(0) for item in plan.items if item.number == number]
    if not found:
        raise ValueError(f"the zone has no work item {number}: {zone.store.location}")
    if table is None:
        raise ValueError(
            f"there is no table yet that could remember work item {number}: {zone.definition.table}. Create"
            " it, or have a file land that can be read (max_waiting may be in its way); then decide again"
        )
    return *found[0], table


@dataclass(frozen=True, slots=True)
class Reannounced:
    """What became of files that were rejected."""

    files: tuple[str, ...]
    """Announced again."""
    unknown: tuple[str, ...]
    """Not announced, since they may be in the table: the worker that landed their item left no word, and its
    snapshot has expired.
    """
    others: tuple[LedgerEntry, ...] = ()
    """Not announced either: files that were named, and whose last version was not rejected."""


def reannounce(zone: StoredZone, paths: Sequence[str] = ()) -> Reannounced:
    """Announce files that were rejected again, all of them or those of these names, as they were: each lands
    once, or is rejected anew. Of a name only the last version counts: those before were replaced.

    Calling it again changes nothing until a file is rejected once more. ValueError for a name that no plan
    has. StoreUnavailableError where the store does not answer: call again.
    """
    ledger, now_ms = Ledger(zone), zone.environment.now_ms()
    files: list[BufferedFile] = []
    unknown: list[str] = []
    others: list[LedgerEntry] = []
    for entry in _last_versions(ledger, paths):
        if entry.state != "rejected":
            others.append(entry)
            continue
        landed = ledger.landed(entry.item)
        if landed is None or (landed.snapshot_id is None and landed.published_before):
            unknown.append(entry.path)
            continue
        identity = replayed_identity(entry.identity, entry.item)
        kind = format_of(entry.path) or "parquet"
        files.append(
            BufferedFile(entry.path, identity, entry.bytes, now_ms, kind, folder_partition(entry.path))
        )
    if files:
        zone.announce(files)
    return Reannounced(tuple(file.path for file in files), tuple(unknown), tuple(others))


def _last_versions(ledger: Ledger, paths: Sequence[str]) -> Iterable[LedgerEntry]:
    """Return the last version of each of these names; of all names, of those that are rejected."""
    if not paths:
        rejected: dict[str, LedgerEntry] = {}
        for entry in ledger.entries():
            rejected.pop(entry.path, None)
            if entry.state == "rejected":
                rejected[entry.path] = entry
        return rejected.values()
    named: dict[str, LedgerEntry] = {}
    for path in paths:
        found = ledger.find(spell_path(path))
        if not found:
            raise ValueError(f"no work item has this file; push it: {path}")
        named[found[0].path] = max(enumerate(found), key=lambda it: (it[1].item, it[0]))[1]
    return named.values()
