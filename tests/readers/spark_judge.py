"""Spark with the Iceberg runtime. These functions run in a process of their own (`processes.py`)."""

from __future__ import annotations

import os
import sys
import tempfile
from functools import cache
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@cache
def session(jar: str) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("judge")
    settings = {
        "spark.jars": jar,
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def read(jar: str, folder: str, columns: list[str] | None, options: dict[str, str]) -> pa.Table:
    """Read a table, or one of its metadata tables (`<folder>#files`), by path."""
    frame = session(jar).read.format("iceberg").options(**options).load(folder)
    return (frame if columns is None else frame.select(*columns)).toArrow()


def stream(
    jar: str, folder: str, columns: list[str], options: dict[str, str], checkpoint: str | None
) -> list[pa.Table]:
    """Return the micro-batches that a stream over the table brings until it has caught up."""
    batches: list[pa.Table] = []

    def collect(batch: DataFrame, _batch_id: int) -> None:
        batches.append(batch.select(*columns).toArrow())

    with tempfile.TemporaryDirectory() as scratch:
        frame = session(jar).readStream.format("iceberg").options(**options).load(folder)
        writer = frame.writeStream.foreachBatch(collect).trigger(availableNow=True)
        query = writer.option("checkpointLocation", checkpoint or scratch).start()
        query.awaitTermination()
    return batches


def changelog_view(jar: str, warehouse: str, table: str, key: list[str]) -> pa.Table:
    """Return what Iceberg's own `create_changelog_view` says of all snapshots of a table below a folder."""
    spark = session(jar)
    spark.conf.set("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
    for name, value in {"type": "hadoop", "warehouse": warehouse, "cache-enabled": "false"}.items():
        spark.conf.set(f"spark.sql.catalog.lake.{name}", value)
    columns = ", ".join(f"'{name}'" for name in key)
    spark.sql(
        f"CALL lake.system.create_changelog_view(table => '{table}', changelog_view => 'changed',"
        f" compute_updates => true, identifier_columns => array({columns}))"
    )
    return spark.table("changed").toArrow()


def count(jar: str, folder: str, condition: str) -> int:
    """Return how many rows of a table meet the condition."""
    return session(jar).read.format("iceberg").load(folder).where(condition).count()
