"""The lanes of the demo: ways to land one stream in a table, ours and those that we are compared with."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from demo.states import State, states_of
from streaming_sink import FileSizing, IcebergSink

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

PARTITION_BY = ("origin", "carrier")
# A small version of 120 MiB and 100 MiB: all flights are about 5 MiB.
MAX_FILE_BYTES = 512 * 1024
SMALL_FILE_BYTES = 400 * 1024
CATALOG = "peer"


class Lane(Protocol):
    """A way to land a stream in a table."""

    @property
    def name(self) -> str: ...

    @property
    def location(self) -> Path: ...

    @property
    def failure(self) -> Exception | None:
        """What the sink raised, where that is Python's own error."""

    def start(self, stream: DataFrame, writer: DataStreamWriter) -> StreamingQuery:
        """Start the query that lands `stream`; `writer` is its writer, with all but the sink."""

    def finish(self) -> None:
        """Return once what the sink does beside the stream has ended. Call it after the last batch."""

    def states(self) -> tuple[State, ...]:
        """Return what the table was after each batch that has landed so far."""


@dataclass
class SinkLane:
    """Our lane: `IcebergSink`."""

    location: Path
    name: str = "IcebergSink"
    failure: Exception | None = None

    def __post_init__(self) -> None:
        self._sink = IcebergSink(
            str(self.location),
            partition_by=PARTITION_BY,
            sizing=FileSizing(max_file_bytes=MAX_FILE_BYTES, small_file_bytes=SMALL_FILE_BYTES),
        )

    def start(self, stream: DataFrame, writer: DataStreamWriter) -> StreamingQuery:  # noqa: ARG002 - the writer has it
        return writer.foreachBatch(_noting_failure(self, self._sink)).start()

    def finish(self) -> None:
        self._sink.finish()

    def states(self) -> tuple[State, ...]:
        return iceberg_states(self.location)


@dataclass
class IcebergLane:
    """The peer: the sink that Iceberg's runtime for Spark brings, in a catalog that is a folder."""

    warehouse: Path
    name: str = "Iceberg's sink"
    failure: Exception | None = None

    @property
    def location(self) -> Path:
        return self.warehouse / "demo" / "flights"

    @staticmethod
    def settings(jar: Path, warehouse: Path) -> dict[str, str]:
        """Return what the session needs for this lane."""
        return {
            "spark.jars": str(jar),
            f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
            f"spark.sql.catalog.{CATALOG}.type": "hadoop",
            f"spark.sql.catalog.{CATALOG}.warehouse": str(warehouse),
        }

    def start(self, stream: DataFrame, writer: DataStreamWriter) -> StreamingQuery:
        table = f"{CATALOG}.demo.flights"
        columns = ", ".join(f"`{it.name}` {it.dataType.simpleString()}" for it in stream.schema)
        stream.sparkSession.sql(
            f"CREATE TABLE {table} ({columns}) USING iceberg PARTITIONED BY ({', '.join(PARTITION_BY)}) "
            f"TBLPROPERTIES ('write.target-file-size-bytes' = '{MAX_FILE_BYTES}')"
        )
        # Without fanout a task may write to one partition at a time, and would have to sort its rows first.
        return writer.format("iceberg").outputMode("append").option("fanout-enabled", "true").toTable(table)

    def finish(self) -> None:
        """Nothing runs beside this sink."""

    def states(self) -> tuple[State, ...]:
        return iceberg_states(self.location)


@dataclass
class ParquetLane:
    """The peer where Iceberg's runtime cannot be downloaded: appends to a folder of Parquet files."""

    location: Path
    name: str = "plain append"
    failure: Exception | None = None
    _states: list[State] = field(default_factory=list)

    def start(self, stream: DataFrame, writer: DataStreamWriter) -> StreamingQuery:  # noqa: ARG002 - the writer has it
        return writer.foreachBatch(_noting_failure(self, self._append)).start()

    def _append(self, batch: DataFrame, batch_id: int) -> None:  # noqa: ARG002 - it knows no batches
        path = str(self.location)
        batch.write.partitionBy(*PARTITION_BY).mode("append").parquet(path, compression="zstd")
        sizes = [file.stat().st_size for file in self.location.rglob("*.parquet")]
        self._states.append(State(len(sizes), sum(sizes)))

    def finish(self) -> None:
        """Nothing runs beside this sink."""

    def states(self) -> tuple[State, ...]:
        return tuple(self._states)


def iceberg_states(location: Path) -> tuple[State, ...]:
    """Return what the table at `location` was after each batch; nothing while there is no table yet."""
    metadata = newest_metadata(location)
    return () if metadata is None else states_of(json.loads(metadata.read_text()).get("snapshots", ()))


def newest_metadata(location: Path) -> Path | None:
    """Return the metadata file of the table's newest version. The highest number is the table."""
    versions = (location / "metadata").glob("v*.metadata.json")
    return max(versions, key=lambda path: int(path.name.removeprefix("v").split(".")[0]), default=None)


def _noting_failure(
    lane: SinkLane | ParquetLane, land: Callable[[DataFrame, int], None]
) -> Callable[[DataFrame, int], None]:
    """Return `land`, except that the lane keeps what it raises: Py4J would return it as pages of text."""

    def noting(batch: DataFrame, batch_id: int) -> None:
        try:
            land(batch, batch_id)
        except Exception as error:
            lane.failure = error
            raise

    return noting
