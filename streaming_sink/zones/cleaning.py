"""Deletes staged files of a buffer zone whose rows are in the table, after a grace period."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection
from dataclasses import dataclass

from planners.ingestion.buffering import PlannedItem
from streaming_sink.durations import Duration, duration
from streaming_sink.zones.landed import Landed, read_landed
from streaming_sink.zones.ledger import Ledger
from streaming_sink.zones.stored_zone import StoredZone

_LOG = logging.getLogger("streaming_sink")
_PROGRESS = "cleaned.json"
STAGED = "staged"
"""The folder of a zone in which streams stage files."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What a cleaning deleted."""

    items: int
    """Work items whose staged files are no longer needed."""
    files: int


def clean(zone: StoredZone, grace: Duration = "1 hour") -> Cleaned:
    """Delete the files that streams have staged in the zone, once their work item has been in the table for
    the grace period. Files that were rejected, or may have been, stay, and so do all files elsewhere: they
    are their producers'.

    Work items are taken in the order of their plans, up to the first plan that is not wholly that old; the
    next call goes on there. Safe beside workers: an item that has landed lands in no other try (R26).
    TypeError or ValueError for a grace period that is none.
    """
    grace_ms = duration("grace", grace).total_seconds() * 1000
    ledger, now_ms = Ledger(zone), zone.environment.now_ms()
    items = files = 0
    done = _progress(zone)
    for number, plan in zone.plans_after(done):
        doomed = []
        for item in plan.items:
            if item.number in ledger.discarded:
                continue  # its staged files may be its rows' only copy
            note = read_landed(zone.store, item.number)
            if item.number not in ledger.published or note is None or now_ms - note.landed_ms < grace_ms:
                _LOG.info("cleaning ends before plan %d, which is not %s old", number, grace)
                return Cleaned(items, files)
            doomed += _done_with(zone, item, note)
        zone.store.delete(doomed)
        zone.store.overwrite(_PROGRESS, json.dumps({"plan": number}).encode())
        items, files = items + len(plan.items), files + len(doomed)
    return Cleaned(items, files)


def delete_landed(zone: StoredZone, paths: Collection[str]) -> list[str]:
    """Delete those of these staged files, paths below the zone, whose rows are known to be in the table, and
    return them. No grace period passes. The others wait to land, were rejected, or belong to no batch.
    """
    ledger, doomed = Ledger(zone), list[str]()
    for _, plan in zone.plans_after(0) if paths else ():
        for item in plan.items:
            note = read_landed(zone.store, item.number) if item.number in ledger.published else None
            if note is not None:
                doomed += [path for path in _done_with(zone, item, note) if path in paths]
    zone.store.delete(doomed)
    return doomed


def _done_with(zone: StoredZone, item: PlannedItem, note: Landed) -> list[str]:
    """Return the staged files of an item that has landed which are known to be in the table, as paths below
    the zone.
    """
    staged = f"{zone.store.location}/{STAGED}/"
    return [
        zone.store.relative(file.path)
        for file in (item.files if _is_known(note) else ())
        if file.path.startswith(staged) and file.path not in note.rejected
    ]


def _is_known(note: Landed) -> bool:
    """Return whether it is known which files of an item were rejected: not where its worker died before its
    note, and the snapshot or the reasons have been deleted since. A rejected file may be its rows' only copy.
    """
    return note.snapshot_id is not None and bool(note.rejected or not note.rejected_in)


def _progress(zone: StoredZone) -> int:
    """Return the newest plan that was cleaned; 0 where that is not known: deleting again harms nothing."""
    try:
        return int(json.loads(zone.store.read(_PROGRESS).data)["plan"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return 0
