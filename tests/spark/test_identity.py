"""Who calls the sink, on real streams: functions of foreachBatch that start threads, or set a job group."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.util import inheritable_thread_target

from streaming_sink import IcebergSink
from streaming_sink.target import Destination
from tests.spark.streams import ROWS, add_files, calling_as, drain, ids_of, source_ids

pytestmark = pytest.mark.spark


def test_threads_of_a_function_that_do_not_carry_the_querys_name_are_refused(spark, location, tmp_path):
    """Each sink passed for a backfill of its own: the second one's rows were skipped in its first batch."""
    add_files(tmp_path / "source", range(2))
    first, second = (IcebergSink(location, app_id="events") for _ in range(2))

    def in_a_pool(batch, number):
        batch.persist()
        with ThreadPoolExecutor(2) as pool:
            halves = (first, batch.where("p = 'p0'")), (second, batch.where("p <> 'p0'"))
            for done in [pool.submit(sink, half, number) for sink, half in halves]:
                done.result()

    with pytest.raises(StreamingQueryException, match="inheritable_thread_target"):
        drain(spark, tmp_path / "source", in_a_pool, str(tmp_path / "checkpoint"))
    assert not ids_of(location)


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
