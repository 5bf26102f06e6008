"""kill -9 around a delivery of quarantined rows, and restarts: no row is lost or doubled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

from streaming_sink import Checks, IcebergSink
from tests.spark.streams import SMALL, add_files, drain, ids_of, metadata_file, source_ids

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]

_CHILD = """
import json, os, signal, sys
from pyspark.sql import SparkSession
import streaming_sink.seconds.quarantine as second
from streaming_sink import Checks, IcebergSink
from tests.spark.streams import SMALL, drain
source, location, checkpoint, expectations, dies, delivery = sys.argv[1:]
deliver, calls = second.deliver, [0]
def dying(*given):
    calls[0] += 1
    if dies == "before" and calls[0] == int(delivery):
        os.killpg(0, signal.SIGKILL)
    delivered = deliver(*given)
    if dies == "after" and calls[0] == int(delivery):
        os.killpg(0, signal.SIGKILL)
    return delivered
second.deliver = dying
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
sink = IcebergSink(location, app_id="app", sizing=SMALL, checks=Checks(json.loads(expectations)))
drain(spark, source, sink, checkpoint)
sink.finish()
"""


def _run(folder, location, expectations, dies, delivery):
    arguments = [folder / "source", location, folder / "checkpoint", json.dumps(expectations), dies, delivery]
    return subprocess.run(
        [sys.executable, "-c", _CHILD, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
        capture_output=True,
        text=True,
        check=False,
    )


def _set_aside(location):
    path = metadata_file(location + "__quarantine")
    rows = [] if path is None else StaticTable.from_metadata(path).scan().to_arrow().to_pylist()
    return Counter(json.loads(row["row"])["id"] for row in rows)


def test_killed_before_and_after_a_delivery_no_row_is_lost_or_doubled(spark, tmp_path):
    location, thirds = str(tmp_path / "table"), {"id % 10 <> 3": "quarantine"}
    others = {"id % 10 <> 4": "quarantine", "id % 10 <> 5": "drop"}
    add_files(tmp_path / "source", range(4))
    killed = _run(tmp_path, location, thirds, dies="before", delivery=2)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    assert sum(_set_aside(location).values()) == 10  # the second batch is committed, and undelivered
    assert sum(ids_of(location).values()) == 180
    # Its replay delivers it, under other expectations; the next batch dies once both tables have it.
    killed = _run(tmp_path, location, others, dies="after", delivery=2)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    sink = IcebergSink(location, app_id="app", sizing=SMALL, checks=Checks(thirds))
    drain(spark, tmp_path / "source", sink, str(tmp_path / "checkpoint"))
    sink.finish()

    def fails(number):
        return number % 10 == (4 if 200 <= number < 300 else 3)

    dropped = Counter(number for number in range(200, 300) if number % 10 == 5)
    assert _set_aside(location) == Counter(number for number in range(400) if fails(number))
    assert ids_of(location) + _set_aside(location) + dropped == source_ids(4)
