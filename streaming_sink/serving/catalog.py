"""The datasets that a server shows, read in threads: a store that does not answer makes no request hang.

What was read is shown for a second; then one thread reads anew, and all requests wait for it a while. Where
it is not done by then, they get what was read last, marked as stale.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from dataclasses import replace
from typing import TypeVar

from streaming_sink.ingest.zone import BufferZone
from streaming_sink.serving.answers import Dataset, dataset_of
from streaming_sink.zones.ledger import Ledger
from streaming_sink.zones.planning.flux import Flux
from streaming_sink.zones.status import status
from timeline.clock import SYSTEM, Environment
from timeline.errors import ErrorKind, StoreUnavailableError, TimelineError

_LOG = logging.getLogger("streaming_sink")
_FRESH_MS = 1_000
PATIENCE_SECONDS = 3.0
LOOKUP_SECONDS = 15.0
_MOST_LOOKUPS = 8
_T = TypeVar("_T")


class BusyError(TimelineError):
    """The store does not answer in time, or too many look-ups wait for it."""

    kind = ErrorKind.TRY_AGAIN


class DatasetReader:
    """One zone, as the server reads it. Safe for concurrent use by threads."""

    def __init__(self, name: str, zone: BufferZone, environment: Environment = SYSTEM) -> None:
        self.name = name
        self._zone, self._now_ms = zone, environment.now_ms
        self._lock = threading.Lock()
        self._known = Dataset(name, zone.store.location)
        self._reading: Future[Dataset] | None = None
        self._read_ms = 0
        self._flux: Flux | None = None
        self._lookups = threading.BoundedSemaphore(_MOST_LOOKUPS)

    def dataset(self, patience_seconds: float = PATIENCE_SECONDS) -> Dataset:
        """Return the dataset as it is, or was when the store last answered; then it says so."""
        with self._lock:
            if self._now_ms() - self._read_ms < _FRESH_MS:
                return self._known
            if self._reading is None:
                self._reading = in_thread(self._read)
            reading = self._reading
        try:
            return reading.result(patience_seconds)
        except LateError:
            return self._stale("the store has not answered in time; this is read again and again")

    def look_up(self, find: Callable[[Ledger], _T], patience_seconds: float = LOOKUP_SECONDS) -> _T:
        """Return what the ledger says. BusyError where the store does not answer in time."""
        if not self._lookups.acquire(blocking=False):
            raise BusyError("too many look-ups wait for the store; try again in some seconds")

        def work() -> _T:
            try:
                return find(Ledger(self._zone.reopened()))
            finally:
                self._lookups.release()

        try:
            return in_thread(work).result(patience_seconds)
        except LateError as late:
            raise BusyError("the store has not answered in time; try again in some seconds") from late

    def _read(self) -> Dataset:
        """Read the dataset; never raises. One thread at a time is here."""
        try:
            if self._flux is None:
                self._open = self._zone.reopened()
                self._flux = Flux(self._open, plans=False)
            found = dataset_of(self.name, status(self._open, self._flux), self._now_ms())
        except Exception as failure:  # noqa: BLE001 - shown, with what was read last
            kind = logging.WARNING if isinstance(failure, StoreUnavailableError) else logging.ERROR
            _LOG.log(kind, "dataset %s cannot be read: %s", self.name, failure)
            self._flux = None
            found = self._stale(f"{type(failure).__name__}: {failure}")
        with self._lock:
            self._known, self._reading, self._read_ms = found, None, self._now_ms()
        return found

    def _stale(self, why: str) -> Dataset:
        return replace(self._known, stale=True, error=why)


def open_catalog(zones: Sequence[BufferZone | str]) -> dict[str, DatasetReader]:
    """Return the datasets of some zones by their names: the last part of the zone's location, with a number
    where several are the same. ValueError where there is none.
    """
    if not zones:
        raise ValueError("say which buffer zones the catalog is of")
    readers: dict[str, DatasetReader] = {}
    for zone in zones:
        opened = BufferZone(zone) if isinstance(zone, str) else zone
        last = name = opened.store.location.rpartition("/")[2]
        number = 1
        while name in readers:
            number += 1
            name = f"{last}-{number}"
        readers[name] = DatasetReader(name, opened)
    return readers


def in_thread(work: Callable[[], _T]) -> Future[_T]:
    """Run a function in a thread of its own, which does not keep the process from ending."""
    done: Future[_T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as failure:  # noqa: BLE001 - raised where the result is asked for
            done.set_exception(failure)

    threading.Thread(target=run, name="catalog", daemon=True).start()
    return done
