"""kill -9 of the JVM alone, or of single Python workers, while a stream lands and fills run beside it."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.readers import judges
from tests.spark.children import Child, Kills, last_batch
from tests.spark.streams import add_files, head_of, ids_of, source_rows
from tests.tiers import SEED, count, only_in_soak

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.slow, only_in_soak]

KILLS = count(2, 8)
PER_LIFE = 6
"""Batches that a life of the stream finds new."""
ROWS = 50
WORKERS = 4
"""Python workers that a life loses, one after another: some of them work, others wait for a task."""

_CHILD = """
import os, sys
from pyspark.sql import SparkSession
from tests.sinks import flat_sink
from tests.spark.streams import SMALL, stream
source, location, checkpoint, finish = sys.argv[1:]
builder = SparkSession.builder.master("local[2, 9]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
sink = flat_sink(location, app_id="app", partition_by=["p"], sizing=SMALL, fill_policy="always")
writer = stream(spark, source).writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
query = writer.start()
print("STARTED", flush=True)
try:
    while not query.awaitTermination(0.2):
        if os.path.exists(finish):
            query.processAllAvailable()
            query.stop()
            break
finally:  # also where the JVM is gone
    print("LANDED", sink.finish(60), flush=True)
print("DONE", flush=True)
"""


def test_rows_land_once_when_the_jvm_or_single_python_workers_are_killed(
    tmp_path: Path, location: str
) -> None:
    """What is left of an old driver is still there when the next one starts."""
    chance, kills = random.Random(SEED), Kills()
    source, finish = tmp_path / "source", tmp_path / "finish"
    with ExitStack() as ending:
        errors = ending.enter_context((tmp_path / "errors").open("w"))

        def start() -> Child:
            child = Child(_CHILD, [source, location, tmp_path / "checkpoint", finish], errors)
            ending.callback(child.kill)
            child.says("STARTED")
            return child

        add_files(source, range(1), rows=ROWS)
        workers_killed, child, old = 0, start(), []
        for life in range(KILLS):
            before = last_batch(location, "app")
            first = 1 + life * PER_LIFE
            add_files(source, range(first, first + PER_LIFE), rows=ROWS)
            child.wait_for_batch(location, "app", before + kills.commits_before(chance))
            if life % 2:
                for _ in range(WORKERS):
                    workers_killed += child.kill_a_worker(chance)
                    time.sleep(chance.uniform(0.0, 0.3))
            else:
                child.assert_runs_for(chance.choice([0.0, chance.uniform(0.0, 0.6)]))
                child.kill_jvm()
                old.append(child)
                child = start()
            kills.record(committed=last_batch(location, "app") > before)
            assert max(ids_of(location).values(), default=1) == 1
        kills.assert_half_came_after_a_commit()
        assert workers_killed >= KILLS // 2
        finish.touch()
        child.says("DONE")
        for driver in old:
            driver.says("ENDED")
    files = [source_rows(number, ROWS) for number in range(1 + KILLS * PER_LIFE)]
    columns = {name: [value for file in files for value in file[name]] for name in ("id", "p", "text")}
    judges.assert_all_readers_agree(location, pa.table(columns), readers=("pyiceberg", "duckdb"))
    operations = [snapshot.summary.operation.value for snapshot in head_of(location).metadata.snapshots]
    assert "replace" in operations, "nothing was filled beside the stream"
