"""kill -9 of two streams that change the same keys: each key ends with its last change in sequence."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.changes import Judge, random_changes, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
BATCHES = 10
KILLS = int(os.environ.get("STREAMING_SINK_UPSERT_KILLS", "5"))

_CHILD = """
import sys
from pyspark.sql import SparkSession
from streaming_sink import IcebergSink
from tests.spark.changes import CHANGES, KEYED
from tests.spark.streams import SMALL
source, location, checkpoint, app = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
sink = IcebergSink(location, app_id=app, sizing=SMALL, **KEYED)
stream = spark.readStream.schema(CHANGES).option("maxFilesPerTrigger", 1).json(source)
writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
writer.trigger(availableNow=True).start().awaitTermination()
sink.finish()
"""


def _start(folder: Path, app: str) -> subprocess.Popen[str]:
    arguments = [folder / app, folder / "table", folder / f"checkpoint-{app}", app]
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_streams_that_are_killed_end_with_the_last_change_of_each_key(tmp_path: Path) -> None:
    judge, rng = Judge(), random.Random(11)
    for app in "ab":
        (tmp_path / app).mkdir()
        for number in range(BATCHES):
            changes = random_changes(rng, 300, 200, number * 50, 150)
            judge.take(changes)
            names = ("user_id", "at", "region", "name", "op")
            lines = (json.dumps(dict(zip(names, change, strict=True))) for change in changes)
            (tmp_path / app / f"{number:03}.json").write_text("\n".join(lines))
    running = {app: _start(tmp_path, app) for app in "ab"}
    for _ in range(KILLS):
        app = rng.choice("ab")
        try:
            running[app].wait(rng.uniform(4, 12))
        except subprocess.TimeoutExpired:
            os.killpg(running[app].pid, signal.SIGKILL)
            running[app].communicate()
            running[app] = _start(tmp_path, app)
    for app, process in running.items():
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, (app, errors[-2000:])
    assert rows_of(str(tmp_path / "table")) == judge.rows
