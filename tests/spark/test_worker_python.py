"""The Python of the sink's tasks: configured, or the driver's own on a local master. In processes of their
own, since each has one Spark.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.tiers import only_in_soak

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
_SETTING = "--conf spark.pyspark.python=python3 pyspark-shell"

SCRIPT = """
import logging
import sys
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyspark.sql import SparkSession
from planners.model import InsertPlan
from planners.routing import Routing
from streaming_sink.table.schema import iceberg_schema
from streaming_sink.tasks.job import FileIds
from streaming_sink.writing.target import Target
from streaming_sink.writing.writer import worker_job, write
from timeline.stores import LocalStore

logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="LOG %(message)s")
spark = SparkSession.builder.master(sys.argv[2]).config("spark.ui.enabled", "false").getOrCreate()
batch = spark.range(0, 1000, 1, 4)
plan = InsertPlan((), (), 10, 10**6, 1 << 30)
routing = Routing(tasks=2, cold_tasks=2, hot=(), cold_buckets=(), shuffled=False)
schema, ids = iceberg_schema(batch.schema), FileIds(1, "app", 0)
target = Target(None, schema, UNPARTITIONED_PARTITION_SPEC, {})
job = worker_job(LocalStore(sys.argv[1]), target, plan, routing, ids)
try:
    for _ in range(2):
        write(batch, job, routing, schema)
    print("WROTE", sys.executable)
except Exception as error:
    print("FAILED", type(error).__name__, error)
print("USERS", spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()[0])
spark.stop()
"""


@pytest.fixture
def bare(tmp_path):
    """A Python of this version without any package, as `python` and `python3` in one folder."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    return tmp_path / "bare" / "bin"


def run_sink(location, bare, master="local[1]", **environment):
    """Write two batches in a process whose path begins with the bare Python; return its lines."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_")}
    told = {
        **inherited,
        "PATH": f"{bare}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        **environment,
    }
    command = [sys.executable, "-c", SCRIPT, location, master]
    done = subprocess.run(command, env=told, capture_output=True, text=True, timeout=240, cwd=bare)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def starting(word, lines):
    return [line.removeprefix(f"{word} ") for line in lines if line.startswith(f"{word} ")]


def test_on_a_local_master_without_a_setting_the_sinks_tasks_run_in_the_drivers_python(location, bare):
    lines = run_sink(location, bare)
    assert starting("WROTE", lines) == [sys.executable]
    (logged,) = [line for line in starting("LOG", lines) if "driver's Python" in line]
    assert logged.endswith(f"neither PYSPARK_PYTHON nor spark.pyspark.python is set: {sys.executable}")
    assert starting("USERS", lines) == [str(bare / "python3")]  # the user's own functions run where they did


@pytest.mark.parametrize(
    ("master", "environment"),
    [
        pytest.param("local[1]", {"PYSPARK_PYTHON": "python3"}, id="variable", marks=only_in_soak),
        pytest.param("local[1]", {"PYSPARK_SUBMIT_ARGS": _SETTING}, id="setting", marks=only_in_soak),
        pytest.param("local-cluster[1,1,1024]", {}, id="executors", marks=only_in_soak),
    ],
)
def test_a_worker_python_without_pyarrow_is_named_with_what_to_set(location, bare, master, environment):
    (line,) = starting("FAILED", run_sink(location, bare, master, **environment))
    assert line.startswith("WorkerEnvironmentError")
    assert "lacks pyarrow" in line
    assert "PYSPARK_PYTHON" in line
    assert "spark.pyspark.python" in line
