"""Who calls the sink, on real streams: functions of foreachBatch that start threads, or set a job group."""

from __future__ import annotations

import random
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.functions import udf
from pyspark.util import inheritable_thread_target

from streaming_sink import IcebergSink, drop, history
from streaming_sink.errors import TableDroppedError
from streaming_sink.writing.target import Destination
from tests.spark.streams import ROWS, add_files, calling_as, drain, ids_of, source_ids

pytestmark = pytest.mark.spark


def test_two_sinks_of_one_name_in_threads_of_a_function_are_told_so(spark, location, tmp_path):
    """Each passed for a backfill of its own: the second one's rows were skipped in its first batch."""
    add_files(tmp_path / "source", range(2))
    first, second = (IcebergSink(location, app_id="events") for _ in range(2))

    def in_a_pool(batch, number):
        batch.persist()
        with ThreadPoolExecutor(2) as pool:
            halves = (first, batch.where("p = 'p0'")), (second, batch.where("p <> 'p0'"))
            for done in [pool.submit(sink, half, number) for sink, half in halves]:
                done.result()

    with pytest.raises(StreamingQueryException, match="of distinct names"):
        drain(spark, tmp_path / "source", in_a_pool, str(tmp_path / "checkpoint"))


def test_a_batch_lands_under_its_own_query_from_a_thread_that_carries_another_ones_name(
    spark, location, tmp_path
):
    """Its batches were skipped in silence, or landed under the other query's name."""
    with ThreadPoolExecutor(1) as pool:
        for number in range(2):
            source = tmp_path / f"source-{number}"
            add_files(source, range(number * 2, number * 2 + 2))
            sink = IcebergSink(location)

            def in_the_pool(batch, batch_id, sink=sink, keeps_its_name=not number):
                wrapped = inheritable_thread_target(batch.sparkSession)(sink) if keeps_its_name else sink
                pool.submit(wrapped, batch, batch_id).result()

            drain(spark, source, in_the_pool, str(tmp_path / f"checkpoint-{number}"))
    assert ids_of(location) == source_ids(4)


def test_what_a_function_keeps_is_kept_under_another_name_too(spark, location, tmp_path):
    """Spark keeps plans, not objects: what was counted under one name was thrown away under all of them, and
    drawn anew for those who came after it.
    """
    add_files(tmp_path / "source", range(2))
    coin = udf(lambda: random.random() < 0.5, "boolean").asNondeterministic()
    audit, heads, tails = (IcebergSink(f"{location}-{name}") for name in ("audit", "heads", "tails"))

    def split(batch, number):
        kept = batch.withColumn("ok", coin()).persist()
        audit(kept.select(*kept.columns), number)
        assert kept.storageLevel.useMemory
        heads(kept.where("ok"), number)
        tails(kept.where("not ok"), number)
        kept.unpersist()

    drain(spark, tmp_path / "source", split, str(tmp_path / "checkpoint"))
    assert ids_of(f"{location}-audit") == source_ids(2)
    assert ids_of(f"{location}-heads") + ids_of(f"{location}-tails") == source_ids(2)


def test_a_function_that_tries_again_with_its_batch_lands_it_once(spark, location, tmp_path):
    add_files(tmp_path / "source", range(2))
    sink = IcebergSink(location)

    def tries_twice(batch, number):
        sink(batch, number)
        sink(batch, number)
        IcebergSink(location)(batch, number)

    drain(spark, tmp_path / "source", tries_twice, str(tmp_path / "checkpoint"))
    assert ids_of(location) == source_ids(2)
    assert [report.outcome for report in sink.reports] == ["committed", "skipped"] * 2


@pytest.mark.parametrize("made_again", ["", "short", "long"])
def test_a_sink_whose_table_was_dropped_takes_the_one_that_is_there_when_the_query_restarts(
    spark, location, tmp_path, made_again
):
    """It kept to the one that had gone, at each restart."""
    add_files(tmp_path / "source", range(3))
    sink = IcebergSink(location)
    drain(spark, tmp_path / "source", sink, str(tmp_path / "checkpoint"))
    shutil.rmtree(location)
    for number in range({"": 0, "short": 1, "long": 5}[made_again]):
        rows = spark.range(number, number + 1).selectExpr("id", "'p0' AS p", "'t' AS text")
        IcebergSink(location, app_id="other")(rows, number)
    before = ids_of(location)
    add_files(tmp_path / "source", range(3, 5))
    drain(spark, tmp_path / "source", sink, str(tmp_path / "checkpoint"))
    assert ids_of(location) == before + source_ids(5) - source_ids(3)


def test_a_drop_stops_the_run_and_a_stream_that_is_started_again_makes_the_table_anew(
    spark, location, tmp_path
):
    add_files(tmp_path / "source", range(4))
    sink, met = IcebergSink(location), []

    def dropped_under(batch, number):
        if number == 1:
            drop(location)
        try:
            sink(batch, number)
        except TableDroppedError as told:
            met.append(told)
            raise

    with pytest.raises(StreamingQueryException, match="the table was dropped, by version"):
        drain(spark, tmp_path / "source", dropped_under, str(tmp_path / "checkpoint"))
    assert len(met) == 1
    with pytest.raises(TableDroppedError):
        history(location)
    drain(spark, tmp_path / "source", sink, str(tmp_path / "checkpoint"))
    assert ids_of(location) == source_ids(4) - source_ids(1)


def test_threads_that_carry_it_land_under_names_of_their_own(spark, location, tmp_path):
    add_files(tmp_path / "source", range(2))
    halves = {
        "p = 'p0'": IcebergSink(location, app_id="some"),
        "p <> 'p0'": IcebergSink(location, app_id="rest"),
    }

    def in_a_pool(batch, number):
        batch.persist()
        run = inheritable_thread_target(batch.sparkSession)(lambda sink, half: sink(half, number))
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(run, sink, batch.where(half)) for half, sink in halves.items()]:
                done.result()

    drain(spark, tmp_path / "source", in_a_pool, str(tmp_path / "checkpoint"))
    assert ids_of(location) == source_ids(2)


def test_a_replay_is_skipped_though_the_function_sets_a_job_group(spark, location, tmp_path):
    """The group passed for the run: so the replay was a batch given twice, at each restart."""
    add_files(tmp_path / "source", range(3))
    sink, fails = IcebergSink(location), [True]

    def grouped(batch, number):
        batch.sparkSession.sparkContext.setJobGroup("etl", "nightly")
        sink(batch, number)
        if number == 1 and fails.pop():
            raise RuntimeError("after the sink")

    with pytest.raises(StreamingQueryException, match="after the sink"):
        drain(spark, tmp_path / "source", grouped, str(tmp_path / "checkpoint"))
    fails.append(False)
    drain(spark, tmp_path / "source", grouped, str(tmp_path / "checkpoint"))
    assert ids_of(location) == source_ids(3)
    assert [report.outcome for report in sink.reports] == ["committed", "committed", "skipped", "committed"]


def test_two_sinks_under_one_name_in_two_threads_are_told_so_after_a_restart_too(
    spark, location, monkeypatch
):
    """On a replay there is no commit that would tell: both looked at the table before either was done."""
    look = Destination.target

    def slowly(*given, **named):
        time.sleep(0.2)
        return look(*given, **named)

    monkeypatch.setattr(Destination, "target", slowly)
    for run in ("run-1", "run-2"):
        with calling_as(spark, "query", run), ThreadPoolExecutor(2) as pool:
            frames = [spark.range(start, start + ROWS).selectExpr("id", "'p' AS p") for start in (0, 1000)]
            call = [inheritable_thread_target(spark)(IcebergSink(location)) for _ in frames]
            done = [pool.submit(each, frame, 0) for each, frame in zip(call, frames, strict=True)]
            refused = [each.exception() for each in done]
        assert sum("of distinct names" in str(each) for each in refused) == 1
        assert len(ids_of(location)) == ROWS
