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

from planners.dispatching import Demand, workers_to_start
from streaming_sink.ingest.worker import PATIENCE_SECONDS, Worker, fail_claims
from streaming_sink.ingest.zone import BufferZone
from timeline.errors import StoreUnavailableError

_LOG = logging.getLogger("streaming_sink")
POLL_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0
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
    """Of these, those that ended with an error."""


@dataclass
class _Process:
    zone: BufferZone
    name: str
    child: subprocess.Popen[bytes]


@dataclass
class _Zone:
    zone: BufferZone
    worker: Worker
    failures: int = 0
    """In a row."""
    paused_until: float = 0.0
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
    that failed the zone pauses for a second, and twice as long after each further one, up to a minute.

    Runs until `stop` is set; with `available_now` until no item is left that a worker may take. Workers that
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
            idle = len(demands) == len(known) and not any(each.free_items or each.workers for each in demands)
            if available_now and idle:
                break
            ended.wait(poll_seconds)
    finally:
        for each in known.values():
            for process in each.running:
                process.child.wait()
            failed += _reap(each)
    return Started(started, failed)


def _demand(known: _Zone) -> Demand | None:
    """Return what a zone needs; None while it pauses, or where its store does not answer."""
    if time.monotonic() < known.paused_until:
        return None
    try:
        free, claimed = known.worker.free_and_claimed()
    except StoreUnavailableError as failure:
        _LOG.warning("work goes on later: %s", failure)
        return None
    return Demand(known.zone.store.location, free, len(known.running), claimed)


def _start(known: _Zone, words: Sequence[str]) -> None:
    zone, name = known.zone.store.location, known.zone.new_id()
    filled = [word.replace("{zone}", zone).replace("{worker}", name) for word in words]
    _LOG.info("a worker starts for %s: %s", zone, shlex.join(filled))
    known.running.append(_Process(known.zone, name, subprocess.Popen(filled, stdin=subprocess.DEVNULL)))


def _reap(known: _Zone) -> int:
    """Forget workers that have ended, and return how many of them failed. Their claims are free."""
    failed = 0
    for process in [each for each in known.running if each.child.poll() is not None]:
        known.running.remove(process)
        code = process.child.returncode
        if code == 0:
            known.failures = 0
            continue
        failed += 1
        pause = min(_LONGEST_PAUSE_SECONDS, 2.0**known.failures)
        known.failures += 1
        known.paused_until = time.monotonic() + pause
        reason = f"its worker has ended with code {code}"
        _LOG.warning("%s: %s; the zone pauses for %g s", known.zone.store.location, reason, pause)
        try:
            fail_claims(process.zone, process.name, reason)
        except StoreUnavailableError as failure:
            _LOG.warning("its claims end once they have had no heartbeat for a while: %s", failure)
    return failed
