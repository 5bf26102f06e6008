"""`changelog_table`: each version's changes come to a second table once, whatever is killed in between."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.table import StaticTable

import streaming_sink
from streaming_sink import IcebergSink, check_gone, purge
from streaming_sink.reading import pieces
from streaming_sink.seconds.change_log import ChangeLog
from streaming_sink.spark.worker_failures import UnreadableFileError
from tests.sinks import flat_sink
from tests.spark.changes import KEYED, Judge, as_batch, random_changes, rows_of
from tests.spark.streams import SMALL, head_of, metadata_file
from timeline.errors import SchemaMismatchError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

_COLUMNS = ("user_id", "at", "region", "name", "_change_type", "_commit_version", "_commit_snapshot_id")


def _logged(location: str) -> Counter[tuple[Any, ...]]:
    """The rows of a change log, as pyiceberg reads it."""
    path = metadata_file(location)
    assert path is not None
    read = StaticTable.from_metadata(path).scan().to_arrow().to_pylist()
    return Counter(tuple(row[name] for name in _COLUMNS) for row in read)


def _changed(spark: SparkSession, location: str, first: int = 1) -> Counter[tuple[Any, ...]]:
    rows = streaming_sink.changes(spark, location, first).select(*_COLUMNS).collect()
    return Counter(tuple(row) for row in rows)


def _sink(tmp_path: Path, app: str = "a", **given: Any) -> IcebergSink:
    return flat_sink(
        str(tmp_path / "t"),
        app_id=app,
        sizing=SMALL,
        changelog_table=str(tmp_path / "log"),
        **{**KEYED, **given},
    )


def test_the_log_has_what_every_version_of_two_streams_has_changed(
    spark: SparkSession, tmp_path: Path
) -> None:
    location, log, judge, rng = str(tmp_path / "t"), str(tmp_path / "log"), Judge(), random.Random(3)
    sinks = [_sink(tmp_path, app) for app in "ab"]
    for number in range(3):
        for sink in sinks:
            changes = random_changes(rng, 150, 100, number * 50, 120)
            sink(as_batch(spark, changes), number)
            judge.take(changes)
            assert _logged(log) == _changed(spark, location)
    for sink in sinks:
        sink.finish()
    assert rows_of(location) == judge.rows
    assert {row[4] for row in _logged(log)} == {"INSERT", "UPDATE_BEFORE", "UPDATE_AFTER", "DELETE"}
    operations = {it.summary.operation.value for it in head_of(log).metadata.snapshots if it.summary}
    assert operations <= {"append", "replace"}


def test_a_version_that_a_crash_has_left_out_comes_with_the_next_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location, log = str(tmp_path / "t"), str(tmp_path / "log")
    sink = _sink(tmp_path)
    sink(as_batch(spark, [(1, 1, "a", "x", "I")]), 0)
    with monkeypatch.context() as patch:
        patch.setattr(ChangeLog, "follow", lambda *_: None)
        sink(as_batch(spark, [(1, 2, "a", "y", "U"), (2, 2, "a", "z", "I")]), 1)
    assert len(_logged(log)) == 1
    replay = _sink(tmp_path)
    replay(as_batch(spark, [(1, 2, "a", "y", "U"), (2, 2, "a", "z", "I")]), 1)
    assert replay.reports[-1].outcome == "skipped"
    assert _logged(log) == _changed(spark, location)
    replay(as_batch(spark, [(1, 3, "", "", "D")]), 2)
    assert _logged(log) == _changed(spark, location)
    assert Counter(row[4] for row in _logged(log)) == Counter(
        INSERT=2, UPDATE_BEFORE=1, UPDATE_AFTER=1, DELETE=1
    )


def test_two_processes_that_follow_at_once_append_each_version_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location, log = str(tmp_path / "t"), str(tmp_path / "log")
    sinks = [_sink(tmp_path, app) for app in "ab"]
    for sink in sinks:
        sink(as_batch(spark, [(1, 1, "a", "x", "I")]), 0)
    append, other = ChangeLog._append, [sinks[1]]

    def contested(self: ChangeLog, *given: Any) -> bool:
        if other:
            other.pop()(as_batch(spark, [(2, 1, "a", "x", "I")]), 1)
        return append(self, *given)

    monkeypatch.setattr(ChangeLog, "_append", contested)
    sinks[0](as_batch(spark, [(3, 1, "a", "x", "I")]), 1)
    assert not other
    sinks[0](as_batch(spark, [(4, 1, "a", "x", "I")]), 2)
    assert _logged(log) == _changed(spark, location)


def test_the_log_follows_a_schema_that_evolves(spark: SparkSession, tmp_path: Path) -> None:
    evolving = streaming_sink.SchemaContract.evolving()
    sink = _sink(tmp_path, schema=evolving, delete_where=None, except_columns=())
    first = as_batch(spark, [(1, 1, "a", "x", "I")]).drop("op")
    sink(first, 0)
    sink(first.selectExpr("user_id", "at + 1 as at", "region", "name", "'new' as email"), 1)
    path = metadata_file(str(tmp_path / "log"))
    assert path is not None
    read = StaticTable.from_metadata(path).scan().to_arrow().to_pylist()
    assert Counter((row["_change_type"], row["email"]) for row in read) == Counter(
        [("INSERT", None), ("UPDATE_BEFORE", None), ("UPDATE_AFTER", "new")]
    )


def test_a_log_that_begins_later_has_what_comes_after_it(spark: SparkSession, tmp_path: Path) -> None:
    location, log = str(tmp_path / "t"), str(tmp_path / "log")
    flat_sink(location, app_id="a", **KEYED)(as_batch(spark, [(1, 1, "a", "x", "I")]), 0)
    number = head_of(location).number
    _sink(tmp_path)(as_batch(spark, [(1, 2, "a", "y", "U")]), 1)
    assert _logged(log) == _changed(spark, location, number + 1)


def test_what_is_no_change_log_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    IcebergSink(str(tmp_path / "log"), app_id="x")(spark.range(3), 0)
    with pytest.raises(SchemaMismatchError, match="so it is no change log; give the sink another location"):
        _sink(tmp_path)(as_batch(spark, [(1, 1, "a", "x", "I")]), 0)


def test_versions_that_expired_before_they_were_appended_stop_the_stream(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = _sink(tmp_path)
    for number in range(2):
        sink(as_batch(spark, [(number, 1, "a", "x", "I")]), number)
    with monkeypatch.context() as patch:
        patch.setattr(ChangeLog, "follow", lambda *_: None)
        for number in range(2, 5):
            sink(as_batch(spark, [(number, 1, "a", "x", "I")]), number)
    kept = pieces.lineage
    monkeypatch.setattr(pieces, "lineage", lambda *given: list(kept(*given))[:1])
    with pytest.raises(
        ValueError, match=r"the change log has the versions up to 3.*have expired.*Name a new location"
    ):
        sink(as_batch(spark, [(9, 1, "a", "x", "I")]), 5)


def test_a_file_that_the_log_cannot_read_is_named_with_the_way_out(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one without field ids in a catalog, where a column was renamed since."""
    sink = _sink(tmp_path)
    sink(as_batch(spark, [(1, 1, "a", "x", "I")]), 0)
    with monkeypatch.context() as patch:
        patch.setattr(ChangeLog, "follow", lambda *_: None)
        sink(as_batch(spark, [(2, 1, "a", "x", "I")]), 1)
    head = head_of(str(tmp_path / "t"))
    newest = max(head.live_files(), key=lambda file: file.sequence_number)
    Path(newest.location).write_bytes(b"damaged")
    ended = r"the change log has the versions up to 2.*cannot be read: .*Name a new location"
    for _ in range(2):
        with pytest.raises(UnreadableFileError, match=ended):
            sink(as_batch(spark, [(3, 1, "a", "x", "I")]), 2)


def test_a_purge_takes_a_persons_changes_from_the_log_and_brings_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    location, log = str(tmp_path / "t"), str(tmp_path / "log")
    sink = _sink(tmp_path)
    sink(as_batch(spark, [(key, 1, "a", f"n{key}", "I") for key in range(5)]), 0)
    sink(as_batch(spark, [(2, 2, "a", "moved", "U"), (3, 2, "a", "m3", "U")]), 1)
    others = Counter({row: count for row, count in _logged(log).items() if row[0] != 2})
    report = purge(location, [{"user_id": 2}])
    assert [table.role for table in report.tables] == ["table", "change log"]
    assert _logged(log) == others
    sink(as_batch(spark, [(4, 9, "a", "later", "U")]), 2)
    assert not [row for row in _logged(log) if row[0] == 2]
    left = {it.kind for it in check_gone(location, [{"user_id": 2}]).findings}
    assert left == {"gone-row-in-history", "gone-key-in-tombstones"}
    sink.finish()
