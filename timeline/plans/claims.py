"""Who carries a plan out: a claim is a file that its executor keeps overwriting, as a sign of life.

All of it is advice (R11). Two executors of one plan cost work only: the first to commit replaces the inputs,
and for the other they are gone.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field

from timeline import names
from timeline.clock import Environment
from timeline.errors import StoreUnavailableError
from timeline.plans.plan_file import Plan
from timeline.stores.base import Created, Store

_LOG = logging.getLogger("streaming_sink.timeline")

PATIENCE_SECONDS = 300.0
"""How long an observer sees no sign of life before it takes a plan over. Beat several times in that long."""


@dataclass
class Claim:
    """An executor's hold on a plan. `beat` may be called from a thread of its own, and from one only."""

    plan_id: str
    plan: Plan
    number: int
    executor: str
    store: Store
    _beats: int = 0

    def beat(self) -> bool:
        """Give a sign of life. False once the plan was cancelled or taken over: stop, since the work is
        likely lost.

        A store that does not answer is no reason to stop: that is logged, and True.
        """
        try:
            others = instants_of(self.store, self.plan_id)
            if "cancelled" in others or "completed" in others or others.get("inflight", 0) > self.number:
                return False
            path = names.inflight_path(self.plan_id, self.number)
            if _executor(_content(self.store, path)) not in (None, self.executor):
                return False
            self._beats += 1
            self.store.overwrite(path, claim_bytes(self.executor, self._beats))
        except StoreUnavailableError as failure:
            _LOG.warning("plan %s goes on without a sign of life: %s", self.plan_id, failure)
        return True

    def release(self) -> None:
        """Let the plan be claimed by others at once, if it is still ours. Best effort."""
        path = names.inflight_path(self.plan_id, self.number)
        try:
            if _executor(_content(self.store, path)) == self.executor:
                self.store.delete([path])
        except StoreUnavailableError as failure:
            _LOG.warning("plan %s stays claimed until its executor is given up: %s", self.plan_id, failure)


@dataclass
class Watch:
    """Judges claims by watching their content on this process's own stopwatch: no clock of another machine
    counts. Keep one for as long as the process lives.
    """

    environment: Environment
    patience_seconds: float = PATIENCE_SECONDS
    _seen: dict[str, tuple[int, bytes | None, float]] = field(default_factory=dict)

    def is_abandoned(self, store: Store, plan_id: str, claim: int) -> bool:
        """Look at a plan's claim. True once it has looked the same for as long as this patience lasts."""
        content = _content(store, names.inflight_path(plan_id, claim))
        now = self.environment.monotonic()
        seen = self._seen.get(plan_id)
        if seen is None or seen[:2] != (claim, content):
            self._seen[plan_id] = claim, content, now
            return False
        return now - seen[2] >= self.patience_seconds


def take_claim(store: Store, plan_id: str, plan: Plan, number: int, executor: str) -> Claim | None:
    """Create the claim of that number; None where another executor was first, or the store gave no clean
    answer and holds none of ours.
    """
    path = names.inflight_path(plan_id, number)
    outcome = store.create(path, claim_bytes(executor, 0))
    if not isinstance(outcome, Created) and _executor(_content(store, path)) != executor:
        return None
    return Claim(plan_id, plan, number, executor, store)


def instants_of(store: Store, plan_id: str) -> dict[str, int]:
    """Return the kinds of instants that a plan has; for inflight, its highest claim. One LIST."""
    return all_instants(store).get(plan_id, {})


def all_instants(store: Store) -> dict[str, dict[str, int]]:
    """Return plan id → its instants, as `instants_of` does, of every plan that has a file."""
    found: dict[str, dict[str, int]] = {}
    for listed in store.list_folder(names.CLUSTERING_FOLDER):
        if (named := names.instant_of(listed.path)) is not None:
            plan_id, kind, claim = named
            kinds = found.setdefault(plan_id, {})
            kinds[kind] = max(claim, kinds.get(kind, 0))
    return found


def claim_bytes(executor: str, beats: int) -> bytes:
    return json.dumps({"executor": executor, "beats": beats}).encode()


def _executor(content: bytes | None) -> str | None:
    """Return who wrote a claim; None where it has gone or is unreadable."""
    try:
        stored = json.loads(content or b"")
    except ValueError:
        return None
    return str(stored.get("executor")) if isinstance(stored, dict) else None


def _content(store: Store, path: str) -> bytes | None:
    try:
        return store.read(path).data
    except FileNotFoundError:
        return None
