"""A table with a key in a real REST catalog: changes by key from a sink, and what Spark does beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.rest import RestCatalog as PyIcebergCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from demo import duck
from streaming_sink import Delete, FileSizing, IcebergSink, Upsert
from tests.servers.catalog_case import Case
from tests.unit.timeline import world
from timeline.catalogs.catalog_log import CatalogLog
from timeline.catalogs.updates import catalog_commit
from timeline.names import delete_file_name

Row = tuple[int, int, str]
"""A key, the sequence of its change, and a value."""
BY_ID = Upsert(key=["id"], sequence_by="at", delete_where="gone", except_columns=["gone"])


OTHERS: list[Row] = [(1000 + key, 1, "other") for key in range(32)]
"""Rows of the first batch, so that no file has the rows of a test alone, and leaves with them as a whole."""


class KeyedCase(Case):
    """A table of its own with the key `id`, which a sink changes and Spark too."""

    def new_sink(self, **options: Any) -> IcebergSink:
        """Return a sink as a process that starts anew has it."""
        sizing = FileSizing(max_file_bytes="64KiB", small_file_bytes="48KiB", fill="never")
        given = {"write": BY_ID, "sizing": sizing, "app_id": "app", **options}
        return IcebergSink(self.table, given.pop("write"), **given)

    def change(self, number: int, *rows: Row, gone: Sequence[Row] = (), sink: Any = None) -> Any:
        """Land changes as a batch: rows, and deletes of keys. The first one has `OTHERS` too."""
        brought = [*rows, *([] if number else OTHERS)]
        values = [(*row, False) for row in brought] + [(*row, True) for row in gone]
        batch = self.spark.createDataFrame(values, "id long, at long, v string, gone boolean")
        return (sink or self.sink)(batch, number)

    def delete(self, number: int, *ids: tuple[int, int]) -> Any:
        """Land a batch of deletes, by a sink that does nothing else."""
        sink = self.new_sink(write=Delete(key=["id"], sequence_by="at"), app_id="deletes")
        return sink(self.spark.createDataFrame(list(ids), "id long, at long"), number)

    def rows(self) -> list[Row]:
        """Return the rows of the table as pyiceberg, DuckDB and Spark read them, which agree, without those
        of `OTHERS`, which are there once.
        """
        loaded = self.loaded()
        found = loaded.scan(selected_fields=("id", "at", "v")).to_arrow().to_pylist()
        rows = sorted((each["id"], each["at"], each["v"]) for each in found)
        assert sorted(map(tuple, self.do("SELECT id, at, v FROM {t}"))) == rows
        with duck.connect() as connection:
            path = loaded.metadata_location.removeprefix("file:")
            by_duck = connection.execute('SELECT id, "at", v FROM iceberg_scan(?)', [path]).fetchall()
        assert sorted(by_duck) == rows
        kept = [row for row in rows if row[0] < OTHERS[0][0]]
        assert rows[len(kept) :] in ([], OTHERS)
        return kept

    def delete_files(self) -> int:
        """Return how many live delete files there are."""
        return int(self.do("SELECT count(*) FROM {t}.delete_files")[0][0])

    def folder(self) -> Path:
        return self.catalog.warehouse / self.name.replace(".", "/")

    def data_files(self) -> list[str]:
        """Return the files of the table's folder that hold rows or deletes, live or not."""
        return sorted(str(path) for path in (self.folder() / "data").rglob("*.parquet"))

    def set_mode(self, mode: str) -> None:
        """Let Spark delete and update copy-on-write, or merge-on-read."""
        stated = ", ".join(f"'write.{what}.mode'='{mode}'" for what in ("delete", "update", "merge"))
        self.do(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({stated})")

    def call(self, procedure: str, **arguments: Any) -> list[list[Any]]:
        """Call one of Iceberg's procedures on the table."""
        named = "".join(f", {name} => {value}" for name, value in arguments.items())
        return self.do(f"CALL lake.system.{procedure}(table => '{{name}}'{named})")

    def insert_staged(self, *rows: Row) -> int:
        """Stage an insert of Spark's, as write-audit-publish does, and return its snapshot."""
        self.do("ALTER TABLE {t} SET TBLPROPERTIES ('write.wap.enabled'='true')")
        self.sql.run("SET spark.wap.id=audit")
        self.insert(*rows)
        self.sql.run("RESET spark.wap.id")
        self.do("ALTER TABLE {t} UNSET TBLPROPERTIES ('write.wap.enabled')")
        return max(self.loaded().snapshots(), key=lambda it: it.sequence_number).snapshot_id

    def insert(self, *rows: Row, branch: str = "") -> None:
        """Insert rows as Spark does."""
        values = ", ".join(f"({key}, {at}, '{value}')" for key, at, value in rows)
        self.do(f"INSERT INTO lake.{{name}}{branch and '.branch_' + branch} (id, at, v) VALUES {values}")

    def delete_by_value(self, key: int) -> None:
        """Delete a key as Flink does: by an equality delete."""
        table = self.table.open()
        path = f"data/{delete_file_name(table.log.environment.new_id(1), 'flink', 0, 0, 0)}"
        field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
        with table.store.open_output(path) as output:
            pq.write_table(pa.table([[key]], schema=pa.schema([field])), pa.PythonFile(output, mode="w"))
        size = len(table.store.read(path).data)
        delete = DataFile.from_args(
            content=DataFileContent.EQUALITY_DELETES,
            file_path=table.store.uri(path),
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=1,
            file_size_in_bytes=size,
            equality_ids=[1],
        )
        delete.spec_id = 0
        base = table.head.metadata
        after = world._with_deletes(table, table.head, delete).head.metadata
        commit = catalog_commit(base, after.model_copy(update={"properties": base.properties}))
        PyIcebergCatalog("test", **self.catalog.properties).commit_table(
            self.loaded(), commit.requirements, commit.updates
        )

    def meanwhile(self, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], Any]) -> None:
        """Let something happen after the next batch was built, and before its commit is sent."""
        send, left = CatalogLog._send, [happens]

        def late(log: CatalogLog, candidate: Any, commit: Any) -> Any:
            if left:
                left.pop()()
            return send(log, candidate, commit)

        monkeypatch.setattr(CatalogLog, "_send", late)
