"""Spark SQL with Iceberg's runtime on a REST catalog, in a process of its own, a statement at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, Any

from tests.jars import require_iceberg_runtime
from tests.spark.children import Child

_PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
def run(asked):
    if isinstance(asked, str):
        return [list(row) for row in spark.sql(asked).collect()]
    table, checkpoint, columns = asked
    rows, skipped = [], ("streaming-skip-overwrite-snapshots", "streaming-skip-delete-snapshots")
    stream = spark.readStream.options(**dict.fromkeys(skipped, "true")).table(table).select(columns)
    query = stream.writeStream.foreachBatch(lambda batch, _: rows.extend(map(list, batch.collect())))
    # Not by availableNow: Iceberg 1.12 looks for the first snapshot then, which may have expired.
    running = query.option("checkpointLocation", checkpoint).start()
    running.processAllAvailable()
    running.stop()
    return rows
uri, jar = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
builder = builder.config("spark.jars", jar).config("spark.sql.session.timeZone", "UTC")
extensions = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
builder = builder.config("spark.sql.extensions", extensions)
lake = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": uri, ".cache-enabled": "false"}
for name, value in lake.items():
    builder = builder.config("spark.sql.catalog.lake" + name, value)
spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
print("STARTED", flush=True)
for line in sys.stdin:
    try:
        print("RAN", json.dumps(run(json.loads(line)), default=str), flush=True)
    except Exception as failure:
        print("REFUSED", " ".join(str(failure).split())[:500], flush=True)
"""
_CONFLICTS = ("ValidationException", "CommitFailedException")
"""What Iceberg raises where another writer has replaced what a statement deletes from."""


class Sql(Child):
    """A session whose catalog `lake` is a REST catalog."""

    def __init__(self, uri: str, errors: IO[str]) -> None:
        super().__init__(_PROGRAM, [uri, require_iceberg_runtime()], errors)

    def run(self, statement: str) -> list[list[Any]]:
        """Run a statement, and return its rows."""
        self.send(json.dumps(statement))
        rows: list[list[Any]] = json.loads(self.says("RAN").removeprefix("RAN "))
        return rows

    def follow(self, table: str, checkpoint: Path, *columns: str) -> list[list[Any]]:
        """Return what Spark's stream reader of appends brings, from its checkpoint on."""
        self.send(json.dumps([table, str(checkpoint), columns]))
        rows: list[list[Any]] = json.loads(self.says("RAN").removeprefix("RAN "))
        return rows

    def try_until_it_runs(self, statement: str, tries: int = 40) -> int:
        """Run a statement, again after each conflict with another writer. Return how often that was."""
        for conflicts in range(tries):
            if self.try_once(statement):
                return conflicts
        raise AssertionError(f"Spark's statement lost {tries} races: {statement}")

    def try_once(self, statement: str) -> bool:
        """Run a statement. Return whether it ran; else it was in conflict with another writer."""
        self.send(json.dumps(statement))
        answer = self.says("R")
        assert answer.startswith("RAN") or any(word in answer for word in _CONFLICTS), answer
        return answer.startswith("RAN")
