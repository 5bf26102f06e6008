"""Writers of changes by key, each configured as its users would: ours, Iceberg's MERGE and Delta's.

Iceberg and Delta land a batch by one MERGE. It may assume that a key comes once a batch, which the rows here
fulfil, so that it needs no window over the batch, and it takes no change for late; our sink does both. Where
keys grow, its condition has the least key of the batch, so that files of older rows are left alone. Joins may
hash the batch, and need not sort ten million rows. Hudi's writers are in `benchmarks.keyed_hudi`.
"""

from __future__ import annotations

import contextlib
import json
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pyiceberg.manifest import DataFileContent
from pyiceberg.table import StaticTable
from pyspark.sql import functions as sf

from benchmarks.keyed_data import KEY, REGION, SEQUENCE
from benchmarks.peers import contents_of
from benchmarks.tables import newest_metadata
from streaming_sink import Append, BulkInsert, FileSizing, IcebergSink, Upsert
from streaming_sink.commands.declaring import key as declare_key

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.keyed_data import Workload
    from benchmarks.peers import Contents
    from streaming_sink.options.values.writes import Write

MAX_FILE_BYTES = 64 * 1024 * 1024
SMALL_FILE_BYTES = 6 * 1024 * 1024
"""Those of the base, of a million rows each, are larger: nothing but what the stream brings is merged."""
SESSION = {
    "spark.sql.join.preferSortMergeJoin": "false",
    "spark.sql.shuffle.partitions": "2",
    # Ours and the peers read the base's files one by one, so that each is a file of the table.
    "spark.sql.files.maxPartitionBytes": str(MAX_FILE_BYTES),
    "spark.sql.files.openCostInBytes": str(MAX_FILE_BYTES),
}


@dataclass(frozen=True)
class Files:
    """The live files of a table."""

    data: int
    deletes: int
    """Delete files, or deletion vectors."""


class Writer(ABC):
    """One writer's table, in a folder of its own."""

    name: ClassVar[str]
    configuration: ClassVar[Mapping[str, str]]
    """What a user would have set, besides the table's columns and partitions."""
    duckdb_reads: ClassVar[bool] = True
    keeps_keys_once: ClassVar[bool] = True
    is_slow: ClassVar[bool] = False
    """Whether its batches take so long that few of them must do."""

    def __init__(self, spark: SparkSession, work: Path, load: Workload, table: str) -> None:
        self._spark = spark
        self._work = work
        self._load = load
        self._table = f"{table}_{self.name.replace('-', '_')}"
        self.location = work / self.folder / "bench" / self._table

    @property
    def folder(self) -> str:
        return self.name

    @abstractmethod
    def fill(self, base: DataFrame) -> None:
        """Make the table from its first rows."""

    @abstractmethod
    def land(self, changes: DataFrame, number: int, file: Path) -> None:
        """Land one batch, which is the rows of a file: the function of foreachBatch."""

    def wait(self) -> None:
        """Wait for what still runs beside the stream, which goes on."""
        return

    def finish(self) -> None:
        """End the stream."""
        return

    def stop(self) -> None:
        """Have the batch that another thread lands fail."""
        self._spark.sparkContext.cancelAllJobs()

    def close(self) -> None:
        """End what was started for this table."""
        return

    def frame(self) -> DataFrame:
        return self._spark.read.format("iceberg").load(str(self.location))

    def contents(self) -> Contents:
        """Read the whole table by Spark, and return what it holds."""
        return contents_of(self.frame())

    def read_key(self, condition: str) -> None:
        """Read the one row of a key by Spark."""
        rows = self.frame().where(condition).collect()
        if len(rows) != 1:
            raise RuntimeError(f"{len(rows)} rows have the key, not 1")

    def files(self) -> Files:
        """Return what a scan of the whole table reads."""
        table = StaticTable.from_metadata(newest_metadata(str(self.location)))
        snapshot = table.current_snapshot()
        assert snapshot is not None
        counts = dict.fromkeys(DataFileContent, 0)
        for manifest in snapshot.manifests(table.io):
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                counts[entry.data_file.content] += 1
        return Files(counts[DataFileContent.DATA], counts[DataFileContent.POSITION_DELETES])


class OursInsert(Writer):
    """The rows of all changes, inserted without a look at their keys: what a batch costs without any."""

    name = "ours-insert"
    configuration: ClassVar[Mapping[str, str]] = {
        "operation": "insert",
        "max_file_bytes": str(MAX_FILE_BYTES),
        "small_file_bytes": str(SMALL_FILE_BYTES),
    }
    keeps_keys_once = False
    _write: ClassVar[Write] = Append()

    def _sink(self, write: Write, app_id: str | None = None) -> IcebergSink:
        sizing = FileSizing(max_file_bytes=MAX_FILE_BYTES, small_file_bytes=SMALL_FILE_BYTES)
        partition_by = [REGION] if self._load.partitioned else []
        return IcebergSink(self.location, write, sizing=sizing, partition_by=partition_by, app_id=app_id)

    def fill(self, base: DataFrame) -> None:
        self._sink(BulkInsert(), app_id="base")(base, 0)
        self.sink = self._sink(self._write)

    def land(self, changes: DataFrame, number: int, file: Path) -> None:  # noqa: ARG002
        self.sink(changes.drop("op"), number)

    def wait(self) -> None:
        self.sink.finish(at_rest=False)

    def finish(self) -> None:
        self.sink.finish()


class Ours(OursInsert):
    """Our sink by key, with the options of the README."""

    name = "ours"
    configuration: ClassVar[Mapping[str, str]] = {
        **OursInsert.configuration,
        "operation": "upsert",
        "key": KEY,
        "sequence_by": SEQUENCE,
        "delete_where": "op = 'D'",
        "key_scope": "partition where there are partitions, else table",
    }
    keeps_keys_once = True

    @property
    def _scope(self) -> str:
        return "partition" if self._load.partitioned else "table"

    def fill(self, base: DataFrame) -> None:
        super().fill(base)
        names = ["--columns", KEY, "--sequence-by", SEQUENCE, "--scope", self._scope, "--declare"]
        with contextlib.redirect_stdout(sys.stderr):
            declare_key.main([str(self.location), *names], standalone_mode=False)
        self.sink = self._sink(
            Upsert(
                key=[KEY],
                sequence_by=SEQUENCE,
                delete_where="op = 'D'",
                except_columns=["op"],
                key_scope=self._scope,
            )
        )

    def land(self, changes: DataFrame, number: int, file: Path) -> None:  # noqa: ARG002
        self.sink(changes, number)


class Merger(Writer):
    """A writer that lands a batch by MERGE."""

    @property
    @abstractmethod
    def _name(self) -> str:
        """The table, as SQL spells it."""

    @property
    @abstractmethod
    def _format(self) -> str: ...

    def fill(self, base: DataFrame) -> None:
        layout = f"PARTITIONED BY ({REGION})" if self._load.partitioned else ""
        properties = ", ".join(f"'{key}' = '{value}'" for key, value in self.configuration.items())
        self._spark.sql(
            f"CREATE TABLE {self._name} ({self._load.columns}) USING {self._format} {layout}"
            f" TBLPROPERTIES ({properties})"
        )
        self._append(base)

    @abstractmethod
    def _append(self, base: DataFrame) -> None: ...

    def land(self, changes: DataFrame, number: int, file: Path) -> None:  # noqa: ARG002
        spark = changes.sparkSession
        condition = f"t.{KEY} = s.{KEY}"
        if self._load.partitioned:
            condition += f" AND t.{REGION} = s.{REGION}"
        if self._load.order == "growing":
            row = changes.agg(sf.min(KEY)).first()
            assert row is not None
            condition += f" AND t.{KEY} >= {row[0]!r}"
        names = [name for name in changes.columns if name != "op"]
        changes.createOrReplaceTempView("changes")
        spark.sql(
            f"MERGE INTO {self._name} t USING changes s ON {condition}"
            " WHEN MATCHED AND s.op = 'D' THEN DELETE"
            f" WHEN MATCHED THEN UPDATE SET {', '.join(f't.{name} = s.{name}' for name in names)}"
            f" WHEN NOT MATCHED AND s.op <> 'D' THEN INSERT ({', '.join(names)})"
            f" VALUES ({', '.join(f's.{name}' for name in names)})"
        )


class Iceberg(Merger):
    """Iceberg's MERGE, merge-on-read: position deletes, a file for each data file."""

    name = "iceberg-mor"
    configuration: ClassVar[Mapping[str, str]] = {
        "format-version": "2",
        "write.merge.mode": "merge-on-read",
        "write.delete.granularity": "file",
        "write.target-file-size-bytes": str(MAX_FILE_BYTES),
    }
    _format = "iceberg"
    folder = "iceberg"

    @property
    def _name(self) -> str:
        return f"iceberg.bench.{self._table}"

    def _append(self, base: DataFrame) -> None:
        base.writeTo(self._name).append()

    def frame(self) -> DataFrame:
        return self._spark.table(self._name)


class IcebergVectors(Iceberg):
    """The same in format version 3: deletion vectors."""

    name = "iceberg-v3"
    duckdb_reads = False
    configuration: ClassVar[Mapping[str, str]] = {**Iceberg.configuration, "format-version": "3"}


class IcebergCopies(Iceberg):
    """Iceberg's MERGE, copy-on-write."""

    name = "iceberg-cow"
    is_slow = True
    configuration: ClassVar[Mapping[str, str]] = {
        **Iceberg.configuration,
        "write.merge.mode": "copy-on-write",
    }


class Delta(Merger):
    """Delta's MERGE with deletion vectors."""

    name = "delta"
    duckdb_reads = False
    configuration: ClassVar[Mapping[str, str]] = {
        "delta.enableDeletionVectors": "true",
    }
    _format = "delta"

    @property
    def _name(self) -> str:
        return f"delta.`{self.location}`"

    def _append(self, base: DataFrame) -> None:
        base.write.format("delta").mode("append").save(str(self.location))

    def frame(self) -> DataFrame:
        return self._spark.read.format("delta").load(str(self.location))

    def files(self) -> Files:
        live: dict[tuple[Any, ...], bool] = {}
        for commit in sorted((self.location / "_delta_log").glob("*.json")):  # kept beside checkpoints
            for line in commit.read_text().splitlines():
                action = json.loads(line)
                if "add" in action:
                    live[_file_of(action["add"])] = bool(action["add"].get("deletionVector"))
                if "remove" in action:
                    live.pop(_file_of(action["remove"]), None)
        return Files(len(live), sum(live.values()))


def _file_of(action: dict[str, Any]) -> tuple[Any, ...]:
    vector = action.get("deletionVector") or {}
    return action["path"], vector.get("pathOrInlineDv"), vector.get("offset")
