"""The sink on Spark Connect, on each release of PySpark that it may meet there: not all tell the query alike.

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

from tests.pysparks import OTHERS, required
from tests.spark.streams import source_ids
from tests.tiers import only_in_soak

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.servers]

ROOT = Path(__file__).resolve().parents[2]

_CONNECT = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import pyspark
from pyspark.sql import SparkSession
from streaming_sink import Checks, IcebergSink, SchemaContract, history, parse_json
from tests.sinks import flat_sink
from pyiceberg.table import StaticTable
from tests.spark import streams
from tests.spark.streams import SMALL, add_files, forget_last_commit, head_of, ids_of, metadata_file
folder = Path(sys.argv[1])
spark = SparkSession.builder.remote("local[2]").getOrCreate()
assert "connect" in type(spark).__module__
found = {}

def told(name, **facts):
    found[name] = facts

def run(start):
    # Spark gives the worker of a function ten seconds to start, whatever else the machine does; then the
    # query was not started at all.
    for _ in range(5):
        try:
            query = start()
            break
        except Exception as error:
            if "Python worker failed to connect back" not in str(error):
                raise
    else:
        raise RuntimeError("Spark's worker did not start within ten seconds, five times")
    query.awaitTermination()
    return query

def drain(*arguments):
    return run(lambda: streams.start(*arguments))

def ids(location):
    return list(ids_of(location).elements())

def rows_of(location):
    return StaticTable.from_metadata(metadata_file(location)).scan().to_arrow().to_pylist()

def state(location, app_id):
    return head_of(location).properties["streaming-sink.txn." + app_id]

def failure(sink, checkpoint, source="one", session=spark):
    try:
        drain(session, folder / source, sink, str(folder / checkpoint))
    except Exception as error:
        return str(error)
    return "no failure"

location, checkpoint = str(folder / "table"), str(folder / "checkpoint")
sink = flat_sink(location, partition_by=["p"], sizing=SMALL, fill_policy="always", fill="inline")
add_files(folder / "source", range(3))
query = drain(spark, folder / "source", sink, checkpoint)
told("normal", release=pyspark.__version__, query=query.id, run=query.runId, ids=ids(location),
     state=state(location, query.id))
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
add_files(folder / "one", [0])
add_files(folder / "others", [7])
drain(spark, folder / "one", IcebergSink(named, app_id="app"), str(folder / "named-checkpoint"))
told("fresh", message=failure(IcebergSink(named, app_id="app"), "fresh", "others"), ids=ids(named))
forget_last_commit(str(folder / "named-checkpoint"))
drain(spark, folder / "one", IcebergSink(named, app_id="app"), str(folder / "named-checkpoint"))
told("named, replayed", ids=ids(named), number=head_of(named).number)
try:
    IcebergSink(named, app_id="app")(spark.range(3), 0)
    told("backfill of its name", message="it was skipped", ids=ids(named))
except Exception as error:
    told("backfill of its name", message=str(error), ids=ids(named))

def in_threads(batch, number):
    # Made here, in the worker, and called from threads of the function's own.
    halves = {"p = 'p0'": "some", "p <> 'p0'": "rest"}
    with ThreadPoolExecutor(2) as pool:
        sinks = [IcebergSink(str(folder / "threads"), app_id=app) for app in halves.values()]
        for done in [pool.submit(s, batch.where(half), number) for s, half in zip(sinks, halves)]:
            done.result()

told("threads", message=failure(in_threads, "threads-checkpoint"), ids=ids(str(folder / "threads")))

def twice(batch, number):
    # Made here, in the worker: two sinks under one name.
    for part in ("p = 'p0'", "p <> 'p0'"):
        IcebergSink(location + "-twice")(batch.where(part), number)

told("twice", message=failure(twice, "twice-checkpoint"))

checked, fails = str(folder / "checked"), {"id % 10 <> 3": "quarantine", "id % 10 <> 4": "drop"}
refused = IcebergSink(checked, checks=Checks({**fails, "nope > 1": "drop"}))
told("no condition", message=failure(refused, "checked-checkpoint"))
told("checked", message=failure(IcebergSink(checked, checks=Checks(fails)), "checked-checkpoint"),
     ids=ids(checked), failed=history(checked)[0].failed,
     quarantined=[json.loads(row["row"])["id"] for row in rows_of(checked + "__quarantine")])

contract = SchemaContract(new_columns="add", new_fields="add", widening="widen", mismatch="rescue")
parsing = IcebergSink(str(folder / "json"), contract=contract)

def parsed(batch, number):
    with parse_json(batch, "value", parsing) as found:
        parsing(found.rows, number)

(folder / "texts").mkdir()
lines = ['{"id": 1, "user": {"n": 1}}', '{"id": 2, "user": {"N": 2, "tag": "t"}}\\nnot json']
for number, text in enumerate(lines):
    (folder / "texts" / f"{number}.txt").write_text(text)
    texts = spark.readStream.text(str(folder / "texts")).writeStream.foreachBatch(parsed)
    texts = texts.option("checkpointLocation", str(folder / "json-checkpoint")).trigger(availableNow=True)
    run(texts.start)
told("parsed", rows=rows_of(str(folder / "json")),
     why=[report.why for report in history(str(folder / "json"))])

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
told("several", message=failure(IcebergSink(several, app_id="app"), "several-1"), ids=ids(several))
several = str(folder / "several, apart")
apart = [spark.cloneSession() for _ in range(2)]
told("several, apart",
     first=failure(IcebergSink(several, app_id="app"), "several-2", session=apart[0]),
     together=failure(IcebergSink(several, app_id="app"), "several-3", "others"),
     fresh=failure(IcebergSink(several, app_id="app"), "several-4", "others", session=apart[1]),
     ids=ids(several))
other.stop()
print("FOUND", json.dumps(found))
for session in apart:
    session.client.close()  # else PySpark 4.1 asks the server that has gone for minutes
spark.stop()
"""


@pytest.fixture(
    scope="module",
    params=[None, *(pytest.param(it, marks=only_in_soak) for it in OTHERS)],
    ids=lambda version: version or "installed",
)
def connect(request, tmp_path_factory):
    """What one process on Spark Connect found, step by step."""
    told = {**os.environ, **required(request.param)}
    told["SPARK_TESTING"] = "1"  # else all servers of a machine want one port
    told["PYTHONPATH"] = os.pathsep.join(filter(None, [told["PYTHONPATH"], str(ROOT)]))
    command = [sys.executable, "-c", _CONNECT, str(tmp_path_factory.mktemp("connect"))]
    done = subprocess.run(
        command, env=told, capture_output=True, text=True, timeout=900, cwd=ROOT, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, done.stdout + done.stderr
    return json.loads(lines[0].removeprefix("FOUND "))


def test_it_is_the_release_that_is_asked_for(request, connect):
    asked = request.node.callspec.params["connect"]
    assert connect["normal"]["release"] == (asked or pyspark.__version__)


def _each_once(ids, files):
    return sorted(ids) == sorted(source_ids(files).elements())


def test_a_stream_lands_under_its_query_and_run(connect):
    found = connect["normal"]
    assert _each_once(found["ids"], 3)
    state = json.loads(found["state"])
    assert (state["query_id"], state["run_id"]) == (found["query"], found["run"])


def test_a_restart_goes_on_as_a_newer_run(connect):
    before, after = json.loads(connect["normal"]["state"]), json.loads(connect["restarted"]["state"])
    assert _each_once(connect["restarted"]["ids"], 4)
    assert (before["epoch"], after["epoch"]) == (1, 2)
    assert before["run_id"] != after["run_id"]


def test_a_replay_is_skipped_and_its_hint_mended(connect):
    assert _each_once(connect["replayed"]["ids"], 4)
    assert connect["replayed"]["grown"] == 0
    assert connect["replayed"]["hint"]


def test_the_client_reads_the_reports_from_the_table(connect):
    reports = connect["history"]["reports"]
    assert [report["batch_id"] for report in reports] == [0, 1, 2, 3]
    assert [report["rows"] for report in reports] == [100] * 4
    assert connect["history"]["client"] == 0


def test_a_fresh_checkpoint_under_a_used_name_is_refused_and_a_replay_skipped(connect):
    """On PySpark 4.3 the query was not known: the fresh one's rows passed for a replay, by their number."""
    assert "CheckpointRegressionError" in connect["fresh"]["message"]
    assert _each_once(connect["fresh"]["ids"], 1)
    assert _each_once(connect["named, replayed"]["ids"], 1)
    assert connect["named, replayed"]["number"] == 2


def test_a_backfill_by_the_client_under_a_streams_name_is_refused(connect):
    assert "as query" in connect["backfill of its name"]["message"]
    assert "this is query outside-a-query" in connect["backfill of its name"]["message"]
    assert _each_once(connect["backfill of its name"]["ids"], 1)


def test_threads_of_a_function_land_under_its_query(connect):
    assert connect["threads"]["message"] == "no failure"
    assert _each_once(connect["threads"]["ids"], 1)


def test_two_sinks_under_one_name_are_an_error_and_no_silent_skip(connect):
    assert "of distinct names" in connect["twice"]["message"]


def test_the_client_is_outside_of_the_only_active_query(connect):
    """It took that query's name, whose next batch was then skipped."""
    assert "outside a streaming query" in connect["client"]["message"]
    assert connect["backfill"]["ids"] == [0, 1, 2]


def test_several_queries_of_a_session_are_refused_also_under_a_name(connect):
    """By number alone a fresh checkpoint's rows passed for a replay."""
    assert "2 queries are active in the Spark Connect session" in connect["several"]["message"]
    assert "spark.cloneSession()" in connect["several"]["message"]
    assert connect["several"]["ids"] == []


def test_several_queries_land_from_sessions_of_their_own(connect):
    found = connect["several, apart"]
    assert found["first"] == "no failure"
    assert "2 queries are active" in found["together"]
    assert "CheckpointRegressionError" in found["fresh"]
    assert _each_once(found["ids"], 1)


def test_rows_that_fail_are_quarantined_there_too(connect):
    refusal = connect["no condition"]["message"]
    assert "an expectation is not an SQL condition of one row" in refusal
    assert "(id, p, text): nope > 1:" in refusal
    found = connect["checked"]
    assert found["message"] == "no failure"
    assert sorted(found["ids"]) == [number for number in range(100) if number % 10 not in (3, 4)]
    assert sorted(found["quarantined"]) == [number for number in range(100) if number % 10 == 3]
    assert found["failed"] == {"id % 10 <> 3": 10, "id % 10 <> 4": 10}


def test_parse_json_sees_new_keys_and_loses_no_text(connect):
    rows, why = connect["parsed"]["rows"], connect["parsed"]["why"]
    rescued = json.dumps({"value": '{"id": 2, "user": {"N": 2, "tag": "t"}}'}, separators=(",", ":"))
    assert sorted(rows, key=lambda row: row["id"] or 9) == [
        {"id": 1, "user": {"n": 1, "tag": None}, "_rescued": None},
        {"id": 2, "user": {"n": None, "tag": "t"}, "_rescued": rescued},
        {"id": None, "user": None, "_rescued": '{"value":"not json"}'},
    ]
    assert "user.tag added as string, _rescued added as string" in why[1]
