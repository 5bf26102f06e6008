"""The one function that creates version files (R20), and with it the whole commit protocol.

::

    build     the next version's bytes from the head that we know        (attempt.py)
    create    create-if-absent v(N+1)                                    one request
    settle    a clean success is ours; after anything else the slot decides: GET v(N+1)   (R2, R3)
    confirm   LIST begun after the create: ours is the highest, or the highest descends from ours  (R1)
    lost      rebase on the winner and build again: twice at once, then after full-jitter waits     (R15)
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto

from tenacity import RetryCallState, Retrying, retry_if_exception_type

from timeline import properties
from timeline.attempt import Candidate
from timeline.clock import Environment
from timeline.errors import CommitConflictError, CommitStateUnknownError, StoreUnavailableError
from timeline.head import Head, Version, parse_version
from timeline.names import version_path
from timeline.stores.base import Created
from timeline.versions import Listing, VersionLog

DEADLINE_SECONDS = 600.0
_AT_ONCE = 2
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


class _LostError(Exception):
    """Another commit took the number, or ours was created below the head. `winner` is the version to build
    on, if known.
    """

    def __init__(self, winner: Version | None) -> None:
        self.winner = winner


class _StillUnknownError(Exception):
    """No answer yet tells whether the request took effect."""


def publish(
    log: VersionLog,
    head: Head | None,
    build: Callable[[Head | None], Candidate | None],
    standing: Callable[[Head], Standing],
    deadline_seconds: float = DEADLINE_SECONDS,
) -> Published | None:
    """Commit what `build` makes of the head, retrying on newer heads until it wins; return None once `build`
    returns None.

    `head` may be stale or None (no version known): the create finds out. `build` decides on each head whether
    there is still something to do, and raises where it no longer fits.

    Raises CommitStateUnknownError when the deadline passes while a request's effect is unknown: nothing was
    deleted, and the same batch, tried again, finds out. Raises CommitConflictError when it passes after lost
    races only: nothing is live. StoreUnavailableError: the store refused a create that it had not seen
    before, or the reload after a lost race; nothing of this commit is live.
    """
    give_up_at = log.environment.monotonic() + deadline_seconds
    attempts, rebased = 0, False
    try:
        for attempt in _retrying(log.environment, _LostError, give_up_at):
            with attempt:
                attempts = attempt.retry_state.attempt_number
                candidate = build(head)
                if candidate is None and rebased:
                    # The winner's bytes came unlisted, and may be a stalled writer's fork: a commit on
                    # it would be judged by its own confirm, but "there is nothing to do" needs a listed head.
                    newest_version = log.latest()
                    head = None if newest_version is None else log.head(newest_version)
                    candidate = build(head)
                if candidate is None:
                    return None
                try:
                    _settle(log, candidate, give_up_at)
                    newest, listing = _confirm(log, candidate, standing, give_up_at)
                except _LostError as lost:
                    # The winner is mostly the head. Losing to it again tells that we are far behind: then
                    # only a listing finds the head.
                    rebased = lost.winner is not None and attempts == 1
                    winner = lost.winner if rebased else log.latest()
                    head = None if winner is None else log.head(winner)
                    raise
                return Published(candidate, newest, listing, attempts)
    except _LostError:
        raise CommitConflictError(
            f"lost {attempts} races in {deadline_seconds:.0f} s; nothing of this commit is live. Fewer"
            f" writers, or larger batches, help: {log.store.location}"
        ) from None
    raise AssertionError("retrying ends by returning or raising")


def _settle(log: VersionLog, candidate: Candidate, give_up_at: float) -> None:
    """Create the version file; return once it is known to hold our bytes, raise _LostError once it is known
    to hold others.

    The error's kind says nothing about whether the create was applied, so the same bytes go to the same name
    until the slot shows who has it (R2, R3).
    """
    number, path = candidate.head.number, version_path(candidate.head.number)
    try:
        for attempt in _retrying(log.environment, _StillUnknownError, give_up_at):
            with attempt:
                try:
                    outcome = log.store.create(path, candidate.data)
                except StoreUnavailableError as refusal:
                    if attempt.retry_state.attempt_number == 1:
                        raise
                    raise _StillUnknownError from refusal
                if isinstance(outcome, Created):
                    return
                try:
                    found = log.store.read(path)
                except (FileNotFoundError, StoreUnavailableError) as failure:
                    raise _StillUnknownError from failure
                if found.data == candidate.data:
                    return
                raise _LostError(parse_version(number, found.data, log.store.location))
    except _StillUnknownError as failure:
        raise CommitStateUnknownError(
            f"it is not known whether version {number} was created: the store gave no clear answer in time."
            " Nothing was deleted. Restart the query on its checkpoint: it finds out, and neither loses nor"
            f" doubles a row: {log.store.location}"
        ) from failure


def _confirm(
    log: VersionLog, candidate: Candidate, standing: Callable[[Head], Standing], give_up_at: float
) -> tuple[Head, Listing]:
    """Return the newest head once the candidate is in its lineage; raise _LostError once it is known not to
    be (R1).
    """
    ours = candidate.head
    try:
        for attempt in _retrying(log.environment, _StillUnknownError, give_up_at):
            with attempt:
                try:
                    listing = log.list()
                    newest = ours.version if listing.highest == ours.number else log.latest(listing)
                    head = ours if newest is ours.version else None if newest is None else log.head(newest)
                except StoreUnavailableError as failure:
                    raise _StillUnknownError from failure
                if head is None or newest is None or head.number < ours.number:
                    raise _StillUnknownError
                if head is ours:
                    return ours, listing
                if ours.version.commit_id in newest.recent_commits:
                    return head, listing
                if newest.number - ours.number < properties.RECENT_COMMITS_KEPT:
                    # We were stalled past retention and created a number that had been deleted. No reader
                    # takes it for the head, so where the sweep fails, retention may remove it.
                    with suppress(StoreUnavailableError):
                        log.delete([ours.number])
                    raise _LostError(newest)
                return _judge(head, candidate, standing, log), listing
    except _StillUnknownError as failure:
        raise CommitStateUnknownError(
            f"version {ours.number} was created, and no listing confirmed in time that it is part of the"
            " table. Nothing was deleted. Restart the query on its checkpoint: it finds out, and neither"
            f" loses nor doubles a row: {log.store.location}"
        ) from failure
    raise AssertionError("retrying ends by returning or raising")


def _judge(newest: Head, candidate: Candidate, standing: Callable[[Head], Standing], log: VersionLog) -> Head:
    verdict = standing(newest)
    if verdict is Standing.COMMITTED:
        return newest
    if verdict is Standing.LOST:
        raise _LostError(newest.version)
    raise CommitStateUnknownError(
        f"version {candidate.head.number} was created, and the table has moved on to {newest.number} since:"
        " too far to tell whether it is part of it. Nothing was deleted. Look whether its files are live"
        f" before you write them again: {log.store.location}"
    )


def _retrying(environment: Environment, on: type[Exception], give_up_at: float) -> Retrying:
    """Retry twice at once, then after full-jitter waits of up to 0.05, 0.1, 0.2 … 10 s, till the deadline."""

    def wait(state: RetryCallState) -> float:
        doubled = state.attempt_number - _AT_ONCE - 1
        return (
            0.0
            if doubled < 0
            else environment.random.uniform(0, min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** min(doubled, 10)))
        )

    def stop(_: RetryCallState) -> bool:
        return environment.monotonic() >= give_up_at

    return Retrying(
        retry=retry_if_exception_type(on), wait=wait, stop=stop, sleep=environment.sleep, reraise=True
    )
