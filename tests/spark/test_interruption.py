"""A query that is stopped in the midst of a batch says so in few words, and its next run lands the rows."""

from __future__ import annotations

import time
import traceback
from typing import TYPE_CHECKING, Any

import pytest

from streaming_sink import IcebergSink, ingest
from tests.spark.streams import ROWS, add_files, drain, ids_of, stream

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

_ERROR = "py4j.protocol.Py4JJavaError: An error occurred while calling"
_SLEEP = "reflect('java.lang.Thread', 'sleep', 200L)"


@pytest.mark.parametrize("kind", ["sink", "siphon"])
def test_a_batch_of_a_query_that_stops_leaves_few_words_and_lands_later(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    location, source, checkpoint = str(tmp_path / "t"), tmp_path / "source", str(tmp_path / "checkpoint")
    add_files(source, range(1))
    zone = ingest.BufferZone(str(tmp_path / "zone"), location, rules=ingest.Rules(max_files=1))
    land: Any = IcebergSink(location) if kind == "sink" else zone.siphon()
    raised = []

    def slowly(batch: DataFrame, number: int) -> None:
        try:
            land(batch.selectExpr("id", "p", f"concat(text, {_SLEEP}) AS text"), number)
        except Exception:
            raised.append(traceback.format_exc())
            raise

    query = (
        stream(spark, source)
        .writeStream.foreachBatch(slowly)
        .option("checkpointLocation", checkpoint)
        .start()
    )
    while not spark.sparkContext.statusTracker().getActiveJobsIds():
        time.sleep(0.05)
    time.sleep(0.5)  # its tasks have begun
    query.stop()
    assert query.exception() is None
    [text] = raised
    before, _, after = text.partition(_ERROR)
    assert "was interrupted, as a query that stops does" in before
    assert after.strip().endswith("java.lang.InterruptedException")
    assert len(after) < 100, "Spark's stack has a frame for each letter of it"

    drain(spark, source, land, checkpoint)
    if kind == "siphon":
        ingest.run(spark, zone, available_now=True)
    assert ids_of(location) == dict.fromkeys(range(ROWS), 1)
