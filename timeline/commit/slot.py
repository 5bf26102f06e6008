"""Create a version file, and settle what the create did: the slot decides, not the answer (R2, R3, R20)."""

from __future__ import annotations

from timeline.commit.attempts import Candidate
from timeline.commit.log import Lost
from timeline.commit.retrying import StillUnknownError, until_known
from timeline.errors import CommitStateUnknownError, StoreUnavailableError
from timeline.names import version_path
from timeline.stores.base import Created, Unknown
from timeline.versions.listing import VersionFiles
from timeline.versions.version_file import parse_version


def settle(log: VersionFiles, candidate: Candidate, give_up_at: float) -> bool | Lost:
    """Create the version file. Return whether the slot was seen to hold its bytes, or Lost where it holds
    others' bytes and the store said so at the first create.

    An error does not show whether the create was applied, so the same bytes go to the same name until the
    slot shows which writer has it. Others' bytes after our own create that went without an answer are no
    loss yet: ours may have been there, built upon, and deleted by retention since.
    """
    number, path = candidate.head.number, version_path(candidate.head.number)
    creates = 0

    def create() -> bool | Lost:
        nonlocal creates
        creates += 1
        try:
            outcome = log.store.create(path, candidate.data)
        except StoreUnavailableError as refusal:
            if creates == 1:
                raise
            raise StillUnknownError from refusal
        if isinstance(outcome, Created):
            return True
        try:
            stored = log.store.read(path)
        except (FileNotFoundError, StoreUnavailableError) as failure:
            raise StillUnknownError from failure
        if stored.data == candidate.data:
            return True
        if creates > 1 or isinstance(outcome, Unknown):
            return False
        known = candidate.head.version
        theirs = parse_version(number, stored.data, log.store.location, stored.identity, known)
        return Lost(theirs, doubtful=True)

    try:
        return until_known(log.environment, give_up_at)(create)
    except StillUnknownError as failure:
        raise CommitStateUnknownError(
            f"it is not known whether version {number} was created: the store gave no clear answer in time."
            " Nothing was deleted. Restart the query on its checkpoint: it finds out, and neither loses nor"
            f" doubles a row: {log.store.location}",
            location=log.store.location,
            version=number,
        ) from failure
