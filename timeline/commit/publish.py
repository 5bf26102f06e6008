"""The one function that creates version files (R20), and with it the whole commit protocol.

::

    build     the next version's bytes from the head that we know        (draft.py)
    create    create-if-absent v(N+1)                                    one request
    settle    a clean success is ours; after anything else the slot decides: GET v(N+1)   (R2, R3)
    confirm   LIST begun after the create: ours is the highest, or the highest descends from ours  (R1)
    lost      rebase on the winner and build again: at once, then after short waits for our turn    (R15)

A create that was answered "exists", and whose slot holds others' bytes, has lost, unless it was ours, built
upon and deleted long since. That is doubtful until a commit on the winner is confirmed, or a listing tells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto

from tenacity import RetryCallState, Retrying, retry_if_exception_type

from timeline import properties
from timeline.clock import Environment
from timeline.commit.attempts import Candidate
from timeline.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    CorruptTableError,
    MissingMetadataError,
    StoreUnavailableError,
    TimelineError,
)
from timeline.names import version_path
from timeline.retention import policy
from timeline.stores.base import Created, Unknown
from timeline.versions.head import Head
from timeline.versions.version_file import Version, parse_version
from timeline.versions.version_log import Listing, VersionLog

DEADLINE_SECONDS = 600.0
_AT_ONCE = 2
_LOOK_EVERY = 8
"""After so many races lost on each other's winners a writer waits for its turn, and lists. At 60 ms a
request eight writers make 276 commits a minute so, and 248 with 3, since each look takes three requests; 16
writers 284 and 256, the slowest 68 and 25 % of the mean.
"""
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 10.0


class Standing(Enum):
    """Whether a commit whose id has left the head's memory is part of the lineage, by what else the head
    shows.
    """

    COMMITTED = auto()
    LOST = auto()
    UNKNOWN = auto()


@dataclass(frozen=True)
class Published:
    """A commit that is acknowledged: it is in the lineage, and so stays."""

    candidate: Candidate
    head: Head
    """The newest head that the confirmation saw: the candidate's own, or a descendant of it."""
    listing: Listing
    attempts: int


@dataclass(frozen=True)
class Unneeded:
    """There was nothing to commit on this head, which was listed."""

    head: Head | None


class _LostError(Exception):
    """Another commit took the number, or ours was created below the head: it is not in the lineage, and never
    will be. `winner` is the version to build on.
    """

    took = 0.0
    """The seconds that the lost attempt took."""

    def __init__(self, winner: Version, *, doubtful: bool = False) -> None:
        self.winner = winner
        self.doubtful = doubtful


class _StillUnknownError(Exception):
    """No answer yet tells whether the request took effect."""


def publish(
    log: VersionLog,
    head: Head | None,
    build: Callable[[Head | None], Candidate | None],
    standing: Callable[[Head, Candidate], Standing],
    deadline_seconds: float = DEADLINE_SECONDS,
    seen_at: float = math.inf,
) -> Published | Unneeded:
    """Commit what `build` makes of the head, retrying on newer heads until it wins; Unneeded once `build`
    returns None.

    `head` may be stale or None (no version known): the create finds out. `seen_at` says when it was the
    highest, by the monotonic clock. If that is longer ago than an attempt takes, who loses is likely to be
    many versions behind, and lists instead of catching up with one winner after another. `build` decides on
    each head whether there is still something to do, and raises where it no longer fits.

    Raises CommitStateUnknownError when the deadline passes while a request's effect is unknown, or a loss in
    doubt: nothing was deleted, and the same batch, tried again, finds out. Raises CommitConflictError when it
    passes after lost races only: nothing is live. StoreUnavailableError: the store refused a create that it
    had not seen before, or the reload after a lost race; nothing of this commit is live.
    """
    give_up_at = log.environment.monotonic() + deadline_seconds
    attempts = 0
    winner: Version | None = None
    lost_on: Head | None = None
    doubtful: list[Candidate] = []
    try:
        for attempt in _retrying(log.environment, _LostError, give_up_at, _turn):
            with attempt:
                attempts, began = attempt.retry_state.attempt_number, log.environment.monotonic()
                # The winner is mostly the head. Where it is not, only a listing finds the head.
                candidate = None if winner is None else _on_unlisted(log, build, lost_on, winner)
                if candidate is None:
                    if attempts > 1:
                        head, found = _look(log, doubtful, standing, lost_on, give_up_at)
                        if found is not None:
                            return replace(found, attempts=attempts)
                        doubtful.clear()
                    head, candidate = _on_listed(log, build, head)
                if candidate is None:
                    return Unneeded(head)
                try:
                    ours = _settle(log, candidate, give_up_at)
                    newest, listing = _confirm(log, candidate, ours, standing, give_up_at)
                except _LostError as lost:
                    lost.took = log.environment.monotonic() - began
                    behind = began - seen_at > lost.took if attempts == 1 else attempts % _LOOK_EVERY == 0
                    winner = None if behind else lost.winner
                    doubtful += [candidate] if lost.doubtful else []
                    if winner is not None and not all(_is_beside(winner, each) for each in doubtful):
                        winner = None
                    lost_on = candidate.base
                    raise
                return Published(candidate, newest, listing, attempts)
    except (_LostError, StoreUnavailableError) as failure:
        found = _look(log, doubtful, standing, lost_on, give_up_at)[1] if doubtful else None
        if found is not None:
            return replace(found, attempts=attempts)
        if isinstance(failure, StoreUnavailableError):
            raise
        raise CommitConflictError(
            f"lost {attempts} races in {deadline_seconds:.0f} s; nothing of this commit is live. Fewer"
            f" writers, or larger batches, help: {log.store.location}"
        ) from None
    raise AssertionError("retrying ends by returning or raising")


def _is_beside(winner: Version, candidate: Candidate) -> bool:
    """Return whether a version surely does not descend from a candidate: its memory reaches back to it."""
    ours = candidate.head
    near = winner.number - ours.number < properties.RECENT_COMMITS_KEPT
    return near and ours.version.commit_id not in winner.recent_commits


def _look(
    log: VersionLog,
    doubtful: Sequence[Candidate],
    standing: Callable[[Head, Candidate], Standing],
    base: Head | None,
    give_up_at: float,
) -> tuple[Head | None, Published | None]:
    """List, and return the head, and the doubtful candidate that it descends from, if it does from one.

    With a doubt it asks until the deadline, and CommitStateUnknownError where the store does not tell.
    """
    if not doubtful:
        return log.newest(base=base), None
    try:
        for attempt in _retrying(log.environment, _StillUnknownError, give_up_at, _backoff):
            with attempt:
                try:
                    listing = log.list()
                    head = log.newest(listing, base=base)
                    if head is None:
                        raise CommitStateUnknownError(
                            f"the table was dropped while version {doubtful[-1].head.number} was on its way:"
                            " if it was created, its rows have gone with the table. Nothing was deleted:"
                            f" {log.store.location}"
                        )
                    ours = (each for each in doubtful if _descends(head, each, standing, log))
                    if (found := next(ours, None)) is not None:
                        return head, Published(found, head, listing, attempts=0)
                    return head, None
                except (StoreUnavailableError, MissingMetadataError) as failure:
                    raise _StillUnknownError from failure
    except _StillUnknownError as failure:
        raise CommitStateUnknownError(
            "the store's answer left it open whether a version was created, and no listing told in time."
            " Nothing was deleted. Restart the query on its checkpoint: it finds out, and neither loses nor"
            f" doubles a row: {log.store.location}"
        ) from failure
    raise AssertionError("retrying ends by returning or raising")


def _on_listed(
    log: VersionLog, build: Callable[[Head | None], Candidate | None], head: Head | None
) -> tuple[Head | None, Candidate | None]:
    """Build on a head that was listed; where a file of it has gone, on the one that has taken its place."""
    while True:
        try:
            return head, build(head)
        except MissingMetadataError:
            newest = log.newest(base=head)
            if head is None or (newest is not None and newest.number <= head.number):
                raise
            head = newest


def _on_unlisted(
    log: VersionLog, build: Callable[[Head | None], Candidate | None], base: Head | None, winner: Version
) -> Candidate | None:
    """Build on a winner's bytes, which came unlisted, and may be a stalled writer's fork.

    A commit on it is judged by its own confirm. What else `build` finds, that there is nothing to do or that
    it no longer fits, only a listed head may tell: then None.
    """
    with suppress(TimelineError):
        return build(log.head_after(base, winner))
    return None


def _settle(log: VersionLog, candidate: Candidate, give_up_at: float) -> bool:
    """Create the version file, and return whether it holds our bytes. Raise _LostError if it never did.

    The error's kind says nothing about whether the create was applied, so the same bytes go to the same name
    until the slot shows who has it (R2, R3). Where it shows others' bytes after a create of ours went without
    an answer, that is no loss yet: ours may have been there, built upon, and deleted by retention since.
    """
    number, path = candidate.head.number, version_path(candidate.head.number)
    try:
        for attempt in _retrying(log.environment, _StillUnknownError, give_up_at, _backoff):
            with attempt:
                try:
                    outcome = log.store.create(path, candidate.data)
                except StoreUnavailableError as refusal:
                    if attempt.retry_state.attempt_number == 1:
                        raise
                    raise _StillUnknownError from refusal
                if isinstance(outcome, Created):
                    return True
                try:
                    found = log.store.read(path)
                except (FileNotFoundError, StoreUnavailableError) as failure:
                    raise _StillUnknownError from failure
                if found.data == candidate.data:
                    return True
                if attempt.retry_state.attempt_number > 1 or isinstance(outcome, Unknown):
                    return False
                known = candidate.head.version
                theirs = parse_version(number, found.data, log.store.location, found.identity, known)
                raise _LostError(theirs, doubtful=True)
    except _StillUnknownError as failure:
        raise CommitStateUnknownError(
            f"it is not known whether version {number} was created: the store gave no clear answer in time."
            " Nothing was deleted. Restart the query on its checkpoint: it finds out, and neither loses nor"
            f" doubles a row: {log.store.location}"
        ) from failure
    raise AssertionError("retrying ends by returning or raising")


def _confirm(
    log: VersionLog,
    candidate: Candidate,
    holds_slot: bool,
    standing: Callable[[Head, Candidate], Standing],
    give_up_at: float,
) -> tuple[Head, Listing]:
    """Return the newest head once the candidate is in its lineage; raise _LostError once it is known not to
    be (R1). `holds_slot`: its file was seen to hold its bytes.
    """
    ours = candidate.head
    try:
        for attempt in _retrying(log.environment, _StillUnknownError, give_up_at, _backoff):
            with attempt:
                try:
                    listing = log.list()
                    head = (
                        ours if holds_slot and listing.highest == ours.number else log.newest(listing, ours)
                    )
                    if head is None or head.number < ours.number:
                        raise _StillUnknownError
                    if head.metadata.table_uuid == ours.metadata.table_uuid:
                        _check_base(log, listing, candidate)
                except (StoreUnavailableError, FileNotFoundError) as failure:
                    raise _StillUnknownError from failure
                if head is ours:
                    listed = listing.versions[ours.number].identity
                    return replace(ours, version=replace(ours.version, identity=listed)), listing
                try:
                    if _descends(head, candidate, standing, log):
                        return head, listing
                except (StoreUnavailableError, MissingMetadataError) as failure:  # judging reads manifests
                    raise _StillUnknownError from failure
                if holds_slot and head.number - ours.number < properties.RECENT_COMMITS_KEPT:
                    # We were stalled past retention and created a number that had been deleted. No reader
                    # takes it for the head, so where the sweep fails, retention may remove it.
                    with suppress(StoreUnavailableError):
                        log.delete([ours.number])
                raise _LostError(head.version)
    except _StillUnknownError as failure:
        raise CommitStateUnknownError(
            f"version {ours.number} was created, and no listing confirmed in time that it is part of the"
            " table. Nothing was deleted. Restart the query on its checkpoint: it finds out, and neither"
            f" loses nor doubles a row: {log.store.location}"
        ) from failure
    raise AssertionError("retrying ends by returning or raising")


def _check_base(log: VersionLog, listing: Listing, candidate: Candidate) -> None:
    """Raise where the table was dropped under the candidate, or the version that it follows was deleted and
    made again: by no rule of this protocol, since the last 100 stay, but by somebody's hand.
    """
    base, ours = candidate.base, candidate.head
    if base is None or base.number <= listing.highest - policy.VERSIONS_ALWAYS_KEPT:
        return
    listed = listing.versions.get(base.number)
    if listed is None:
        if _is_dropped(log, listing, base):
            raise _taken_back(log, listing, ours)
        return  # a gap, which loses nothing: our version has all that the deleted one had
    if not base.version.identity or listed.identity == base.version.identity:
        return
    found = log.store.read(version_path(base.number))
    again = parse_version(base.number, found.data, log.store.location)
    if again.metadata.table_uuid != base.metadata.table_uuid:
        raise _taken_back(log, listing, ours)
    if again.commit_id != base.version.commit_id:  # a copy that was put back is as good
        raise CorruptTableError(
            f"version {base.number} was deleted, and another writer has made it again, while this one held"
            f" the old one: version {ours.number} follows that, and lacks the other's rows. Nothing was"
            f" deleted. Stop all writers, find what deletes versions, and see what `doctor` says:"
            f" {log.store.location}"
        )


def _taken_back(log: VersionLog, listing: Listing, ours: Head) -> CommitStateUnknownError:
    """Return what is to be told of a version of a dropped table, which goes if it is the highest: it would
    hide the new table, or stand for one that is gone.
    """
    if listing.highest == ours.number:
        log.delete([ours.number])
    return CommitStateUnknownError(
        f"the table was dropped while version {ours.number} was on its way: the versions before it have gone."
        " If others have seen it, its rows have gone with the old table. No data file was deleted. Restart"
        f" the query if the table that is there now is the one that you mean: {log.store.location}"
    )


def _is_dropped(log: VersionLog, listing: Listing, base: Head) -> bool:
    """Return whether all of a table went with a version: what is below it now is another table, or nothing,
    and its files have gone too.
    """
    below = max((number for number in listing.versions if number < base.number), default=None)
    if below is not None:
        found = parse_version(below, log.store.read(version_path(below)).data, log.store.location)
        return found.metadata.table_uuid != base.metadata.table_uuid
    if base.snapshot is None:
        return False
    try:
        log.store.read(log.store.relative(base.snapshot.manifest_list))
    except FileNotFoundError:
        return True
    return False


def _descends(
    head: Head, candidate: Candidate, standing: Callable[[Head, Candidate], Standing], log: VersionLog
) -> bool:
    """Return whether a listed head, at or above a candidate, descends from it."""
    ours = candidate.head
    if candidate.base is not None and head.metadata.table_uuid != ours.metadata.table_uuid:
        # Readers of the old table may be at its files still: its writer must not take them for failed ones.
        raise CommitStateUnknownError(
            f"the table was dropped and made again while version {ours.number} was on its way: if it was"
            " created, its rows have gone with the old table. Nothing was deleted. Restart the query if the"
            f" new table is the one that you mean: {log.store.location}: was {ours.metadata.table_uuid}, is"
            f" {head.metadata.table_uuid}"
        )
    if ours.version.commit_id in head.version.recent_commits:
        return True
    if head.number - ours.number < properties.RECENT_COMMITS_KEPT:
        return False
    verdict = standing(head, candidate)
    if verdict is Standing.UNKNOWN:
        raise CommitStateUnknownError(
            f"version {ours.number} was created, and the table has moved on to {head.number} since: too far"
            " to tell whether it is part of it. Nothing was deleted. Look whether its files are live before"
            f" you write them again: {log.store.location}"
        )
    return verdict is Standing.COMMITTED


def _turn(state: RetryCallState) -> float:
    """Return how long to wait at most after a lost race: not at all but before each look, then ever less.

    A writer that has just won does not wait, so waits that grow would starve the losers: at 60 ms a request
    one of eight made nine of ten commits. Here who has waited longest goes first, and the unit is what an
    attempt takes on this store, so that it needs no constant (R15).
    """
    lost = None if state.outcome is None else state.outcome.exception()
    assert isinstance(lost, _LostError)
    return 0.0 if state.attempt_number % _LOOK_EVERY else 2 * lost.took / state.attempt_number


def _backoff(state: RetryCallState) -> float:
    """Return how long to wait at most after a request without a clear answer: twice not at all, then 0.05,
    0.1, 0.2 … 10 s.
    """
    doubled = state.attempt_number - _AT_ONCE - 1
    return 0.0 if doubled < 0 else min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** min(doubled, 10))


def _retrying(
    environment: Environment,
    on: type[Exception],
    give_up_at: float,
    longest_wait: Callable[[RetryCallState], float],
) -> Retrying:
    """Retry until the deadline, after full-jitter waits of up to `longest_wait`."""

    def wait(state: RetryCallState) -> float:
        longest = longest_wait(state)
        return environment.random.uniform(0, longest) if longest else 0.0

    def stop(_: RetryCallState) -> bool:
        return environment.monotonic() >= give_up_at

    return Retrying(
        retry=retry_if_exception_type(on), wait=wait, stop=stop, sleep=environment.sleep, reraise=True
    )
