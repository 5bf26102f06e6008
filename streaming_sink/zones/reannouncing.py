"""Replays files that were rejected, once what refused them has changed: the schema contract, or a right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from planners.ingestion.buffering import BufferedFile
from streaming_sink.tasks.ingest.sources import folder_partition, format_of, replayed_identity, spell_path
from streaming_sink.zones.ledger import Ledger, LedgerEntry
from streaming_sink.zones.stored_zone import StoredZone


@dataclass(frozen=True, slots=True)
class Reannounced:
    """What became of files that were rejected."""

    files: tuple[str, ...]
    """Announced again."""
    unknown: tuple[str, ...]
    """Not announced, since they may be in the table: the worker that landed their item left no word, and its
    snapshot has expired.
    """


def reannounce(zone: StoredZone, paths: Sequence[str] = ()) -> Reannounced:
    """Announce files that were rejected again, all of them or those of these names, as they were: each lands
    once, or is rejected anew. A file that has landed since under other bytes is another one, and stays.

    Calling it again changes nothing until a file is rejected once more. ValueError for a name that no plan
    has. StoreUnavailableError where the store does not answer: call again.
    """
    ledger, now_ms = Ledger(zone), zone.environment.now_ms()
    files: list[BufferedFile] = []
    unknown: list[str] = []
    for entry in _rejected(ledger, paths):
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
    return Reannounced(tuple(file.path for file in files), tuple(unknown))


def _rejected(ledger: Ledger, paths: Sequence[str]) -> Iterator[LedgerEntry]:
    if not paths:
        yield from (entry for entry in ledger.entries() if entry.state == "rejected")
    for path in paths:
        found = ledger.find(spell_path(path))
        if not found:
            raise ValueError(f"no work item has this file; push it: {path}")
        yield from (entry for entry in found if entry.state == "rejected")
