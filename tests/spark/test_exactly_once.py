"""Every row once, whatever is stopped, restarted, replayed or started beside it (R16). pyiceberg counts."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable
from pyspark.errors import StreamingQueryException

from streaming_sink import FileSizing, IcebergSink
from streaming_sink.errors import CheckpointRegressionError, FencedError
from tests.sinks import flat_sink
from tests.spark.streams import (
    ROWS,
    SMALL,
    add_files,
    calling_as,
    count_marks,
    drain,
    forget_last_commit,
    head_of,
    ids_of,
    jobs_of,
    marked,
    metadata_file,
    source_ids,
    start,
)

pytestmark = pytest.mark.spark


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    add_files(folder, range(3))
    return folder


def _batch(spark, number):
    return spark.range(number * 10, (number + 1) * 10, 1, 1)


def _ids(*numbers):
    return Counter(each for number in numbers for each in range(number * 10, (number + 1) * 10))


def _sink(location, **options):
    return flat_sink(location, app_id="app", **options)


# ------------------------------------------------------------------------------- with real queries


def test_a_stream_lands_and_goes_on_where_it_stopped_with_the_same_sink_and_with_a_new_one(
    spark, source, location, checkpoint
):
    sink = IcebergSink(location, partition_by=["p"], sizing=SMALL)
    drain(spark, source, sink, checkpoint)
    assert ids_of(location) == source_ids(3)
    add_files(source, [3, 4])
    drain(spark, source, sink, checkpoint)
    assert ids_of(location) == source_ids(5)
    add_files(source, [5])
    drain(spark, source, IcebergSink(location, partition_by=["p"], sizing=SMALL), checkpoint)
    assert ids_of(location) == source_ids(6)


def test_a_committed_batch_that_spark_replays_is_skipped_without_a_job_and_its_hint_is_mended(
    spark, source, location, checkpoint
):
    drain(spark, source, IcebergSink(location), checkpoint)
    version = head_of(location).number
    hint = Path(location, "metadata", "version-hint.text")
    for sink in (IcebergSink(location), IcebergSink(location)):
        forget_last_commit(checkpoint)
        hint.unlink()
        query = drain(spark, source, sink, checkpoint)
        assert [report.outcome for report in sink.reports] == ["skipped"]
        assert jobs_of(spark, str(query.runId)) == 0
        assert head_of(location).number == version
        assert hint.read_bytes() == str(version).encode()
    assert ids_of(location) == source_ids(3)


def test_the_same_sink_object_skips_a_replay_and_then_goes_on(spark, source, location, checkpoint):
    sink = IcebergSink(location)
    drain(spark, source, sink, checkpoint)
    forget_last_commit(checkpoint)
    add_files(source, [3])
    drain(spark, source, sink, checkpoint)
    assert [(each.batch_id, each.outcome) for each in sink.reports[-2:]] == [(2, "skipped"), (3, "committed")]
    assert ids_of(location) == source_ids(4)


@pytest.mark.parametrize("number", [5, 0, 9], ids=["equal", "lower", "higher"])
def test_a_fresh_checkpoint_under_a_used_name_is_refused_whatever_its_batch_number(spark, location, number):
    with calling_as(spark, "old-query", "old-run"):
        _sink(location)(_batch(spark, 5), 5)
    before = ids_of(location)
    with calling_as(spark, "new-query", "new-run"), pytest.raises(CheckpointRegressionError) as refusal:
        _sink(location)(_batch(spark, 9), number)
    assert "as query old-query, and this is query new-query" in str(refusal.value)
    assert "takeover_from='old-query'" in str(refusal.value)
    assert ids_of(location) == before


def test_a_deleted_checkpoint_stops_the_query_with_the_reason_and_no_row_is_doubled(
    spark, source, location, tmp_path
):
    drain(spark, source, _sink(location), str(tmp_path / "first"))
    with pytest.raises(StreamingQueryException, match="CheckpointRegressionError"):
        drain(spark, source, _sink(location), str(tmp_path / "second"))
    assert ids_of(location) == source_ids(3)


def test_takeover_lets_a_fresh_checkpoint_go_on_and_fences_the_query_that_it_replaces(
    spark, source, location, tmp_path
):
    first, sessions = _sink(location), []

    def lands(batch, number):
        sessions.append(batch.sparkSession)
        first(batch, number)

    old = drain(spark, source, lands, str(tmp_path / "first"))
    rest = tmp_path / "rest"
    add_files(rest, [3, 4])
    taker = _sink(location, takeover_from=str(old.id))
    new = drain(spark, rest, taker, str(tmp_path / "second"))
    assert ids_of(location) == source_ids(5)
    assert head_of(location).transaction("app").query_id == str(new.id)
    add_files(rest, [5])
    drain(spark, rest, taker, str(tmp_path / "second"))
    assert ids_of(location) == source_ids(6)
    with pytest.raises(FencedError, match="newer run"):
        first(_batch(sessions[0], 99), 3)
    add_files(source, [6])
    with pytest.raises(StreamingQueryException, match="CheckpointRegressionError"):
        drain(spark, source, _sink(location), str(tmp_path / "first"))
    assert ids_of(location) == source_ids(6)


def test_one_sink_object_serves_two_queries_at_once(spark, source, location, tmp_path):
    other = tmp_path / "other"
    add_files(other, [3, 4])
    sink = IcebergSink(location, sizing=SMALL)
    queries = [
        start(spark, folder, sink, str(tmp_path / name)) for folder, name in ((source, "a"), (other, "b"))
    ]
    for query in queries:
        query.awaitTermination()
    assert ids_of(location) == source_ids(5)
    assert {report.app_id for report in sink.reports} == {str(query.id) for query in queries}


def test_one_named_sink_object_in_two_queries_at_once_refuses_the_second(spark, source, location, tmp_path):
    """Under one app_id, a second checkpoint would make the batches of both ambiguous."""
    other = tmp_path / "other"
    add_files(other, [3, 4])
    sink = _sink(location)
    queries = [
        start(spark, folder, sink, str(tmp_path / name)) for folder, name in ((source, "a"), (other, "b"))
    ]
    failures = []
    for query in queries:
        try:
            query.awaitTermination()
        except StreamingQueryException as failure:
            failures.append(str(failure))
    assert len(failures) == 1
    assert "CheckpointRegressionError" in failures[0]
    assert ids_of(location) in (source_ids(3), source_ids(5) - source_ids(3))


# --------------------------------------------------------------- by calls, as Spark would make them


def test_a_newer_run_fences_an_older_one_in_another_sink(spark, location):
    old, new = _sink(location), _sink(location)
    with calling_as(spark, "query", "run-1"):
        old(_batch(spark, 0), 0)
    with calling_as(spark, "query", "run-2"):
        new(_batch(spark, 1), 1)
    with calling_as(spark, "query", "run-1"), pytest.raises(FencedError) as refusal:
        old(_batch(spark, 2), 2)
    assert "run run-2 has epoch 2, this run run-1 had epoch 1" in str(refusal.value)
    assert ids_of(location) == _ids(0, 1)


def test_a_zombie_of_an_older_run_is_fenced_also_in_the_same_sink_object(spark, location):
    sink = _sink(location)
    for number, run in enumerate(["run-1", "run-2"]):
        with calling_as(spark, "query", run):
            sink(_batch(spark, number), number)
    with calling_as(spark, "query", "run-1"), pytest.raises(FencedError):
        sink(_batch(spark, 2), 2)
    with calling_as(spark, "query", "run-2"):
        sink(_batch(spark, 2), 2)
    assert ids_of(location) == _ids(0, 1, 2)


def test_the_zombie_of_a_batch_that_the_newer_run_committed_is_skipped(spark, location):
    old, new = _sink(location), _sink(location)
    with calling_as(spark, "query", "run-1"):
        old(_batch(spark, 0), 0)
    with calling_as(spark, "query", "run-2"):
        new(_batch(spark, 1), 1)
    with calling_as(spark, "query", "run-1"):
        old(_batch(spark, 1), 1)
    assert old.reports[-1].outcome == "skipped"
    assert ids_of(location) == _ids(0, 1)


def test_restarts_never_fence_themselves(spark, location):
    kept = _sink(location)
    for number in range(6):
        sink = kept if number % 2 else _sink(location)
        with calling_as(spark, "query", f"run-{number}"):
            sink(_batch(spark, number), number)
            assert head_of(location).transaction("app").epoch == number + 1
    assert ids_of(location) == _ids(*range(6))


def test_an_older_checkpoint_is_refused(spark, location):
    with calling_as(spark, "query", "run-1"):
        _sink(location)(_batch(spark, 5), 5)
    with (
        calling_as(spark, "query", "run-2"),
        pytest.raises(CheckpointRegressionError, match="has committed batch 5, and this is batch 4"),
    ):
        _sink(location)(_batch(spark, 4), 4)


def test_two_dataframes_given_to_one_sink_are_an_error_that_names_distinct_app_ids(spark, location):
    sink = IcebergSink(location)
    with calling_as(spark, "query", "run"):
        sink(_batch(spark, 0), 0)
        with pytest.raises(
            ValueError,
            match=r"given to the table twice by one run.*of distinct names.*app_id=\"query-2\"",
        ):
            sink(_batch(spark, 1), 0)
    assert ids_of(location) == _ids(0)


def test_two_sinks_under_one_name_for_one_table_are_the_same_error_and_not_a_silent_skip(spark, location):
    """Both go by the query's id, so the second one's rows would pass for a replay; after a restart too, where
    the first one's rows are one. The advice of the error lands all of them, each once.
    """
    for run in ("run-1", "run-2"):
        orders, refunds = IcebergSink(location), IcebergSink(location)
        with calling_as(spark, "query", run):
            orders(_batch(spark, 0), 0)
            with pytest.raises(ValueError, match=r"of distinct names.*app_id=\"query-2\""):
                refunds(_batch(spark, 1), 0)
        assert ids_of(location) == _ids(0)
    with calling_as(spark, "query", "run-3"):
        IcebergSink(location)(_batch(spark, 0), 0)
        IcebergSink(location, app_id="query-2")(_batch(spark, 1), 0)
    assert ids_of(location) == _ids(0, 1)


@pytest.mark.parametrize("second_knows_the_table", [False, True])
def test_a_second_sink_of_one_name_is_told_by_the_table_where_the_first_one_s_answer_was_lost(
    spark, location, monkeypatch, second_knows_the_table
):
    """The first call failed and the user's function caught that, so this process remembers no batch: only the
    table knows that its rows are in.
    """
    orders, refunds = _sink(location), _sink(location)
    with calling_as(spark, "query", "run"):
        (refunds if second_knows_the_table else orders)(_batch(spark, 0), 0)
        with monkeypatch.context() as broken:
            broken.setattr("timeline.table.publish_version", _fails_after_publishing())
            with pytest.raises(ConnectionResetError):
                orders(_batch(spark, 1), 1)
        with pytest.raises(ValueError, match="of distinct names"):
            refunds(_batch(spark, 2), 1)
    assert ids_of(location) == _ids(0, 1)


def test_a_backfill_under_the_name_of_a_stream_is_refused_and_the_other_way_round(spark, location):
    """Their numbers mean different rows: an equal one was skipped, and its rows lost in silence."""
    backfill = IcebergSink(location, app_id="events")
    with calling_as(spark, "query", "run"):
        IcebergSink(location, app_id="events")(_batch(spark, 0), 0)
    for number in (0, 1):
        with pytest.raises(CheckpointRegressionError, match=r"this is query outside-a-query.*another app_id"):
            backfill(_batch(spark, 1), number)
    IcebergSink(location, app_id="backfill")(_batch(spark, 1), 0)
    with calling_as(spark, "query", "run"), pytest.raises(CheckpointRegressionError, match="outside-a-query"):
        IcebergSink(location, app_id="backfill")(_batch(spark, 2), 0)
    IcebergSink(location, app_id="backfill")(_batch(spark, 1), 0)  # a second run of the backfill's program
    assert ids_of(location) == _ids(0, 1)
    snapshots = StaticTable.from_metadata(metadata_file(location)).snapshots()
    assert ["spark.sql.streaming.queryId" in each.summary.additional_properties for each in snapshots] == [
        True,
        False,
    ]


def test_two_dataframes_with_distinct_app_ids_both_land_and_a_half_done_replay_is_completed(spark, location):
    def land(sinks):
        for number, sink in enumerate(sinks):
            sink(_batch(spark, number), 0)

    names = ("orders", "refunds")
    with calling_as(spark, "query", "run-1"):
        land([IcebergSink(location, app_id=names[0])])  # and a crash before the second
    with calling_as(spark, "query", "run-2"):
        land([IcebergSink(location, app_id=name) for name in names])
    assert ids_of(location) == _ids(0, 1)


def test_a_call_after_a_failed_one_commits_the_batch_once(spark, location, monkeypatch):
    """A foreachBatch function may catch an error and try again in the same run."""
    sink = _sink(location)
    with calling_as(spark, "query", "run"):
        sink(_batch(spark, 0), 0)
        with monkeypatch.context() as broken:
            broken.setattr("timeline.table.publish_version", _fails_after_publishing())
            with pytest.raises(ConnectionResetError):
                sink(_batch(spark, 1), 1)
        sink(_batch(spark, 1), 1)
        assert sink.reports[-1].outcome == "skipped"
        sink(_batch(spark, 2), 2)
    assert ids_of(location) == _ids(0, 1, 2)


def _fails_after_publishing():
    from timeline.commit.publish import publish_version

    def fails(*arguments):
        publish_version(*arguments)
        raise ConnectionResetError("the process lost its answer")

    return fails


def test_a_call_outside_a_query_needs_a_name(spark, location):
    with pytest.raises(ValueError, match=r"outside a streaming query.*app_id"):
        IcebergSink(location)(_batch(spark, 0), 0)


# ----------------------------------------------------------------------- what a batch costs in jobs


@pytest.mark.parametrize("route", ["one task", "shuffle"])
def test_a_batch_is_one_job_the_first_one_of_a_new_table_too_and_the_source_is_computed_once(
    spark, location, tmp_path, monkeypatch, route
):
    monkeypatch.setattr(
        "streaming_sink.writing.planning.ONE_TASK_SECONDS", 1e-9 if route == "shuffle" else 1e9
    )
    sink = _sink(location, partition_by=["p"], sizing=SMALL)
    jobs, marks = [], []
    with calling_as(spark, "query", f"counted-{route}"):
        for number in range(5):
            rows = spark.range(number * ROWS, (number + 1) * ROWS, 1, 2).selectExpr("id", "id % 3 AS p")
            before = jobs_of(spark, f"counted-{route}")
            sink(marked(rows, tmp_path / f"marks{number}"), number)
            jobs.append(jobs_of(spark, f"counted-{route}") - before)
            marks.append(count_marks(tmp_path / f"marks{number}"))
    assert jobs == [1] * 5
    # One line for each of the two partitions; the coalesced stage runs both in its one task.
    assert marks == [2] * 5
    assert [report.planned_by for report in sink.reports] == ["size", *["forecast"] * 4]
    assert [report.route for report in sink.reports[1:]] == [route] * 4
    assert ids_of(location) == source_ids(5)


@pytest.mark.parametrize("one_task_seconds", [1e-9, 1e9], ids=["shuffle", "one task"])
def test_a_batch_that_shuffles_by_itself_costs_no_more_jobs(spark, location, monkeypatch, one_task_seconds):
    monkeypatch.setattr("streaming_sink.writing.planning.ONE_TASK_SECONDS", one_task_seconds)
    sink, jobs, run = _sink(location), [], f"aggregated-{one_task_seconds}"
    with calling_as(spark, "query", run):
        for number in range(3):
            before = jobs_of(spark, run)
            sink(spark.range(100).selectExpr("id % 7 AS id").groupBy("id").count(), number)
            jobs.append(jobs_of(spark, run) - before)
    assert jobs == [1, 1, 1]
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"


def test_the_jobs_say_what_they_are_for_and_the_description_of_before_comes_back(spark, location):
    context = spark.sparkContext
    seen = []

    def look(parts):
        yield from parts

    _sink(location)(_batch(spark, 0), 0)  # a small file, for which the first batch of a run is counted
    with calling_as(spark, "query", "described"):
        context.setLocalProperty("spark.job.description", "the user's own")
        IcebergSink(location, app_id="another", sizing=FileSizing(fill="inline"))(_batch(spark, 0), 0)
        seen.append(context.getLocalProperty("spark.job.description"))
        context.setLocalProperty("spark.job.description", None)
    assert seen == ["the user's own"]
    context._jsc.sc().listenerBus().waitUntilEmpty()
    tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
    texts = {str(store.job(job).description().get()) for job in tracker.getJobIdsForGroup("described")}
    assert texts == {f"{location}: batch 0", f"{location}: counting rows"}


# ------------------------------------------------------------------------------------- bulk insert


def test_bulk_insert_is_one_job_without_a_profile_and_exactly_once_and_a_normal_sink_fills_after_it(
    spark, location, caplog
):
    caplog.set_level(logging.INFO, "streaming_sink")
    bulk = _sink(location, operation="bulk_insert", sizing=SMALL)
    with calling_as(spark, "query", "bulk"):
        bulk(spark.range(0, 2000, 1, 3), 0)
        assert jobs_of(spark, "bulk") == 1
        bulk(spark.range(2000, 4000, 1, 3), 1)
    assert [(each.planned_by, each.route, each.new_files) for each in bulk.reports] == [
        ("bulk_insert", "as read", 3)
    ] * 2
    with calling_as(spark, "query", "bulk-2"):
        again = _sink(location, operation="bulk_insert")
        again(spark.range(2000, 4000, 1, 3), 1)
        assert again.reports[0].outcome == "skipped"
        normal = _sink(location, sizing=SMALL, fill_policy="always", fill="inline")
        normal(spark.range(4000, 6000, 1, 3), 2)
    assert normal.reports[0].filled_files > 0
    assert ids_of(location) == Counter(range(6000))
