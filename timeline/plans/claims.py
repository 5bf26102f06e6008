"""Claims on plans: which executor has a plan. A claim is a file that its executor overwrites as a heartbeat.

Claims are advice (R11). Two executors of one plan cost work only: the first to commit takes the inputs, and
the commit of the second finds that they are not live.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from timeline import names
from timeline.clock import Environment
from timeline.errors import StoreUnavailableError
from timeline.plans.plan_file import Plan
from timeline.stores.base import Created, Store, read_if_there

_LOG = logging.getLogger("streaming_sink.timeline")

PATIENCE_SECONDS = 300.0
"""How long an observer sees no heartbeat before it takes a plan over. Executors beat several times as often.
"""


@dataclass
class Claim:
    """An executor's claim on a plan. `beat` may be called from another thread, and from one only."""

    plan_id: str
    plan: Plan
    number: int
    executor: str
    store: Store
    _beats: int = 0

    def beat(self) -> bool:
        """Write a heartbeat. Return False once the plan has ended or was taken over: stop, since the commit
        would find nothing to do.

        A store that does not answer is no reason to stop: that is logged, and the answer is True.
        """
        try:
            others = instants_of(self.store, self.plan_id)
            if "cancelled" in others or "completed" in others or others.get("inflight", 0) > self.number:
                return False
            path = names.inflight_path(self.plan_id, self.number)
            if _executor(read_if_there(self.store, path)) not in (None, self.executor):
                return False
            self._beats += 1
            self.store.overwrite(path, claim_bytes(self.executor, self._beats))
        except StoreUnavailableError as failure:
            _LOG.warning("plan %s goes on without a heartbeat: %s", self.plan_id, failure)
        return True

    def release(self) -> None:
        """Delete the claim, if it is still this executor's, so that others may claim at once. Best effort."""
        path = names.inflight_path(self.plan_id, self.number)
        try:
            if _executor(read_if_there(self.store, path)) == self.executor:
                self.store.delete([path])
        except StoreUnavailableError as failure:
            _LOG.warning("plan %s stays claimed until its claim is abandoned: %s", self.plan_id, failure)


@dataclass
class Watch:
    """Judges claims by how long their content stays the same, on this process's own stopwatch; no clock of
    another machine counts. Keep one watch for the life of the process.
    """

    environment: Environment
    patience_seconds: float = PATIENCE_SECONDS
    _seen: dict[str, tuple[int, bytes | None, float]] = field(default_factory=dict)
    _beaten: set[tuple[str, int]] = field(default_factory=set)

    def is_abandoned(self, store: Store, plan_id: str, claim: int) -> bool:
        """Read a plan's claim. Return True once its content has been the same for `patience_seconds`."""
        content = read_if_there(store, names.inflight_path(plan_id, claim))
        now = self.environment.monotonic()
        seen = self._seen.get(plan_id)
        if seen is None or seen[:2] != (claim, content):
            if seen is not None and seen[0] == claim:
                self._beaten.add((plan_id, claim))
            self._seen[plan_id] = claim, content, now
            return False
        return now - seen[2] >= self.patience_seconds

    def has_beaten(self, plan_id: str, claim: int) -> bool:
        """Return whether `is_abandoned` has seen a heartbeat of the claim. No request."""
        return (plan_id, claim) in self._beaten


@contextmanager
def heartbeat(claim: Claim, seconds: float) -> Iterator[Callable[[], bool]]:
    """Write a heartbeat every so many seconds from a thread during the block. Yields a function that returns
    whether the claim holds.
    """
    ended, lost = threading.Event(), threading.Event()

    def beat() -> None:
        while not ended.wait(seconds):
            if not claim.beat():
                lost.set()
                return

    thread = threading.Thread(target=beat, name=f"claim {claim.plan_id}", daemon=True)
    thread.start()
    try:
        yield lambda: not lost.is_set()
    finally:
        ended.set()
        thread.join()


def take_claim(store: Store, plan_id: str, plan: Plan, number: int, executor: str) -> Claim | None:
    """Create the claim of that number; return None where another executor was first, or where the store gave
    no clean answer and does not hold this executor's claim.
    """
    path = names.inflight_path(plan_id, number)
    outcome = store.create(path, claim_bytes(executor, 0))
    if not isinstance(outcome, Created) and _executor(read_if_there(store, path)) != executor:
        return None
    return Claim(plan_id, plan, number, executor, store)


def instants_of(store: Store, plan_id: str) -> dict[str, int]:
    """Return the states that a plan has instants of, each with its highest claim (0 except for inflight). One
    LIST.
    """
    return all_instants(store, names.plan_kind(plan_id)).get(plan_id, {})


def all_instants(store: Store, kind: str) -> dict[str, dict[str, int]]:
    """Return plan id → its instants, as `instants_of` does, of every plan of a kind that has a file."""
    plans: dict[str, dict[str, int]] = {}
    for listed in store.list_folder(names.plan_folder(kind)):
        if (named := names.instant_of(listed.path)) is not None:
            plan_id, state, claim = named
            states = plans.setdefault(plan_id, {})
            states[state] = max(claim, states.get(state, 0))
    return plans


def holder_of(store: Store, plan_id: str, claim: int) -> str | None:
    """Return which executor has a claim; None where it was deleted, has failed, or cannot be read."""
    return _executor(read_if_there(store, names.inflight_path(plan_id, claim)))


def claim_bytes(executor: str, beats: int) -> bytes:
    return json.dumps({"executor": executor, "beats": beats}).encode()


def _executor(content: bytes | None) -> str | None:
    """Return which executor wrote a claim; None where it was deleted or is unreadable."""
    try:
        stored = json.loads(content or b"")
    except ValueError:
        return None
    return str(stored.get("executor")) if isinstance(stored, dict) else None
