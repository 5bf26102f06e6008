"""Runs a zone in one process: Flux in a thread, and a worker; until it is stopped, or nothing is left."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from streaming_sink.ingest import jobs
from streaming_sink.ingest.worker import PATIENCE_SECONDS, Worker
from streaming_sink.ingest.zone import BufferZone
from streaming_sink.zones.backlog import Backlog
from streaming_sink.zones.cleaning import clean
from streaming_sink.zones.definition import Definition
from streaming_sink.zones.landed import Landed
from streaming_sink.zones.planning.flux import Flux
from streaming_sink.zones.planning.watching import FolderWatch
from timeline.errors import StoreUnavailableError, TableNotFoundError, TimelineError, UnsupportedTableError

_LOG = logging.getLogger("streaming_sink")
POLL_SECONDS = 1.0
RULES_SECONDS = 30.0
"""Between two looks of a planner at the zone's rules, and of a worker at how its items land."""
SETTLE_SECONDS = 1.0
"""Between two looks at a watched folder, where a single run decides whether its files are whole."""
_CLEANS_EVERY = 100
"""Work items, between which a worker deletes staged files."""
_NAMED = 20
_KEPT = 1_000
"""What landed that a call remembers which runs until it is stopped."""
_MOST_FAILURES = 10
"""Failures in a row after which a worker that is to end ends with an error: a store that is away, not one
item.
"""
_OF_THE_TABLE = (TableNotFoundError, UnsupportedTableError)
"""Failures that no further try helps: the table was dropped, renamed, or is one that the sink refuses."""
_LOOK_SECONDS = 0.1
"""Between two looks at the event of the caller, which wakes no one who waits for the end of a run."""


def run(
    session: SparkSession,
    zone: BufferZone,
    *,
    available_now: bool = False,
    stop: threading.Event | None = None,
    poll_seconds: float = POLL_SECONDS,
    patience_seconds: float = PATIENCE_SECONDS,
    on_landed: Callable[[Landed], None] = lambda _: None,
) -> list[Landed]:
    """Plan and land what waits in a zone, and return what landed here; of a call that runs until it is
    stopped the last 1,000 items.

    With `available_now` all that was announced when the call began lands, whichever rules it meets, and the
    call returns once no work item is left that this process may take: it waits for a heartbeat of the worker
    of each other item, and takes over those of dead ones. Else it runs until `stop` is set, looks
    at the zone every `poll_seconds`, and keeps the rules' deadlines to about that time; what ends the planner
    is raised. Items that other workers have are left to them. A failure of an item is logged, and the item is
    tried again, by any worker.
    """
    _check_is_zone(zone)
    landed = deque[Landed](maxlen=None if available_now else _KEPT)

    def keep(result: Landed) -> None:
        landed.append(result)
        on_landed(result)

    if available_now:
        plan_waiting(zone, flush=True)
        work(session, zone, until_idle=True, patience_seconds=patience_seconds, on_landed=keep)
        return list(landed)
    ended = _Ended(stop)
    failed: list[Exception] = []

    def plan() -> None:
        try:
            plan_until(zone, ended, poll_seconds)
        except Exception as failure:  # noqa: BLE001 - raised below: without a planner nothing lands
            failed.append(failure)
            ended.set()

    planner = threading.Thread(target=plan, name="flux", daemon=True)
    planner.start()
    try:
        work(
            session,
            zone,
            stop=ended,
            poll_seconds=poll_seconds,
            patience_seconds=patience_seconds,
            on_landed=keep,
        )
    finally:
        ended.set()
        planner.join()
    if failed:
        raise failed[0]
    return list(landed)


def _check_is_zone(given: Any) -> None:
    if not isinstance(given, BufferZone):
        raise TypeError(f"a BufferZone is what is run, such as BufferZone('/lake/_buffer'), not {given!r}")


class _Ended(threading.Event):
    """Is set once a run has ended, or its caller's event is: that one may be of other runs too."""

    def __init__(self, asked: threading.Event | None) -> None:
        super().__init__()
        self._asked = asked

    def is_set(self) -> bool:
        return super().is_set() or (self._asked is not None and self._asked.is_set())

    def wait(self, timeout: float | None = None) -> bool:
        until = None if timeout is None else time.monotonic() + timeout
        while not self.is_set() and (until is None or time.monotonic() < until):
            super().wait(_LOOK_SECONDS if until is None else min(_LOOK_SECONDS, until - time.monotonic()))
        return self.is_set()


def plan_waiting(zone: BufferZone, *, flush: bool = False) -> int:
    """Look at the watched folders, record the work items that are due, once, and return how many. `flush`:
    all that waits is due.
    """
    flux, items = Flux(zone), 0
    if zone.watched() and not Backlog(zone, flux).is_full():
        flux.catch_up()
        watch = FolderWatch(zone, flux.known)
        watch.look()
        time.sleep(SETTLE_SECONDS)
        watch.look()
    while (plan := flux.plan(flush=flush)) is not None:
        items += len(plan.items)
    return items


def plan_until(zone: BufferZone, stop: threading.Event, poll_seconds: float = POLL_SECONDS) -> None:
    """Record work items as they become due, until `stop` is set. A store that is silent is tried again. New
    rules of the zone hold half a minute later.
    """
    flux = Flux(zone)
    watch = FolderWatch(zone, flux.known)
    backlog, refreshed = Backlog(zone, flux), time.monotonic()
    while not stop.is_set():
        try:
            if time.monotonic() - refreshed > RULES_SECONDS:
                zone.refresh()
                flux.buffer.rules, refreshed = zone.rules, time.monotonic()
            if not backlog.is_full():
                watch.look()
            while flux.plan() is not None and not stop.is_set():
                pass
            watch.forget_known()
        except StoreUnavailableError as failure:
            _LOG.warning("planning goes on in %s s: %s", poll_seconds, failure)
        stop.wait(_until_due(flux, poll_seconds))


def _until_due(flux: Flux, poll_seconds: float) -> float:
    deadline = flux.buffer.deadline_ms()
    if deadline is None:
        return poll_seconds
    return min(poll_seconds, max(0.01, deadline / 1000 - time.time()))


def work(
    session: SparkSession,
    zone: BufferZone,
    *,
    until_idle: bool = False,
    stop: threading.Event | None = None,
    poll_seconds: float = POLL_SECONDS,
    patience_seconds: float = PATIENCE_SECONDS,
    name: str | None = None,
    on_landed: Callable[[Landed], None] = lambda _: None,
) -> None:
    """Land work items as they are planned: `until_idle`, as long as there are any that this worker may take,
    and until those of other workers have shown a heartbeat, or can be taken over; else until `stop` is set. A
    failure of an item is logged, and the item is tried again. New options of the zone, such as its contract,
    expectations and audit, hold half a minute later, between two items. `name` is the worker's in its claims,
    by which `dispatch` knows those of a worker that has ended.

    Before it looks for an item it runs a task on each core, so that none waits for a session's slow first
    jobs; what that raises is raised, and also the failure of an item after which Spark runs no tasks: it is
    not the item's, and the next ones would fail alike.
    """
    _check_is_zone(zone)
    jobs.warm(session)
    worker, lands_by = Worker(zone, patience_seconds, name), _lands_by(zone)
    ended, looked = threading.Event() if stop is None else stop, time.monotonic()
    failures = landed = 0
    while not ended.is_set():
        try:
            if time.monotonic() - looked > RULES_SECONDS:
                zone.refresh()
                looked = time.monotonic()
            if _lands_by(zone) != lands_by:
                worker.finish()
                worker, lands_by = Worker(zone, patience_seconds, name), _lands_by(zone)
                _LOG.info("items land by the zone's new options from now on: %s", zone)
            result = worker.land_next(session)
        except Exception as failure:
            failures += 1
            if until_idle and (failures >= _MOST_FAILURES or isinstance(failure, _OF_THE_TABLE)):
                raise
            if not isinstance(failure, TimelineError) and not jobs.runs_tasks(session):
                raise
            _LOG.warning("a work item failed: %s: %s", type(failure).__name__, failure)
            ended.wait(poll_seconds)
            continue
        failures = 0
        if result is not None:
            on_landed(result)
            landed += 1
            if landed % _CLEANS_EVERY == 0:
                _tidy(worker, zone)
        elif until_idle and not _has_more(worker):
            _log_items_set_apart(worker, zone)
            break
        else:
            ended.wait(poll_seconds)
    worker.finish()
    _tidy(worker, zone)


def _lands_by(zone: BufferZone) -> Definition:
    """Return what the known definition of a zone says of how items land: all but what planners look at."""
    return replace(zone.definition, rules={})


def _has_more(worker: Worker) -> bool:
    try:
        return worker.has_more()
    except StoreUnavailableError as failure:
        _LOG.warning("what other workers do is not known: %s", failure)
        return False


def _log_items_set_apart(worker: Worker, zone: BufferZone) -> None:
    try:
        apart = worker.set_apart()
    except StoreUnavailableError as failure:
        _LOG.warning("whether items are set apart is not known: %s", failure)
        return
    if apart:
        _LOG.warning(
            "%d work items are held or set apart and did not land; `streaming-sink ingest status %s` says"
            " why: %s",
            len(apart),
            zone.store.location,
            ", ".join(map(str, apart[:_NAMED])),
        )


def _tidy(worker: Worker, zone: BufferZone) -> None:
    """Complete what dead workers have left, and delete staged files, best effort: the next worker goes on."""
    try:
        worker.complete_notes()
        worker.unstage_old()
        worker.deliver()
        clean(zone)
    except StoreUnavailableError as failure:
        _LOG.warning("notes and staged files are left to the next worker: %s", failure)
