"""A table is not created among the files of others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import types as spark

from streaming_sink import PathTable
from streaming_sink.options.table_options import SinkOptions
from streaming_sink.writing.target import Destination
from timeline import names
from timeline.errors import CorruptTableError, StoreUnavailableError
from timeline.stores import LocalStore, open_store
from timeline.stores.base import Listed
from timeline.stores.probe import check_store

BATCH = spark.StructType([spark.StructField("id", spark.LongType())])


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("_delta_log/00000000000000000000.json", "_delta_log/.* is of a Delta table"),
        (".hoodie/hoodie.properties", ".hoodie/hoodie.properties is of a Hudi table"),
        ("part-00000.snappy.parquet", "part-00000.snappy.parquet is of other Parquet files"),
        ("day=2026-01-01/h=3/part-0.parquet", "day=2026-01-01/h=3/part-0.parquet is of other Parquet files"),
        ("data/part-0.parquet", "data/part-0.parquet is of other Parquet files"),
        ("data/day=1/00000-0-1b9d.parquet", "data/day=1/00000-0-1b9d.parquet is of other Parquet files"),
        ("metadata/00001-abc.metadata.json", "it is a table of another writer"),
    ],
    ids=["delta", "hudi", "parquet", "hive", "in-data", "in-a-partition-of-data", "iceberg"],
)
def test_no_table_is_made_among_the_files_of_others(tmp_path: Path, path: str, what: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).touch()
    destination = Destination(SinkOptions(table=PathTable(str(tmp_path))))
    with pytest.raises(CorruptTableError, match=what) as refused:
        destination.target(BATCH, fresh=True)
    assert (refused.value.location, refused.value.files) == (str(tmp_path), (path,))
    assert [it for it in tmp_path.rglob("*") if it.is_file()] == [tmp_path / path]


def test_a_table_is_made_beside_what_a_failed_batch_or_a_person_has_left(tmp_path: Path) -> None:
    check_store(open_store(str(tmp_path)))
    file_id = names.ulid(1_750_000_000_000, 7)
    own = [
        f"{names.DATA_FOLDER}/p=0/{names.data_file_name(file_id, 'app', 1, 0, 0)}",
        f"{names.DATA_FOLDER}/{names.delete_file_name(file_id, 'app', 1, 0, 0)}",
        f"{names.DATA_FOLDER}/p=0/q=1/{names.clustered_file_name(file_id, 'id', 0, 0, 0, 0)}",
        names.tombstone_path(file_id, "app", 1, names.DATA_FOLDER),
    ]
    for path in ("_SUCCESS", "README.md", *own, "data/.unfinished.parquet", "input/a.parquet"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    destination = Destination(SinkOptions(table=PathTable(str(tmp_path))))
    target = destination.target(BATCH, fresh=True)
    assert (target.table, destination.create(target).head.number) == (None, 1)


def test_a_folder_that_is_closed_is_no_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(self: LocalStore, folder: str) -> Iterator[Listed]:
        raise StoreUnavailableError("could not list lost+found")

    monkeypatch.setattr(LocalStore, "list_below", closed)
    assert Destination(SinkOptions(table=PathTable(str(tmp_path)))).target(BATCH, fresh=True).table is None
