"""A fresh checkpoint takes the place of another, on a table with a key: real queries, real checkpoints."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

from streaming_sink import IcebergSink
from streaming_sink.errors import FencedError
from tests.readers import judges
from tests.sinks import flat_sink
from tests.spark.changes import CHANGES, KEYED, Change, Judge, as_batch
from tests.spark.streams import head_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.spark

FIRST: list[Change] = [(1, 1, "a", "x", "I"), (2, 1, "a", "x", "I"), (3, 1, "b", "x", "I")]
SECOND: list[Change] = [(1, 5, "b", "y", "U"), (2, 6, "a", "", "D")]
THIRD: list[Change] = [(1, 3, "a", "late", "U"), (2, 4, "a", "late", "I"), (4, 1, "b", "z", "I")]


def _expected(judge: Judge) -> pa.Table:
    kinds = [("user_id", pa.int64()), ("at", pa.int64()), ("region", pa.string()), ("name", pa.string())]
    schema = pa.schema(kinds)
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in judge.rows], schema)


def test_a_fresh_checkpoint_that_reads_all_again_changes_nothing_and_fences_the_old_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It reads the source from its beginning: what landed is unchanged or late, a deleted row too."""
    source, location, judge = tmp_path / "source", str(tmp_path / "t"), Judge()
    source.mkdir()
    names = [each.split()[0] for each in CHANGES.split(", ")]

    def add(number: int, changes: list[Change]) -> None:
        lines = [json.dumps(dict(zip(names, change, strict=True))) for change in changes]
        (source / f"{number}.json").write_text("\n".join(lines))
        judge.take(changes)

    def sink(**given: Any) -> IcebergSink:
        return flat_sink(location, app_id="users", **KEYED, **given)

    def run(lands: Any, checkpoint: str) -> StreamingQuery:
        query = (
            spark.readStream.schema(CHANGES)
            .option("maxFilesPerTrigger", 1)
            .json(str(source))
            .writeStream.foreachBatch(lands)
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    sessions, old_sink = [], sink()

    def lands(batch: DataFrame, number: int) -> None:
        sessions.append(batch.sparkSession)
        old_sink(batch, number)

    add(0, FIRST)
    add(1, SECOND)
    old = run(lands, "first")
    with pytest.raises(StreamingQueryException, match="CheckpointRegressionError"):
        run(sink(), "second")
    add(2, THIRD)
    taker = sink(takeover_from=str(old.id))
    new = run(taker, "third")
    judges.assert_all_readers_agree(location, _expected(judge), readers=("pyiceberg", "duckdb", "chdb"))
    assert [report.rows for report in taker.reports] == [0, 0, 1]
    assert head_of(location).transaction("users").query_id == str(new.id)
    with pytest.raises(FencedError, match="newer run"):
        old_sink(as_batch(sessions[0], [(1, 99, "a", "zombie", "U")]), 2)
    with pytest.raises(StreamingQueryException, match="CheckpointRegressionError"):
        run(sink(), "first")
    judges.assert_all_readers_agree(location, _expected(judge), readers=("pyiceberg", "duckdb", "chdb"))
