"""A stream whose partitioning changes: what the table holds, which spec its files are of, and who may change
it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import functions as sf

from streaming_sink import FileSizing, IcebergSink, SchemaContract
from streaming_sink.clustering import execute, schedule, schedule_and_execute
from tests.sinks import flat_sink
from tests.spark.streams import SMALL
from tests.tiers import only_in_soak
from timeline.errors import SchemaMismatchError
from timeline.table import open_table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def _sink(location: Path, *partition_by: str, app_id: str = "app", **given: Any) -> IcebergSink:
    given = {"sizing": SMALL, "evolve_partitioning": True, **given}
    return flat_sink(str(location), app_id=app_id, partition_by=partition_by, **given)


def _rows(spark: SparkSession, first: int, count: int = 10) -> DataFrame:
    """Rows of regions r0 to r2 and of hours of one day."""
    ids = spark.range(first, first + count)
    return ids.select(
        "id",
        sf.format_string("r%d", sf.col("id") % 3).alias("region"),
        sf.timestamp_seconds(1_767_225_600 + (sf.col("id") % 5) * 3600).alias("at"),
    )


def _ids(location: Path) -> list[int]:
    table = StaticTable.from_metadata(str(location))
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def _specs(location: Path) -> dict[int, list[str]]:
    return {
        spec.spec_id: [f"{field.field_id} {field.name} {field.transform}" for field in spec.fields]
        for spec in open_table(str(location)).head.metadata.partition_specs
    }


def _files_by_spec(location: Path) -> dict[int, int]:
    return dict(Counter(file.spec_id for file in open_table(str(location)).head.live_files()))


def test_a_partitioning_evolves_in_one_version_and_no_data_file_changes(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    IcebergSink(str(table), app_id="app", sizing=replace(SMALL, fill="never"))(_rows(spark, 0), 0)
    files = {path: path.read_bytes() for path in table.rglob("*.parquet")}
    before = open_table(str(table)).head.number
    sink = _sink(table, "region", "hour(at)", fill_policy="never")
    sink(_rows(spark, 10), 1)
    assert open_table(str(table)).head.number == before + 2
    assert {path: path.read_bytes() for path in files} == files
    assert _specs(table) == {0: [], 1: ["1000 region identity", "1001 at_hour hour"]}
    assert _files_by_spec(table)[0] == len(files)
    assert _ids(table) == list(range(20))
    assert sink.reports[-1].why == ("the table's partitioning has changed from nothing to region, hour(at)")
    sink(_rows(spark, 20), 2)
    assert open_table(str(table)).head.number == before + 3


def test_fields_come_go_and_change_their_transform(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    steps = [
        ("bucket(8, id)",),
        ("bucket(16, id)", "region"),
        ("region", "day(at)"),
        ("region", "hour(at)"),
        ("bucket(8, id)",),
    ]
    for number, step in enumerate(steps):
        _sink(table, *step, fill_policy="never")(_rows(spark, 10 * number), number)
    assert _specs(table) == {
        0: ["1000 id_bucket bucket[8]"],
        1: ["1001 id_bucket_16 bucket[16]", "1002 region identity"],
        2: ["1002 region identity", "1003 at_day day"],
        3: ["1002 region identity", "1004 at_hour hour"],
    }
    assert open_table(str(table)).head.spec.spec_id == 0
    assert _ids(table) == list(range(50))
    scan = StaticTable.from_metadata(str(table)).scan(row_filter="region = 'r1' and id = 25")
    assert scan.to_arrow()["id"].to_pylist() == [25]


def test_a_new_column_partitions_the_table_at_once(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    _sink(table, "region", app_id="app")(_rows(spark, 0), 0)
    rows = _rows(spark, 10).withColumn("kind", sf.lit("k"))
    sink = _sink(table, "region", "kind", schema=SchemaContract.evolving())
    sink(rows, 1)
    assert sink.reports[-1].why == (
        "the table's schema has evolved: kind added as string;"
        " the table's partitioning has changed from region to region, kind"
    )
    sink(_rows(spark, 20), 2)
    assert _ids(table) == list(range(30))
    assert _specs(table)[1] == ["1000 region identity", "1001 kind identity"]


def test_a_clustering_takes_files_of_all_specs_and_never_two_in_one_group(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    for number in range(6):
        spec = ["region"] if number < 3 else ["truncate(2, region)"]
        _sink(table, *spec, fill_policy="never")(_rows(spark, 10 * number), number)
    before = {spec_id: len(partitions) for spec_id, partitions in _partitions(table).items()}
    assert before == {0: 3, 1: 3}, "equal values of different specs"
    report = schedule_and_execute(spark, str(table), sort_by=["id"])
    assert {group.outcome for group in report.groups} == {"committed"}
    assert {group.input_files for group in report.groups} == {3}
    assert _files_by_spec(table) == {0: 3, 1: 3}
    assert _ids(table) == list(range(60))
    for spec_id, name in ((0, "region="), (1, "region_trunc=")):
        for file in open_table(str(table)).head.live_files():
            assert file.spec_id != spec_id or f"/data/{name}" in file.location


def _partitions(location: Path) -> dict[int, set[Any]]:
    found: dict[int, set[Any]] = {}
    for file in open_table(str(location)).head.live_files():
        found.setdefault(file.spec_id, set()).add(file.partition)
    return found


def test_a_plan_from_before_the_partitioning_changed_is_executed_after_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    for number in range(3):
        _sink(table, "region", fill_policy="never")(_rows(spark, 10 * number), number)
    plan = schedule(str(table), sort_by=["id"])
    assert plan is not None
    _sink(table, "hour(at)", fill_policy="never")(_rows(spark, 30), 3)
    report = execute(spark, str(table), plan.plan_id)
    assert report is not None
    assert {group.outcome for group in report.groups} == {"committed"}
    assert _files_by_spec(table)[0] == 3
    assert _ids(table) == list(range(40))


@pytest.mark.parametrize("fill", [pytest.param("inline", marks=only_in_soak), "beside"])
def test_fills_never_mix_specs_whose_partitions_have_equal_values(
    spark: SparkSession, tmp_path: Path, fill: str
) -> None:
    table = tmp_path / "table"
    sizing = FileSizing(max_file_bytes="1MiB", small_file_bytes="512KiB")
    old = _sink(table, "region", sizing=sizing, fill_policy="never")
    for number in range(3):
        old(_rows(spark, 10 * number), number)
    rows_of_old = {file.location: file.rows for file in open_table(str(table)).head.live_files()}
    new = _sink(table, "truncate(2, region)", sizing=sizing, fill=fill, fill_policy="always")
    for number in range(3, 7):
        new(_rows(spark, 10 * number), number)
        new.finish()
    assert _files_by_spec(table) == {0: 9, 1: 3}
    live = {file.location: file.rows for file in open_table(str(table)).head.live_files()}
    assert rows_of_old.items() <= live.items()
    assert _ids(table) == list(range(70))


def test_what_was_expected_of_the_old_partitions_is_forgotten(spark: SparkSession, tmp_path: Path) -> None:
    """A run plans from what its batches brought; under another spec their partitions mean nothing."""
    table = tmp_path / "table"
    running = IcebergSink(str(table), app_id="follows", sizing=replace(SMALL, fill="inline"))
    _sink(table, "region", app_id="owner")(_rows(spark, 0), 0)
    for number in range(3):
        running(_rows(spark, 10 + 10 * number), number)
    _sink(table, "region", "hour(at)", app_id="owner")(_rows(spark, 40), 1)
    for number in range(3, 6):
        running(_rows(spark, 20 + 10 * number), number)
    assert [report.planned_by for report in running.reports[2:]] == ["forecast"] * 2 + ["profile", "forecast"]
    assert _ids(table) == list(range(80))
    assert {len(file.partition) for file in open_table(str(table)).head.live_files()} == {1, 2}


def test_a_batch_in_flight_lands_under_its_spec_and_the_next_one_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Of two streams with different ones the later wins; the other is refused, also after a restart."""
    table = tmp_path / "table"
    first, second = _sink(table, "region", app_id="first"), _sink(table, "hour(at)", app_id="second")
    first(_rows(spark, 0), 0)
    first(_rows(spark, 10), 1)
    second(_rows(spark, 20), 0)
    before = open_table(str(table)).head.number
    first(_rows(spark, 30), 2)  # it has not seen the change, and its files are of a spec that the table knows
    assert open_table(str(table)).head.number == before + 1
    assert open_table(str(table)).head.spec.spec_id == 1
    for sink in (first, _sink(table, "region", app_id="first")):
        with pytest.raises(SchemaMismatchError, match="by region before, and application 'second'"):
            sink(_rows(spark, 40), 3)
    second(_rows(spark, 40), 1)
    IcebergSink(str(table), app_id="first", sizing=SMALL)(_rows(spark, 50), 3)  # it follows the table
    _sink(table, "region", app_id="second")(_rows(spark, 60), 2)  # the one that changed it may change it back
    assert _ids(table) == list(range(70))
    assert {spec: files > 0 for spec, files in _files_by_spec(table).items()} == {0: True, 1: True}


def test_a_partition_of_the_older_spec_that_gets_files_in_flight_is_filled_in_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    first = _sink(table, "region", app_id="first", fill_policy="always")
    first(_rows(spark, 0), 0)
    first.finish()
    _sink(table, "hour(at)", app_id="second", fill_policy="never")(_rows(spark, 10), 0)
    first(_rows(spark, 20), 1)
    first.finish()
    live = list(open_table(str(table)).head.live_files())
    old = [file for file in live if file.spec_id == 0]
    assert sorted(file.partition for file in old) == [("r0",), ("r1",), ("r2",)], "merged, each in its own"
    assert {file.location.split("/")[-2] for file in old} == {f"region=r{number}" for number in range(3)}
    assert {file.location.split("/")[-2][:8] for file in live if file.spec_id == 1} == {"at_hour="}
    assert _ids(table) == list(range(30))


def test_a_replay_changes_no_partitioning(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    _sink(table, "region")(_rows(spark, 0), 0)
    sink = _sink(table, "hour(at)")
    sink(_rows(spark, 0), 0)
    assert sink.reports[-1].outcome == "skipped"
    assert open_table(str(table)).head.spec.spec_id == 0


@pytest.mark.parametrize(
    ("asked", "error", "said"),
    [
        (
            {"partition_by": ["hour(at)"]},
            SchemaMismatchError,
            "by region, and .*partitioning=.evolve",
        ),
        ({"partition_by": ["zone"]}, SchemaMismatchError, "a column that the table lacks: zone"),
        (
            {"partition_by": ["hour(region)"]},
            SchemaMismatchError,
            "does not take a column of type string",
        ),
        ({"partition_by": ["houre(at)"]}, ValueError, "did you mean hour"),
        ({"partition_by": ["region", "region"]}, ValueError, "two partition fields come to the same name"),
    ],
)
def test_a_partitioning_that_cannot_be_is_refused_and_nothing_is_written(
    spark: SparkSession, tmp_path: Path, asked: dict[str, Any], error: type[Exception], said: str
) -> None:
    table = tmp_path / "table"
    _sink(table, "region")(_rows(spark, 0), 0)
    files = sorted(tmp_path.rglob("*"))
    evolves = "evolve" not in said
    with pytest.raises(error, match=said):
        flat_sink(str(table), app_id="app", evolve_partitioning=evolves, **asked)(_rows(spark, 10), 1)
    assert sorted(tmp_path.rglob("*")) == files
