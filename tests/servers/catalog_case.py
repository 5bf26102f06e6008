"""One table of a real REST catalog, which a sink writes to and Spark SQL changes."""

from __future__ import annotations

import itertools
from typing import Any

from pyiceberg.catalog.rest import RestCatalog as PyIcebergCatalog
from pyspark.sql import SparkSession

from streaming_sink import CatalogTable, FileSizing, IcebergSink
from tests.servers.rest_catalog import RestCatalog
from tests.servers.sql import Sql

_names = itertools.count()


class Case:
    """A table of its own, which a sink writes to and Spark changes."""

    def __init__(self, catalog: RestCatalog, sql: Sql, spark: SparkSession) -> None:
        self.catalog, self.sql, self.spark = catalog, sql, spark
        self.name = f"db.t{next(_names)}"
        self.table = CatalogTable(self.name, catalog.properties)
        self.sink = self.new_sink()

    def new_sink(self, **options: Any) -> IcebergSink:
        """Return a sink as a process that starts anew has it."""
        sizing = FileSizing(max_file_bytes="64KiB", small_file_bytes="48KiB", fill="never")
        return IcebergSink(self.table, app_id="app", **{"sizing": sizing, **options})

    def land(self, number: int, sink: IcebergSink | None = None) -> Any:
        """Land ten rows: batch 3 has the ids 30 to 39."""
        rows = self.spark.range(number * 10, number * 10 + 10).selectExpr("id", "'ours' by")
        return (sink or self.sink)(rows, number)

    def loaded(self) -> Any:
        return PyIcebergCatalog("test", **self.catalog.properties).load_table(self.name)

    def ids(self) -> list[int]:
        """Return the ids of the table as pyiceberg and Spark read it, which agree."""
        found = sorted(self.loaded().scan().to_arrow()["id"].to_pylist())
        assert sorted(row[0] for row in self.sql.run(f"SELECT id FROM lake.{self.name}")) == found
        return found

    def do(self, statement: str) -> list[list[Any]]:
        """Run a statement of Spark on the table, which is `{t}` in it."""
        return self.sql.run(statement.format(t=f"lake.{self.name}", name=self.name))

    def snapshots(self) -> list[int]:
        return [it.snapshot_id for it in self.loaded().snapshots()]


def tens(*batches: int) -> list[int]:
    return [number * 10 + place for number in batches for place in range(10)]
