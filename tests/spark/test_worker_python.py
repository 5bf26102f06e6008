"""The writer where driver, workers and session are apart: separate executors, Connect, a bare worker Python.

Each runs in a process of its own: a process has one Spark.
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

COMMON = """
import sys
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyspark.sql import SparkSession, functions as F
from planners.model import InsertPlan
from planners.routing import Routing
from streaming_sink.schema import iceberg_schema
from streaming_sink.spec import partition_spec
from streaming_sink.writejob import FileIds
from streaming_sink.writer import WriteJob, write
from timeline.stores import LocalStore

def run(spark, location):
    batch = spark.range(0, 1000, 1, 4).select("id", (F.col("id") % 8).alias("p"))
    schema = iceberg_schema(batch.schema)
    plan = InsertPlan((), (), 10, 10**6, 1 << 30)
    for partition_by, shuffled in (([], False), (["p"], True), (["bucket(4, id)"], True)):
        routing = Routing(tasks=2, cold_tasks=2, hot=(), cold_buckets=(), shuffled=shuffled)
        spec = partition_spec(partition_by, schema) if partition_by else UNPARTITIONED_PARTITION_SPEC
        job = WriteJob(LocalStore(location), schema, spec, {}, plan, routing, FileIds(1, "app", 0))
        result = write(batch, job)
        print("WROTE", result.rows, len(result.new), len(result.tasks))
"""

CLUSTER = (
    COMMON
    + """
builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
spark = builder.config("spark.executor.memory", "512m").getOrCreate()
run(spark, sys.argv[1])
spark.stop()
"""
)

CONNECT = (
    COMMON
    + """
spark = SparkSession.builder.remote("local[2]").getOrCreate()
assert "connect" in type(spark).__module__
spark.conf.set("spark.sql.adaptive.enabled", "true")
run(spark, sys.argv[1])
assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
spark.stop()
"""
)

CLASSIC = (
    COMMON
    + """
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    run(spark, sys.argv[1])
except Exception as error:
    print("FAILED", type(error).__name__, error)
spark.stop()
"""
)


def _run(script, location, **environment):
    told = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        **environment,
    }
    command = [sys.executable, "-c", script, location]
    done = subprocess.run(
        command, env=told, capture_output=True, text=True, timeout=240, cwd=Path(location).parent
    )
    return done.stdout, done.stdout + done.stderr


EXPECTED = ["WROTE 1000 1 1", "WROTE 1000 8 2", "WROTE 1000 4 2"]


def test_it_writes_on_executors_of_their_own(location):
    out, everything = _run(CLUSTER, location)
    assert [line for line in out.splitlines() if line.startswith("WROTE")] == EXPECTED, everything


def test_it_writes_through_spark_connect(location):
    out, everything = _run(CONNECT, location)
    assert [line for line in out.splitlines() if line.startswith("WROTE")] == EXPECTED, everything


def test_a_worker_python_without_pyarrow_is_named_with_what_to_set(location, tmp_path):
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    out, everything = _run(CLASSIC, location, PYSPARK_PYTHON=str(bare / "bin" / "python"))
    [line] = [line for line in out.splitlines() if line.startswith("FAILED")] or [everything]
    assert "FAILED WorkerEnvironmentError" in line
    assert "lacks pyarrow" in line
    assert "PYSPARK_PYTHON" in line
    assert "spark.pyspark.python" in line
