"""Deletes for the law beside a stream: a row leaves the bytes, and no late change brings it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streaming_sink import check_gone, purge
from tests.sinks import flat_sink
from tests.spark.changes import KEYED, as_batch, rows_of
from timeline.changes.changes import SetProperties
from timeline.table import open_table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ALICE = {"user_id": 42}
PLAIN = {"write.parquet.compression-codec": "uncompressed", "streaming-sink.history.deletion-grace-ms": "0"}


def files_that_say(folder: Path, text: bytes) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text in path.read_bytes()]


def pass_versions(*locations: str) -> None:
    for location in locations:
        table = open_table(location)
        table.commit([SetProperties({"streaming-sink.history.deletion-grace-ms": "0"})])
        for _ in range(101):
            table.commit([SetProperties({"a": "b"})])


def test_a_persons_rows_leave_the_bytes_beside_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    sink = flat_sink(
        location, app_id="u", expectations={"region <> 'x'": "quarantine"}, table_properties=PLAIN, **KEYED
    )
    sink(as_batch(spark, [(key, 1, "a", f"person {key}", "I") for key in range(40, 60)]), 0)
    sink(as_batch(spark, [(42, 2, "b", "person 42 moved", "U"), (43, 2, "b", "other", "U")]), 1)
    sink(as_batch(spark, [(42, 3, "x", "person 42 refused", "U"), (44, 3, "x", "person 44", "U")]), 2)
    others = [row for row in rows_of(location) if row[0] != 42]
    assert len(others) == 19
    assert not check_gone(location, [ALICE]).healthy

    report = purge(location, [ALICE])
    assert [table.role for table in report.tables] == ["table", "quarantine"]
    assert [table.deleted_rows for table in report.tables] == [1, 1]
    assert rows_of(location) == others
    sink(as_batch(spark, [(42, 2, "b", "person 42 late", "U"), (45, 4, "b", "new", "U")]), 3)
    others = [row for row in others if row[0] != 45] + [(45, 4, "b", "new")]
    assert rows_of(location) == sorted(others, key=repr)

    for _ in range(2):
        pass_versions(location, f"{location}__quarantine")
        report = purge(location, [ALICE])
    assert files_that_say(tmp_path, b"person 42") == []
    assert len(files_that_say(tmp_path, b"person 44")) > 0
    left = check_gone(location, [ALICE])
    assert left.healthy, left.text()
    assert report.is_gone
    assert rows_of(location) == sorted(others, key=repr)
    sink(as_batch(spark, [(42, 9, "a", "she comes again", "I")]), 4)
    assert [row for row in rows_of(location) if row[0] == 42] == [(42, 9, "a", "she comes again")]
    sink.finish()
