"""Expiry (R7): snapshots leave the metadata first, their files are deleted later, while readers still read.

Snapshot k is one digit and refers to one file of the same name; each commit replaces the one before it. A
version is a number, and a create on a number that is taken loses. A reader pins a snapshot of the head and
may read its file until the grace period after that is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


class State(NamedTuple):
    now: int
    number: int
    """The head's number."""
    kept: str
    """The snapshots in the head's metadata; the last is current."""
    tag: str
    """The snapshot that a tag names, if any."""
    expired: frozenset[tuple[str, int]]
    """Snapshots that left, and when."""
    stored: str
    """The files that exist."""
    plan: tuple[int, str] | None
    """What the expirer is about to commit: the version that it read, and the snapshots that go."""
    reads: str
    since: int
    """What the reader pinned last, and when."""


@dataclass(frozen=True, kw_only=True)
class Expiry:
    """The rules of expiry; each may be taken away."""

    expires_first: bool = True
    """The version without the snapshots is committed before any of their files is deleted."""
    waits_for_grace: bool = True
    """Their files stay for the grace period."""
    recomputes_after_a_loss: bool = True
    """What goes is decided on the head that the commit builds upon."""
    tags_pin: bool = True
    """A snapshot that a tag names stays."""
    cleaner_spares_the_expired: bool = True
    """The orphan cleaner, for whose fence these files are old, counts them as reachable during grace (R6)."""

    ends: int = 3
    grace: int = 1
    snapshots: int = 4

    def initial(self) -> State:
        return State(0, 1, "0", "", frozenset(), "0", None, "", 0)

    def violation(self, state: State) -> str | None:
        if lost := set(state.kept) - set(state.stored):
            return f"version {state.number} keeps snapshot {min(lost)}, whose file was deleted"
        if state.tag and state.tag not in state.kept:
            return f"a tag names snapshot {state.tag}, which version {state.number} does not keep"
        if state.reads and state.reads not in state.stored and state.now - state.since <= self.grace:
            return f"a reader within grace misses file {state.reads}"
        return None

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if state.now < self.ends:
            yield f"time passes: {state.now + 1}", state._replace(now=state.now + 1)
        latest = int(state.kept[-1])
        if latest + 1 < self.snapshots:
            added = str(latest + 1)
            after = state._replace(kept=state.kept + added, stored=state.stored + added)
            yield f"others commit snapshot {added}", after._replace(number=state.number + 1)
        for snapshot in state.kept:
            if not state.tag:
                after = state._replace(tag=snapshot, number=state.number + 1)
                yield f"others tag snapshot {snapshot}", after
            yield f"reader pins snapshot {snapshot}", state._replace(reads=snapshot, since=state.now)
        yield from self._expire(state)
        yield from self._delete(state)

    def _expire(self, state: State) -> Iterator[tuple[str, State]]:
        if state.plan is None:
            for length in range(1, len(state.kept)):
                gone = state.kept[:length]
                if not (self.tags_pin and state.tag and state.tag in gone):
                    step = f"expirer reads v{state.number} and plans to expire {gone}"
                    yield step, state._replace(plan=(state.number, gone))
            return
        base, gone = state.plan
        if base == state.number or not self.recomputes_after_a_loss:
            kept = "".join(snapshot for snapshot in state.kept if snapshot not in gone)
            after = state._replace(number=state.number + 1, kept=kept, plan=None)
            expired = state.expired | {(snapshot, state.now) for snapshot in gone}
            yield f"expirer creates v{state.number + 1} without {gone}", after._replace(expired=expired)
        else:
            yield f"expirer loses v{base + 1}", state._replace(plan=None)
        if not self.expires_first:
            for snapshot in gone:
                if snapshot in state.stored:
                    yield f"expirer deletes file {snapshot}", _without(state, snapshot)

    def _delete(self, state: State) -> Iterator[tuple[str, State]]:
        for snapshot, when in sorted(state.expired):
            if snapshot in state.stored:
                if state.now - when > self.grace or not self.waits_for_grace:
                    yield f"expirer deletes file {snapshot}", _without(state, snapshot)
                if state.now - when > self.grace or not self.cleaner_spares_the_expired:
                    yield f"cleaner deletes file {snapshot}", _without(state, snapshot)


def _without(state: State, file: str) -> State:
    return state._replace(stored=state.stored.replace(file, ""))
