"""A part of a platform's day of buffered ingestion, compressed by time, with workers that are killed.

    python -m benchmarks.platform_day --quick
    python -m benchmarks.platform_day --minutes 30 --factor 7.5 --check --json

Deliveries of files arrive by a Poisson process: a few of the 20 datasets get most of them, and now and then
one gets eight times as many for a while. The rules are 1 GiB or 5 minutes.

Compressed by the factor are the times between deliveries and the rule's 5 minutes. Scaled are bytes: files
have 200 rows (3 KB) in the place of 2.1 MB, 512 of them are the rule's 1 GiB, and data files of the tables
have up to 512 KiB. Neither compressed nor scaled is what a plan, a Spark job, a commit, a heartbeat and the
start of a worker take: the machine has as many work items a second as one with `factor` times as many
datasets.

One process announces and plans for all zones. Each worker is a process with a Spark session of one core, and
takes items of all zones; they take turns at being killed (-9) in the midst of an item, and another one is
started at once, on the same cores. A worker lands a file elsewhere before it takes items, since its first
Spark jobs take ten times as long as others. Rows are compared one by one with those that were delivered, by
pyiceberg.

A run ends: what has not landed in time is listed, with the workers that hold it, and fails `--check`.
"""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile
import threading
import time
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.aims import benchmark_parser, conclude
from benchmarks.platform_arrivals import deliveries
from benchmarks.platform_passages import left_in
from benchmarks.platform_report import Day, aims, day_of, tables_of
from benchmarks.platform_workers import Crew
from planners import FileSizing
from streaming_sink import ingest
from streaming_sink.ingest.running import plan_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.platform_arrivals import Delivery

DATASETS = 20
WORKERS = 2
FILES_A_MINUTE = 486
"""700,000 a day, the platform's own."""
MAX_AGE_SECONDS, MAX_FILES = 300, 512
"""1 GiB of files of 2.1 MB is 512 of them."""
KILL_EVERY_SECONDS = 240
"""Of the platform's time."""
PARTITIONS, ROWS = 2, 200
SIZING = FileSizing(max_file_bytes="512KiB", small_file_bytes="384KiB")
_DRAIN_SECONDS = 120
_SEED = 17


def rows_of(number: int) -> pa.Table:
    """Return the rows of a file."""
    ids = np.arange(number * ROWS, (number + 1) * ROWS)
    return pa.table({"id": ids, "part": np.full(ROWS, number % PARTITIONS, np.int32), "amount": np.sqrt(ids)})


def run(work: Path, arriving: Sequence[Delivery], factor: float, *, kills: bool) -> Day:
    """Let the deliveries arrive and land, and return what became of them."""
    rules = ingest.Rules(max_files=MAX_FILES, max_age=timedelta(seconds=MAX_AGE_SECONDS / factor))
    zones = [_zone(work / f"{at:02}", rules) for at in range(DATASETS)]
    drop = work / "drop"
    drop.mkdir()
    for number in (number for each in arriving for number in each.files):
        pq.write_table(rows_of(number), drop / f"{number:06}.parquet")
    pq.write_table(rows_of(0), work / "warm.parquet")
    crew = Crew([zone.store.location for zone in zones], str(work / "warm.parquet"), WORKERS)
    ended, disturbed, late = threading.Event(), set[tuple[int, int]](), 0.0
    planners = [threading.Thread(target=plan_until, args=(zone.reopened(), ended)) for zone in zones]
    try:
        for planner in planners:
            planner.start()
        began = time.monotonic()
        for delivery in arriving:
            time.sleep(max(0.0, began + delivery.at_seconds - time.monotonic()))
            zones[delivery.dataset].push(*(str(drop / f"{number:06}.parquet") for number in delivery.files))
            late = max(late, time.monotonic() - began - delivery.at_seconds)
            if kills and delivery.at_seconds >= (crew.kills + 1) * KILL_EVERY_SECONDS / factor:
                disturbed |= crew.kill_next()
        arrived = time.monotonic()
        while (left := left_in(zones)) and time.monotonic() < arrived + _DRAIN_SECONDS:
            time.sleep(1)
    finally:
        ended.set()
        crew.end()
        for planner in planners:
            planner.join()
    return day_of(
        zones,
        arriving,
        disturbed,
        rows_of,
        kills=crew.kills,
        late_seconds=late,
        seconds=arrived - began,
        left=left,
    )


def _zone(where: Path, rules: ingest.Rules) -> ingest.BufferZone:
    zone = ingest.BufferZone(
        f"{where}-zone", table=f"{where}-table", rules=rules, partition_by=["part"], sizing=SIZING
    )
    zone.definition  # noqa: B018 - makes the zone, which workers open by its location
    return zone


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, report, and return the exit code."""
    parser = benchmark_parser("benchmarks.platform_day", __doc__, "five minutes, without a kill")
    parser.add_argument("--minutes", type=float, default=30.0, help="of the platform's day")
    parser.add_argument("--factor", type=float, default=7.5, help="by which time is compressed")
    parser.add_argument("--no-kills", dest="kills", action="store_false", help="let all workers live")
    parser.add_argument("--seed", type=int, default=_SEED)
    options = parser.parse_args(arguments)
    if options.quick:
        options.minutes, options.kills = 5.0, False
    logging.getLogger("streaming_sink").setLevel(logging.ERROR)
    arriving = deliveries(
        np.random.default_rng(options.seed),
        seconds=60 * options.minutes / options.factor,
        datasets=DATASETS,
        files_a_second=FILES_A_MINUTE / 60 * options.factor,
        factor=options.factor,
    )
    folder = Path(tempfile.mkdtemp(prefix="platform-", dir=options.work))
    try:
        day = run(folder, arriving, options.factor, kills=options.kills)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    introduction = (
        f"{options.minutes:g} minutes of a day at {options.factor:g} times its pace: {day.files:,} files for"
        f" {DATASETS} datasets, {WORKERS} workers, seed {options.seed}."
    )
    return conclude(options, introduction, tables_of(day), asdict(day), aims(day))


if __name__ == "__main__":
    sys.exit(main())
