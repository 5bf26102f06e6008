"""`streaming-sink key`: a table that was filled by inserts gets a key, if each key is there once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from streaming_sink import Delete, IcebergSink
from streaming_sink.commands.cli import main
from tests.sinks import flat_sink
from tests.spark.changes import KEYED, as_batch, rows_of
from tests.spark.streams import head_of
from timeline.versions.keys import TableKey, key_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def _insert(spark: SparkSession, location: str, keys: list[int], number: int, **given: bool) -> None:
    changes = [(key, 1, "a", f"n{key}", "I") for key in keys]
    flat_sink(location, app_id="i", **given)(as_batch(spark, changes).drop("op"), number)  # type: ignore[arg-type]


def test_a_table_of_inserts_gets_a_key_and_takes_changes(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    location = str(tmp_path / "t")
    _insert(spark, location, list(range(10)), 0)
    _insert(spark, location, list(range(10, 20)), 1)
    arguments = ["key", location, "--columns", "user_id", "--sequence-by", "at"]
    assert main(arguments) == 0
    assert "each key is there once; --declare makes it the key of the table" in capsys.readouterr().out
    assert key_of(head_of(location).properties) is None
    assert main([*arguments, "--declare"]) == 0
    assert "each key is there once; it is the table's key now" in capsys.readouterr().out
    assert key_of(head_of(location).properties) == TableKey((1,), 2)
    flat_sink(location, app_id="u", **KEYED)(
        as_batch(spark, [(3, 2, "b", "new", "U"), (4, 2, "", "", "D")]), 0
    )
    assert [row for row in rows_of(location) if row[0] in (3, 4)] == [(3, 2, "b", "new")]
    assert main(["doctor", location, "--keys", "--no-probe"]) == 0
    assert "(user_id) in sequence by at, unique in the table; 19 rows were read" in capsys.readouterr().out


def test_a_table_of_inserts_is_updated_in_part(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    location = str(tmp_path / "t")
    _insert(spark, location, [1, 2], 0)
    arguments = ["key", location, "--columns", "user_id", "--sequence-by", "at"]
    assert main([*arguments, "--partial-update", "region, name", "--declare"]) == 0
    assert "unique in the table, updated in part: region, name" in capsys.readouterr().out
    assert key_of(head_of(location).properties) == TableKey((1,), 2, partial=(3, 4))
    assert head_of(location).schema.find_field("_column_sequences").optional
    deletes = IcebergSink(location, Delete(key=["user_id"], sequence_by="at"), app_id="d")
    deletes(as_batch(spark, [(1, 3, None, None, "D")]).select("user_id", "at"), 0)
    sink = flat_sink(location, app_id="u", partial_update=["name", "region"], **KEYED)
    sink(as_batch(spark, [(1, 2, "a", "late", "U"), (1, 4, None, "new", "U"), (2, 1, None, "old", "U")]), 0)
    assert rows_of(location) == [(1, 4, None, "new"), (2, 1, "a", "old")]


def test_keys_that_are_there_twice_are_shown_and_not_declared(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    location = str(tmp_path / "t")
    _insert(spark, location, [1, 2, 3, 3], 0)
    assert main(["key", location, "--columns", "user_id", "--declare", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["declared"] is False
    assert found["checked"]["repeated"] == 1
    assert found["checked"]["examples"] == [{"user_id": 3}]
    assert key_of(head_of(location).properties) is None


def test_the_doctor_finds_keys_that_inserts_have_brought_twice(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    location = str(tmp_path / "t")
    sink = flat_sink(location, app_id="u", **KEYED)
    sink(as_batch(spark, [(1, 1, "a", "x", "I"), (2, 1, "a", "y", "I")]), 0)
    _insert(spark, location, [2], 0, allow_duplicates=True)
    assert main(["doctor", location, "--keys", "--no-probe"]) == 1
    assert "key-repeated: 1 live rows have a key that another one has too" in capsys.readouterr().out
    sink(as_batch(spark, [(2, 5, "b", "right", "U")]), 1)
    assert rows_of(location) == [(1, 1, "a", "x"), (2, 5, "b", "right")]
    assert main(["doctor", location, "--keys", "--no-probe"]) == 0


def test_a_table_without_a_key_needs_columns(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    location = str(tmp_path / "t")
    _insert(spark, location, [1], 0)
    assert main(["key", location]) == 2
    assert "the table has no key; name its columns" in capsys.readouterr().err
