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
from tests.spark.connect_program import PROGRAM
from tests.spark.streams import source_ids
from tests.tiers import only_in_soak

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.servers]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(
    scope="module",
    params=[None, *(pytest.param(it, marks=only_in_soak) for it in OTHERS)],
    ids=lambda version: version or "installed",
)
def connect(request, tmp_path_factory):
    """What one process on Spark Connect found, step by step."""
    told = {**os.environ, **required(request.param)}
    told["SPARK_TESTING"] = "1"  # else all servers of a machine want one port
    path = [str(Path(__file__).with_name("unzipped")), told["PYTHONPATH"], str(ROOT)]
    told["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    command = [sys.executable, "-c", PROGRAM, str(tmp_path_factory.mktemp("connect"))]
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
    assert connect["no condition"]["ids"] == []
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
