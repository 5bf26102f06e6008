"""kill -9 of a stream that is staged in a buffer zone while the zone lands: every row lands once."""

from __future__ import annotations

import json
import random
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_sink import ingest
from streaming_sink.zones.ledger import Ledger
from tests.readers import judges
from tests.spark.children import Child, Kills
from tests.spark.source_files import rows_from, rows_in
from tests.tiers import SEED, count, only_in_soak

pytestmark = [pytest.mark.spark, pytest.mark.slow, only_in_soak]

KILLS = count(2, 8)
PER_LIFE = 6
"""Batches that a life of the stream finds new."""
ROWS = 20
BATCHES = PER_LIFE * (KILLS + 1)

_CHILD = """
import os, sys
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from streaming_sink import ingest
zone_at, table, source, checkpoint, finish = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
zone = ingest.BufferZone(zone_at, table=table)
staged = zone.siphon("clicks")
def start():
    stream = spark.readStream.schema("id bigint, day string").option("maxFilesPerTrigger", 1).json(source)
    stream = stream.repartition(2).writeStream.foreachBatch(staged)
    return stream.option("checkpointLocation", checkpoint).start()
query = start()
print("STARTED", flush=True)
ended = False
while not ended:
    ended = os.path.exists(finish)
    if ended:
        query.processAllAvailable()
    landed = ingest.run(spark, zone, available_now=True, patience_seconds=2)
    if landed and not ended:  # the next batch is on its way, as a rule
        query.stop()
        query = start()
query.stop()
print("DONE", flush=True)
"""


def test_a_stream_that_is_killed_while_it_is_staged_lands_every_row_once(tmp_path: Path) -> None:
    chance, kills = random.Random(SEED), Kills()
    zone_at, table, finish = str(tmp_path / "zone"), str(tmp_path / "table"), tmp_path / "finish"

    def last_staged() -> int:
        commits = Path(zone_at, "staged", "clicks").glob("[0-9]*.json")
        return max((int(path.stem) for path in commits), default=-1)

    with ExitStack() as ending:
        errors = ending.enter_context((tmp_path / "errors").open("w"))

        def start() -> Child:
            arguments = [zone_at, table, tmp_path / "in", tmp_path / "checkpoint", finish]
            child = Child(_CHILD, arguments, errors)
            ending.callback(child.kill)
            return child

        (tmp_path / "in").mkdir()
        for life in range(KILLS):
            before = last_staged()
            child = start()
            child.says("STARTED")
            _add_batches(tmp_path / "in", life)
            awaited = before + kills.commits_before(chance)
            child.wait_until(lambda batch=awaited: last_staged() >= batch)
            # Half of them at once: before the batch is announced, or before Spark has written that it ended.
            child.assert_runs_for(chance.choice([0.0, chance.uniform(0.0, 1.5)]))
            child.kill()
            kills.record(committed=last_staged() > before)
            assert len(rows_in(table)) == len(set(rows_in(table)))
        kills.assert_half_came_after_a_commit()
        _add_batches(tmp_path / "in", KILLS)
        finish.touch()
        start().says("DONE")
    ids, days = zip(*rows_from(0, BATCHES * ROWS), strict=True)
    expected = pa.table({"id": pa.array(ids, pa.int64()), "day": days})
    judges.assert_all_readers_agree(table, expected, readers=("pyiceberg", "duckdb"))
    assert {entry.state for entry in Ledger(ingest.BufferZone(zone_at)).entries()} == {"landed"}


def _add_batches(folder: Path, life: int) -> None:
    for number in range(life * PER_LIFE, (life + 1) * PER_LIFE):
        lines = [json.dumps({"id": id_, "day": day}) for id_, day in rows_from(number * ROWS, ROWS)]
        hidden = folder / f".{number:04}"
        hidden.write_text("\n".join(lines))
        hidden.rename(folder / f"{number:04}.json")
