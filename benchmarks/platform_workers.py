"""Worker processes of a platform: each lands items of all zones in a Spark session, until it is killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.sessions import local_session
from streaming_sink import ingest
from streaming_sink.ingest.worker import Worker
from streaming_sink.zones.records import KIND, item_of_claim
from timeline.plans.claims import all_instants, holder_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from pyspark.sql import SparkSession

PATIENCE_SECONDS = 4.0
"""Without a heartbeat for so long a worker is taken to be dead."""
_POLL_SECONDS = 0.25
_START_SECONDS = 120


@dataclass(frozen=True)
class _Running:
    name: str
    process: BaseProcess
    ready: Connection


class Crew:
    """Workers of the zones at these locations. Each first lands the file `warm` in a zone of its own: it
    takes no item while it is cold.

    Workers share no lock, event or queue with this process: one that is killed while it holds one, or waits
    for one, would let this process wait for ever.
    """

    def __init__(self, zones: Sequence[str], warm: str, workers: int) -> None:
        self._zones, self._warm = zones, warm
        self._context = multiprocessing.get_context("spawn")
        self._starts = self.kills = 0
        self._running = [self._start() for _ in range(workers)]
        for each in self._running:
            if not each.ready.poll(_START_SECONDS):
                raise TimeoutError(f"{each.name} was not ready after {_START_SECONDS} s")
            each.ready.recv()

    def _start(self) -> _Running:
        self._starts += 1
        name = f"worker-{self._starts}"
        ready, told = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_work, args=(name, self._zones, self._warm, told), name=name)
        process.start()
        told.close()
        return _Running(name, process, ready)

    def kill_next(self) -> set[tuple[int, int]]:
        """End the worker whose turn it is with SIGKILL, and start another one in its place. Return what it
        had claimed: the places of zones, and the numbers of items. Kills none that has claimed nothing.
        """
        place = self.kills % len(self._running)
        killed = self._running[place]
        if not self._claims_of(killed.name):
            return set()
        _kill(killed.process)
        self.kills += 1
        self._running[place] = self._start()
        return self._claims_of(killed.name)

    def _claims_of(self, name: str) -> set[tuple[int, int]]:
        stores = [ingest.BufferZone(location).store for location in self._zones]
        return {
            (at, item_of_claim(claim_id))
            for at, store in enumerate(stores)
            for claim_id, states in all_instants(store, KIND).items()
            if holder_of(store, claim_id, states.get("inflight", 0)) == name
        }

    def end(self) -> None:
        """End all workers with SIGKILL."""
        for each in self._running:
            _kill(each.process)


def _kill(process: BaseProcess) -> None:
    """End a worker, its JVM and what that has started."""
    try:
        os.killpg(process.pid or 0, signal.SIGKILL)
    except ProcessLookupError:  # it leads no group yet, or any more
        process.kill()
    process.join()


def _work(name: str, locations: Sequence[str], warm: str, told: Connection) -> None:
    """Land items of all zones, one after the other, as long as the process that started this one lives."""
    os.setsid()
    session = local_session(name, {"spark.master": "local[1]", "spark.driver.memory": "1g"})
    own = ingest.BufferZone(f"{warm}-{name}-zone", table=f"{warm}-{name}-table", partition_by=["part"])
    own.push(warm)
    ingest.run(session, own, available_now=True)
    workers = [Worker(ingest.BufferZone(each), PATIENCE_SECONDS, name) for each in locations]
    told.send(name)
    parent = multiprocessing.parent_process()
    while parent is not None and parent.is_alive():
        landed = [_land_next(worker, session, name) for worker in workers]
        if not any(landed):
            time.sleep(_POLL_SECONDS)


def _land_next(worker: Worker, session: SparkSession, name: str) -> bool:
    try:
        return worker.land_next(session) is not None
    except Exception as failure:  # noqa: BLE001 - any worker tries the item again
        print(f"{name}: {type(failure).__name__}: {failure}", file=sys.stderr)
        return False
