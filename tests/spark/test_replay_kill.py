"""kill -9 around the delivery of a replay's marks: each quarantined row comes into the table once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.spark.streams import ids_of
from tests.tiers import only_in_soak

pytestmark = [pytest.mark.spark, pytest.mark.slow, only_in_soak]

ROOT = Path(__file__).resolve().parents[2]

_CHILD = """
import os, signal, sys
from pyspark.sql import SparkSession
import streaming_sink.seconds.quarantine as second
from streaming_sink import Checks, IcebergSink, replay
location, does, dies = sys.argv[1:]
deliver = second.deliver
def dying(main, *given):
    mine = main.head.transaction(given[0]).batch == {"before": 0, "after": 1}[dies]
    if mine and dies == "before":
        os.killpg(0, signal.SIGKILL)
    delivered = deliver(main, *given)
    if mine:  # a delivery of the entry before it comes first
        os.killpg(0, signal.SIGKILL)
    return delivered
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
if does == "land":
    rows = spark.range(100)
    IcebergSink(location, app_id="app", checks=Checks({"id % 10 <> 3": "quarantine"}))(rows, 0)
else:
    second.deliver = deliver if dies == "never" else dying
    replay(spark, location, where=does)
"""


def _run(location: str, does: str, dies: str = "never") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _CHILD, location, does, dies],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
        capture_output=True,
        text=True,
        check=False,
    )


def test_killed_before_and_after_the_marks_are_delivered_no_row_is_lost_or_doubled(tmp_path: Path) -> None:
    location = str(tmp_path / "table")
    landed = _run(location, "land")
    assert landed.returncode == 0, landed.stderr[-2000:]
    for where, dies in (("id < 20", "before"), ("id < 50", "after")):
        killed = _run(location, where, dies)
        assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    assert sum(ids_of(location).values()) == 95
    ended = _run(location, "true")
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert ids_of(location) == Counter(range(100))
