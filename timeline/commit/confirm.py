"""Confirm a version by a listing that began after its create (R1), and check what it was built on (R4)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from timeline import properties
from timeline.commit.attempts import Candidate
from timeline.commit.descent import descends
from timeline.commit.log import Judge, Lost, Won
from timeline.errors import (
    CommitStateUnknownError,
    CorruptTableError,
    MissingMetadataError,
    StoreUnavailableError,
)
from timeline.names import version_path
from timeline.retention import policy
from timeline.slots.retrying import StillUnknownError, until_known
from timeline.versions.head import Head
from timeline.versions.listing import Listing, VersionFiles
from timeline.versions.version_file import parse_version


def confirm(
    log: VersionFiles, candidate: Candidate, holds_slot: bool, judge: Judge, give_up_at: float
) -> Won | Lost:
    """Return Won once the candidate is in the lineage of the newest head, Lost once it is known not to be.

    `holds_slot`: its file was seen to hold its bytes. CommitStateUnknownError where no listing decides in
    time.
    """
    ours = candidate.head

    def look() -> Won | Lost:
        try:
            listing = log.list()
            head = ours if holds_slot and listing.highest == ours.number else log.newest(listing, ours)
            if head is None or head.number < ours.number:
                raise StillUnknownError
            if head.metadata.table_uuid == ours.metadata.table_uuid:
                _check_base(log, listing, candidate)
        except (StoreUnavailableError, FileNotFoundError) as failure:
            raise StillUnknownError from failure
        if head is ours:
            listed = listing.versions[ours.number].identity
            return Won(candidate, replace(ours, version=replace(ours.version, identity=listed)), listing)
        try:
            if descends(head, candidate, judge, log.store.location):
                return Won(candidate, head, listing)
        except (StoreUnavailableError, MissingMetadataError) as failure:  # judging reads manifests
            raise StillUnknownError from failure
        if holds_slot and head.number - ours.number < properties.RECENT_COMMITS_KEPT:
            # This writer was stalled past retention and created a number that had been deleted. No reader
            # takes it for the head, so where the removal fails, retention may remove it.
            with suppress(StoreUnavailableError):
                log.delete([ours.number])
        return Lost(head.version)

    try:
        return until_known(log.environment, give_up_at)(look)
    except StillUnknownError as failure:
        raise CommitStateUnknownError(
            f"version {ours.number} was created, and no listing confirmed in time that it is part of the"
            " table. Nothing was deleted. Restart the query on its checkpoint: it finds out, and neither"
            f" loses nor doubles a row: {log.store.location}",
            location=log.store.location,
            version=ours.number,
        ) from failure


def find_landed(
    log: VersionFiles, doubtful: Sequence[Candidate], base: Head | None, judge: Judge, give_up_at: float
) -> Won | Head:
    """Return Won for the doubtful candidate that the newest head descends from, else the newest head.

    CommitStateUnknownError where no listing decides in time.
    """
    location, last = log.store.location, doubtful[-1].head.number

    def look() -> Won | Head:
        try:
            listing = log.list()
            head = log.newest(listing, base)
            if head is None:
                raise CommitStateUnknownError(
                    f"the table was dropped while version {last} was being committed: if it was created, its"
                    f" rows were dropped with the table. Nothing was deleted: {location}",
                    location=location,
                    version=last,
                )
            landed = (each for each in doubtful if descends(head, each, judge, location))
            ours = next(landed, None)
            return head if ours is None else Won(ours, head, listing)
        except (StoreUnavailableError, MissingMetadataError) as failure:
            raise StillUnknownError from failure

    try:
        return until_known(log.environment, give_up_at)(look)
    except StillUnknownError as failure:
        raise CommitStateUnknownError(
            "the store's answer left it open whether a version was created, and no listing decided in time."
            " Nothing was deleted. Restart the query on its checkpoint: it finds out, and neither loses nor"
            f" doubles a row: {location}",
            location=location,
            version=last,
        ) from failure


def _check_base(log: VersionFiles, listing: Listing, candidate: Candidate) -> None:
    """Raise where the table was dropped under the candidate, or where the version that it follows was deleted
    and created again. No rule of this protocol does either, since the last 100 versions stay.
    """
    base, ours = candidate.base, candidate.head
    if base is None or base.number <= listing.highest - policy.VERSIONS_ALWAYS_KEPT:
        return
    listed = listing.versions.get(base.number)
    if listed is None:
        if _is_dropped(log, listing, base):
            raise _take_back(log, listing, ours)
        return  # a gap, which loses nothing: our version has all that the deleted one had
    if not base.version.identity or listed.identity == base.version.identity:
        return
    stored = log.store.read(version_path(base.number))
    again = parse_version(base.number, stored.data, log.store.location)
    if again.metadata.table_uuid != base.metadata.table_uuid:
        raise _take_back(log, listing, ours)
    if again.commit_id != base.version.commit_id:  # a restored copy is as good
        raise CorruptTableError(
            f"version {base.number} was deleted, and another writer has created it again, while this one held"
            f" the old one: version {ours.number} follows that, and lacks the other's rows. Nothing was"
            f" deleted. Stop all writers, find what deletes versions, and see what `doctor` says:"
            f" {log.store.location}",
            location=log.store.location,
            version=base.number,
        )


def _take_back(log: VersionFiles, listing: Listing, ours: Head) -> CommitStateUnknownError:
    """Delete a version of a dropped table if it is the highest, where it would hide the new table, or pass
    for one that was dropped. Return the error to raise.
    """
    if listing.highest == ours.number:
        log.delete([ours.number])
    return CommitStateUnknownError(
        f"the table was dropped while version {ours.number} was being committed: the versions before it are"
        " missing. If others have seen it, its rows were dropped with the old table. No data file was"
        " deleted. Restart the query if the table that is there now is the one that you mean:"
        f" {log.store.location}",
        location=log.store.location,
        version=ours.number,
    )


def _is_dropped(log: VersionFiles, listing: Listing, base: Head) -> bool:
    """Return whether the whole table vanished with a version: what is below it now is another table, or
    nothing, and its files are missing too.
    """
    below = max((number for number in listing.versions if number < base.number), default=None)
    if below is not None:
        version = parse_version(below, log.store.read(version_path(below)).data, log.store.location)
        return version.metadata.table_uuid != base.metadata.table_uuid
    if base.snapshot is None:
        return False
    try:
        log.store.read(log.store.relative(base.snapshot.manifest_list))
    except FileNotFoundError:
        return True
    return False
