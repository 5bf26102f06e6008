"""`parse_json` on Spark Connect: a query that sees new keys, on the oldest and the newest release."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pysparks import OTHERS, required

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.servers]

ROOT = Path(__file__).resolve().parents[2]

_QUERY = """
import json, sys
from pathlib import Path
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession
from streaming_sink import IcebergSink, SchemaContract, history, parse_json
folder = Path(sys.argv[1])
spark = SparkSession.builder.remote("local[2]").getOrCreate()
assert "connect" in type(spark).__module__
contract = SchemaContract(new_columns="add", new_fields="add", widening="widen", mismatch="rescue")
sink = IcebergSink(str(folder / "table"), schema=contract)

def land(batch, batch_id):
    with parse_json(batch, "value", sink) as parsed:
        sink(parsed.rows, batch_id)

(folder / "source").mkdir()
texts = ['{"id": 1, "user": {"n": 1}}', '{"id": 2, "user": {"N": 2, "tag": "t"}}\\nnot json']
for number, text in enumerate(texts):
    (folder / "source" / f"{number}.txt").write_text(text)
    query = spark.readStream.text(str(folder / "source")).writeStream.foreachBatch(land)
    query = query.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
rows = StaticTable.from_metadata(str(folder / "table")).scan().to_arrow().to_pylist()
print("FOUND", json.dumps([rows, [report.why for report in history(str(folder / "table"))]]))
spark.stop()
"""


@pytest.mark.parametrize("release", [None, OTHERS[-1]], ids=lambda release: release or "installed")
def test_a_query_on_connect_sees_new_keys_and_loses_no_text(release: str | None, tmp_path: Path) -> None:
    env = {**os.environ, **required(release), "SPARK_TESTING": "1"}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [env["PYTHONPATH"], str(ROOT)]))
    command = [sys.executable, "-c", _QUERY, str(tmp_path)]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=300, cwd=ROOT, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, done.stdout + done.stderr
    rows, why = json.loads(lines[0].removeprefix("FOUND "))
    assert sorted(rows, key=lambda row: row["id"] or 9) == [
        {"id": 1, "user": {"n": 1, "tag": None}, "_rescued": None},
        {
            "id": 2,
            "user": {"n": None, "tag": "t"},
            "_rescued": json.dumps(
                {"value": '{"id": 2, "user": {"N": 2, "tag": "t"}}'}, separators=(",", ":")
            ),
        },
        {"id": None, "user": None, "_rescued": '{"value":"not json"}'},
    ]
    assert "user.tag added as string, _rescued added as string" in why[1]
