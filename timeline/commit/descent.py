"""Whether a head descends from a candidate, by the commit ids that each head carries (R1)."""

from __future__ import annotations

from timeline import properties
from timeline.commit.attempts import Candidate
from timeline.commit.log import Judge, Standing
from timeline.errors import CommitStateUnknownError
from timeline.versions.head import Head
from timeline.versions.version_file import Version


def descends(head: Head, candidate: Candidate, judge: Judge, location: str) -> bool:
    """Return whether a confirmed head, at or above a candidate, descends from it.

    CommitStateUnknownError where neither the commit ids nor `judge` can say so, and where the table was
    dropped and another created at its location.
    """
    ours = candidate.head
    if candidate.base is not None and head.metadata.table_uuid != ours.metadata.table_uuid:
        # Readers of the old table may still read its files: its writer must not take them for failed ones.
        raise CommitStateUnknownError(
            f"the table was dropped and created again while version {ours.number} was being committed: if it"
            " was created, its rows were dropped with the old table. Nothing was deleted. Restart the query"
            f" if the new table is the one that you mean: {location}: was {ours.metadata.table_uuid}, is"
            f" {head.metadata.table_uuid}",
            location=location,
            version=ours.number,
        )
    if ours.version.commit_id in head.version.recent_commits:
        return True
    if head.number - ours.number < properties.RECENT_COMMITS_KEPT:
        return False
    verdict = judge(head, candidate)
    if verdict is Standing.UNKNOWN:
        raise CommitStateUnknownError(
            f"version {ours.number} was created, and the table has moved on to {head.number} since: too far"
            " to decide whether it is part of it. Nothing was deleted. Check whether its files are live"
            f" before you write them again: {location}",
            location=location,
            version=ours.number,
        )
    return verdict is Standing.COMMITTED


def is_beside(winner: Version, candidate: Candidate) -> bool:
    """Return whether a version surely does not descend from a candidate: its commit ids reach back to it."""
    ours = candidate.head
    near = winner.number - ours.number < properties.RECENT_COMMITS_KEPT
    return near and ours.version.commit_id not in winner.recent_commits
