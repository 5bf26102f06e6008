"""What the sink tells of its batches, and what it must never tell."""

from __future__ import annotations

import copy
import json
import logging
import pickle
from dataclasses import replace

import pytest
from pyiceberg.table import StaticTable
from pyspark import cloudpickle

from streaming_sink import BatchReport, Checks, Clustering, IcebergSink, PathTable, history
from streaming_sink.errors import StoreUnavailableError
from tests.spark.streams import SMALL, add_files, calling_as, drain, ids_of, metadata_file, source_ids, stream

pytestmark = pytest.mark.spark

SECRET = "hush-5f2e9c"


@pytest.fixture(scope="module")
def landed(spark, tmp_path_factory):
    """A stream of ten batches with fills: its sink, its query's id, its table's location, and the log."""
    folder = tmp_path_factory.mktemp("landed")
    add_files(folder / "source", range(10))
    location = str(folder / "table")
    sink = IcebergSink(
        location, partition_by=["p"], sizing=replace(SMALL, fill="inline", fill_policy="always")
    )
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger = logging.getLogger("streaming_sink")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        query = drain(spark, folder / "source", sink, str(folder / "checkpoint"))
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
    return sink, str(query.id), location, [record.getMessage() for record in records]


def _snapshots(location):
    return StaticTable.from_metadata(metadata_file(location)).metadata.snapshots


def test_the_stream_that_these_tests_look_at_filled_files(landed):
    sink, _, location, _ = landed
    assert sum(report.merged_files for report in sink.reports) > 0
    assert ids_of(location) == source_ids(10)


def test_a_report_is_plain_json_and_comes_back_as_it_was(landed):
    for report in landed[0].reports:
        read = json.loads(json.dumps(report.to_dict()))
        assert (read.pop("kind"), read.pop("maintenance")) == ("batch", [])
        assert BatchReport(**read) == report


def test_each_batch_is_one_line_in_the_log(landed):
    sink, _, _, lines = landed
    said = [line for line in lines if line.startswith("batch ")]
    assert said == [report.line() for report in sink.reports]
    assert all("\n" not in line for line in said)
    assert said[0].startswith(f"batch 0 of {landed[1]} committed as version 2: 100 rows in 3 files (")


def test_the_figures_are_those_of_the_snapshots_that_the_batches_made(landed):
    sink, _, location, _ = landed
    snapshots = _snapshots(location)
    appends = [snapshot.summary for snapshot in snapshots if snapshot.summary.operation.value == "append"]
    assert len(appends) == len(sink.reports) == 10
    for report, summary in zip(sink.reports, appends, strict=True):
        assert int(summary["added-records"]) == report.rows == 100
        assert int(summary["added-data-files"]) == report.new_files
        assert int(summary["added-files-size"]) == report.new_bytes
        assert int(summary["streaming-sink.version"]) == report.version
    merged = {}
    for snapshot in snapshots:
        if snapshot.summary.operation.value == "replace":
            merged[int(snapshot.summary["streaming-sink.version"])] = snapshot.summary
    for report in sink.reports:
        if report.merged_files:
            summary = merged[report.version]
            assert int(summary["added-data-files"]) == report.merged_files
            assert int(summary["added-files-size"]) == report.merged_bytes
            assert int(summary["deleted-data-files"]) == report.filled_files + report.merged_files


def test_a_snapshot_says_which_batch_of_which_query_it_is(landed):
    _, query_id, location, _ = landed
    appends = [
        snapshot.summary for snapshot in _snapshots(location) if snapshot.summary.operation.value == "append"
    ]
    assert [summary["spark.sql.streaming.queryId"] for summary in appends] == [query_id] * 10
    assert [summary["spark.sql.streaming.epochId"] for summary in appends] == [
        str(number) for number in range(10)
    ]


def test_history_reads_the_same_figures_from_the_table(landed):
    sink, _, location, _ = landed
    read = history(location)
    assert len(read) == 10
    for report, told in zip(sink.reports, read, strict=True):
        expected, found = report.to_dict(), told.to_dict()
        later = {"attempts", "writes", "small_files", "dropped_fills", "milliseconds"}
        assert {key: found[key] for key in found if key not in later} == {
            key: expected[key] for key in expected if key not in later
        }
        assert found["milliseconds"]["write"] == expected["milliseconds"]["write"]


def test_every_report_says_where_the_time_went(landed):
    for report in landed[0].reports:
        assert {"head", "plan", "write", "commit", "total"} <= report.milliseconds.keys()
        steps = sum(spent for step, spent in report.milliseconds.items() if step != "total")
        assert steps <= report.milliseconds["total"] + len(report.milliseconds)


def test_what_fails_after_the_commit_is_told_and_is_no_error_of_the_batch(spark, location, monkeypatch):
    """A caller outside a query that is told of a failure writes the rows again, under another number."""

    def fails(*_):
        raise StoreUnavailableError("it does not answer")

    monkeypatch.setattr("streaming_sink.upkeep.maintenance.count_small_files", fails)
    sink = IcebergSink(location, app_id="app", sizing=SMALL)
    sink(spark.range(10), 0)
    (report,) = sink.reports
    assert report.outcome == "committed"
    problem = "StoreUnavailableError: it does not answer"
    assert report.problem == f"maintenance after the commit failed: {problem}"
    assert sorted(ids_of(location).elements()) == list(range(10))


@pytest.mark.parametrize("copier", [pickle, cloudpickle, copy], ids=["pickle", "cloudpickle", "deepcopy"])
def test_a_sink_that_has_worked_pickles_and_works_again(spark, location, copier):
    sink = IcebergSink(location, app_id="app", sizing=SMALL)
    with calling_as(spark, "query", "run-1"):
        sink(spark.range(10), 0)
    again = copy.deepcopy(sink) if copier is copy else copier.loads(copier.dumps(sink))
    assert again.options == sink.options
    assert again.reports == ()
    with calling_as(spark, "query", "run-2"):
        again(spark.range(10), 0)
        again(spark.range(10, 20), 1)
    assert [report.outcome for report in again.reports] == ["skipped", "committed"]
    assert sorted(ids_of(location).elements()) == list(range(20))


def test_a_secret_shows_in_no_repr_log_error_report_or_file(spark, tmp_path, caplog, monkeypatch):
    """A sink on an object store that does not answer: whatever it says leaves the secret out."""
    options = {
        "access_key_id": "someone",
        "secret_access_key": SECRET,
        "endpoint": "http://127.0.0.1:9",
        "allow_http": "true",
        "region": "x",
    }
    caplog.set_level(logging.DEBUG)
    for given in (options, lambda: options):
        sink = IcebergSink(PathTable("s3://bucket/table", given), app_id="app")
        monkeypatch.setattr("timeline.stores._object_client.READ_TIMEOUT_SECONDS", 1, raising=False)
        with pytest.raises(StoreUnavailableError) as failure:
            sink(spark.range(3), 0)
        chain, told = failure.value, []
        while chain is not None:
            told += [repr(chain), str(chain)]
            chain = chain.__cause__ or chain.__context__
        told += [
            repr(sink),
            str(sink),
            repr(sink.options),
            repr(pickle.loads(pickle.dumps(sink)).options if given is options else ""),
        ]
        assert SECRET not in "\n".join([*told, caplog.text])
    with pytest.raises(ValueError, match="unknown storage option") as refusal:
        IcebergSink(PathTable("s3://bucket/table", {"secret_acess_key": SECRET}))
    assert SECRET not in str(refusal.value)
    with pytest.raises(ValueError, match="object stores only") as refusal:
        IcebergSink(PathTable(str(tmp_path / "table"), {"secret_access_key": SECRET}))
    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize(
    ("shuffled", "checked", "warned"), [(True, False, 1), (True, True, 0), (False, False, 0)]
)
def test_a_stream_whose_own_shuffle_spark_does_not_check_is_warned_about_once(
    spark, location, tmp_path, caplog, shuffled, checked, warned
):
    """Its shuffle is made before the sink is called, by the settings of the session that starts the query."""
    add_files(tmp_path / "source", range(2))
    rows = stream(spark, tmp_path / "source")
    settings = [
        f"spark.sql.shuffle.orderIndependentChecksum.{what}"
        for what in ("enabled", "enableFullRetryOnMismatch")
    ]
    for setting in settings:
        spark.conf.set(setting, str(checked).lower())
    sink, checksums = IcebergSink(location), []

    def land(batch, batch_id):
        checksums.append(_checksums_of_the_shuffle(batch) > 0)
        sink(batch, batch_id)

    try:
        writer = (rows.repartition(2) if shuffled else rows).writeStream.foreachBatch(land)
        writer = writer.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.start().awaitTermination()
    finally:
        for setting in settings:
            spark.conf.unset(setting)
    assert checksums == [shuffled and checked, shuffled], "from the second batch on Spark checks it"
    warnings = [record for record in caplog.records if "orderIndependentChecksum" in record.getMessage()]
    assert [record.levelname for record in warnings] == ["WARNING"] * warned
    assert ids_of(location) == source_ids(2)


def test_a_run_that_begins_with_a_replay_is_warned_and_checked_too(spark, location, tmp_path, caplog):
    checkpoint, checksums = tmp_path / "checkpoint", []

    def run():
        sink = IcebergSink(location)

        def land(batch, batch_id):
            checksums.append((batch_id, _checksums_of_the_shuffle(batch) > 0))
            sink(batch, batch_id)

        rows = stream(spark, tmp_path / "source").repartition(2)
        writer = rows.writeStream.foreachBatch(land).trigger(availableNow=True)
        writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()

    add_files(tmp_path / "source", range(1))
    run()
    for name in ("0", ".0.crc"):  # the commit landed, and its query died before it wrote that down
        (checkpoint / "commits" / name).unlink()
    add_files(tmp_path / "source", [1])
    run()
    assert checksums == [(0, False), (0, False), (1, True)]
    assert len([it for it in caplog.records if "orderIndependentChecksum" in it.getMessage()]) == 2
    assert ids_of(location) == source_ids(2)


def test_rows_from_outside_a_query_leave_the_users_session_as_it_is(spark, location, caplog):
    rdd = spark.sparkContext.parallelize([(number,) for number in range(10)]).repartition(2)
    IcebergSink(location, app_id="backfill")(spark.createDataFrame(rdd.map(tuple), "id bigint"), 0)
    assert spark.conf.get("spark.sql.shuffle.orderIndependentChecksum.enabled") == "false"
    assert [it for it in caplog.records if "orderIndependentChecksum" in it.getMessage()] == []
    assert sorted(ids_of(location).elements()) == list(range(10))


def _checksums_of_the_shuffle(batch):
    """Return how many checksums Spark keeps for the stream's own shuffle, 0 without one."""
    leaf = batch._jdf.queryExecution().analyzed().collectLeaves().head()
    rdd = leaf.rdd()
    while not rdd.dependencies().isEmpty():
        dependency = rdd.dependencies().head()
        if dependency.getClass().getSimpleName() == "ShuffleDependency":
            return len(list(dependency.rowBasedChecksums()))
        rdd = dependency.rdd()
    return 0


def test_a_call_returns_its_report_and_a_second_one_with_its_number_says_so(spark, location, caplog):
    sink = IcebergSink(location, app_id="app", sizing=SMALL)
    with caplog.at_level(logging.INFO, "streaming_sink"):
        rows = spark.range(10)
        first, again = sink(rows, 0), sink(rows, 0)
    assert (first.outcome, again.outcome) == ("committed", "skipped")
    assert sink.reports == (first, again)
    assert (first.kind, first.table, first.rows, first.writes) == ("batch", location, 10, 1)
    assert again.line() in caplog.messages
    assert "committed before" in again.line()
    assert sorted(ids_of(location).elements()) == list(range(10))


def test_on_report_gets_every_finished_report_as_data(spark, tmp_path, location):
    got = []
    sink = IcebergSink(
        location,
        app_id="app",
        sizing=SMALL,
        clustering=Clustering(every_commits=10, sort_by=["id"]),
        on_report=got.append,
        checks=Checks({"id < 90": "quarantine"}),
    )
    for number in range(10):
        sink(spark.range(number * 10, number * 10 + 10), number)
    sink.finish(120)
    batches = [it for it in got if it.kind == "batch"]
    assert tuple(batches) == sink.reports
    [delivery] = [it for it in got if it.kind == "deliver"]
    assert (delivery.main_table, delivery.rows, delivery.outcome) == (location, 10, "delivered")
    assert delivery.table == f"{location}__quarantine"
    passes = [it for it in got if it.kind in ("fill", "cluster")]
    assert {it.table for it in passes} == {location}
    assert all(it.outcome in ("committed", "executed", "nothing") and it.milliseconds >= 0 for it in passes)
    assert any(it.kind == "cluster" for it in passes)
    assert [json.loads(json.dumps(it.to_dict()))["kind"] for it in got] == [it.kind for it in got]


def test_what_on_report_raises_is_logged_and_fails_no_batch(spark, location, caplog):
    def refuse(report):
        raise ConnectionError(f"no metrics for {report.kind}")

    sink = IcebergSink(location, app_id="app", sizing=SMALL, on_report=refuse)
    assert sink(spark.range(10), 0).outcome == "committed"
    assert [it for it in caplog.messages if "no metrics for batch" in it]
    assert sorted(ids_of(location).elements()) == list(range(10))


def test_on_report_is_a_function():
    with pytest.raises(TypeError, match="on_report must be a function of one report, not 'prometheus'"):
        IcebergSink("/lake/events", on_report="prometheus")
