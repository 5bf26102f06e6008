"""The commit log on version files: a commit is the create of the next number, confirmed by a listing.

::

    create    create-if-absent v(N+1); a clean success is ours, after anything else
              the slot decides: GET v(N+1) (R2, R3)
    confirm   LIST begun after the create: ours is the highest, or the highest descends   confirm.py
              from ours (R1)

A create that was answered "exists", and whose slot holds others' bytes, has lost, unless it was ours, built
upon and deleted long since. That is in doubt until a commit on the winner is confirmed, or a listing decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from timeline.commit.attempts import Candidate
from timeline.commit.confirm import confirm, find_landed
from timeline.commit.log import Judge, Lost, StateUnknown, Won
from timeline.drafts.draft import Draft
from timeline.errors import CommitStateUnknownError, CorruptTableError
from timeline.names import DATA_FOLDER, version_number, version_path
from timeline.retention.deletions import DeletedKind, Deletion, Deletions
from timeline.retention.mirrored import forget_outdated, held_versions, notes_of_mirrors
from timeline.retention.policy import MAINTAIN_EVERY, versions_to_delete
from timeline.slots.retrying import StillUnknownError, until_known
from timeline.slots.settling import settle_slot
from timeline.versions.head import Head
from timeline.versions.listing import Listing, VersionFiles
from timeline.versions.staged import WAP_ID
from timeline.versions.version_file import parse_version

_VERSIONS_AT_ONCE = 200


@dataclass(frozen=True)
class VersionLog(VersionFiles):
    """The `CommitLog` on version files."""

    needs_probe = True
    stale_seconds = 0.0
    tombstone_folder = DATA_FOLDER
    outbox_folder = DATA_FOLDER
    wap_id_key = WAP_ID
    draft = Draft

    @property
    def address(self) -> str:
        return self.store.location

    def maintains(self, head: Head) -> bool:
        return head.number % MAINTAIN_EVERY == 0

    def check_writable(self, head: Head) -> None:
        """Any head: a version file was checked when it was read."""

    def newer(self, known: Head) -> Head | None:
        """Return the newest head: one LIST while nothing changed, otherwise the reads of what is new."""
        listing, location = self.list(), self.store.location
        if 0 < listing.highest < known.number:
            raise CorruptTableError(
                f"version {known.number} of the table has vanished, and {listing.highest} is highest: "
                f"something deleted it. Nothing was changed; restore it from a copy: {location}",
                location=location,
                version=known.number,
            )
        replaced = listing.highest == known.number and listing.versions[known.number].identity not in (
            known.version.identity,
            "",
        )
        if listing.highest == known.number and not replaced:
            return known
        head = self.newest(listing, known)
        if (
            replaced
            and head is not None
            and (head.number, head.metadata.table_uuid) == (known.number, known.metadata.table_uuid)
            and head.version.commit_id != known.version.commit_id
        ):
            raise CorruptTableError(
                f"version {known.number} of the table was deleted, and another writer has created it again:"
                " what the old one added is lost. Nothing was changed; find what deletes versions, and see"
                f" what `doctor` says: {location}",
                location=location,
                version=known.number,
            )
        return head

    def publish(self, candidate: Candidate, judge: Judge, give_up_at: float) -> Won | Lost | StateUnknown:
        """Create the candidate's version file and confirm it (R1, R2, R3)."""
        try:
            holds_slot = create_version(self, candidate, give_up_at)
            if isinstance(holds_slot, Lost):
                return holds_slot
            return confirm(self, candidate, holds_slot, judge, give_up_at)
        except CommitStateUnknownError as error:
            return StateUnknown(error)

    def find_landed(
        self, doubtful: Sequence[Candidate], base: Head | None, judge: Judge, give_up_at: float
    ) -> Won | Head | StateUnknown:
        """List, and look for the doubtful candidates in the lineage of the newest head."""
        try:
            return find_landed(self, doubtful, base, judge, give_up_at)
        except CommitStateUnknownError as error:
            return StateUnknown(error)

    def find_sharer(self, head: Head) -> str | None:  # noqa: ARG002 - as the protocol
        """None: a folder has the versions of one table."""
        return None

    def tidy(self, head: Head, seen: object = None) -> Listing:
        """Write the hint. `seen` is a listing; without one this makes one."""
        listing = seen if isinstance(seen, Listing) else self.list()
        self.write_hint(head.number)
        return listing

    def delete_old(self, head: Head, seen: object = None, *, dry_run: bool = False) -> Deletions:
        """Delete old version files (R19), but those that mirrors name, for a day (R36)."""
        listing = seen if isinstance(seen, Listing) else self.list()
        metadata = head.metadata
        times = {
            version_number(entry.metadata_file) or 0: entry.timestamp_ms for entry in metadata.metadata_log
        }
        times[head.number] = metadata.last_updated_ms
        # The times of versions after this head are not known here; they are left to a later commit.
        known = [number for number in listing.versions if number <= head.number]
        mirrored = notes_of_mirrors(self.store, head)
        held = held_versions(mirrored, head)
        old = versions_to_delete(known, times, listing.highest, metadata.last_updated_ms, held)
        old = old[:_VERSIONS_AT_ONCE]
        why = "newer versions have superseded it for long enough"
        deletions = tuple(
            Deletion(version_path(number), DeletedKind.VERSION, listing.versions[number].size, why)
            for number in old
        )
        if old and not dry_run:
            # A writer that slept may have set the hint back to one of these (R5).
            self.write_hint(listing.highest)
            self.delete(old)
        if not dry_run:
            forget_outdated(self.store, head, mirrored)
        return Deletions(deletions, dry_run=dry_run)


def create_version(log: VersionFiles, candidate: Candidate, give_up_at: float) -> bool | Lost:
    """Create the version file. Return whether the slot was seen to hold its bytes, or Lost where it holds
    others' bytes and the store said so at the first create.

    Others' bytes after our own create that went without an answer are no loss yet: ours may have been there,
    built upon, and deleted by retention since.
    """
    number, path = candidate.head.number, version_path(candidate.head.number)
    try:
        slot = settle_slot(log.store, path, candidate.data, until_known(log.environment, give_up_at))
    except StillUnknownError as failure:
        raise CommitStateUnknownError(
            f"it is not known whether version {number} was created: the store gave no clear answer in time."
            " Nothing was deleted. Restart the query on its checkpoint: it finds out, and neither loses nor"
            f" doubles a row: {log.store.location}",
            location=log.store.location,
            version=number,
        ) from failure
    if slot.is_own or not slot.was_refused:
        return slot.is_own
    stored, known = slot.stored, candidate.head.version
    theirs = parse_version(number, stored.data, log.store.location, stored.identity, known)
    return Lost(theirs, doubtful=True)
