"""Upserts and deletes by key on Spark: each key is there once, and has the last change in sequence."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streaming_sink import Append, Clustering, Delete, IcebergSink, SchemaContract, history
from streaming_sink.errors import KeyConflictError
from streaming_sink.keyed import key_resolution
from streaming_sink.keyed.key_upkeep import key_columns
from streaming_sink.landing import row_writing
from streaming_sink.tasks.key_index.index import KeyIndex
from streaming_sink.tasks.key_index.open_runs import OpenRuns
from streaming_sink.tasks.keys.scanning import KeyedFile
from tests.sinks import flat_sink
from tests.spark.changes import KEYED, Judge, as_batch, land, random_changes, rows_of
from tests.spark.streams import SMALL, head_of
from tests.tiers import only_in_soak
from timeline.errors import CommitConflictError, CorruptTableError, SchemaMismatchError
from timeline.table import open_table
from timeline.versions.tombstones import tombstones_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROUTES: dict[str, dict[str, Any]] = {
    "plain": {},
    "partitioned by another column, so that keys move": {"partition_by": ["region"]},
    "partitioned by the key": {"partition_by": ["bucket(3, user_id)"]},
    "with expectations": {"expectations": {"user_id >= 0": "quarantine", "at >= 0": "drop"}},
    "an evolving schema": {"schema": SchemaContract.evolving()},
    "no fills": {"fill_policy": "never"},
    "looked up in an index": {"key_index": "index"},
    "an index of files that are not filled": {"key_index": "index", "fill_policy": "never"},
}
_OF_TWO_OTHERS = ("partitioned by the key", "no fills", "looked up in an index")
"""Routes whose parts other routes have: every run has those."""


def _sink(location: str, app_id: str = "app", **given: Any) -> IcebergSink:
    return flat_sink(location, app_id=app_id, **{"sizing": SMALL, **KEYED, **given})


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(given, id=name, marks=[only_in_soak] if name in _OF_TWO_OTHERS else [])
        for name, given in ROUTES.items()
    ],
)
def test_the_last_change_in_sequence_counts(
    spark: SparkSession, tmp_path: Path, given: dict[str, Any]
) -> None:
    location, judge = str(tmp_path / "t"), Judge()
    sink = _sink(location, **given)
    land(spark, location, [sink], judge, batches=4)
    sink.finish()
    assert rows_of(location) == judge.rows


def test_the_index_covers_the_files_that_were_there(spark: SparkSession, tmp_path: Path) -> None:
    location, judge = str(tmp_path / "t"), Judge()
    sink = _sink(location, key_index="index", fill_policy="never")
    land(spark, location, [sink], judge, batches=2)
    sink.finish()
    head = head_of(location)
    keyed = sink.options.keys
    assert keyed is not None
    index = KeyIndex(open_table(location).store, key_columns(head, keyed), OpenRuns())
    covered = {file for _, footer in index.readable_runs() for file in footer.files}
    scanned = [file for file in head.live_files() if KeyedFile(file.location, file.rows) not in covered]
    assert scanned == []


def test_a_batch_whose_run_of_the_index_was_deleted_is_planned_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location, judge = str(tmp_path / "t"), Judge()
    sink = _sink(location, key_index="index", fill_policy="never")
    land(spark, location, [sink], judge, batches=2)
    sink.finish()
    write, tried = row_writing.write, []

    def deleting(*given: Any) -> Any:
        tried.append(given)
        for run in (tmp_path / "t" / "_timeline" / "index").rglob("*.*") if len(tried) == 1 else ():
            run.unlink()
        return write(*given)

    monkeypatch.setattr(row_writing, "write", deleting)
    other = _sink(location, "b", key_index="index", fill_policy="never")
    land(spark, location, [other], judge, batches=1, seed=1)
    assert len(tried) == 2
    assert rows_of(location) == judge.rows


def test_a_damaged_run_of_the_index_is_built_again_after_the_batch_that_met_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Else each batch after it scanned the files that it covers."""
    location, judge = str(tmp_path / "t"), Judge()
    sink = _sink(location, key_index="index", fill_policy="never")
    land(spark, location, [sink], judge, batches=1)
    sink.finish()
    keyed = sink.options.keys
    assert keyed is not None
    index = KeyIndex(open_table(location).store, key_columns(head_of(location), keyed), OpenRuns())
    ((path, _),) = index.readable_runs()
    data = bytearray(index.store.read(path).data)
    data[9] ^= 1
    index.store.overwrite(path, bytes(data))
    changes = random_changes(random.Random(7), 60, 40, 200, 120)
    judge.take(changes)
    sink(as_batch(spark, changes), 1)
    sink.finish()
    assert rows_of(location) == judge.rows
    fresh = KeyIndex(index.store, index.columns, OpenRuns())
    runs = fresh.readable_runs()
    assert path not in [each for each, _ in runs]
    covered = {file.location for _, footer in runs for file in footer.files}
    assert covered == {file.location for file in head_of(location).live_files()}


def test_two_writers_that_plan_on_old_heads_agree_with_the_dictionary(
    spark: SparkSession, tmp_path: Path
) -> None:
    location, judge = str(tmp_path / "t"), Judge()
    sinks = [_sink(location, "a", fill_policy="never"), _sink(location, "b", fill_policy="never")]
    land(spark, location, list(sinks), judge, batches=4, seed=1)
    assert [report.outcome for sink in sinks for report in sink.reports] == ["committed"] * 8


def test_what_is_written_stays_when_others_have_moved_the_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second look needs no second write job."""
    location, judge = str(tmp_path / "t"), Judge()
    looks = []
    real = key_resolution.resolve_again

    def counting(*given: Any) -> Any:
        looks.append(given)
        return real(*given)

    monkeypatch.setattr("streaming_sink.keyed.by_key.resolve_again", counting)
    written = []
    write = row_writing.write
    monkeypatch.setattr(row_writing, "write", lambda *given: (written.append(given), write(*given))[1])
    sinks = [_sink(location, name, fill_policy="never") for name in ("a", "b", "c")]
    land(spark, location, list(sinks), judge, batches=3, seed=2)
    assert len(looks) >= 6  # each sink but in the first batch of its run
    assert len(written) == 9


def test_a_writer_that_has_slept_until_its_files_were_deleted_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    location, judge = str(tmp_path / "t"), Judge()
    sleeper = _sink(location, "a")
    land(spark, location, [sleeper], judge, batches=2)
    sleeper.finish()
    awake = _sink(location, "b", clustering=Clustering(every_commits=1, sort_by=["name"]))
    land(spark, location, [awake], judge, batches=2, seed=1)
    awake.finish()
    head = head_of(location)
    live = {Path(file.location).name for file in [*head.live_files(), *head.delete_files()]}
    gone = [path for path in (tmp_path / "t" / "data").rglob("*.parquet") if path.name not in live]
    for path in gone:
        if "tombstones" not in path.name:
            path.unlink()
    changes: list[Any] = [(key, 10_000, "a", "x", "U") for key in range(20)]
    sleeper(as_batch(spark, changes), 2)
    judge.take(changes)
    assert rows_of(location) == judge.rows
    for file in head_of(location).live_files():
        Path(file.location.removeprefix("file://")).unlink()
    with pytest.raises(CorruptTableError, match="a data file is missing"):
        sleeper(as_batch(spark, changes), 3)


def test_a_replayed_batch_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    location, judge = str(tmp_path / "t"), Judge()
    land(spark, location, [_sink(location, fill_policy="never")], judge, batches=2)
    before = head_of(location).number
    again = _sink(location, fill_policy="never")
    land_again: list[Any] = [(1, 10_000, "a", "n", "I")]
    again(as_batch(spark, land_again), 1)
    assert again.reports[-1].outcome == "skipped"
    assert rows_of(location) == judge.rows
    assert head_of(location).number == before


def test_a_batch_that_a_source_delivers_twice_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    sink = _sink(location, fill_policy="never")
    changes: list[Any] = [(n, n, "a", "x", "D" if n % 5 == 0 else "I") for n in range(50)]
    sink(as_batch(spark, changes), 0)
    before = head_of(location)
    sink(as_batch(spark, changes), 1)
    assert sink.reports[-1].outcome == "empty"
    assert sink.reports[-1].changes == {"late": 10, "unchanged": 40}
    assert "changes nothing: 10 late, 40 unchanged" in sink.reports[-1].why
    assert head_of(location).number == before.number


def test_a_change_that_is_older_than_a_delete_brings_no_row_back(spark: SparkSession, tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    sink = _sink(location)
    sink(as_batch(spark, [(1, 5, "a", "x", "I"), (2, 9, "a", "x", "D")]), 0)
    sink(as_batch(spark, [(1, 10, None, None, "D")]), 1)
    sink(as_batch(spark, [(1, 7, "a", "late", "U"), (2, 8, "a", "late", "I"), (3, 1, "b", "y", "I")]), 2)
    assert rows_of(location) == [(3, 1, "b", "y")]
    sink(as_batch(spark, [(1, 11, "a", "back", "U")]), 3)
    assert rows_of(location) == [(1, 11, "a", "back"), (3, 1, "b", "y")]


def test_files_of_deleted_keys_are_merged(spark: SparkSession, tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    sink = _sink(location, fill_policy="never")
    for number in range(20):
        sink(as_batch(spark, [(number, 1, None, None, "D")], 1), number)
    known = tombstones_of(head_of(location).properties)
    assert sum(file.rows for file in known) == 20
    assert len(known) <= 8
    sink(as_batch(spark, [(number, 1, "a", "late", "I") for number in range(20)], 1), 20)
    assert rows_of(location) == []


def test_deletes_alone(spark: SparkSession, tmp_path: Path) -> None:
    location, judge = str(tmp_path / "t"), Judge()
    land(spark, location, [_sink(location)], judge, batches=1)
    some = [row[0] for row in judge.rows][:10]
    deletes = IcebergSink(location, Delete(key=["user_id"], sequence_by="at"), app_id="erase")
    deletes(spark.createDataFrame([(key, 10_000) for key in some], "user_id bigint, at bigint"), 0)
    assert deletes.reports[-1].changes == {"deleted": 10}
    assert rows_of(location) == [row for row in judge.rows if row[0] not in some]


def test_deletes_in_partitions_need_the_columns_that_partition_the_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    location, scoped = str(tmp_path / "t"), {"key_scope": "partition"}
    _sink(location, partition_by=["region"], **scoped)(as_batch(spark, [(1, 1, "a", "x", "I")]), 0)
    keyed: dict[str, Any] = {"operation": "delete", "key": ["user_id"], "sequence_by": "at", **scoped}
    sink = flat_sink(location, app_id="erase", **keyed)
    deletes = as_batch(spark, [(1, 9, "a", "", "D")])
    with pytest.raises(SchemaMismatchError, match="the batch has no column 'region', by which the table is"):
        sink(deletes.select("user_id", "at"), 0)
    sink(deletes.select("user_id", "at", "region"), 0)
    assert rows_of(location) == []


def test_without_a_sequence_the_later_commit_wins(spark: SparkSession, tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    sink = _sink(location, sequence_by=None)
    sink(as_batch(spark, [(1, 9, "a", "x", "I"), (2, 9, "a", "x", "I")]), 0)
    sink(as_batch(spark, [(1, 1, "b", "y", "U"), (2, 1, "b", "y", "D")]), 1)
    assert rows_of(location) == [(1, 1, "b", "y")]
    with pytest.raises(SchemaMismatchError, match="give the sink sequence_by, or bring each key once"):
        sink(as_batch(spark, [(1, 1, "b", "y", "U"), (1, 2, "b", "z", "U")]), 2)


def test_keys_of_several_columns_and_types(spark: SparkSession, tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    keyed = {**KEYED, "key": ["user_id", "region"]}
    sink = flat_sink(location, app_id="a", **keyed)
    sink(as_batch(spark, [(1, 1, "a", "x", "I"), (1, 1, "b", "y", "I"), (2, 1, "", "z", "I")]), 0)
    sink(as_batch(spark, [(1, 2, "b", "new", "U"), (2, 2, "", "w", "U"), (1, 2, "a", "", "D")]), 1)
    assert rows_of(location) == [(1, 2, "b", "new"), (2, 2, "", "w")]


@pytest.mark.parametrize("index", ["scan", "index"])
def test_a_key_may_be_unique_in_each_partition(spark: SparkSession, tmp_path: Path, index: str) -> None:
    location = str(tmp_path / "t")
    scoped: dict[str, Any] = {"partition_by": ["region"], "key_scope": "partition", "key_index": index}
    sinks = [_sink(location, app, **scoped, fill_policy="never") for app in "ab"]
    sinks[0](as_batch(spark, [(1, 1, "a", "x", "I"), (1, 1, "b", "y", "I"), (2, 1, "a", "z", "I")]), 0)
    sinks[0].finish()  # where there is an index, it has what is there
    sinks[1](as_batch(spark, [(1, 2, "a", "new", "U"), (2, 2, "b", "other", "I"), (1, 3, "b", None, "D")]), 0)
    expected = [(1, 2, "a", "new"), (2, 1, "a", "z"), (2, 2, "b", "other")]
    assert rows_of(location) == expected
    sinks[0](as_batch(spark, [(1, 2, "b", "late", "U"), (2, 5, "b", "newer", "U"), (3, 1, "c", "w", "I")]), 1)
    assert rows_of(location) == [*expected[:2], (2, 5, "b", "newer"), (3, 1, "c", "w")]
    with pytest.raises(ValueError, match='leave out partitioning="evolve"'):
        _sink(location, partition_by=["region"], key_scope="partition", evolve_partitioning=True)


def test_changes_that_another_writer_has_made_late_are_reported(spark: SparkSession, tmp_path: Path) -> None:
    """The sink looks for its keys on the version that it knows: only its commit sees what came since."""
    location = str(tmp_path / "t")
    first, second = (_sink(location, app, fill_policy="never") for app in "ab")
    first(as_batch(spark, [(1, 10, "a", "x", "I"), (2, 10, "a", "x", "I")]), 0)
    second(as_batch(spark, [(1, 50, "a", "newer", "U"), (2, 50, "a", None, "D"), (3, 50, "a", "z", "I")]), 0)
    late = [(key, 20, "a", "late", "U") for key in (1, 2, 3)]
    report = first(as_batch(spark, [*late, (4, 20, "a", "new", "I")]), 1)
    assert report.changes["withdrawn"] == 3
    assert "3 withdrawn" in report.line()
    assert history(location)[-1].changes == report.changes
    assert rows_of(location) == [(1, 50, "a", "newer"), (3, 50, "a", "z"), (4, 20, "a", "new")]
    assert "withdrawn" not in first(as_batch(spark, [(4, 21, "a", "newer", "U")]), 2).changes


def test_rows_without_a_key(spark: SparkSession, tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    keyed = {**KEYED, "key": ["name"]}
    changes: list[Any] = [(1, 1, "a", None, "I"), (2, 1, "a", "k", "I")]
    with pytest.raises(SchemaMismatchError, match="1 row has a null in the key's column 'name'"):
        flat_sink(location, app_id="a", **keyed)(as_batch(spark, changes), 0)
    sink = flat_sink(location, app_id="a", null_keys="insert", **keyed)
    sink(as_batch(spark, changes), 0)
    sink(as_batch(spark, [(3, 1, "a", None, "I"), (4, 2, "a", "k", "U")]), 1)
    assert rows_of(location) == [(1, 1, "a", None), (3, 1, "a", None), (4, 2, "a", "k")]
    with pytest.raises(SchemaMismatchError, match="takes rows, and these delete"):
        sink(as_batch(spark, [(1, 2, "a", None, "D")]), 2)


def test_an_insert_into_a_keyed_table_is_refused_unless_it_is_allowed(
    spark: SparkSession, tmp_path: Path
) -> None:
    location, judge = str(tmp_path / "t"), Judge()
    land(spark, location, [_sink(location)], judge, batches=1)
    batch = as_batch(spark, [(1000, 1, "a", "x", "I")]).drop("op")
    with pytest.raises(KeyConflictError, match=r"the table has the key \(user_id\) in sequence by at"):
        IcebergSink(location, app_id="i")(batch, 0)
    allowed = IcebergSink(location, Append(allow_duplicates=True), app_id="i")
    allowed(batch, 0)
    assert len(rows_of(location)) == len(judge.rows) + 1


def test_an_insert_that_races_with_the_key_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The table gets its key after the inserting sink has read it."""
    location = str(tmp_path / "t")
    insert = IcebergSink(location, app_id="i", partition_by=[])
    insert(as_batch(spark, [(1, 1, "a", "x", "I")]).drop("op").limit(0), 0)
    upsert = _sink(location)
    upsert(as_batch(spark, [(1, 1, "a", "x", "I")]), 0)
    with pytest.raises((KeyConflictError, CommitConflictError)):
        insert(as_batch(spark, [(1, 1, "a", "x", "I")]).drop("op"), 1)
    assert rows_of(location) == [(1, 1, "a", "x")]


def test_a_table_with_rows_and_no_key_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    IcebergSink(location, app_id="i")(as_batch(spark, [(1, 1, "a", "x", "I")]).drop("op"), 0)
    with pytest.raises(KeyConflictError, match="streaming-sink key LOCATION"):
        _sink(location)(as_batch(spark, [(1, 2, "a", "y", "I")]), 0)


@pytest.mark.usefixtures("noted_calls")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"key": ["id"]}, "the table has no column 'id', which key names"),
        ({"key": ["user_id"], "sequence_by": "name"}, "must be a column of type int, long, decimal"),
        ({"delete_where": "op"}, "delete_where must be a condition"),
        ({"delete_where": "rand() > 2"}, "delete_where is no condition of one row, the same whenever"),
        ({"delete_where": "max(id) > 2"}, "delete_where is no condition"),
        (
            {"delete_where": "nothing = 1"},
            "delete_where .* over the batch's columns",
        ),
        ({"except_columns": ["oops"]}, "the batch has no column 'oops'"),
    ],
)
def test_what_does_not_fit_the_batch_is_refused(
    spark: SparkSession, tmp_path: Path, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(SchemaMismatchError, match=message):
        _sink(str(tmp_path / "t"), **given)(as_batch(spark, [(1, 1, "a", "x", "I")]), 0)


def test_another_key_than_the_tables_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    _sink(location)(as_batch(spark, [(1, 1, "a", "x", "I")]), 0)
    other = _sink(location, "other", key=["region"])
    with pytest.raises(KeyConflictError, match=r"this writer's is \(region\) in sequence by at"):
        other(as_batch(spark, [(1, 2, "a", "x", "I")]), 0)
