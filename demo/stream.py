"""One stream through several lanes at once, one file a micro-batch."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from demo.flights import FlightFiles
    from demo.lanes import Lane
    from demo.states import State


class LaneFailedError(Exception):
    """A sink raised in the middle of the stream; the cause is what it raised."""


@dataclass(frozen=True)
class Run:
    """A lane's whole stream: the table after each batch, and how long Spark took to add each."""

    states: tuple[State, ...]
    milliseconds: tuple[int, ...]


def stream_through(
    spark: SparkSession,
    source: FlightFiles,
    lanes: Sequence[Lane],
    checkpoints: Path,
    watch: Callable[[Sequence[Lane]], None],
) -> list[Run]:
    """Stream `source` through every lane at once, and return when all have landed it.

    `watch` is called a few times a second, on the calling thread. A lane that fails stops the others:
    LaneFailedError where Python's own error is known, else Spark's.
    """
    queries = [_start(spark, source, lane, checkpoints / str(number)) for number, lane in enumerate(lanes)]
    try:
        while any(query.isActive for query in queries):
            watch(lanes)
            time.sleep(0.3)
            for lane, query in zip(lanes, queries, strict=True):
                if lane.failure is not None:
                    raise LaneFailedError(f"{lane.name} failed") from lane.failure
                if query.exception() is not None:
                    query.awaitTermination()
        for lane in lanes:
            lane.finish()
        watch(lanes)
        return [Run(lane.states(), _durations(query)) for lane, query in zip(lanes, queries, strict=True)]
    finally:
        for query in queries:
            query.stop()


def _start(spark: SparkSession, source: FlightFiles, lane: Lane, checkpoint: Path) -> StreamingQuery:
    schema = spark.read.parquet(str(source.folder)).schema
    flights = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source.folder))
    writer = flights.writeStream.queryName(lane.name).option("checkpointLocation", str(checkpoint))
    return lane.start(flights, writer.trigger(availableNow=True))


def _durations(query: StreamingQuery) -> tuple[int, ...]:
    """Return the milliseconds of each batch in the sink, its commit included, as Spark measured them."""
    return tuple(it["durationMs"]["addBatch"] for it in query.recentProgress if it["numInputRows"])
