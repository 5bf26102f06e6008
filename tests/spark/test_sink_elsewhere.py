"""The sink on executors of their own, in a process of its own, since a process has one Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.spark.streams import add_files, head_of, ids_of, source_ids
from tests.tiers import only_in_soak

pytestmark = [pytest.mark.spark, pytest.mark.slow, only_in_soak]

ROOT = Path(__file__).resolve().parents[2]

_CLUSTER = """
import sys
from pyspark.sql import SparkSession
from tests.jvm import executor_options
from tests.sinks import flat_sink
from tests.spark.streams import SMALL, drain
source, location, checkpoint = sys.argv[1:]
builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
builder = builder.config(map=executor_options())
builder = builder.config("spark.executor.memory", "512m").config("spark.sql.shuffle.partitions", "2")
spark = builder.getOrCreate()
sink = flat_sink(location, partition_by=["p"], sizing=SMALL, fill_policy="always", fill="inline")
drain(spark, source, sink, checkpoint)
print("FILLED", sum(report.merged_files for report in sink.reports))
spark.stop()
"""


def _run(script, *arguments):
    told = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_HOME": str(Path(pyspark.__file__).parent)}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(
        command, env=told, capture_output=True, text=True, timeout=300, cwd=ROOT, check=False
    )
    return done.stdout, done.stdout + done.stderr


def test_on_executors_of_their_own_a_stream_lands_and_fills(tmp_path, location, checkpoint):
    add_files(tmp_path / "source", range(5))
    out, everything = _run(_CLUSTER, tmp_path / "source", location, checkpoint)
    filled = [int(line.split()[1]) for line in out.splitlines() if line.startswith("FILLED")]
    assert filled, everything
    assert filled[0] > 0
    assert ids_of(location) == source_ids(5)
    assert head_of(location).number == 6
