"""kill -9 of planners and workers of a zone: each file lands once, whatever was cut off."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from streaming_sink import ingest
from streaming_sink.ingest.ledger import Ledger
from tests.spark.source_files import rows_from, rows_in, write_parquet

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
FILES = int(os.environ.get("STREAMING_SINK_INGEST_FILES", "200"))
KILLS = int(os.environ.get("STREAMING_SINK_INGEST_KILLS", "5"))

_CHILD = """
import sys, threading, time
from pyspark.sql import SparkSession
from streaming_sink import ingest
from streaming_sink.ingest.ledger import Ledger
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
zone, files, stop = ingest.BufferZone(sys.argv[1]), int(sys.argv[2]), threading.Event()
def watch():
    while sum(entry.state == "landed" for entry in Ledger(zone).entries()) < files:
        time.sleep(0.3)
    stop.set()
threading.Thread(target=watch, daemon=True).start()
ingest.run(spark, zone, stop=stop, poll_seconds=0.1, patience_seconds=2.0)
"""


def _start(zone: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD, zone, str(FILES)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_processes_that_are_killed_land_each_file_once(tmp_path: Path) -> None:
    rng = random.Random(5)
    where = str(tmp_path / "zone")
    zone = ingest.BufferZone(
        where,
        table=str(tmp_path / "table"),
        partition_by=["day"],
        rules=ingest.Rules(max_files=10, max_age="1 second"),
    )
    names = [
        write_parquet(tmp_path / "drop" / f"{number:04}.parquet", rows_from(number * 10, 10))
        for number in range(FILES)
    ]
    zone.push(names[0])  # makes the zone, which the processes open by its location alone
    running = [_start(where) for _ in range(2)]
    share = -(-FILES // (KILLS + 1))
    for kill in range(KILLS + 1):
        zone.push(*names[kill * share : (kill + 1) * share])
        if kill == KILLS:
            break
        which = rng.randrange(2)
        try:
            running[which].wait(rng.uniform(3, 12))
        except subprocess.TimeoutExpired:
            os.killpg(running[which].pid, signal.SIGKILL)
            running[which].communicate()
            running[which] = _start(where)
    for process in running:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors[-2000:]
    assert rows_in(str(tmp_path / "table")) == rows_from(0, FILES * 10)
    entries = list(Ledger(zone).entries())
    assert Counter(entry.state for entry in entries) == {"landed": FILES}
    assert sorted(entry.path for entry in entries) == names
