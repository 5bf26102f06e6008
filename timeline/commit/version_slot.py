"""Create a version file, and settle what the create did (R2, R3, R20)."""

from __future__ import annotations

from timeline.commit.attempts import Candidate
from timeline.commit.log import Lost
from timeline.errors import CommitStateUnknownError
from timeline.names import version_path
from timeline.slots.retrying import StillUnknownError, until_known
from timeline.slots.settling import settle_slot
from timeline.versions.listing import VersionFiles
from timeline.versions.version_file import parse_version


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
