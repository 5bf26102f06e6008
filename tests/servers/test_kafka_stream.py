"""A stream of JSON from a Kafka broker changes while it runs, has bad rows, and is killed again and again, as
its broker is restarted.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyiceberg.types as it
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable

from tests import jars
from tests.readers import judges
from tests.servers import kafka
from tests.spark.children import Child, Kills, last_batch
from tests.spark.streams import ids_of, metadata_file
from tests.tiers import SEED, count, only_in_soak
from timeline.stores import open_store
from timeline.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.servers, pytest.mark.slow, pytest.mark.jar, only_in_soak]

KILLS = count(1, 3)
PER_LIFE = 3_000
ROWS = PER_LIFE * (KILLS + 1)
NOTE, WIDER, USER = ROWS * 3 // 10, ROWS * 6 // 10, ROWS - PER_LIFE // 2
"""From these ids on rows have a column more, a number beyond an int, and another column more."""

_CHILD = """
import os, sys
from pyspark.sql import SparkSession
from streaming_sink import Checks, IcebergSink, SchemaContract, parse_json
from tests.spark.streams import SMALL
jars, address, location, checkpoint, finish = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
builder = builder.config("spark.driver.memory", "768m").config("spark.jars", jars)
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
unwritten = ("message", "topic", "partition", "offset")
contract = SchemaContract(
    new_columns="add", new_fields="add", widening="widen", mismatch="quarantine",
    columns=dict.fromkeys(unwritten, SchemaContract(new_columns="ignore")),
)
sink = IcebergSink(
    location, app_id="app", sizing=SMALL, contract=contract, checks=Checks({"price >= 0": "quarantine"})
)
def land(batch, number):
    text = batch.selectExpr("CAST(value AS STRING) AS message", "topic", "partition", "offset")
    with parse_json(text.selectExpr("*", "message AS text"), "text", sink) as parsed:
        sink(parsed.rows, number)
        if parsed.new:
            print("GREW", *parsed.new, flush=True)
    print("LANDED", flush=True)
stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", address)
stream = stream.option("subscribe", "events").option("startingOffsets", "earliest")
stream = stream.option("maxOffsetsPerTrigger", 1000).load()
query = stream.writeStream.foreachBatch(land).option("checkpointLocation", checkpoint).start()
print("STARTED", flush=True)
while not query.awaitTermination(0.2):
    if os.path.exists(finish):
        query.processAllAvailable()
        query.stop()
        break
sink.finish()
print("DONE", flush=True)
"""


def _row(number: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": number,
        "price": number / 4,
        "n": number if number < WIDER else 2**40 + number,
    }
    if number >= NOTE:
        row["note"] = f"note {number}"
    if number >= USER:
        row["user"] = {"level": number % 7}
    return row


def _is_bad(number: int) -> bool:
    return number % 1000 == 500


def _message(number: int) -> str:
    row = _row(number)
    if not _is_bad(number):
        return json.dumps(row)
    match number // 1000 % 3:
        case 0:
            return json.dumps(row)[:-4]
        case 1:
            return json.dumps({**row, "n": "many"})
        case _:
            return json.dumps({**row, "price": -1.5})


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.Broker]:
    with ExitStack() as running:
        try:
            started = running.enter_context(kafka.broker(tmp_path_factory.mktemp("kafka")))
        except jars.JarUnavailableError as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(str(error))
        yield started


def test_a_changing_kafka_stream_that_is_killed_ends_with_the_sources_rows_in_table_and_quarantine(
    broker: kafka.Broker, tmp_path: Path, location: str
) -> None:
    chance, kills = random.Random(SEED), Kills()
    finish, kafka_jars = tmp_path / "finish", ",".join(map(str, jars.kafka_for_spark()))
    Table.create(open_store(location), _FIRST)
    with ExitStack() as ending:
        errors = ending.enter_context((tmp_path / "errors").open("w"))

        def start() -> Child:
            arguments = [kafka_jars, broker.address, location, tmp_path / "checkpoint", finish]
            child = Child(_CHILD, arguments, errors)
            ending.callback(child.kill)
            return child

        with broker.producer("events", tmp_path) as producer:
            producer.send(map(_message, range(100)))  # a stream needs its topic
            for life in range(KILLS):
                before = last_batch(location, "app")
                child = start()
                child.says("STARTED")
                producer.send(map(_message, range(max(100, life * PER_LIFE), (life + 1) * PER_LIFE)))
                if life == KILLS // 2 > 0:
                    broker.restart()
                child.wait_for_batch(location, "app", before + kills.commits_before(chance))
                # Half of them at once: after our commit, and before Spark has written that the batch ended.
                child.assert_runs_for(chance.choice([0.0, chance.uniform(0.0, 0.6)]))
                child.kill()
                kills.record(committed=last_batch(location, "app") > before)
                assert max(ids_of(location).values(), default=1) == 1
            kills.assert_half_came_after_a_commit()
            child = start()
            child.says("LANDED")
            broker.restart()  # while the stream runs, which goes on by itself
            producer.send(map(_message, range(KILLS * PER_LIFE, ROWS)))
        assert child.says("GREW user")  # without a restart
        finish.touch()
        child.says("DONE")

    good = [_row(number) for number in range(ROWS) if not _is_bad(number)]
    judges.assert_all_readers_agree(
        location, pa.Table.from_pylist(good, schema=_LAST), readers=judges.READERS
    )

    quarantine = location + "__quarantine"
    set_aside = StaticTable.from_metadata(str(metadata_file(quarantine))).scan().to_arrow()
    judges.assert_all_readers_agree(quarantine, set_aside)
    found = Counter(json.loads(row)["message"] for row in set_aside["row"].to_pylist())
    assert found == Counter(_message(number) for number in range(ROWS) if _is_bad(number))
    assert set(json.loads(set_aside["source"][0].as_py())) == {"topic", "partition", "offset"}
    assert len(set(set_aside["source"].to_pylist())) == set_aside.num_rows


_FIRST = Schema(
    it.NestedField(1, "id", it.LongType(), required=False),
    it.NestedField(2, "price", it.DoubleType(), required=False),
    it.NestedField(3, "n", it.IntegerType(), required=False),
)
_LAST = pa.schema(
    {
        "id": pa.int64(),
        "price": pa.float64(),
        "n": pa.int64(),
        "note": pa.string(),
        "user": pa.struct([("level", pa.int64())]),
    }
)
