"""Changes of rows in many data files on Spark: the delete files that these share, and passes over them."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import streaming_sink
from planners import All, FileSizing
from planners.shared_deletes import share_delete_files
from streaming_sink import IcebergSink, clustering
from streaming_sink.keyed import row_deletes
from streaming_sink.reading.duplicate_keys import check_keys
from tests.readers import judges
from tests.reports import lines
from tests.sinks import flat_sink
from tests.spark.changes import KEYED, Judge, as_batch, land, random_changes, rows_of
from tests.spark.streams import head_of
from tests.tiers import only_in_soak
from timeline.diagnosis import doctor
from timeline.table import open_table
from timeline.versions.keys import key_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MANY_FILES: dict[str, Any] = {
    "sizing": FileSizing(max_file_bytes="64KiB", small_file_bytes="1KiB"),
    "fold_above": 1.0,
}
"""Files of a few KiB are full, and stay."""


@pytest.fixture(autouse=True)
def sharing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two data files are many."""
    monkeypatch.setattr(row_deletes, "share_delete_files", partial(share_delete_files, at_most=1))


def _sink(location: str, app_id: str = "app", **given: Any) -> IcebergSink:
    return flat_sink(location, app_id=app_id, **{**KEYED, **MANY_FILES, **given})


def _shared(location: str) -> int:
    return sum(1 for delete in head_of(location).delete_files() if delete.refers_to is None)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({}, id="plain", marks=only_in_soak),
        pytest.param({"partition_by": ["region"]}, id="parts"),
        pytest.param({"key_index": "index"}, id="index"),
    ],
)
def test_the_last_change_counts_where_data_files_share_delete_files(
    spark: SparkSession, tmp_path: Path, given: dict[str, Any]
) -> None:
    location, judge = str(tmp_path / "t"), Judge()
    sinks = [_sink(location, "a", **given), _sink(location, "b", **given, fill_policy="never")]
    land(spark, location, list(sinks), judge, batches=5)
    last = sinks[0].finish(120)
    assert rows_of(location) == judge.rows
    made = lines([*(it for report in sinks[0].reports for it in report.maintenance), *last])
    assert any("merged beside the stream: " in each for each in made), made
    assert _shared(location) > 0
    for reader in ("pyiceberg", "duckdb"):
        assert judges.rows(reader, location).total() == len(judge.rows)
    table = open_table(location)
    key = key_of(table.head.properties)
    assert key is not None
    checked = check_keys(table.store, table.head, key)
    assert (checked.rows, checked.repeated) == (len(judge.rows), 0)
    assert {finding.kind for finding in doctor(location).findings} <= {"orphans"}


def test_fills_folds_and_clustering_apply_shared_delete_files(spark: SparkSession, tmp_path: Path) -> None:
    location, judge = str(tmp_path / "t"), Judge()
    land(spark, location, [_sink(location, fill_policy="never")], judge, batches=3)
    assert _shared(location) > 0
    files = sum(1 for _ in head_of(location).live_files())
    small = _sink(location, "small", sizing=FileSizing(max_file_bytes="1MiB", small_file_bytes="512KiB"))
    land(spark, location, [small], judge, batches=8, seed=3)
    small.finish(120)
    assert rows_of(location) == judge.rows
    assert sum(1 for _ in head_of(location).live_files()) < files
    land(spark, location, [_sink(location, "again", fill_policy="never")], judge, batches=2, seed=4)
    sizes = {"target_file_bytes": "64KiB", "small_file_bytes": "40KiB", "max_group_bytes": "1MiB"}
    report = clustering.schedule_and_execute(
        spark, location, sort_by=["name"], select=All(), checksum=True, **sizes
    )
    assert {group.outcome for group in report.groups} == {"committed"}
    assert rows_of(location) == judge.rows
    assert list(head_of(location).delete_files()) == []
    assert {finding.kind for finding in doctor(location).findings} <= {"orphans"}


def test_the_change_feed_finds_the_rows_of_shared_delete_files(spark: SparkSession, tmp_path: Path) -> None:
    location, judge, rng = str(tmp_path / "t"), Judge(), random.Random(5)
    sink = _sink(location, fill_policy="never")
    for number in range(4):
        changes = random_changes(rng, 120, 100, number * 50, 120)
        sink(as_batch(spark, changes), number)
        judge.take(changes)
    assert _shared(location) > 0
    state = Counter[Any]()
    for row in streaming_sink.changes(spark, location, 1).collect():
        sign = -1 if row["_change_type"] in ("DELETE", "UPDATE_BEFORE") else 1
        state[row["user_id"], row["at"], row["region"], row["name"]] += sign
    assert +state == Counter(judge.rows)
    assert -state == Counter()
