"""Compute: starts short-lived consolidation workers as processes, for one zone or many, within bounds.

A worker is any command that lands the work items of a zone and ends, such as `spark-submit` on a cluster. It
runs as long as its worker does. This process plans nothing and lands nothing: it may be killed and started
again, and several may run, since claims keep workers apart.
"""

from __future__ import annotations

import logging
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from planners.ingestion.dispatching import Demand, workers_to_start
from streaming_sink.ingest.worker import PATIENCE_SECONDS, Worker, fail_claims
from streaming_sink.ingest.zone import BufferZone
from timeline.errors import StoreUnavailableError, TimelineError

_LOG = logging.getLogger("streaming_sink")
POLL_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0
_MOST_FAILURES = 10
"""Failed workers in a row after which a dispatcher that is to end gives a zone up."""
COMMAND = (
    *(sys.executable, "-m", "streaming_sink", "ingest", "work", "{zone}"),
    *("--available-now", "--name", "{worker}"),
)
"""A worker in a process of this machine."""


@dataclass(frozen=True, slots=True)
class Started:
    """What a call of `dispatch` has done."""

    workers: int
    failed: int
    """Of these, those that ended with an error, or left all work items as they were."""


@dataclass
class _Process:
    zone: BufferZone
    name: str
    child: subprocess.Popen[bytes]
    free: set[int]
    """The work items that it could take when it started."""


@dataclass
class _Zone:
    zone: BufferZone
    worker: Worker
    failures: int = 0
    """In a row."""
    free: set[int] = field(default_factory=set)
    """The work items that a worker may take, when they were last looked at."""
    paused_until: float = 0.0
    error: Exception | None = None
    """Why its work items could not be read when they were last looked at."""
    running: list[_Process] = field(default_factory=list)


def dispatch(
    zones: Sequence[BufferZone],
    *,
    command: str | Sequence[str] = COMMAND,
    most_each: int = 1,
    most: int = 2,
    available_now: bool = False,
    stop: threading.Event | None = None,
    poll_seconds: float = POLL_SECONDS,
    patience_seconds: float = PATIENCE_SECONDS,
) -> Started:
    """Start a worker wherever a planned work item has none: `most_each` for a zone at once, `most` in all.

    `command` is run without a shell, as a list or as text that is split as a shell would. In it `{zone}` is
    the zone's location, and `{worker}` a name for `--name`, by which the claims of a worker that has ended
    are taken over at once; without it, once they have had no heartbeat for `patience_seconds`. After a worker
    that failed, or ended and left all items as they were, the zone pauses for a second, and twice as long
    after each further one, up to a minute.

    Runs until `stop` is set; with `available_now` until no item is left that a worker may take, but for zones
    of which ten workers in a row have failed, or whose items cannot be read: the error of such a zone, a
    damaged plan for example, is raised at the end. The others go on. Workers that
    run go on to their end, for which the call waits. ValueError for a command without `{zone}`, one whose
    program is not there, or a bound below 1.
    """
    words = shlex.split(command) if isinstance(command, str) else list(command)
    if not any("{zone}" in word for word in words):
        raise ValueError(f"the command of a worker has {{zone}} where the zone's location belongs: {words}")
    if shutil.which(words[0]) is None:
        raise ValueError(f"there is no such program for a worker: {words[0]}")
    for name, value in {"most_each": most_each, "most": most}.items():
        if type(value) is not int or value < 1:
            raise ValueError(f"{name} must be a whole number of 1 or more, not {value!r}")
    ended = threading.Event() if stop is None else stop
    known = {zone.store.location: _Zone(zone, Worker(zone, patience_seconds)) for zone in zones}
    started = failed = 0
    try:
        while not ended.is_set():
            failed += sum(_reap(each) for each in known.values())
            demands = [demand for each in known.values() if (demand := _demand(each)) is not None]
            for location in workers_to_start(demands, most_each=most_each, most=most):
                _start(known[location], words)
                started += 1
            at_rest = {each.zone for each in demands if not each.free_items and not each.workers}
            idle = all(at in at_rest or it.failures >= _MOST_FAILURES for at, it in known.items())
            if available_now and idle:
                break
            ended.wait(poll_seconds)
    finally:
        for each in known.values():
            for process in each.running:
                process.child.wait()
            failed += _reap(each)
    for each in known.values():
        if each.error is not None:
            raise each.error
    return Started(started, failed)


def _demand(known: _Zone) -> Demand | None:
    """Return what a zone needs; None while it pauses, or where its store does not answer."""
    if time.monotonic() < known.paused_until:
        return None
    try:
        known.free, claimed = known.worker.free_and_claimed()
    except StoreUnavailableError as failure:
        _LOG.warning("work goes on later: %s", failure)
        return None
    except (TimelineError, ValueError) as failure:
        known.error = failure
        _pause(known, f"its work items cannot be read: {failure}")
        return None
    known.error = None
    return Demand(known.zone.store.location, len(known.free), len(known.running), len(claimed))


def _start(known: _Zone, words: Sequence[str]) -> None:
    zone, name = known.zone.store.location, known.zone.new_id()
    filled = [word.replace("{zone}", zone).replace("{worker}", name) for word in words]
    # Only its program is logged: options of a store may be secret.
    _LOG.info("worker %s starts for %s: %s", name, zone, filled[0])
    child = subprocess.Popen(filled, stdin=subprocess.DEVNULL)
    known.running.append(_Process(known.zone, name, child, known.free))


def _reap(known: _Zone) -> int:
    """Forget workers that have ended, and return how many of them failed. Their claims are free."""
    failed = 0
    for process in [each for each in known.running if each.child.poll() is not None]:
        known.running.remove(process)
        reason = _why_failed(known, process)
        if reason is None:
            known.failures = 0
            continue
        failed += 1
        _pause(known, reason)
        if process.child.returncode == 0:
            continue
        try:
            fail_claims(process.zone, process.name, reason)
        except StoreUnavailableError as failure:
            _LOG.warning("its claims end once they have had no heartbeat for a while: %s", failure)
    return failed


def _pause(known: _Zone, reason: str) -> None:
    pause = min(_LONGEST_PAUSE_SECONDS, 2.0 ** min(known.failures, _MOST_FAILURES))
    known.failures += 1
    known.paused_until = time.monotonic() + pause
    _LOG.warning("%s: %s; the zone pauses for %g s", known.zone.store.location, reason, pause)


def _why_failed(known: _Zone, process: _Process) -> str | None:
    if (code := process.child.returncode) != 0:
        return f"its worker has ended with code {code}"
    try:
        free, _ = known.worker.free_and_claimed()
    except (TimelineError, ValueError):
        return None  # it is looked at again before another one starts
    if process.free <= free:
        return "its worker has ended, and left all work items as they were; a command ends with its worker"
    return None
