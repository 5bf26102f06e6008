"""The writer where Spark's workers run another Python than the driver. In a process of its own: each has one
Spark.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import sys
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyspark.sql import SparkSession
from planners.model import InsertPlan
from planners.routing import Routing
from streaming_sink.table.schema import iceberg_schema
from streaming_sink.tasks.job import FileIds
from streaming_sink.batch.writer import WriteJob, write
from timeline.stores import LocalStore

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
batch = spark.range(0, 1000, 1, 4)
plan = InsertPlan((), (), 10, 10**6, 1 << 30)
routing = Routing(tasks=2, cold_tasks=2, hot=(), cold_buckets=(), shuffled=False)
schema, ids = iceberg_schema(batch.schema), FileIds(1, "app", 0)
job = WriteJob(LocalStore(sys.argv[1]), schema, UNPARTITIONED_PARTITION_SPEC, {}, plan, routing, ids)
try:
    write(batch, job)
except Exception as error:
    print("FAILED", type(error).__name__, error)
spark.stop()
"""


def test_a_worker_python_without_pyarrow_is_named_with_what_to_set(location, tmp_path):
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    told = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "PYSPARK_PYTHON": str(bare / "bin" / "python"),
    }
    command = [sys.executable, "-c", SCRIPT, location]
    done = subprocess.run(command, env=told, capture_output=True, text=True, timeout=240, cwd=tmp_path)
    [line] = [line for line in done.stdout.splitlines() if line.startswith("FAILED")] or [done.stderr]
    assert "FAILED WorkerEnvironmentError" in line
    assert "lacks pyarrow" in line
    assert "PYSPARK_PYTHON" in line
    assert "spark.pyspark.python" in line
