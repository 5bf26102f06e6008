"""Two lanes for the same stream: a plain append sink, and `IcebergSink`."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pyiceberg.table import StaticTable

from streaming_sink import FileSizing, IcebergSink

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from demo.flights import FlightFiles

# A small version of 120 MiB and 100 MiB: a month of flights is about 400 KiB, and so makes one file.
MAX_FILE_BYTES = 512 * 1024
SMALL_FILE_BYTES = 360 * 1024
PARTITION = "month"


Report = dict[str, Any]


@dataclass(frozen=True)
class Landed:
    """One lane after one micro-batch; `file_bytes` has the size of each file that a reader reads."""

    batch_id: int
    milliseconds: float
    file_bytes: tuple[int, ...]
    report: Report


class Lane(Protocol):
    """A way to land a stream in a table."""

    @property
    def name(self) -> str: ...

    @property
    def location(self) -> Path: ...

    def write(self, batch: DataFrame, batch_id: int) -> Report:
        """Land one micro-batch, and return what the sink tells of it; a plain sink tells nothing."""

    def live_file_bytes(self) -> tuple[int, ...]:
        """Return the size of every file that makes up the table now."""


@dataclass(frozen=True)
class PlainLane:
    """What most jobs do: append Parquet files to a partitioned folder."""

    location: Path
    name: str = "plain append"

    def write(self, batch: DataFrame, batch_id: int) -> Report:  # noqa: ARG002 - a plain sink knows no batches
        batch.write.partitionBy(PARTITION).mode("append").parquet(str(self.location))
        return {}

    def live_file_bytes(self) -> tuple[int, ...]:
        return parquet_file_bytes(self.location)


@dataclass(frozen=True)
class IcebergLane:
    """The same stream through `IcebergSink`."""

    location: Path
    sink: IcebergSink
    name: str = "IcebergSink"

    @classmethod
    def at(cls, location: Path) -> IcebergLane:
        sink = IcebergSink(
            str(location),
            partition_by=[PARTITION],
            fill="inline",  # each batch is looked at as soon as it has landed, its fills included
            sizing=FileSizing(max_file_bytes=MAX_FILE_BYTES, small_file_bytes=SMALL_FILE_BYTES),
        )
        return cls(location, sink)

    def write(self, batch: DataFrame, batch_id: int) -> Report:
        self.sink(batch, batch_id)
        return self.sink.reports[-1].to_dict()

    def live_file_bytes(self) -> tuple[int, ...]:
        files = StaticTable.from_metadata(str(newest_metadata(self.location))).inspect.data_files()
        return tuple(files["file_size_in_bytes"].to_pylist())


@dataclass
class Run:
    """A lane under way: what has landed so far, and what stopped it if something did."""

    lane: Lane
    landed: list[Landed] = field(default_factory=list)
    failure: Exception | None = None


class LaneFailedError(Exception):
    """A sink raised in the middle of the stream; the cause is what it raised."""


def parquet_file_bytes(folder: Path) -> tuple[int, ...]:
    """Return the size of every Parquet file below `folder`, those that no reader reads any more included."""
    return tuple(path.stat().st_size for path in folder.rglob("*.parquet"))


def newest_metadata(location: Path) -> Path:
    """Return the metadata file of the table's newest version. The highest number is the table."""
    versions = (location / "metadata").glob("v*.metadata.json")
    return max(versions, key=lambda path: int(path.name.removeprefix("v").split(".")[0]))


def stream_through(
    spark: SparkSession,
    source: FlightFiles,
    lanes: Sequence[Lane],
    checkpoints: Path,
    watch: Callable[[Sequence[Run]], None],
) -> list[Run]:
    """Stream `source` through every lane at once, one file a micro-batch, and return when all have landed it.

    `watch` is called a few times a second, on the calling thread. A lane that fails stops the others:
    LaneFailedError where its sink raised, else Spark's own error.
    """
    runs = [Run(lane) for lane in lanes]
    queries = [_start(spark, source, run, checkpoints / str(number)) for number, run in enumerate(runs)]
    try:
        while any(query.isActive for query in queries):
            watch(runs)
            time.sleep(0.2)
            for run, query in zip(runs, queries, strict=True):
                if run.failure is not None:
                    raise LaneFailedError(
                        f"{run.lane.name} failed in batch {len(run.landed)}"
                    ) from run.failure
                if query.exception() is not None:
                    query.awaitTermination()
        watch(runs)
    finally:
        for query in queries:
            query.stop()
    return runs


def _start(spark: SparkSession, source: FlightFiles, run: Run, checkpoint: Path) -> StreamingQuery:
    def land(batch: DataFrame, batch_id: int) -> None:
        started = time.perf_counter()
        try:
            report = run.lane.write(batch, batch_id)
        except Exception as error:
            # Py4J would bring it back as pages of text; the watching thread wants the error itself.
            run.failure = error
            raise
        milliseconds = (time.perf_counter() - started) * 1000
        run.landed.append(Landed(batch_id, milliseconds, run.lane.live_file_bytes(), report))

    schema = spark.read.parquet(str(source.folder)).schema
    flights = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source.folder))
    return (
        flights.writeStream.queryName(run.lane.name)
        .foreachBatch(land)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
