"""Partial updates on Spark: columns that are null in a change keep the value that the table has."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from streaming_sink import IcebergSink
from streaming_sink.batch import landing
from tests.spark.changes import KEYED, as_batch, rows_of
from tests.spark.streams import SMALL
from timeline.errors import SchemaMismatchError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def _sink(location: str, app_id: str = "app", **given: Any) -> IcebergSink:
    return IcebergSink(location, app_id=app_id, **{"sizing": SMALL, **KEYED, **given})


def test_partial_updates_keep_what_they_do_not_bring(spark: SparkSession, tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    sinks = [_sink(location, app, partial_update=True, fill_policy="never") for app in "ab"]
    sinks[0](as_batch(spark, [(1, 1, "a", None, "I"), (1, 2, None, "x", "U"), (2, 1, "b", "y", "I")]), 0)
    assert rows_of(location) == [(1, 2, "a", "x"), (2, 1, "b", "y")]
    sinks[1](as_batch(spark, [(1, 3, None, "new", "U"), (2, 2, None, None, "D"), (2, 3, None, "z", "I")]), 0)
    assert rows_of(location) == [(1, 3, "a", "new"), (2, 3, None, "z")]
    # The first sink still plans on its own last version, and must not bring old values back.
    sinks[0](
        as_batch(spark, [(1, 4, "c", None, "U"), (2, 4, "d", None, "U"), (1, 1, "late", "late", "U")]), 1
    )
    assert rows_of(location) == [(1, 4, "c", "new"), (2, 4, "d", "z")]
    sinks[1](as_batch(spark, [(3, 1, None, None, "I"), (1, 5, None, None, "U")], 1), 1)
    assert rows_of(location) == [(1, 5, "c", "new"), (2, 4, "d", "z"), (3, 1, None, None)]


def test_partial_updates_of_some_columns(spark: SparkSession, tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    sink = _sink(location, partial_update=["name"])
    sink(as_batch(spark, [(1, 1, "a", "x", "I")]), 0)
    sink(as_batch(spark, [(1, 2, None, None, "U")]), 1)
    assert rows_of(location) == [(1, 2, None, "x")]
    with pytest.raises(SchemaMismatchError, match="no column 'oops', which partial_update names"):
        _sink(location, "other", partial_update=["oops"])(as_batch(spark, [(1, 3, "a", "x", "I")]), 0)


def test_changes_that_are_older_than_the_stored_row_bring_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also where the same batch has a newer change of their key."""
    location = str(tmp_path / "t")
    sink = _sink(location, partial_update=True)
    sink(as_batch(spark, [(1, 6, "b", "x", "I"), (2, 6, "b", "x", "I"), (3, 6, None, None, "D")]), 0)
    older: list[Any] = [(1, 5, "late", None, "U"), (2, 5, None, None, "D"), (3, 5, "late", None, "U")]
    newer: list[Any] = [(1, 7, None, "y", "U"), (2, 7, None, "y", "U"), (3, 7, None, "y", "U")]
    sink(as_batch(spark, [*older, *newer]), 1)
    assert rows_of(location) == [(1, 7, "b", "y"), (2, 7, "b", "y"), (3, 7, None, "y")]


def test_a_partial_update_lands_though_others_keep_changing_its_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location, write, numbers = str(tmp_path / "t"), landing.write, itertools.count()
    a, b = (_sink(location, app, partial_update=True, fill_policy="never") for app in "ab")
    a(as_batch(spark, [(1, 1, "a", "x", "I")], 1), 0)

    def racing(rows: Any, job: Any) -> Any:
        result = write(rows, job)
        if job.ids.app_id == "a" and (number := next(numbers)) < 5:
            b(as_batch(spark, [(1, 2 + number, None, f"n{number}", "U")], 1), number)
        return result

    monkeypatch.setattr(landing, "write", racing)
    a(as_batch(spark, [(1, 100, "c", None, "U")], 1), 1)
    assert rows_of(location) == [(1, 100, "c", "n4")]
