"""The one function that publishes commits (R20): build a candidate, publish it to the log, rebase on a loss.

::

    build     the next version from the head that is known                 (draft.py)
    publish   the log puts it after its base and confirms it: won, lost, or unknown (log.py)
    lost      rebase on the winner and build again: at once, then after short waits (R15)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from tenacity import RetryCallState

from timeline.commit.attempts import Candidate
from timeline.commit.descent import is_beside
from timeline.commit.log import CommitLog, Judge, Lost, StateUnknown, Won, finds_newer
from timeline.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    MissingMetadataError,
    TimelineError,
)
from timeline.slots.retrying import retrying
from timeline.versions.head import Head
from timeline.versions.version_file import Version

Build = Callable[[Head | None], Candidate | None]
DEADLINE_SECONDS = 600.0
_LOOK_EVERY = 8
"""After so many races lost on each other's winners a writer waits for its turn, and lists. At 60 ms a
request eight writers make 276 commits a minute so, and 248 with 3, since each look takes three requests; 16
writers 284 and 256, the slowest 68 and 25 % of the mean.
"""


@dataclass(frozen=True)
class Published:
    """A commit that is acknowledged: it is in the lineage, and so stays."""

    candidate: Candidate
    head: Head
    """The newest head that the confirmation saw: the candidate's own, or a descendant of it."""
    seen: object
    """What the log saw; for `CommitLog.tidy`."""
    attempts: int


@dataclass(frozen=True)
class Unneeded:
    """There was nothing to commit on this head, which the log had confirmed."""

    head: Head | None


class _LostError(Exception):
    """This attempt lost: another commit has its place."""

    def __init__(self, took: float) -> None:
        self.took = took
        """The seconds that the attempt took."""


def publish_version(
    log: CommitLog,
    head: Head | None,
    build: Build,
    judge: Judge,
    deadline_seconds: float = DEADLINE_SECONDS,
    seen_at: float = math.inf,
) -> Published | Unneeded:
    """Commit what `build` makes of the head, rebasing on newer heads until it wins; Unneeded once `build`
    returns None.

    `head` may be stale or None (no version known): the log finds out. `seen_at` says when it was the
    newest, by the monotonic clock. If that is longer ago than an attempt takes, a loser is likely to be many
    versions behind, and reads the newest head instead of catching up with one winner after another. `build`
    decides on each head whether there is still something to do, and raises where it no longer fits.

    Raises CommitStateUnknownError when the deadline passes while a request's effect is unknown, or a loss in
    doubt, and when an attempt fails while an earlier one may still land: nothing was deleted, and the same
    batch, tried again, finds out. Raises CommitConflictError when it passes after lost races only: nothing is
    live. StoreUnavailableError: the store refused a create that it had not seen before, or the reload after a
    lost race; nothing of this commit is live.
    """
    give_up_at = log.environment.monotonic() + deadline_seconds
    run = _Run(log, build, judge, give_up_at, seen_at, head)
    try:
        return retrying(log.environment, _LostError, give_up_at, _wait_for_turn)(run.attempt)
    except CommitStateUnknownError:
        raise
    except Exception as failure:
        # It is of the last attempt. An earlier one may be in the lineage, or come there.
        landed = run.find_landed() if run.doubtful else None
        if landed is not None:
            return landed
        run.check_none_may_land(failure)
        if not isinstance(failure, _LostError):
            raise
        raise CommitConflictError(
            f"lost {run.attempts} races in {deadline_seconds:.0f} s; nothing of this commit is live. Fewer"
            f" writers, or larger batches, help: {log.store.location}",
            location=log.store.location,
        ) from None


@dataclass
class _Run:
    """The attempts of one commit."""

    log: CommitLog
    build: Build
    judge: Judge
    give_up_at: float
    seen_at: float
    head: Head | None
    attempts: int = 0
    winner: Version | None = None
    """The version to rebase on, which no listing has confirmed yet."""
    lost_on: Head | None = None
    """The base of the last attempt."""
    doubtful: list[Candidate] = field(default_factory=list)
    """Attempts that lost, unless the newest head turns out to descend from one of them."""
    unanswered: list[Candidate] = field(default_factory=list)
    """Those that may still land, while `_may_follow` says so of the newest head."""

    def attempt(self) -> Published | Unneeded:
        """Build on the best head that is known, and publish. Raise _LostError after a lost race."""
        began = self.log.environment.monotonic()
        self.attempts += 1
        # The winner is mostly the head. Where it is not, only the log finds the head.
        candidate = None if self.winner is None else self._build_on_unconfirmed(self.winner)
        if candidate is None:
            if self.attempts > 1:
                landed = self.find_landed()
                if landed is not None:
                    return landed
                self.doubtful = self._find_unanswered()
            candidate = self._build_on_confirmed()
        if candidate is None:
            self.check_none_may_land(None)
            return Unneeded(self.head)
        outcome = self.log.publish(candidate, self.judge, self.give_up_at)
        if isinstance(outcome, Won):
            return Published(candidate, outcome.head, outcome.seen, self.attempts)
        if isinstance(outcome, StateUnknown):
            raise outcome.error
        took = self.log.environment.monotonic() - began
        behind = began - self.seen_at > took if self.attempts == 1 else self.attempts % _LOOK_EVERY == 0
        self._rebase_after(candidate, outcome, behind)
        raise _LostError(took)

    def find_landed(self) -> Published | None:
        """Read the newest head, and return the doubtful candidate that it descends from, if there is one."""
        if not self.doubtful:
            self.head = self.log.newest(base=self.lost_on)
            return None
        outcome = self.log.find_landed(self.doubtful, self.lost_on, self.judge, self.give_up_at)
        if isinstance(outcome, StateUnknown):
            raise outcome.error
        if isinstance(outcome, Won):
            return Published(outcome.candidate, outcome.head, outcome.seen, self.attempts)
        self.head = outcome
        return None

    def check_none_may_land(self, cause: Exception | None) -> None:
        """Raise CommitStateUnknownError where an attempt may still land, on a table that was as its base."""
        if self._find_unanswered():
            raise CommitStateUnknownError(
                "a commit was sent and not answered, and may land yet: nothing has taken its number. Nothing"
                f" was deleted. Try the same again, which finds out: {self.log.store.location}",
                location=self.log.store.location,
            ) from cause

    def _find_unanswered(self) -> list[Candidate]:
        return [] if self.head is None else [it for it in self.unanswered if _may_follow(it, self.head)]

    def _build_on_confirmed(self) -> Candidate | None:
        """Build on a confirmed head; where a file of it is missing, on the head that has replaced it."""
        while True:
            try:
                return self.build(self.head)
            except MissingMetadataError:
                # Main may have been set back since, so that the number of the head is the same.
                if self.head is None or not finds_newer(self.log, self.head, self._find_newer):
                    raise

    def _find_newer(self) -> Head | None:
        if self.head is not None:
            self.head = self.log.newer(self.head)
        return self.head

    def _build_on_unconfirmed(self, winner: Version) -> Candidate | None:
        """Build on a winner that no listing has confirmed, and that may be a stalled writer's fork.

        A commit on it is judged by its own confirmation. What else `build` finds, that there is nothing to do
        or that it no longer fits, only a confirmed head may decide: then None.
        """
        with suppress(TimelineError):
            return self.build(self.log.head_after(self.lost_on, winner))
        return None

    def _rebase_after(self, candidate: Candidate, loss: Lost, behind: bool) -> None:
        """Choose the head of the next attempt: the winner, or, for a writer that is `behind`, the newest."""
        self.doubtful += [candidate] if loss.doubtful else []
        self.unanswered += [candidate] if loss.may_land else []
        winner = None if behind and not loss.is_newest else loss.winner
        if winner is not None and not all(is_beside(winner, each) for each in self.doubtful):
            winner = None
        self.winner, self.lost_on = winner, candidate.base


def _may_follow(candidate: Candidate, head: Head) -> bool:
    """Return whether a request without an answer may still bring a candidate into a table of which this is
    the newest head, where others set back what else its base had.

    A commit that takes the number of the candidate keeps it out; but servers compare no number of a snapshot
    without a parent, which lands for as long as main has none.
    """
    base = candidate.base
    if base is None:
        return False
    return base.number == head.number or (base.snapshot is None and head.snapshot is None)


def _wait_for_turn(state: RetryCallState) -> float:
    """Return the longest wait after a lost race: 0 except before each look at the log, then ever less.

    A writer that has just won does not wait, so waits that grow would starve the losers: at 60 ms a request
    one of eight made nine of ten commits. Here the writer that has waited longest goes first, and the unit is
    what an attempt takes on this store, so that it needs no constant (R15).
    """
    lost = None if state.outcome is None else state.outcome.exception()
    assert isinstance(lost, _LostError)
    return 0.0 if state.attempt_number % _LOOK_EVERY else 2 * lost.took / state.attempt_number
