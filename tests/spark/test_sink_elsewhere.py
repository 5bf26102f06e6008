"""The sink where driver, session and workers are apart: Spark Connect, and executors of their own.

Each runs in a process of its own, since a process has one Spark, and prints what it finds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.spark.streams import add_files, head_of, ids_of, source_ids

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]

_CONNECT = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
from streaming_sink import IcebergSink, history
from tests.spark.streams import SMALL, add_files, drain, forget_last_commit, head_of, ids_of, stream
folder = Path(sys.argv[1])
spark = SparkSession.builder.remote("local[2]").getOrCreate()
assert "connect" in type(spark).__module__
found = {}

def told(name, **facts):
    found[name] = facts

def ids(location):
    return list(ids_of(location).elements())

def state(location, app_id):
    return head_of(location).properties["streaming-sink.txn." + app_id]

def failure(sink, checkpoint):
    try:
        drain(spark, folder / "source", sink, str(folder / checkpoint))
    except Exception as error:
        return str(error)
    return "no failure"

location, checkpoint = str(folder / "table"), str(folder / "checkpoint")
sink = IcebergSink(location, partition_by=["p"], sizing=SMALL, fill_policy="always")
add_files(folder / "source", range(3))
query = drain(spark, folder / "source", sink, checkpoint)
told("normal", query=query.id, ids=ids(location), state=state(location, query.id))
add_files(folder / "source", [3])
drain(spark, folder / "source", sink, checkpoint)
told("restarted", ids=ids(location), state=state(location, query.id))
version = head_of(location).number
(folder / "table" / "metadata" / "version-hint.text").unlink()
forget_last_commit(checkpoint)
drain(spark, folder / "source", IcebergSink(location), checkpoint)
told("replayed", ids=ids(location), grown=head_of(location).number - version,
     hint=(folder / "table" / "metadata" / "version-hint.text").read_text() == str(version))
told("history", reports=[report.to_dict() for report in history(location)], client=len(sink.reports))

named = str(folder / "named")
drain(spark, folder / "source", IcebergSink(named, app_id="app"), str(folder / "named-checkpoint"))
told("fresh", message=failure(IcebergSink(named, app_id="app"), "fresh"), ids=ids(named))

def twice(batch, number):
    # Made here, in the worker: two sinks under one name.
    for part in ("p = 'p0'", "p <> 'p0'"):
        IcebergSink(location + "-twice")(batch.where(part), number)

told("twice", message=failure(twice, "twice-checkpoint"))

rate = spark.readStream.format("rate").load().writeStream.format("noop")
other = rate.option("checkpointLocation", str(folder / "other")).start()
try:
    IcebergSink(str(folder / "client"))(spark.range(3), 0)
    told("client", message="it passed for a batch of the other query")
except ValueError as error:
    told("client", message=str(error))
backfill = str(folder / "backfill")
for _ in range(2):
    IcebergSink(backfill, app_id="backfill")(spark.range(3), 0)
told("backfill", ids=ids(backfill))
several = str(folder / "several")
told("several", message=failure(IcebergSink(several), "several-1"), ids=ids(several))
drain(spark, folder / "source", IcebergSink(several, app_id="app"), str(folder / "several-2"))
add_files(folder / "source", [4])
drain(spark, folder / "source", IcebergSink(several, app_id="app"), str(folder / "several-2"))
told("several, named", ids=ids(several))
other.stop()
print("FOUND", json.dumps(found))
spark.stop()
"""

_CLUSTER = """
import sys
from pyspark.sql import SparkSession
from streaming_sink import IcebergSink
from tests.jvm import executor_options
from tests.spark.streams import SMALL, drain
source, location, checkpoint = sys.argv[1:]
builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
builder = builder.config(map=executor_options())
builder = builder.config("spark.executor.memory", "512m").config("spark.sql.shuffle.partitions", "2")
spark = builder.getOrCreate()
sink = IcebergSink(location, partition_by=["p"], sizing=SMALL, fill_policy="always")
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


@pytest.fixture(scope="module")
def connect(tmp_path_factory):
    """What one process on Spark Connect found, step by step."""
    out, everything = _run(_CONNECT, tmp_path_factory.mktemp("connect"))
    lines = [line for line in out.splitlines() if line.startswith("FOUND ")]
    assert lines, everything
    return json.loads(lines[0].removeprefix("FOUND "))


def _each_once(ids, files):
    return sorted(ids) == sorted(source_ids(files).elements())


def test_on_connect_a_stream_lands_under_the_id_of_the_only_active_query(connect):
    found = connect["normal"]
    assert _each_once(found["ids"], 3)
    assert json.loads(found["state"])["query_id"] == found["query"]


def test_on_connect_a_restart_goes_on_as_a_newer_run(connect):
    before, after = json.loads(connect["normal"]["state"]), json.loads(connect["restarted"]["state"])
    assert _each_once(connect["restarted"]["ids"], 4)
    assert (before["epoch"], after["epoch"]) == (1, 2)
    assert before["run_id"] != after["run_id"]


def test_on_connect_a_replay_is_skipped_and_its_hint_mended(connect):
    assert _each_once(connect["replayed"]["ids"], 4)
    assert connect["replayed"]["grown"] == 0
    assert connect["replayed"]["hint"]


def test_on_connect_the_client_reads_the_reports_from_the_table(connect):
    reports = connect["history"]["reports"]
    assert [report["batch_id"] for report in reports] == [0, 1, 2, 3]
    assert [report["rows"] for report in reports] == [100] * 4
    assert connect["history"]["client"] == 0


def test_on_connect_a_fresh_checkpoint_under_a_used_name_is_refused(connect):
    assert "CheckpointRegressionError" in connect["fresh"]["message"]
    assert _each_once(connect["fresh"]["ids"], 4)


def test_on_connect_two_sinks_under_one_name_are_an_error_and_no_silent_skip(connect):
    assert "of distinct names" in connect["twice"]["message"]


def test_a_client_of_connect_is_outside_of_the_only_active_query(connect):
    """It took that query's name, whose next batch was then skipped."""
    assert "outside a streaming query" in connect["client"]["message"]
    assert connect["backfill"]["ids"] == [0, 1, 2]


def test_on_connect_with_several_active_queries_a_name_is_asked_for(connect):
    assert "2 queries are active in this Spark Connect session" in connect["several"]["message"]
    assert 'app_id="events"' in connect["several"]["message"]
    assert connect["several"]["ids"] == []
    assert _each_once(connect["several, named"]["ids"], 5)


def test_on_executors_of_their_own_a_stream_lands_and_fills(tmp_path, location, checkpoint):
    add_files(tmp_path / "source", range(5))
    out, everything = _run(_CLUSTER, tmp_path / "source", location, checkpoint)
    filled = [int(line.split()[1]) for line in out.splitlines() if line.startswith("FILLED")]
    assert filled, everything
    assert filled[0] > 0
    assert ids_of(location) == source_ids(5)
    assert head_of(location).number == 6
