"""Partial updates on Spark: columns that are null in a change keep the value that the table has."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import functions as sf

from streaming_sink import Delete, IcebergSink, SchemaContract
from streaming_sink.landing import row_writing
from streaming_sink.tasks.changes.column_sequences import COLUMN_SEQUENCES
from tests.sinks import flat_sink
from tests.spark.changes import KEYED, as_batch, rows_of
from tests.spark.streams import SMALL, head_of, metadata_file
from tests.tiers import only_in_soak
from tests.unit.streaming_sink.tasks.keys.changes_by_column import PartialChange, row_of
from timeline.errors import KeyConflictError, SchemaMismatchError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def _sink(location: str, app_id: str = "app", **given: Any) -> IcebergSink:
    return flat_sink(location, app_id=app_id, **{"sizing": SMALL, **KEYED, **given})


def test_partial_updates_keep_what_they_do_not_bring(spark: SparkSession, tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    sinks = [_sink(location, app, partial_update=True, fill_policy="never") for app in "ab"]
    sinks[0](as_batch(spark, [(1, 1, "a", None, "I"), (1, 2, None, "x", "U"), (2, 1, "b", "y", "I")]), 0)
    assert rows_of(location) == [(1, 2, "a", "x"), (2, 1, "b", "y")]
    sinks[1](as_batch(spark, [(1, 3, None, "new", "U"), (2, 2, None, None, "D"), (2, 3, None, "z", "I")]), 0)
    assert rows_of(location) == [(1, 3, "a", "new"), (2, 3, None, "z")]
    # What the first sink knows is its own last version, which must not bring old values back.
    sinks[0](
        as_batch(spark, [(1, 4, "c", None, "U"), (2, 4, "d", None, "U"), (1, 1, "late", "late", "U")]), 1
    )
    assert rows_of(location) == [(1, 4, "c", "new"), (2, 4, "d", "z")]
    sinks[1](as_batch(spark, [(3, 1, None, None, "I"), (1, 5, None, None, "U")], 1), 1)
    assert rows_of(location) == [(1, 5, "c", "new"), (2, 4, "d", "z"), (3, 1, None, None)]
    # Each looks at what the other has committed before its batch began, and so writes the batch once.
    assert [report.writes for sink in sinks for report in sink.reports] == [1, 1, 1, 1]


def test_partial_updates_of_some_columns(spark: SparkSession, tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    sink = _sink(location, partial_update=["name"])
    sink(as_batch(spark, [(1, 1, "a", "x", "I")]), 0)
    sink(as_batch(spark, [(1, 2, None, None, "U")]), 1)
    assert rows_of(location) == [(1, 2, None, "x")]
    with pytest.raises(SchemaMismatchError, match="no column 'oops', which partial_update names"):
        _sink(location, "other", partial_update=["oops"])(as_batch(spark, [(1, 3, "a", "x", "I")]), 0)


@pytest.mark.parametrize("partial", [False, True])
def test_a_column_that_is_left_out_of_the_batch_may_have_another_type_than_in_the_table(
    spark: SparkSession, tmp_path: Path, partial: bool
) -> None:
    location = str(tmp_path / "t")
    _sink(location, partial_update=partial)(as_batch(spark, [(1, 1, "a", "x", "I")]), 0)
    changes = as_batch(spark, [(1, 2, "b", "y", "U"), (2, 1, "c", "z", "I")])
    changes = changes.withColumn("name", sf.struct(sf.lit(7).alias("code")))
    sink = _sink(location, partial_update=partial, except_columns=["op", "name"])
    sink(changes, 1)
    assert rows_of(location) == [(1, 2, "b", "x" if partial else None), (2, 1, "c", None)]


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


TIED: list[Any] = [
    (1, 5, "A", None, "U"),
    (1, 5, "B", None, "U"),
    (1, 5, None, "z", "U"),
    (1, 5, None, None, "D"),
]
LATE: list[Any] = [
    (1, 4, "C", "c", "U"),
    (1, 3, None, None, "D"),
    (1, 6, None, "w", "U"),
    (1, 1, "m", None, "U"),
]


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(it, marks=only_in_soak) for it in (2, 3))])
def test_two_sinks_leave_what_the_changes_say_in_any_order(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    location, rng = str(tmp_path / "t"), random.Random(seed)
    sinks = [_sink(location, app, partial_update=True, fill_policy="never") for app in "ab"]
    came: list[Any] = [(key, 1, "m", "n", "I") for key in range(1, 9)]
    sinks[0](as_batch(spark, came), 0)
    changes = [(key, *change[1:]) for key in range(1, 9) for change in rng.sample([*TIED, *LATE], 5)]
    for number in range(1, 5):
        # Some come in two batches, and what a sink knows of the table is older than the other's commit.
        batch = rng.sample(changes, 14)
        came += batch
        sinks[number % 2](as_batch(spark, batch), number)
        assert rows_of(location) == _wanted(came)
    number = head_of(location).number
    sinks[0](as_batch(spark, came), 5)
    assert rows_of(location) == _wanted(came)
    assert head_of(location).number == number, "what comes again writes nothing"


def _wanted(changes: list[Any]) -> list[Any]:
    found = []
    for key in {change[0] for change in changes}:
        of_key = [
            PartialChange(at, {"region": region, "name": name}, op == "D")
            for each, at, region, name, op in changes
            if each == key
        ]
        if (row := row_of(of_key, ("region", "name"))) is not None:
            found.append((key, row[0], row[1]["region"], row[1]["name"]))
    return sorted(found, key=repr)


def test_readers_see_at_which_sequence_a_column_was_set(spark: SparkSession, tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    sink = _sink(location, partial_update=True)
    sink(as_batch(spark, [(1, 5, "a", "x", "I"), (2, 5, "a", "x", "I")], 1), 0)
    sink(as_batch(spark, [(1, 7, "b", None, "U")], 1), 1)
    metadata = metadata_file(location)
    assert metadata is not None
    table = StaticTable.from_metadata(metadata)
    name_id = table.schema().find_field("name").field_id
    by_pyiceberg = {row["user_id"]: row[COLUMN_SEQUENCES] for row in table.scan().to_arrow().to_pylist()}
    assert by_pyiceberg == {1: [(name_id, 5)], 2: None}
    paths = [task.file.file_path for task in table.scan().plan_files()]
    by_duckdb = duckdb.sql(f'SELECT user_id, {COLUMN_SEQUENCES} FROM read_parquet({paths}) WHERE "at" = 7')
    assert by_duckdb.fetchall() == [(1, {name_id: 5})]


def test_a_sink_with_another_partial_update_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """A change that sets nulls, and one that does not, are two kinds of change of one row."""
    location = str(tmp_path / "t")
    _sink(location, partial_update=["name"])(as_batch(spark, [(1, 1, "a", "x", "I")]), 0)
    for number, other in enumerate([False, True, ["region"], ["region", "name"]]):
        with pytest.raises(
            KeyConflictError, match=r"updated in part: name, and this writer's is .* partial_update"
        ):
            _sink(location, f"other{number}", partial_update=other)(
                as_batch(spark, [(1, 2, None, "y", "U")]), 0
            )
    deletes = IcebergSink(location, Delete(key=["user_id"], sequence_by="at"), app_id="deletes")
    _sink(location, partial_update=["name"])(as_batch(spark, [(1, 4, None, None, "U")]), 1)
    deletes(as_batch(spark, [(1, 3, None, None, "D")]).drop("region", "name", "op"), 0)
    assert rows_of(location) == [(1, 4, None, None)], "a late delete takes what was set before it"


def test_a_batch_with_a_column_of_the_sinks_name_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    batch = as_batch(spark, [(1, 1, "a", "x", "I")])
    for number, excepted in enumerate([["op"], ["op", COLUMN_SEQUENCES]]):
        sink = _sink(location, f"app{number}", partial_update=True, except_columns=excepted)
        with pytest.raises(
            SchemaMismatchError, match=f"the sink writes the column {COLUMN_SEQUENCES} itself"
        ):
            sink(batch.withColumn(COLUMN_SEQUENCES, sf.lit("mine")), 0)


def test_a_sequence_that_becomes_wider_takes_those_of_columns_along(
    spark: SparkSession, tmp_path: Path
) -> None:
    location = str(tmp_path / "t")
    evolving = {"partial_update": True, "schema": SchemaContract.evolving()}
    ints = as_batch(spark, [(1, 5, "a", "x", "I"), (1, 6, "b", None, "U")]).withColumn(
        "at", sf.col("at").cast("int")
    )
    _sink(location, **evolving)(ints, 0)
    _sink(location, "other", **evolving)(
        as_batch(spark, [(1, 2**40, None, "y", "U"), (1, 5, None, "z", "U")]), 0
    )
    _sink(location, "other", **evolving)(as_batch(spark, [(1, 7, "c", "late", "U")]), 1)
    assert rows_of(location) == [(1, 2**40, "c", "y")]


def test_without_a_sequence_a_later_commit_sets_what_it_brings(spark: SparkSession, tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    sink = _sink(location, partial_update=["region", "name"], sequence_by=None)
    sink(as_batch(spark, [(1, 9, "a", "x", "I"), (2, 9, "a", "x", "I")]), 0)
    sink(as_batch(spark, [(1, 1, None, "y", "U"), (2, 1, None, None, "D"), (3, 1, None, None, "D")]), 1)
    assert rows_of(location) == [(1, 1, "a", "y")]
    counted = {name: count for name, count in sink.reports[-1].changes.items() if count}
    assert counted == {"updated": 1, "deleted": 1, "absent": 1}


def test_a_partial_update_lands_though_others_keep_changing_its_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location, write, numbers = str(tmp_path / "t"), row_writing.write, itertools.count()
    a, b = (_sink(location, app, partial_update=True, fill_policy="never") for app in "ab")
    a(as_batch(spark, [(1, 1, "a", "x", "I")], 1), 0)

    def racing(rows: Any, job: Any, *beside: Any) -> Any:
        result = write(rows, job, *beside)
        if job.ids.app_id == "a" and (number := next(numbers)) < 5:
            b(as_batch(spark, [(1, 2 + number, None, f"n{number}", "U")], 1), number)
        return result

    monkeypatch.setattr(row_writing, "write", racing)
    a(as_batch(spark, [(1, 100, "c", None, "U")], 1), 1)
    assert rows_of(location) == [(1, 100, "c", "n4")]


def test_a_delete_that_lands_while_a_batch_is_written_takes_what_was_set_before_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch has merged a value that the delete takes into its row, and no row tells of the delete."""
    location, write, raced = str(tmp_path / "t"), row_writing.write, list[bool]()
    a, b = (_sink(location, app, partial_update=True, fill_policy="never") for app in "ab")
    a(as_batch(spark, [(2, 1, "a", "x", "I")], 1), 0)

    def racing(rows: Any, job: Any, *beside: Any) -> Any:
        result = write(rows, job, *beside)
        if job.ids.app_id == "a" and not raced:
            raced.append(True)
            b(as_batch(spark, [(1, 50, None, None, "D")], 1), 0)
        return result

    monkeypatch.setattr(row_writing, "write", racing)
    a(as_batch(spark, [(1, 10, "c", None, "U"), (1, 100, None, "y", "U")], 1), 1)
    assert rows_of(location) == [(1, 100, None, "y"), (2, 1, "a", "x")]
