"""Readers see main, and what is staged by its snapshot's id or its tag; no other engine can publish it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from tests.jars import require_iceberg_runtime
from tests.readers import judges, spark_judge
from tests.readers.judges import assert_all_readers_agree
from tests.readers.processes import in_process_of
from timeline import names, staging
from timeline.changes.changes import Append
from timeline.stores import LocalStore
from timeline.table import Table
from timeline.versions.staged import find_staged
from timeline.versions.work_items import WorkItem

ITEM = WorkItem("zone", 7)


def data_file(folder: Path, number: int, rows: int) -> DataFile:
    path = folder / "data" / names.data_file_name(names.ulid(1_800_000_000_000, number), "a", 0, 0, 0)
    path.parent.mkdir(exist_ok=True)
    schema = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
    pq.write_table(pa.table({"id": range(number * 100, number * 100 + rows)}, schema), path)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=str(path),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=rows,
        file_size_in_bytes=path.stat().st_size,
    )
    file.spec_id = 0
    return file


def staged_at(folder: Path) -> tuple[Table, int]:
    """A table of three rows, with two more that are staged; and the staged snapshot's id."""
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    table = Table.create(LocalStore(str(folder)), schema)
    table.commit([Append((data_file(folder, 0, 3),))])
    staging.stage_item(table, ITEM, [data_file(folder, 1, 2)])
    found = find_staged(table.head, ITEM)
    assert found is not None
    return table, found.snapshot_id


def test_readers_see_what_is_staged_by_its_id_alone_until_it_is_published(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    table, staged = staged_at(folder)
    main, beside = pa.table({"id": [0, 1, 2]}), pa.table({"id": [0, 1, 2, 100, 101]})
    assert_all_readers_agree(folder, main)
    assert_all_readers_agree(folder, beside, snapshot_id=staged)
    table.commit([Append((data_file(folder, 2, 1),))])
    staging.publish_item(table, ITEM)
    assert_all_readers_agree(folder, pa.table({"id": [0, 1, 2, 100, 101, 200]}))
    assert_all_readers_agree(folder, beside, snapshot_id=staged)


def test_spark_sees_it_by_its_tag_and_cannot_publish_it(tmp_path: Path) -> None:
    folder = tmp_path / "db" / "t"
    table, staged = staged_at(folder)
    seen, refusals = in_process_of(
        "spark",
        spark_judge.staged,
        str(require_iceberg_runtime()),
        str(tmp_path),
        "db.t",
        staged,
        ITEM.tag,
        ITEM.wap_id,
    )
    assert seen == {"main": 3, "id": 5, "tag": 5}
    assert len(refusals) == 2
    assert all("relocate" in refusal for refusal in refusals), refusals
    number = table.head.number
    assert table.refresh().number == number
    staging.publish_item(table, ITEM)
    assert judges.rows("pyiceberg", folder).total() == 5
