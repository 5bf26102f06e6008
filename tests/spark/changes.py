"""Streams of changes, and the dictionary that judges them: of each key the last change in sequence counts."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from pyiceberg.table import StaticTable

from streaming_sink import Clustering, IcebergSink
from tests.sinks import flat_sink
from tests.spark.streams import SMALL, metadata_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

CHANGES = "user_id bigint, at bigint, region string, name string, op string"
WIDE_CHANGES = CHANGES.replace("at bigint", "at decimal(38, 0)")
WIDE = [1 - 10**38, -(2**64), -1, 0, 2**63, 2**64, 2**64 + 1, 10**37, 10**38 - 1]
"""Sequences of up to 38 digits, in their order."""
KEYED: dict[str, Any] = {
    "operation": "upsert",
    "key": ["user_id"],
    "sequence_by": "at",
    "delete_where": "op = 'D'",
    "except_columns": ["op"],
}

Row = tuple[int, int, str | None, str | None]
Change = tuple[int, int, str | None, str | None, str]


@dataclass
class Judge:
    """The rows that a table of changes must have."""

    newest: dict[int, tuple[int, bool, str, Change]] = field(default_factory=dict)

    def take(self, changes: Iterable[Change]) -> None:
        for change in changes:
            key, at, region, name, op = change
            deletes = op == "D"
            values = {"at": at, "name": name, "region": region, "user_id": key}  # by name
            rank = (at, deletes, "" if deletes else repr(values))
            if key not in self.newest or rank > self.newest[key][:3]:
                self.newest[key] = (*rank, change)

    @property
    def rows(self) -> list[Row]:
        return sorted(
            (change[:4] for *_, deletes, _, change in self.newest.values() if not deletes), key=repr
        )


def start_clustering_stream(
    spark: SparkSession, source: str, location: str, checkpoint: str, app_id: str
) -> tuple[IcebergSink, StreamingQuery]:
    """Start a stream of changes, in JSON files, that clusters: "a" in its batches, others beside it."""
    run: Literal["inline", "beside"] = "inline" if app_id == "a" else "beside"
    sizes = {"target_file_bytes": "1MiB", "small_file_bytes": "64KiB"}
    by_name = Clustering(every_commits=2, run=run, sort_by=["name"], **sizes)
    # Small files are left to the passes.
    options = {"sizing": SMALL, "fill_policy": "never", "clustering": by_name, **KEYED}
    sink = flat_sink(location, app_id=app_id, **options)
    stream = spark.readStream.schema(CHANGES).option("maxFilesPerTrigger", 1).json(source)
    writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    return sink, writer.start()


def random_changes(rng: random.Random, count: int, keys: int, start: int, width: int) -> list[Change]:
    """Return changes with sequences from `start` on, out of order, some of them tied or twice."""
    made = [
        (
            rng.randrange(keys),
            start + rng.randrange(width),
            rng.choice("abc"),
            f"n{rng.randrange(4)}",
            rng.choice("IUUUD"),
        )
        for _ in range(count)
    ]
    return made + rng.sample(made, count // 20)


def as_batch(spark: SparkSession, changes: list[Change], slices: int = 3) -> DataFrame:
    return spark.createDataFrame(changes, CHANGES).repartition(slices)


def as_wide_batch(spark: SparkSession, changes: list[Change]) -> DataFrame:
    return spark.createDataFrame([(key, Decimal(at), *rest) for key, at, *rest in changes], WIDE_CHANGES)


def wide_changes(rng: random.Random, count: int, keys: int) -> list[Change]:
    """Return changes with sequences of `WIDE`, some of them tied or twice."""
    changes = random_changes(rng, count, keys, 0, len(WIDE))
    return [(key, WIDE[at], *rest) for key, at, *rest in changes]


def rows_of(location: str) -> list[Row]:
    """Return the rows of the table's head, as pyiceberg reads it."""
    path = metadata_file(location)
    read = [] if path is None else StaticTable.from_metadata(path).scan().to_arrow().to_pylist()
    return sorted(((row["user_id"], row["at"], row["region"], row["name"]) for row in read), key=repr)


def land(
    spark: SparkSession,
    location: str,
    sinks: list[Callable[[Any, int], None]],
    judge: Judge,
    *,
    batches: int = 5,
    seed: int = 0,
    count: int = 200,
    keys: int = 150,
) -> None:
    """Let the sinks take turns, and judge the table after each batch. Each sink but the first batch of its
    run plans on the head of its own last commit, so that what the others have committed since is a conflict.
    """
    rng = random.Random(seed)
    for number in range(batches):
        for sink in sinks:
            changes = random_changes(rng, count, keys, number * 50, 120)
            sink(as_batch(spark, changes), number)
            judge.take(changes)
            assert rows_of(location) == judge.rows
