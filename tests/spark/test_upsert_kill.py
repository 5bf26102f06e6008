"""kill -9 of two streams that change the same keys, and cluster them: each key ends with its last change."""

from __future__ import annotations

import json
import random
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from streaming_sink import IcebergSink
from streaming_sink.reports.cluster_report import PLAN_ID
from tests.readers import judges
from tests.spark.changes import Judge, random_changes, rows_of, start_clustering_stream
from tests.spark.children import Child, Kills, last_batch
from tests.spark.streams import head_of
from tests.tiers import SEED, count, longer_in_soak

pytestmark = [pytest.mark.spark, pytest.mark.slow, longer_in_soak]

KILLS = count(2, 12)
LIVES = -(-KILLS // 2)
PER_LIFE = 4
"""Batches that a life of a stream finds new."""

_CHILD = """
import sys
from pyspark.sql import SparkSession
from tests.spark.changes import start_clustering_stream
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
sink, query = start_clustering_stream(spark, *sys.argv[1:])
print("STARTED", flush=True)
query.awaitTermination()
"""


def test_two_streams_that_are_killed_and_cluster_end_with_the_last_change_of_each_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    chance, kills, judge = random.Random(SEED), Kills(), Judge()
    location = str(tmp_path / "table")

    def add_changes(app: str, life: int) -> None:
        for number in range(life * PER_LIFE, (life + 1) * PER_LIFE):
            changes = random_changes(chance, 300, 200, number * 50, 150)
            judge.take(changes)
            names = ("user_id", "at", "region", "name", "op")
            lines = (json.dumps(dict(zip(names, change, strict=True))) for change in changes)
            hidden = tmp_path / app / f".{number:03}"
            hidden.write_text("\n".join(lines))
            hidden.rename(tmp_path / app / f"{number:03}.json")

    for app in "ab":
        (tmp_path / app).mkdir()
    with ExitStack() as ending:
        errors = ending.enter_context((tmp_path / "errors").open("w"))

        def arguments(app: str) -> list[str]:
            return [str(tmp_path / app), location, str(tmp_path / f"checkpoint-{app}"), app]

        def start(app: str) -> Child:
            child = Child(_CHILD, arguments(app), errors)
            ending.callback(child.kill)
            return child

        for life in range(LIVES):
            before = {app: last_batch(location, app) for app in "ab"}
            children = {app: start(app) for app in "ab"}
            for app, child in children.items():
                child.says("STARTED")
                add_changes(app, life)
            for app in chance.sample("ab", 2):
                children[app].wait_for_batch(location, app, before[app] + kills.commits_before(chance))
                children[app].assert_runs_for(chance.choice([0.0, chance.uniform(0.0, 0.6)]))
                children[app].kill()
                kills.record(committed=last_batch(location, app) > before[app])
            keys = [row[0] for row in rows_of(location)]
            assert len(keys) == len(set(keys))
        kills.assert_half_came_after_a_commit()
        for app in "ab":
            add_changes(app, LIVES)
    # Their last lives are in this process, which spares the test two JVMs.
    _run_to_end([start_clustering_stream(spark, *arguments(app)) for app in "ab"])
    # Each pass of before may have lost its files to the other stream's changes; none of these can.
    add_changes("a", LIVES + 1)
    _run_to_end([start_clustering_stream(spark, *arguments("a"))])
    names = ("user_id", "at", "region", "name")
    expected = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in judge.rows], schema=_ROWS)
    judges.assert_all_readers_agree(location, expected, readers=("pyiceberg", "duckdb"))
    summaries = [snapshot.summary for snapshot in head_of(location).metadata.snapshots]
    assert any(PLAN_ID in summary.additional_properties for summary in summaries), "no pass ran to its end"


def _run_to_end(streams: list[tuple[IcebergSink, StreamingQuery]]) -> None:
    for sink, query in streams:
        query.processAllAvailable()
        query.stop()
        sink.finish(400)


_ROWS = pa.schema({"user_id": pa.int64(), "at": pa.int64(), "region": pa.string(), "name": pa.string()})
