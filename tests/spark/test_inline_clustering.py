"""Clustering from plan to REPLACE: by a user, by the stream itself, by two at once; no row lost."""

from __future__ import annotations

import logging
import os
import pickle
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.types import LongType, NestedField, StringType

from planners.model import InsertPlan
from streaming_sink import Clustering, FileSizing, IcebergSink, clustering
from streaming_sink.clustering.execution import take_over
from streaming_sink.clustering.options import execution_of
from streaming_sink.commands.cli import DONE, main
from streaming_sink.reports.cluster_report import PLAN_ID
from streaming_sink.table.data_files import data_file
from streaming_sink.table.spec import partition_spec
from streaming_sink.tasks.job import FileIds
from streaming_sink.tasks.rows.write_task import TaskWriter
from streaming_sink.upkeep.maintenance import Clusterer
from streaming_sink.writing.writer import worker_job
from tests.reports import said
from tests.sinks import flat_sink
from tests.spark.streams import (
    SMALL,
    add_files,
    calling_as,
    drain,
    forget_last_commit,
    head_of,
    ids_of,
    metadata_file,
    source_ids,
    source_rows,
)
from timeline import names
from timeline.changes.changes import Append
from timeline.clock import Environment
from timeline.plans.claims import Watch
from timeline.plans.instants import State, claim_plan
from timeline.stores import open_store
from timeline.table import Table, open_table
from timeline.versions.pending import pending_plans

pytestmark = pytest.mark.spark

SIZES = {"target_file_bytes": "1MiB", "small_file_bytes": "64KiB"}
BY_TEXT = {"sort_by": ["text"], **SIZES}


@pytest.fixture
def unclustered(location):
    """The location of a table of four files, each with keys from all over. Made without Spark: quicker."""
    return _made(location)


def _made(location, partition_by=()):
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "p", StringType()),
        NestedField(3, "text", StringType()),
    )
    table = Table.create(open_store(location), schema, partition_spec(partition_by, schema))
    for number in range(4):
        plan = InsertPlan((), (), 10, 10**6, 1 << 30)
        ids = FileIds(1 + number, "made", number)
        job = worker_job(table.store, table.head, plan, None, ids)
        writer = TaskWriter(job, 0, 0)
        writer.write(pa.Table.from_pydict(source_rows(number)).to_batches()[0])
        table.commit([Append(tuple(data_file(file, table.head.spec) for file in writer.finish()))])
    return location


def _replaces(location):
    """Return the ids of the plans whose REPLACE the table remembers."""
    snapshots = StaticTable.from_metadata(metadata_file(location)).metadata.snapshots
    found = [snapshot.summary.additional_properties.get(PLAN_ID) for snapshot in snapshots]
    return [plan_id for plan_id in found if plan_id is not None]


def _files(location):
    return [task.file for task in StaticTable.from_metadata(metadata_file(location)).scan().plan_files()]


def _ids_by_duckdb(location):
    paths = [file.file_path for file in _files(location)]
    with duckdb.connect() as connection:
        found = connection.execute("SELECT id FROM read_parquet($1) ORDER BY id", [paths]).fetchall()
    return [each for (each,) in found]


def test_a_plan_is_saved_carried_out_and_completed_and_the_rows_are_the_same(spark, unclustered):
    scheduled = clustering.schedule(unclustered, **BY_TEXT)
    plan_id = scheduled.plan_id
    assert Path(unclustered, names.requested_path(plan_id)).exists()
    assert [it.state for it in clustering.show(unclustered)] == [State.REQUESTED]

    report = clustering.execute(spark, unclustered, plan_id, checksum=True)
    assert [group.outcome for group in report.groups] == ["committed"]
    assert _replaces(unclustered) == [plan_id]
    assert [it.state for it in clustering.show(unclustered)] == [State.COMPLETED]
    assert not pending_plans(head_of(unclustered).properties)
    assert ids_of(unclustered) == source_ids(4)
    assert _ids_by_duckdb(unclustered) == list(range(400))
    assert clustering.execute(spark, unclustered, plan_id) is None, "it is completed"
    with pytest.raises(
        ValueError, match="not the id of a plan; `streaming-sink plans` lists those that wait: 'x'"
    ):
        clustering.execute(spark, unclustered, "x")


@pytest.mark.parametrize("strategy", ["sort", "zorder"])
def test_a_second_pass_finds_its_own_work_and_plans_nothing(spark, unclustered, strategy):
    options = {**BY_TEXT, "sort_by": ["text", "id"], "strategy": strategy}
    assert clustering.schedule_and_execute(spark, unclustered, **options).version
    version = head_of(unclustered).number
    again = clustering.schedule_and_execute(spark, unclustered, **options)
    assert (again.outcome, again.version, again.groups) == ("nothing", None, ())
    assert "waits" in again.why
    assert head_of(unclustered).number == version
    assert "waits" in clustering.plan(unclustered, **options).left_out[0].reason
    other = clustering.plan(unclustered, **{**options, "sort_by": ["id", "text"]})
    assert other.groups[0].reasons[0] == "1 file not in this order"


def test_a_pass_reads_no_more_than_it_may_and_the_rest_waits_for_the_next(spark, location):
    _made(location, ["p"])
    all_bytes = clustering.plan(location, **BY_TEXT).bytes
    half = all_bytes // 2
    sizes = {"target_file_bytes": half, "small_file_bytes": half - 1, "max_bytes_per_pass": all_bytes - 1}
    options = {**BY_TEXT, **sizes}
    plan = clustering.plan(location, **options)
    assert (len(plan.groups), len(plan.left_out)) == (2, 4)
    assert plan.left_out[0].reason == f"beyond the {all_bytes - 1:,} bytes of a pass, left for the next"
    assert len(clustering.schedule_and_execute(spark, location, **options).committed) == 2
    assert len(clustering.schedule_and_execute(spark, location, **options).committed) == 1
    assert clustering.plan(location, **options).groups == ()
    assert ids_of(location) == source_ids(4)


def test_a_cancelled_plan_frees_its_files_and_is_not_carried_out(spark, unclustered):
    plan_id = clustering.schedule(unclustered, **BY_TEXT).plan_id
    assert clustering.schedule(unclustered, **BY_TEXT) is None, "all files are reserved"
    assert clustering.cancel(unclustered, plan_id)
    assert clustering.execute(spark, unclustered, plan_id) is None
    assert [it.state for it in clustering.show(unclustered)] == [State.CANCELLED]
    assert clustering.plan(unclustered, **BY_TEXT).groups
    assert not clustering.cancel(unclustered, plan_id)


def test_two_clusterers_at_once_replace_each_file_once(spark, unclustered):
    def cluster(_):
        return clustering.schedule_and_execute(spark, unclustered, **BY_TEXT)

    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(cluster, range(2)))
    assert sum(len(report.committed) for report in reports) == 1
    assert not pending_plans(head_of(unclustered).properties)
    assert ids_of(unclustered) == source_ids(4)


def test_the_stream_clusters_after_every_second_commit_over_restarts_and_fills(
    spark, tmp_path, location, checkpoint
):
    inline = Clustering(every_commits=2, **BY_TEXT)
    options = {"sizing": SMALL, "fill_policy": "always", "clustering": inline}
    ran = []
    for upto in (3, 5):  # a restart in the middle of a count
        add_files(tmp_path / "source", range(upto))
        sink = flat_sink(location, partition_by=["p"], **options)
        drain(spark, tmp_path / "source", pickle.loads(pickle.dumps(sink)), checkpoint)
        ran.append(len(_replaces(location)))
    assert ran == [1, 2], "after commits 2 and 4"
    assert ids_of(location) == source_ids(5)
    assert _ids_by_duckdb(location) == list(range(500))
    sorted_files = [file for file in _files(location) if names.clustering_of(file.file_path)]
    assert {file.sort_order_id for file in sorted_files} == {1}
    assert len(sorted_files) == 6, "one for each pass and partition, which no fill has taken"


def test_a_batch_tells_what_its_pass_did_and_how_long_it_took(spark, tmp_path, location, checkpoint):
    add_files(tmp_path / "source", range(2))
    sink = IcebergSink(
        location, clustering=Clustering(every_commits=2, **BY_TEXT), sizing=FileSizing(fill="never")
    )
    drain(spark, tmp_path / "source", sink, checkpoint)
    first, second = sink.reports
    assert (first.maintenance, "cluster" in first.milliseconds) == ((), False)
    assert "1 of 1 group, 2 files -> 1, 200 rows" in said(second.maintenance)
    assert said(second.maintenance) in second.line()
    assert second.milliseconds["cluster"] > 0
    assert second.version == head_of(location).number - 3, (
        "announced, its sort order, and the REPLACE after it"
    )


class Slow:
    """A user's own strategy that takes its time."""

    def __init__(self, _parameters):
        pass

    def rewrite(self, group):
        time.sleep(1)
        return group.read()


class Broken:
    """A user's own strategy that does not work."""

    def __init__(self, _parameters):
        pass

    def rewrite(self, group):
        for batch in group.read():
            yield batch.slice(1)


def test_a_pass_that_fails_is_told_and_the_stream_goes_on(spark, tmp_path, location, checkpoint):
    add_files(tmp_path / "source", range(3))
    broken = Clustering(every_commits=1, strategy="broken", strategies={"broken": Broken})
    sink = IcebergSink(location, clustering=broken, sizing=FileSizing(fill="never"))
    drain(spark, tmp_path / "source", sink, checkpoint)
    assert [report.outcome for report in sink.reports] == ["committed"] * 3
    assert all("returned other rows than it received" in said(report.maintenance) for report in sink.reports)
    assert ids_of(location) == source_ids(3)
    assert not pending_plans(head_of(location).properties)


class Dies:
    """A user's own strategy that takes its worker down with it, in one partition."""

    def __init__(self, _parameters):
        pass

    def rewrite(self, group):
        for batch in group.read():
            yield batch.slice(0, 1)
            if batch.column("p")[0].as_py() == "p1":
                os._exit(1)
            yield batch.slice(1)


def test_a_group_whose_worker_died_is_told_and_planned_again_and_the_others_commit(spark, location):
    _made(location, ["p"])
    dies = {"strategy": "dies", "strategies": {"dies": Dies}, **SIZES}
    first = clustering.plan(location, **dies)
    report = clustering.schedule_and_execute(spark, location, **dies)
    outcomes = {group.partition: group.outcome for group in report.groups}
    assert outcomes == {("p=p0",): "committed", ("p=p1",): "failed", ("p=p2",): "committed"}
    assert "failed: its task failed, nothing of it is published: " in report.line()
    (again,) = clustering.plan(location, **dies).groups
    assert again in first.groups
    assert again.partition == ("p=p1",)
    assert clustering.schedule_and_execute(spark, location, **BY_TEXT).committed
    assert ids_of(location) == source_ids(4)


def test_a_pass_that_raises_is_told_and_its_files_are_free_again(
    spark, tmp_path, location, checkpoint, monkeypatch, caplog
):
    def no_cluster(*_arguments, **_options):
        raise RuntimeError("no executors left")

    monkeypatch.setattr("streaming_sink.clustering.execution.execute_groups", no_cluster)
    add_files(tmp_path / "source", range(2))
    sink = IcebergSink(
        location, clustering=Clustering(every_commits=1, **BY_TEXT), sizing=FileSizing(fill="never")
    )
    with caplog.at_level(logging.WARNING, "streaming_sink"):
        drain(spark, tmp_path / "source", sink, checkpoint)
    failed = "clustering failed, and is tried again when it is due: RuntimeError: no executors left"
    assert [said(report.maintenance) for report in sink.reports] == [failed, failed]
    assert failed in caplog.messages
    assert ids_of(location) == source_ids(2)
    assert not pending_plans(head_of(location).properties)


def test_a_pass_that_a_crash_cut_off_is_made_by_the_replay_of_its_batch(
    spark, tmp_path, location, checkpoint, monkeypatch
):
    add_files(tmp_path / "source", range(2))
    sink = IcebergSink(
        location, clustering=Clustering(every_commits=2, **BY_TEXT), sizing=FileSizing(fill="never")
    )
    with monkeypatch.context() as crashed:
        crashed.setattr(Clusterer, "after_commit", lambda *_: [])
        drain(spark, tmp_path / "source", sink, checkpoint)
    assert _replaces(location) == []
    forget_last_commit(checkpoint)
    again = pickle.loads(pickle.dumps(sink))
    drain(spark, tmp_path / "source", again, checkpoint)
    (skipped,) = again.reports
    assert skipped.outcome == "skipped"
    assert "2 files -> 1" in said(skipped.maintenance)
    assert ids_of(location) == source_ids(2)


@pytest.mark.parametrize("run", ["inline", "beside"])
def test_a_batch_that_sees_too_many_small_files_clusters_though_it_is_not_due(
    spark, tmp_path, location, checkpoint, run
):
    add_files(tmp_path / "source", range(4))
    clustered = Clustering(run=run, every_commits=1000, when_small_files=2, **BY_TEXT)
    sink = IcebergSink(location, clustering=clustered, sizing=FileSizing(fill="never"))
    drain(spark, tmp_path / "source", sink, checkpoint)
    told = [said(report.maintenance) for report in sink.reports]
    assert told[:2] == ["", ""]
    assert told[2].startswith("3 small files in the table, more than when_small_files=2, so now: clustering ")
    assert "1 of 1 group, 3 files -> 1" in told[2]
    assert told[3] == ""
    assert [report.small_files for report in sink.reports] == [1, 2, 1, 2]
    assert ids_of(location) == source_ids(4)


def test_small_files_that_pass_the_bound_are_a_warning_in_the_report_and_in_the_log(
    spark, tmp_path, location, checkpoint, caplog
):
    add_files(tmp_path / "source", range(3))
    sink = IcebergSink(location, partition_by=["p"], sizing=FileSizing(fill="never", warn_small_files=2))
    with caplog.at_level(logging.WARNING, "streaming_sink"):
        drain(spark, tmp_path / "source", sink, checkpoint)
    *before, last = sink.reports
    assert [report.warning for report in before] == ["", ""]
    assert last.warning.startswith("3 small files in p=p")
    assert "more than warn_small_files=2, and a query opens each: nothing merges them" in last.warning
    assert [each for each in caplog.messages if "small files" in each] == [last.line()]
    assert last.warning in last.line()


@pytest.mark.parametrize(
    ("options", "partition_by", "said"),
    [
        ({"sort_by": ["txet"]}, [], "unknown sort column 'txet'; did you mean 'text'?"),
        ({"sort_by": ["tags"]}, [], "column 'tags' has no order to sort by"),
        ({"where": "txet=a"}, ["text", "id"], "unknown partition field 'txet'; did you mean 'text'?"),
        ({"where": "text=a"}, [], "the table is not partitioned, so there is nothing to choose by: text=a"),
    ],
    ids=["unknown", "no order", "unknown field", "no partitions"],
)
def test_what_cannot_be_clustered_by_ends_the_stream_before_anything_is_written(
    spark, location, options, partition_by, said
):
    sink = IcebergSink(location, partition_by=partition_by, clustering=Clustering(**options))
    batch = spark.createDataFrame([(1, "a", ["b"])], "id bigint, text string, tags array<string>")
    with calling_as(spark, "query", "run"), pytest.raises(ValueError, match=re.escape(said)):
        sink(batch, 0)
    assert metadata_file(location) is None


def test_a_stream_that_only_schedules_leaves_the_files_to_a_job_elsewhere(
    spark, tmp_path, location, checkpoint
):
    add_files(tmp_path / "source", range(2))
    inline = Clustering(run="elsewhere", every_commits=2, **BY_TEXT)
    options = {"clustering": inline, "sizing": SMALL, "fill_policy": "always"}
    drain(spark, tmp_path / "source", flat_sink(location, **options), checkpoint)
    (pending,) = pending_plans(head_of(location).properties)
    planned = {file.file_path for file in _files(location)}
    add_files(tmp_path / "source", range(3))
    drain(spark, tmp_path / "source", flat_sink(location, **options), checkpoint)
    assert planned <= {file.file_path for file in _files(location)}, "fills leave reserved files alone"
    assert clustering.execute(spark, location, pending.plan_id).committed
    assert ids_of(location) == source_ids(3)


def test_a_pass_beside_the_stream_loses_no_row_and_is_told_by_a_later_batch(
    spark, tmp_path, location, checkpoint
):
    add_files(tmp_path / "source", range(2))
    beside = Clustering(run="beside", every_commits=2, **BY_TEXT)
    sink = IcebergSink(
        location, clustering=beside, sizing=replace(SMALL, fill="inline", fill_policy="always")
    )
    drain(spark, tmp_path / "source", sink, checkpoint)
    assert said(sink.reports[-1].maintenance) == "clustering: started beside the stream"
    sink._landing._maintenance._clusterer._passes.wait(60)
    add_files(tmp_path / "source", range(3))
    drain(spark, tmp_path / "source", sink, checkpoint)
    assert "1 of 1 group" in said(sink.reports[-1].maintenance)
    assert sink.finish() == (), "it was told already"
    assert len(_replaces(location)) == 1
    assert ids_of(location) == source_ids(3)


def test_the_end_of_a_job_waits_for_the_pass_beside_the_stream(spark, tmp_path, location, checkpoint):
    add_files(tmp_path / "source", range(2))
    beside = Clustering(run="beside", every_commits=2, **BY_TEXT)
    sink = IcebergSink(
        location, clustering=beside, sizing=replace(SMALL, fill="inline", fill_policy="always")
    )
    assert sink.finish() == ()
    drain(spark, tmp_path / "source", sink, checkpoint)
    assert "1 of 1 group" in said(sink.finish(120))
    assert len(_replaces(location)) == 1
    assert ids_of(location) == source_ids(2)


def test_a_plan_whose_executor_died_is_taken_over_once_it_has_been_silent_for_long(spark, unclustered):
    now = [0.0]
    watch = Watch(Environment(monotonic=lambda: now[0]))
    table = open_table(unclustered)
    plan_id = clustering.schedule(unclustered, **BY_TEXT).plan_id
    assert claim_plan(open_table(unclustered), plan_id), "and then its executor dies"
    for seconds, taken in ((0, 0), (299, 0), (301, 1)):
        now[0] = seconds
        table.refresh()
        assert len(take_over(spark, table, execution_of(), watch)) == taken
    assert _replaces(unclustered) == [plan_id]
    assert ids_of(unclustered) == source_ids(4)


def test_the_command_line_takes_over_a_claimed_plan_once_its_executor_was_silent_for_long(
    spark, unclustered, monkeypatch, capsys
):
    now = [0.0]

    def sleep(seconds):
        now[0] += seconds

    clock = Environment(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr("streaming_sink.commands.clustering_pass.SYSTEM", clock)
    plan_id = clustering.schedule(unclustered, **BY_TEXT).plan_id
    assert claim_plan(open_table(unclustered), plan_id), "and then its executor dies"
    assert main(["cluster", unclustered, "--pending", "--wait", "10 minutes"]) == DONE
    assert "1 of 1 group, 4 files -> 1, 400 rows" in capsys.readouterr().out
    assert 300 <= now[0] < 600, "and it does not wait for longer than it must"
    assert _replaces(unclustered) == [plan_id]
    assert ids_of(unclustered) == source_ids(4)


class Backwards:
    """A strategy of one's own, which the first executor was not told of."""

    def __init__(self, parameters):
        self.parameters = parameters

    def rewrite(self, group):
        return group.read()


def test_a_plan_that_an_executor_cannot_carry_out_is_left_to_one_that_can(spark, unclustered):
    """It is not claimed: nobody has to wait until its executor is given up."""
    own = {"strategy": "backwards", "strategies": {"backwards": Backwards}}
    scheduled = clustering.schedule(unclustered, **own, **SIZES)
    with pytest.raises(ValueError, match="unknown clustering strategy 'backwards'"):
        clustering.execute(spark, unclustered, scheduled.plan_id)
    assert [it.state for it in clustering.show(unclustered)] == [State.REQUESTED]
    report = clustering.execute(spark, unclustered, scheduled.plan_id, strategies={"backwards": Backwards})
    assert report.committed


def test_a_plan_whose_executor_fails_is_free_at_once(spark, unclustered, monkeypatch):
    scheduled = clustering.schedule(unclustered, **BY_TEXT)
    with monkeypatch.context() as broken:
        broken.setattr("streaming_sink.clustering.execution.rewrite_groups", None)
        with pytest.raises(TypeError):
            clustering.execute(spark, unclustered, scheduled.plan_id)
    assert [it.state for it in clustering.show(unclustered)] == [State.REQUESTED]
    assert clustering.execute(spark, unclustered, scheduled.plan_id).committed


def test_a_plan_that_was_cancelled_while_it_ran_changes_nothing(spark, unclustered, monkeypatch):
    monkeypatch.setattr("streaming_sink.clustering.execution.BEAT_SECONDS", 0.01)
    plan_id = clustering.schedule(unclustered, strategy="slow", strategies={"slow": Slow}, **SIZES).plan_id
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(clustering.execute, spark, unclustered, plan_id, strategies={"slow": Slow})
        while not Path(unclustered, names.inflight_path(plan_id, 1)).exists():
            time.sleep(0.01)
        assert clustering.cancel(unclustered, plan_id)
        report = running.result(60)
    assert [group.outcome for group in report.groups] == ["dropped"]
    assert "the plan was cancelled" in report.groups[0].why
    assert _replaces(unclustered) == []


def test_the_strategy_of_the_documentation_runs(spark, location):
    text = (Path(__file__).parents[2] / "docs" / "clustering.md").read_text()
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "ByDomain" in block]
    users = spark.createDataFrame([("b@x",), ("a@y",), ("c@x",), (None,)], "email string")
    for number in range(2):
        IcebergSink(location, app_id=f"app{number}", sizing=FileSizing(fill="never"))(users, 0)
    names_here = {"__name__": "__main__", "spark": spark}
    exec(code.replace('"/lake/users"', repr(location)), names_here)
    (file,) = _files(location)
    emails = pq.read_table(file.file_path)["email"].to_pylist()
    assert emails == ["b@x", "b@x", "c@x", "c@x", "a@y", "a@y", None, None]


def test_the_command_line_carries_out_what_was_scheduled_and_what_it_plans_itself(spark, unclustered, capsys):
    sizes = ["--target-file-bytes", "1MiB", "--small-file-bytes", "64KiB"]
    arguments = ["cluster", unclustered, "--sort-by", "text", "--checksum", *sizes]
    assert main([*arguments, "--schedule-only"]) == DONE
    assert main(["cluster", unclustered, "--pending"]) == DONE
    assert "1 of 1 group, 4 files -> 1, 400 rows" in capsys.readouterr().out
    assert main([*arguments, "--strategy", "hilbert"]) == DONE
    assert "1 of 1 group, 1 file -> 1, 400 rows" in capsys.readouterr().out
    assert main([*arguments, "--strategy", "hilbert"]) == DONE
    assert capsys.readouterr().out.startswith("nothing to do: 1 file: ")
    assert spark.range(1).count() == 1, "the session goes on"
    assert ids_of(unclustered) == source_ids(4)
