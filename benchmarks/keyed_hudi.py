"""Hudi's upsert, in a process of its own: no Hudi on Maven Central runs on Spark 4. The newest, 1.2.0, is for
Spark 3.5 and Scala 2.12.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from benchmarks.keyed_data import KEY, REGION, SEQUENCE
from benchmarks.keyed_writers import MAX_FILE_BYTES, SMALL_FILE_BYTES, Files, Writer
from benchmarks.peers import Contents, contents_expressions
from benchmarks.sessions import QUIET
from demo.jars import Jar, cached
from tests.pysparks import environment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

SPARK = "3.5.8"
_BUNDLE = Jar(
    "org.apache.hudi",
    "hudi-spark3.5-bundle_2.12",
    "1.2.0",
    "cc79fba00822f3a6c3a860df99375c2e3d4a034d037dbf4213a4966a706a7676",
)
_SETTINGS = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    "spark.sql.files.maxPartitionBytes": str(MAX_FILE_BYTES),
    "spark.sql.files.openCostInBytes": str(MAX_FILE_BYTES),
}


class Hudi(Writer):
    """Hudi's upsert, copy-on-write, with its index of blooms in the files' footers."""

    name = "hudi-cow-bloom"
    duckdb_reads = False
    is_slow = True
    configuration: ClassVar[Mapping[str, str]] = {
        "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
        "hoodie.index.type": "BLOOM",
        "hoodie.datasource.write.recordkey.field": KEY,
        "hoodie.datasource.write.precombine.field": SEQUENCE,
        "hoodie.parquet.max.file.size": str(MAX_FILE_BYTES),
        "hoodie.parquet.small.file.limit": str(SMALL_FILE_BYTES),
        "hoodie.parquet.compression.codec": "zstd",
        "hoodie.upsert.shuffle.parallelism": "2",
        "hoodie.bulkinsert.shuffle.parallelism": "10",
    }

    _session: subprocess.Popen[str] | None = None

    def fill(self, base: DataFrame) -> None:
        environ = {**os.environ, **environment(SPARK), "PYSPARK_PYTHON": sys.executable}
        environ["PYTHONPATH"] += os.pathsep + str(Path(__file__).parents[1])
        self._session = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.hudi_session"],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        paths = {"spark.jars": cached(_BUNDLE), "spark.sql.warehouse.dir": self._work / "hudi-warehouse"}
        self._send({**QUIET, **_SETTINGS, **{name: str(path) for name, path in paths.items()}})
        self._write("bulk_insert", self._load.columns, base.inputFiles())

    def land(self, changes: DataFrame, number: int, file: Path) -> None:  # noqa: ARG002
        self._write("upsert", self._load.changes_columns, [str(file)])

    def stop(self) -> None:
        self.close()

    def close(self) -> None:
        if self._session is not None:
            self._session.kill()
            self._session.wait()

    def contents(self) -> Contents:
        [[rows, checksum]] = self._select(contents_expressions(self._names))
        return Contents(int(rows), int(checksum))

    def read_key(self, condition: str) -> None:
        rows = self._select(self._names, condition)
        if len(rows) != 1:
            raise RuntimeError(f"{len(rows)} rows have the key, not 1")

    def files(self) -> Files:
        [[files]] = self._select(["count(DISTINCT split(_hoodie_file_name, '_')[0])"])
        logs = [log for log in self.location.rglob("*.log.*") if ".hoodie" not in log.parts]
        return Files(int(files), len([log for log in logs if log.suffix != ".crc"]))

    @property
    def _names(self) -> list[str]:
        return [column.split()[0] for column in self._load.columns.split(", ")]

    def _write(self, operation: str, columns: str, files: list[str]) -> None:
        options = {"hoodie.table.name": self._table, **self.configuration}
        if self._load.partitioned:
            options["hoodie.datasource.write.partitionpath.field"] = REGION
        else:
            options["hoodie.datasource.write.keygenerator.class"] = (
                "org.apache.hudi.keygen.NonpartitionedKeyGenerator"
            )
        self._ask(do=operation, columns=columns, files=files, options=options)

    def _select(self, expressions: list[str], condition: str = "true") -> list[list[str]]:
        rows: list[list[str]] = self._ask(do="select", select=expressions, condition=condition)
        return rows

    def _ask(self, **asked: Any) -> Any:
        self._send({"location": str(self.location), **asked})
        assert self._session is not None
        assert self._session.stdout is not None
        answer = self._session.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self.name}: its process has ended")
        return json.loads(answer)

    def _send(self, value: dict[str, Any]) -> None:
        assert self._session is not None
        assert self._session.stdin is not None
        self._session.stdin.write(json.dumps(value) + "\n")
        self._session.stdin.flush()


class HudiRecordIndex(Hudi):
    """Hudi's upsert, merge-on-read, with its record index, and without compaction."""

    name = "hudi-mor-index"
    configuration: ClassVar[Mapping[str, str]] = {
        **Hudi.configuration,
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.index.type": "RECORD_INDEX",
        "hoodie.metadata.record.index.enable": "true",
        "hoodie.compact.inline": "false",
    }
