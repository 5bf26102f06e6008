"""The change feed: what each version added and deleted, and what they make together."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

import streaming_sink
from streaming_sink import IcebergSink
from streaming_sink.reading import pieces
from tests.sinks import flat_sink
from tests.spark.changes import KEYED, Judge, as_batch, random_changes, rows_of
from tests.spark.streams import SMALL, head_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

_ADDS = {"INSERT": 1, "UPDATE_AFTER": 1, "DELETE": -1, "UPDATE_BEFORE": -1}


def _feed(spark: SparkSession, location: str, *versions: int) -> list[dict[str, Any]]:
    return [row.asDict() for row in streaming_sink.changes(spark, location, *versions).collect()]


def _values(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["user_id"], row["at"], row["region"], row["name"]


def test_the_changes_of_all_versions_make_the_table(spark: SparkSession, tmp_path: Path) -> None:
    location, judge, rng = str(tmp_path / "t"), Judge(), random.Random(5)
    sinks = [flat_sink(location, app_id=app, sizing=SMALL, **KEYED) for app in "ab"]
    states: dict[int, Counter[Any]] = {0: Counter()}
    for number in range(3):
        for sink in sinks:
            changes = random_changes(rng, 120, 100, number * 50, 120)
            sink(as_batch(spark, changes), number)
            judge.take(changes)
            states[head_of(location).number] = Counter(judge.rows)
    for sink in sinks:
        sink.finish()
    feed = _feed(spark, location, 1)
    versions = sorted(states)
    for before, after in pairwise(versions):
        here = [row for row in feed if before < row["_commit_version"] <= after]
        state = Counter(states[before])
        for row in here:
            state[_values(row)] += _ADDS[row["_change_type"]]
        assert +state == states[after]
        kinds = Counter((row["user_id"], row["_change_type"]) for row in here)
        assert set(kinds.values()) <= {1}
        updated = {key for key, kind in kinds if kind.startswith("UPDATE")}
        assert all(kinds[key, "UPDATE_BEFORE"] == kinds[key, "UPDATE_AFTER"] == 1 for key in updated)
        assert not updated & {key for key, kind in kinds if not kind.startswith("UPDATE")}
    assert {row["_change_type"] for row in feed} == set(_ADDS)
    one = _feed(spark, location, versions[-1], versions[-1])
    assert Counter(map(str, one)) == Counter(
        str(row) for row in feed if row["_commit_version"] == versions[-1]
    )


def test_a_table_without_a_key_has_inserts(spark: SparkSession, tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    sink = IcebergSink(location, app_id="i", sizing=SMALL)
    for number in range(2):
        sink(as_batch(spark, [(number, 1, "a", "x", "I")]).drop("op"), number)
    assert [(row["_change_type"], row["user_id"]) for row in _feed(spark, location, 1)] == [
        ("INSERT", 0),
        ("INSERT", 1),
    ]
    assert rows_of(location) == [(0, 1, "a", "x"), (1, 1, "a", "x")]


def test_versions_that_are_not_there_are_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = str(tmp_path / "t")
    sink = IcebergSink(location, app_id="i")
    for number in range(3):
        sink(as_batch(spark, [(number, 1, "a", "x", "I")]).drop("op"), number)
    with pytest.raises(ValueError, match="must be versions of the table, 1 to 4"):
        streaming_sink.changes(spark, location, 5)
    with pytest.raises(ValueError, match="must be versions of the table, 1 to"):
        streaming_sink.changes(spark, location, 3, 2)
    kept = pieces.lineage
    monkeypatch.setattr(pieces, "lineage", lambda *given: list(kept(*given))[:2])
    with pytest.raises(ValueError, match="the changes before version 3 have expired with their snapshots"):
        streaming_sink.changes(spark, location, 2)
    assert [row["user_id"] for row in _feed(spark, location, 3)] == [1, 2]
