"""Spark with the Iceberg runtime. These functions run in a process of their own (`processes.py`)."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from functools import cache, reduce
from typing import TYPE_CHECKING
from zlib import crc32

from pyspark.sql import DataFrame, SparkSession

if TYPE_CHECKING:
    import pyarrow as pa


@cache
def session(jar: str) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("judge")
    settings = {
        "spark.jars": jar,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
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
    spark, lake = _with_catalog(jar, warehouse)
    columns = ", ".join(f"'{name}'" for name in key)
    spark.sql(
        f"CALL {lake}.system.create_changelog_view(table => '{table}', changelog_view => 'changed',"
        f" compute_updates => true, identifier_columns => array({columns}))"
    )
    return spark.table("changed").toArrow()


def staged(
    jar: str, warehouse: str, table: str, snapshot_id: int, tag: str, wap_id: str
) -> tuple[dict[str, int], list[str]]:
    """Return how many rows a table below a folder has on main, at a snapshot and at a tag, and how Iceberg's
    own procedures refuse to publish what is staged there.
    """
    spark, lake = _with_catalog(jar, warehouse)
    whole = f"select count(*) from {lake}.{table}"
    texts = {
        "main": whole,
        "id": f"{whole} version as of {snapshot_id}",
        "tag": f"{whole} version as of '{tag}'",
    }
    seen = {name: int(spark.sql(text).collect()[0][0]) for name, text in texts.items()}
    refusals = []
    for call in (f"cherrypick_snapshot('{table}', {snapshot_id})", f"publish_changes('{table}', '{wap_id}')"):
        try:
            spark.sql(f"CALL {lake}.system.{call}")
        except Exception as refusal:  # noqa: BLE001 - Iceberg's own, of any class
            refusals.append(str(refusal))
    return seen, refusals


def _with_catalog(jar: str, warehouse: str) -> tuple[SparkSession, str]:
    """Return the session, and a Hadoop catalog of the tables below a folder, which it keeps for good."""
    spark, catalog = session(jar), f"lake{crc32(warehouse.encode())}"
    spark.conf.set(f"spark.sql.catalog.{catalog}", "org.apache.iceberg.spark.SparkCatalog")
    for name, value in {"type": "hadoop", "warehouse": warehouse, "cache-enabled": "false"}.items():
        spark.conf.set(f"spark.sql.catalog.{catalog}.{name}", value)
    return spark, catalog


def counts(jar: str, folder: str, conditions: list[str]) -> list[int]:
    """Return how many rows of a table meet each condition, by one job of a scan each."""
    if not conditions:
        return []
    frame = session(jar).read.format("iceberg").load(folder)
    scans = [frame.where(each).selectExpr(f"{place} AS place") for place, each in enumerate(conditions)]
    found = Counter(row.place for row in reduce(DataFrame.unionAll, scans).collect())
    return [found[place] for place in range(len(conditions))]
