"""A clustering plan carried out by Spark: one version, the same rows, files that share no keys."""

from __future__ import annotations

import json
import os
from collections import Counter
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.types import LongType, NestedField, StringType

from planners import All, ClusteringPolicy, Strategy
from planners.clustering.planner import plan_clustering
from planners.model import InsertPlan, TableFile
from streaming_sink.clustering.execution import execute_groups as execute_as
from streaming_sink.clustering.options import execution_of
from streaming_sink.reports.cluster_report import PLAN_ID
from streaming_sink.table.data_files import data_file
from streaming_sink.table.spec import partition_spec
from streaming_sink.tasks.clustering.strategies import Sort
from streaming_sink.tasks.job import FileIds
from streaming_sink.tasks.rows.write_task import TaskWriter
from streaming_sink.writing.writer import worker_job
from tests.spark.streams import metadata_file
from timeline.changes.changes import Append, Replace, SetProperties
from timeline.names import version_path
from timeline.stores import open_store
from timeline.table import Table, open_table

pytestmark = pytest.mark.spark

BATCHES = 3
ROWS = 3000


@pytest.fixture
def table(location):
    """A table of two partitions, whose files each hold keys from all over. Made without Spark: quicker."""
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "p", StringType()),
        NestedField(3, "key", LongType()),
        NestedField(4, "text", StringType()),
    )
    made = Table.create(open_store(location), schema, partition_spec(["p"], schema))
    for batch in range(BATCHES):
        plan = InsertPlan((), (), 10, 10**6, 1 << 30)
        ids = FileIds(1, "made", batch)
        job = worker_job(made.store, made.head, plan, None, ids)
        writer = TaskWriter(job, 0, 0)
        writer.write(_batch(range(batch * ROWS, (batch + 1) * ROWS)))
        made.commit([Append(tuple(data_file(file, made.head.spec) for file in writer.finish()))])
    return made


def execute(spark, table, plan, *, plan_id, also=(), is_wanted=lambda: True, **options):
    how = execution_of(**options)
    return execute_as(spark, table, plan, how, plan_id=plan_id, also=also, is_wanted=is_wanted)


def _batch(ids):
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array(ids, pa.int64()),
            "p": [f"p{each % 2}" for each in ids],
            "key": pa.array([each * 2654435761 % 2**32 if each % 97 else None for each in ids], pa.int64()),
            "text": [f"{each * 40503 % 2**16:x}" for each in ids],
        }
    )


def _plan(table, **policy):
    files = [
        TableFile(file.location, file.partition, file.bytes, file.rows) for file in table.head.live_files()
    ]
    whole = {"target_file_bytes": "10MiB", "small_file_bytes": "1MiB", "max_group_bytes": "10MiB"}
    whole["overlap_at_least"] = 2
    return plan_clustering(files, 0, ClusteringPolicy(select=All(), **{**whole, **policy}))


def _rows(location):
    """Return the multiset of rows, as DuckDB reads the files that pyiceberg finds."""
    tasks = StaticTable.from_metadata(metadata_file(location)).scan().plan_files()
    paths = [task.file.file_path for task in tasks]
    with duckdb.connect() as connection:
        read = connection.execute("SELECT id, p, key, text FROM read_parquet($1)", [paths])
        return Counter(read.fetchall())


def _files(location):
    return [task.file for task in StaticTable.from_metadata(metadata_file(location)).scan().plan_files()]


def _ranges(files):
    """Return the ranges of `key` of each partition's files."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    for file in files:
        low, high = (from_bytes(LongType(), bounds[3]) for bounds in (file.lower_bounds, file.upper_bounds))
        ranges.setdefault(file.partition[0], []).append((low, high))
    return {partition: sorted(found) for partition, found in ranges.items()}


def test_a_sorted_plan_is_one_replace_of_the_same_rows_in_files_that_share_no_keys(spark, table, location):
    before, version = _rows(location), table.head.number
    cut = {"target_file_bytes": "16KiB", "small_file_bytes": "1KiB"}
    plan = _plan(table, sort_by=["key nulls last", "id desc"], **cut)
    report = execute(spark, table, plan, plan_id="plan-1", checksum=True)

    assert [group.outcome for group in report.groups] == ["committed"] * len(plan.groups)
    assert _rows(location) == before
    files = _files(location)
    assert len(files) == sum(group.output_files for group in plan.groups)
    for ranges in _ranges(files).values():
        assert len(ranges) > 1
        assert all(high <= low for (_, high), (low, _) in pairwise(ranges))

    metadata = StaticTable.from_metadata(metadata_file(location)).metadata
    assert {file.sort_order_id for file in files} == {1}
    assert str(metadata.sort_order_by_id(1)) == "[\n  3 ASC NULLS LAST\n  1 DESC NULLS LAST\n]"
    assert metadata.default_sort_order_id == 0
    assert table.head.number == version + 2, "one version for the sort order, one for all groups"
    snapshot = metadata.current_snapshot()
    assert snapshot.summary.operation.value == "replace"
    assert snapshot.summary[PLAN_ID] == "plan-1"
    assert snapshot.summary["streaming-sink.clustering.strategy"] == "sort"
    assert snapshot.summary["streaming-sink.clustering.groups-rewritten"] == "2"
    assert snapshot.summary["streaming-sink.clustering.rows"] == str(BATCHES * ROWS)


def test_a_second_plan_by_the_same_columns_finds_its_sort_order_in_the_table(spark, table, location):
    for version in (2, 1):
        before = table.head.number
        execute(spark, table, _plan(table, sort_by=["key"]), plan_id="plan")
        assert table.head.number == before + version
    assert {file.sort_order_id for file in _files(location)} == {1}


@pytest.mark.parametrize(
    ("strategy", "sort_by"),
    [("bin_pack", []), ("zorder", ["key", "text"]), ("hilbert", ["key", "id", "text"])],
)
def test_every_other_strategy_keeps_the_rows_and_names_no_sort_order(
    spark, table, location, strategy, sort_by
):
    before = _rows(location)
    report = execute(spark, table, _plan(table, strategy=strategy, sort_by=sort_by), plan_id="plan")
    assert len(report.committed) == len(report.groups) == 2
    assert _rows(location) == before
    assert {file.sort_order_id for file in _files(location)} == {0}


class Adversary:
    """Does what its parameter says, in the groups of one partition alone."""

    def __init__(self, parameters):
        self.does = parameters["does"]

    def rewrite(self, group):
        does = self.does
        for number, batch in enumerate(group.read()):
            if number or batch.column("p")[0].as_py() == "p0":
                yield batch
            elif does == "dies":
                os._exit(1)
            elif does == "raises":
                raise RuntimeError("out of ideas")
            elif does == "loses":
                yield batch.slice(1)
            elif does == "doubles":
                yield batch.slice(0, 1)
                yield pa.RecordBatch.from_arrays(batch.columns, schema=batch.schema)
            else:  # another row in the place of one
                yield batch.slice(1)
                yield batch.slice(1, 1)


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("dies", "crashed"),
        ("raises", "out of ideas"),
        ("loses", "'adversary' returned other rows than it received: 4,499 instead of 4,500"),
        ("doubles", "4,501 instead of 4,500"),
        ("exchanges", "as many, with checksum"),
    ],
)
def test_a_group_that_fails_is_told_and_left_alone_and_the_others_commit(spark, table, location, does, said):
    before, files = _rows(location), {file.file_path for file in _files(location)}
    plan = _plan(table, strategy=Strategy("adversary", (("does", does),)))
    report = execute(spark, table, plan, plan_id="plan", checksum=True, strategies={"adversary": Adversary})
    outcomes = {group.partition: group.outcome for group in report.groups}
    assert outcomes == {("p0",): "committed", ("p1",): "failed"}
    (failed,) = (group for group in report.groups if group.outcome == "failed")
    assert said in failed.why
    assert "\n" not in report.line()
    assert _rows(location) == before
    left = {file.file_path for file in _files(location) if file.partition[0] == "p1"}
    assert left == {path for path in files if "p=p1" in path}
    if does != "dies":
        assert {str(path) for path in Path(location, "data/p=p1").glob("*.parquet")} == left


class Meddler:
    """Another writer, who takes a file of one group while it is rewritten."""

    def __init__(self, location, taken):
        self.location, self.taken = location, taken

    def rewrite(self, group):
        if any(each.path == self.taken for each in group._job.inputs):
            other = open_table(self.location)
            other.commit([Replace(frozenset([self.taken]), (_again(other, self.taken),))])
        return group.read()


def _again(table, path):
    """Return the entry of a file that holds the same rows under another name."""
    copy = path.replace(".parquet", "-copy.parquet")
    Path(copy).write_bytes(Path(path).read_bytes())
    for manifest in table.head.manifests:
        for entry in table.head.manifest_files.entries(manifest):
            if entry.data_file.file_path == path:
                made = deepcopy(entry.data_file)
                made[1], made.spec_id = copy, 0
                return made
    raise AssertionError(path)


def test_a_group_whose_input_another_commit_took_meanwhile_is_dropped_and_the_others_commit(
    spark, table, location
):
    before = _rows(location)
    plan = _plan(table, strategy=Strategy("meddler"))
    taken = plan.groups[0].inputs[0]
    report = execute(
        spark, table, plan, plan_id="plan", strategies={"meddler": lambda _: Meddler(location, taken)}
    )
    assert [group.outcome for group in report.groups] == ["dropped", "committed"]
    assert taken in report.groups[0].why
    assert _rows(location) == before


def test_a_group_whose_input_is_gone_is_dropped_before_any_work(spark, table, location):
    plan = _plan(table)
    execute(spark, table, replace(plan, groups=plan.groups[:1]), plan_id="first")
    version = table.head.number
    report = execute(spark, table, plan, plan_id="second")
    assert [group.outcome for group in report.groups] == ["dropped", "committed"]
    again = execute(spark, table, plan, plan_id="third")
    assert (again.version, table.head.number) == (None, version + 1)


def test_what_there_is_not_is_refused_before_any_work_and_names_the_nearest(spark, table):
    version = table.head.number
    plan = _plan(table, sort_by=["kee"])
    with pytest.raises(ValueError, match="unknown sort column 'kee'; did you mean 'key'"):
        execute(spark, table, plan, plan_id="plan")
    with pytest.raises(ValueError, match="unknown clustering strategy 'zorders'; did you mean 'zorder'"):
        execute(spark, table, _plan(table, strategy=Strategy("zorders")), plan_id="plan")
    with pytest.raises(ValueError, match="takes no parameters"):
        execute(spark, table, _plan(table, strategy="bin_pack", parameters={"a": "b"}), plan_id="plan")
    assert table.refresh().number == version


def test_a_group_that_is_alone_is_shared_by_the_cores_and_sorted_as_a_whole(spark, table, location):
    before = _rows(location)
    cut = {"target_file_bytes": "16KiB", "small_file_bytes": "1KiB"}
    plan = _plan(table, sort_by=["key"], **cut)
    alone = replace(plan, groups=plan.groups[:1])
    report = execute(spark, table, alone, plan_id="plan", checksum=True)
    (group,) = report.groups
    assert (group.outcome, group.tasks) == ("committed", 2)
    assert group.output_files == plan.groups[0].output_files
    partition = plan.groups[0].partition[0]
    assert all(high <= low for (_, high), (low, _) in pairwise(_ranges(_files(location))[partition]))
    assert _rows(location) == before


class DiesInOneRange(Sort):
    """Sorts, but for the task that has the second range."""

    def rewrite(self, group):
        if group._job.part == 1:
            raise RuntimeError("out of ideas")
        return super().rewrite(group)


def test_a_group_whose_one_task_fails_is_left_alone_and_what_the_other_wrote_is_deleted(
    spark, table, location
):
    before = {file.file_path for file in _files(location)}
    cut = {"target_file_bytes": "16KiB", "small_file_bytes": "1KiB"}
    plan = _plan(table, strategy=Strategy("dies"), sort_by=["key"], **cut)
    alone = replace(plan, groups=plan.groups[:1])
    report = execute(spark, table, alone, plan_id="plan", strategies={"dies": lambda _: DiesInOneRange()})
    assert [group.outcome for group in report.groups] == ["failed"]
    assert "out of ideas" in report.groups[0].why
    assert {str(path) for path in Path(location, "data").rglob("*.parquet")} == before


def test_with_more_commits_a_group_is_readable_while_others_are_still_to_be_rewritten(spark, table, location):
    """And it stays, when the pass is then called off."""
    before, version = _rows(location), table.head.number
    plan, asked = _plan(table, sort_by=["key"]), []

    def is_wanted():
        asked.append(table.head.number)
        return asked[-1] <= version + 1  # the sort order's version; then the first group's

    report = execute(spark, table, plan, plan_id="plan", max_commits=2, is_wanted=is_wanted)
    assert [group.outcome for group in report.groups] == ["committed", "dropped"]
    assert "cancelled" in report.groups[1].why
    assert report.version == table.head.number == version + 2
    assert _rows(location) == before

    again = execute(spark, table, plan, plan_id="plan", max_commits=2)
    assert [group.outcome for group in again.groups] == ["dropped", "committed"]
    assert "an input is not live" in again.groups[0].why
    assert _rows(location) == before


def test_many_commits_are_no_more_than_groups_and_the_last_takes_what_else_there_is(spark, table):
    version = table.head.number
    report = execute(
        spark, table, _plan(table), plan_id="plan", max_commits=9, also=[SetProperties({"told": "yes"})]
    )
    assert report.version == table.head.number == version + 2
    assert table.head.properties["told"] == "yes"
    earlier = json.loads(table.store.read(version_path(report.version - 1)).data)
    assert "told" not in earlier["properties"]


def test_further_changes_go_into_the_same_version(spark, table):
    report = execute(spark, table, _plan(table), plan_id="plan", also=[SetProperties({"told": "yes"})])
    assert table.head.number == report.version
    assert table.head.properties["told"] == "yes"
