"""Tables of the same rows by three engines in one Spark session: ours, Iceberg's own, and Delta's.

Each engine fills its table from one folder of Parquet files, a data file for each, keeps a copy, and gives a
fresh one before every run. All files are compressed by zstd.
"""

from __future__ import annotations

import json
import os
import shutil
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from benchmarks.data import SCHEMA
from benchmarks.sessions import local_session
from benchmarks.tables import append_files, new_table, newest_metadata
from planners import All
from streaming_sink import clustering
from tests.jars import delta_runtime, iceberg_runtime

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

    from streaming_sink.clustering import ClusterReport

_DELTA_OPTIMIZE = "spark.databricks.delta.optimize."


@dataclass(frozen=True)
class Layout:
    """How a table is to be ordered, and into what files."""

    strategy: str
    """"sort", "zorder" or "hilbert"."""
    columns: tuple[str, ...]
    file_bytes: int


@dataclass(frozen=True)
class Extent:
    """A number of files, and their bytes."""

    files: int
    bytes: int


@dataclass(frozen=True)
class Contents:
    """The rows of a table, told apart by their number and by a sum over a hash of all columns."""

    rows: int
    checksum: int


class Engine(ABC):
    """One engine's table. Its folder is always the same, so that a copy's absolute paths stay right."""

    name: str
    strategies: tuple[str, ...]

    def __init__(self, spark: SparkSession, work: Path, table: str) -> None:
        self._spark = spark
        self._location = work / self.name / "bench" / table
        self._kept = work / "kept" / self.name / table

    def fill(self, source: Path) -> None:
        """Make the table from the source's files, and keep a copy."""
        self._fill(source)
        shutil.move(self._location, self._kept)

    def restore(self) -> None:
        """Put a fresh copy of the table in its place."""
        shutil.rmtree(self._location, ignore_errors=True)
        shutil.copytree(self._kept, self._location)
        os.sync()  # no run pays for what the copy has not yet written

    @abstractmethod
    def _fill(self, source: Path) -> None: ...

    @abstractmethod
    def cluster(self, layout: Layout) -> None:
        """Rewrite the whole table."""

    @abstractmethod
    def frame(self) -> DataFrame:
        """Return the table as it is now."""

    @abstractmethod
    def live(self) -> Extent:
        """Return the files that a scan of the whole table reads."""

    @abstractmethod
    def within(self, column: str, low: Any, high: Any) -> Extent:
        """Return the files whose bounds let through low <= column < high."""


class IcebergTable(Engine):
    """A table that any reader of Iceberg takes."""

    @property
    def metadata(self) -> str:
        """The newest metadata file."""
        return newest_metadata(str(self._location))

    def live(self) -> Extent:
        return self._planned(StaticTable.from_metadata(self.metadata).scan())

    def within(self, column: str, low: Any, high: Any) -> Extent:
        low, high = (it.isoformat() if isinstance(it, datetime) else it for it in (low, high))
        condition = f"{column} >= {low!r} AND {column} < {high!r}"
        return self._planned(StaticTable.from_metadata(self.metadata).scan(condition))

    @staticmethod
    def _planned(scan: Any) -> Extent:
        sizes = [task.file.file_size_in_bytes for task in scan.plan_files()]
        return Extent(len(sizes), sum(sizes))


class Ours(IcebergTable):
    """This project's clustering. `report` is that of the last pass."""

    name = "ours"
    strategies = ("sort", "zorder", "hilbert")
    report: ClusterReport | None = None

    def __init__(self, spark: SparkSession, work: Path, table: str, memory_bytes: int | str) -> None:
        super().__init__(spark, work, table)
        self._memory_bytes = memory_bytes

    @property
    def location(self) -> str:
        return str(self._location)

    def _fill(self, source: Path) -> None:
        table = new_table(self.location)
        append_files(table, (pq.read_table(path) for path in sorted(source.iterdir())))

    def cluster(self, layout: Layout) -> None:
        self.report = clustering.schedule_and_execute(
            self._spark,
            self.location,
            sort_by=layout.columns,
            strategy=layout.strategy,
            select=All(),
            target_file_bytes=layout.file_bytes,
            small_file_bytes=layout.file_bytes * 13 // 16,
            max_bytes_per_pass="4GiB",
            memory_bytes=self._memory_bytes,
        )

    def frame(self) -> DataFrame:
        return self._spark.read.format("iceberg").load(self.location)


class Iceberg(IcebergTable):
    """Iceberg's `rewrite_data_files`, in a Hadoop catalog."""

    name = "iceberg"
    strategies = ("sort", "zorder")

    def __init__(self, spark: SparkSession, work: Path, table: str) -> None:
        super().__init__(spark, work, table)
        self._table = f"iceberg.bench.{table}"

    def _fill(self, source: Path) -> None:
        self._spark.sql(f"CREATE TABLE {self._table} ({SCHEMA}) USING iceberg")
        _file_by_file(self._spark, source).writeTo(self._table).append()

    def cluster(self, layout: Layout) -> None:
        columns = ", ".join(layout.columns)
        order = columns if layout.strategy == "sort" else f"zorder({columns})"
        options = f"'rewrite-all', 'true', 'target-file-size-bytes', '{layout.file_bytes}'"
        self._spark.sql(
            f"CALL iceberg.system.rewrite_data_files(table => '{self._table}', strategy => 'sort', "
            f"sort_order => '{order}', options => map({options}))"
        ).collect()

    def frame(self) -> DataFrame:
        return self._spark.table(self._table)


class Delta(Engine):
    """Delta's `OPTIMIZE ... ZORDER BY`; by one column it sorts."""

    name = "delta"
    strategies = ("zorder",)

    def _fill(self, source: Path) -> None:
        _file_by_file(self._spark, source).write.format("delta").save(str(self._location))

    def restore(self) -> None:
        super().restore()
        jvm: Any = self._spark._jvm  # noqa: SLF001 - Delta's log cache has no other door
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    def cluster(self, layout: Layout) -> None:
        self._spark.conf.set(_DELTA_OPTIMIZE + "maxFileSize", str(layout.file_bytes))
        self._spark.conf.set(_DELTA_OPTIMIZE + "minFileSize", str(layout.file_bytes))
        columns = ", ".join(layout.columns)
        self._spark.sql(f"OPTIMIZE delta.`{self._location}` ZORDER BY ({columns})").collect()

    def frame(self) -> DataFrame:
        return self._spark.read.format("delta").load(str(self._location))

    def live(self) -> Extent:
        sizes = [added["size"] for added in self._added()]
        return Extent(len(sizes), sum(sizes))

    def within(self, column: str, low: Any, high: Any) -> Extent:
        sizes = []
        for added in self._added():
            stats = json.loads(added["stats"])
            least, most = (_as(type(low), stats[key][column]) for key in ("minValues", "maxValues"))
            if least < high and most >= low:
                sizes.append(added["size"])
        return Extent(len(sizes), sum(sizes))

    def _added(self) -> list[dict[str, Any]]:
        """Return the live files by the log's own words; a log this short has no checkpoint."""
        live: dict[str, dict[str, Any]] = {}
        for commit in sorted((self._location / "_delta_log").glob("*.json")):
            for line in commit.read_text().splitlines():
                action = json.loads(line)
                if "add" in action:
                    live[action["add"]["path"]] = action["add"]
                if "remove" in action:
                    live.pop(action["remove"]["path"], None)
        return list(live.values())


def _as(kind: type, value: Any) -> Any:
    return datetime.fromisoformat(value.replace("Z", "+00:00")) if kind is datetime else value


def _file_by_file(spark: SparkSession, source: Path) -> DataFrame:
    """Return the source's rows, one Spark partition for each of its files."""
    largest = str(max(path.stat().st_size for path in source.iterdir()))
    spark.conf.set("spark.sql.files.maxPartitionBytes", largest)
    spark.conf.set("spark.sql.files.openCostInBytes", largest)
    return spark.read.schema(SCHEMA).parquet(str(source))


def contents_of(frame: DataFrame) -> Contents:
    """Return the rows' number and checksum, by Spark; the same for the same rows in whatever order."""
    row = frame.selectExpr(*contents_expressions(frame.columns)).first()
    assert row is not None
    return Contents(int(row[0]), int(row[1] or 0))


def contents_expressions(columns: Sequence[str]) -> list[str]:
    """Return what Spark must select from these columns: the rows' number and checksum."""
    hashed = ", ".join(f"`{name}`" for name in columns)
    return ["count(*)", f"CAST(sum(CAST(xxhash64({hashed}) AS DECIMAL(38, 0))) AS STRING)"]


def session(work: Path, name: str) -> SparkSession:
    """Start Spark on two cores, with all engines; tables lie in folders of `work`."""
    settings = {
        "spark.jars": ",".join(map(str, (iceberg_runtime(), *delta_runtime()))),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions,"
        "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.iceberg": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.iceberg.type": "hadoop",
        "spark.sql.catalog.iceberg.warehouse": str(work / Iceberg.name),
        # The files under a table change between the runs.
        "spark.sql.catalog.iceberg.cache-enabled": "false",
        "spark.sql.parquet.compression.codec": "zstd",
        # By default Delta reads its own log in fifty tasks.
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.warehouse.dir": str(work / "spark-warehouse"),
    }
    return local_session(name, settings)
