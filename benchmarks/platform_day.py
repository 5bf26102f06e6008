"""A part of a platform's day of buffered ingestion, compressed by time, with workers that are killed.

    python -m benchmarks.platform_day --quick
    python -m benchmarks.platform_day --minutes 30 --factor 12 --check --json

Deliveries of files arrive by a Poisson process: a few of the 20 datasets get most of them, and now and then
one gets eight times as many for a while. The rules are 1 GiB or 5 minutes: the age is divided by the factor,
and the amount is scaled to files of 2.1 MB, the platform's mean. One process plans for all zones. Each of two
workers is a process with a Spark session of one core, and takes items of all zones; they take turns at being
killed (-9), and are started again at once. What a commit costs is not compressed: the machine is as busy as
one that has `factor` times as many datasets.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.aims import benchmark_parser, conclude
from benchmarks.platform_arrivals import Delivery, deliveries
from benchmarks.platform_report import Day, aims, found_in, table_of
from benchmarks.sessions import local_session
from planners import FileSizing
from streaming_sink import ingest
from streaming_sink.ingest.records import KIND, item_of_claim
from streaming_sink.ingest.running import plan_until
from streaming_sink.ingest.status import status
from streaming_sink.ingest.worker import Worker
from timeline.plans.claims import all_instants, holder_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.process import BaseProcess
    from multiprocessing.synchronize import Event

DATASETS = 20
FILES_A_MINUTE = 486
"""700,000 a day, the platform's own."""
PARTITIONS = 2
MAX_AGE_SECONDS, MAX_FILES = 300, 512
"""1 GiB of files of 2.1 MB is 512 of them."""
SIZING = FileSizing(max_file_bytes="1MiB", small_file_bytes="768KiB")
_ROWS = 20
_PATIENCE_SECONDS = 4.0
"""Without a heartbeat a worker is taken to be dead."""
_POLL_SECONDS = 0.25
_KILL_SECONDS = 20.0
_START_SECONDS = 120
_DRAIN_SECONDS = 40
_SEED = 17


def _write_file(path: Path, number: int) -> None:
    first = number * _ROWS
    rows = pa.table(
        {
            "id": pa.array(np.arange(first, first + _ROWS)),
            "part": pa.array(np.full(_ROWS, number % PARTITIONS, np.int32)),
            "amount": pa.array(np.arange(first, first + _ROWS) * 0.5),
        }
    )
    pq.write_table(rows, path)


def _write_files(drop: Path, arriving: Sequence[Delivery]) -> None:
    drop.mkdir()
    for delivery in arriving:
        for number in delivery.files:
            _write_file(drop / f"{number:06}.parquet", number)


def _plan(locations: Sequence[str], stop: Event) -> None:
    """Plan for all zones, in threads of one process, until `stop` is set."""
    zones = [ingest.BufferZone(each) for each in locations]
    ended = threading.Event()
    threads = [threading.Thread(target=plan_until, args=(zone, ended), daemon=True) for zone in zones]
    for thread in threads:
        thread.start()
    while _goes_on(stop):
        stop.wait(_POLL_SECONDS)
    ended.set()
    for thread in threads:
        thread.join()


def _goes_on(stop: Event) -> bool:
    """Return whether the day goes on: it is over, too, once the process that runs it has died."""
    parent = multiprocessing.parent_process()
    return not stop.is_set() and parent is not None and parent.is_alive()


def _work(name: str, locations: Sequence[str], warm: str, stop: Event, ready: Event) -> None:
    """Land items of all zones in one Spark session, one after the other, until `stop` is set. The process is
    the leader of a group.
    """
    os.setsid()
    session = local_session(name, {"spark.master": "local[1]", "spark.driver.memory": "1g"})
    if warm:
        ingest.run(session, ingest.BufferZone(warm), available_now=True)
    workers = [Worker(ingest.BufferZone(each), _PATIENCE_SECONDS, name) for each in locations]
    ready.set()
    while _goes_on(stop):
        idle = True
        for worker in workers:
            try:
                idle &= worker.land_next(session) is None
            except Exception as failure:  # noqa: BLE001 - any worker tries the item again
                print(f"{name}: {type(failure).__name__}: {failure}", file=sys.stderr)
        if idle:
            stop.wait(_POLL_SECONDS)
    session.stop()


class Workers:
    """The worker processes of the day, of which one is killed now and then."""

    def __init__(self, zones: Sequence[ingest.BufferZone], warm: Sequence[ingest.BufferZone]) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._zones, self._stop = zones, self._context.Event()
        self._starts = 0
        self._running = {place: self._start(place, zone.store.location) for place, zone in enumerate(warm)}
        self.kills = 0
        self.disturbed: set[tuple[int, int]] = set()
        """Zone and item of what a worker had claimed when it was killed."""
        for _, _, ready in self._running.values():
            if not ready.wait(_START_SECONDS):
                raise TimeoutError(f"a worker was not ready after {_START_SECONDS} s")

    def _start(self, place: int, warm: str = "") -> tuple[str, BaseProcess, Any]:
        self._starts += 1
        name, ready = f"worker-{place}-{self._starts}", self._context.Event()
        locations = [zone.store.location for zone in self._zones]
        arguments = (name, locations, warm, self._stop, ready)
        process = self._context.Process(target=_work, args=arguments)
        process.start()
        return name, process, ready

    def kill_one(self) -> None:
        """End the worker whose turn it is with SIGKILL, note what it had claimed, and start another one."""
        place = self.kills % len(self._running)
        name, process, _ = self._running[place]
        os.killpg(process.pid or 0, signal.SIGKILL)
        process.join()
        self.kills += 1
        self._running[place] = self._start(place)
        for at, zone in enumerate(self._zones):
            for claim_id, states in all_instants(zone.store, KIND).items():
                held = states.get("inflight", 0)
                if held and holder_of(zone.store, claim_id, held) == name:
                    self.disturbed.add((at, item_of_claim(claim_id)))

    def end(self) -> None:
        self._stop.set()
        for _, process, _ in self._running.values():
            process.join(3)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid or 0, signal.SIGKILL)


def _all_landed(zones: Sequence[ingest.BufferZone]) -> bool:
    return all(not state.waiting and not state.open_count for state in map(status, zones))


def run(work_folder: Path, arriving: Sequence[Delivery], factor: float, *, kills: bool) -> Day:
    """Let the deliveries arrive and land, and return what became of them."""
    rules = ingest.Rules(max_files=MAX_FILES, max_age=timedelta(seconds=MAX_AGE_SECONDS / factor))

    def zone_at(name: str) -> ingest.BufferZone:
        where = work_folder / name
        zone = ingest.BufferZone(
            f"{where}-zone", table=f"{where}-table", rules=rules, partition_by=["part"], sizing=SIZING
        )
        zone.definition  # noqa: B018 - makes the zone, which the processes open by its location
        return zone

    zones, warm = [zone_at(f"{at:02}") for at in range(DATASETS)], [zone_at(f"warm-{at}") for at in range(2)]
    drop = work_folder / "drop"
    for at, zone in enumerate(warm):
        _write_file(path := work_folder / f"warm-{at}.parquet", at)
        zone.push(str(path))
    _write_files(drop, arriving)
    context = multiprocessing.get_context("spawn")
    stop, workers = context.Event(), Workers(zones, warm)
    planner = context.Process(target=_plan, args=([zone.store.location for zone in zones], stop), daemon=True)
    planner.start()
    try:
        began = time.monotonic()
        next_kill = began + _KILL_SECONDS if kills else float("inf")
        late = 0.0
        for delivery in arriving:
            time.sleep(max(0.0, began + delivery.at_seconds - time.monotonic()))
            zones[delivery.dataset].push(*(str(drop / f"{number:06}.parquet") for number in delivery.files))
            late = max(late, time.monotonic() - began - delivery.at_seconds)
            if time.monotonic() >= next_kill:
                workers.kill_one()
                next_kill = time.monotonic() + _KILL_SECONDS
        arrived, give_up = time.monotonic() - began, time.monotonic() + _DRAIN_SECONDS
        while not _all_landed(zones) and time.monotonic() < give_up:
            time.sleep(2)
        drained = time.monotonic() - began - arrived
    finally:
        stop.set()
        workers.end()
        planner.join(5)
        planner.kill()
    return found_in(
        zones,
        arriving,
        workers.disturbed,
        rows_a_file=_ROWS,
        kills=workers.kills,
        late_seconds=late,
        seconds=arrived,
        drain_seconds=drained,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, report, and return the exit code."""
    parser = benchmark_parser("benchmarks.platform_day", __doc__, "three minutes, without a kill")
    parser.add_argument("--minutes", type=float, default=30.0, help="of the platform's day")
    parser.add_argument("--factor", type=float, default=12.0, help="by which time is compressed")
    parser.add_argument("--seed", type=int, default=_SEED)
    options = parser.parse_args(arguments)
    minutes = 3.0 if options.quick else options.minutes
    logging.getLogger("streaming_sink").setLevel(logging.ERROR)
    arriving = deliveries(
        np.random.default_rng(options.seed),
        seconds=60 * minutes / options.factor,
        datasets=DATASETS,
        files_a_second=FILES_A_MINUTE / 60 * options.factor,
        factor=options.factor,
    )
    folder = Path(tempfile.mkdtemp(prefix="platform-", dir=options.work))
    try:
        day = run(folder, arriving, options.factor, kills=not options.quick)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    introduction = (
        f"{minutes:g} minutes of a day at {options.factor:g} times its pace: {day.files:,} files for"
        f" {DATASETS} datasets, seed {options.seed}."
    )
    return conclude(options, introduction, [table_of(day)], asdict(day), aims(day, _PATIENCE_SECONDS))


if __name__ == "__main__":
    sys.exit(main())
