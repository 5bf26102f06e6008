"""Fills beside the stream: no row is lost or doubled, few files stay, and no end of a process interferes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from planners import FileSizing
from streaming_sink import IcebergSink, history
from streaming_sink.upkeep import filler
from tests.reports import lines, said
from tests.sinks import flat_sink
from tests.spark.streams import add_files, drain, head_of, ids_of, source_ids, start
from tests.tiers import only_in_soak

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
SIZING = FileSizing(max_file_bytes="8KiB", small_file_bytes="5KiB")
"""Two files of a batch of a hundred rows of three partitions are small, six or so make a full one."""


def _sink(location, **options):
    return flat_sink(location, **{"fill": "beside", "sizing": SIZING, "app_id": "app", **options})


def _small_files(location):
    small = (file for file in head_of(location).live_files() if file.bytes < SIZING.small_file_bytes)
    return Counter(file.partition for file in small)


@pytest.mark.parametrize("partition_by", [pytest.param([], marks=only_in_soak), ["p"]])
def test_a_stream_ends_with_its_rows_in_few_files_and_only_batches_in_its_history(
    spark, tmp_path, location, checkpoint, partition_by
):
    add_files(tmp_path / "source", range(24))
    sink = _sink(location, partition_by=partition_by)
    drain(spark, tmp_path / "source", sink, checkpoint)
    told = lines([*(it for report in sink.reports for it in report.maintenance), *sink.finish(120)])
    assert any(text.startswith("filled beside the stream: ") for text in told)
    assert not any(word in text for text in told for word in ("failed", "left out", "abandoned"))
    assert ids_of(location) == source_ids(24)
    assert max(_small_files(location).values(), default=0) <= 8
    assert [report.batch_id for report in history(location)] == list(range(24))
    assert {report.merged_files for report in sink.reports} == {0}
    replaces = sum(s.summary.operation.value == "replace" for s in head_of(location).metadata.snapshots)
    assert head_of(location).number == 1 + 24 + replaces, "each pass is a version of its own"
    assert sink.finish() == ()


def test_a_file_that_is_missing_is_named_and_the_others_are_merged(spark, tmp_path, location, checkpoint):
    """Whoever deletes it has lost its rows; the stream goes on."""
    add_files(tmp_path / "source", range(1))
    first = _sink(location, fill_policy="never", fill=None)
    drain(spark, tmp_path / "source", first, checkpoint)
    [gone, *_] = [file.location for file in head_of(location).live_files()]
    Path(gone.removeprefix("file://")).unlink()
    add_files(tmp_path / "source", range(1, 14))
    sink = _sink(location, fill_policy="always")
    drain(spark, tmp_path / "source", sink, checkpoint)
    told = lines([*(it for report in sink.reports for it in report.maintenance), *sink.finish(120)])
    left_out = [
        text for text in told if "a fill beside the stream was left out: a file to fill is missing" in text
    ]
    assert len(left_out) == 1, "it is not planned again"
    assert gone in left_out[0]
    assert any("filled beside the stream: " in text for text in told)
    assert set(_small_files(location)) <= {()}
    assert _small_files(location)[()] <= 2


def test_a_pass_survives_the_end_of_its_query(spark, tmp_path, location, checkpoint, monkeypatch):
    """Stopping a query cancels the jobs of its run; those of a pass are not among them."""
    stopped, began, real = threading.Event(), threading.Event(), filler.execute_merges

    def carry_out(*arguments):
        began.set()
        assert stopped.wait(120)
        return real(*arguments)

    monkeypatch.setattr(filler, "execute_merges", carry_out)
    add_files(tmp_path / "source", range(2))
    sink = _sink(location, fill_policy="always")
    query = start(spark, tmp_path / "source", sink, checkpoint)
    assert began.wait(120)
    query.processAllAvailable()
    query.stop()
    stopped.set()
    assert said(sink.finish(120)).startswith("filled beside the stream: 2 files -> 1")
    assert ids_of(location) == source_ids(2)


_CHILD = """
import logging, os, signal, sys, threading
from pyspark.sql import SparkSession
from streaming_sink import FileSizing, IcebergSink
from streaming_sink.upkeep import fills
from tests.reports import said
from tests.spark.streams import drain
source, location, checkpoint, end = sys.argv[1:]
logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s", stream=sys.stdout)
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
sizing = FileSizing(max_file_bytes="8KiB", small_file_bytes="5KiB", fill_policy="always")
sink = IcebergSink(location, sizing=sizing, app_id="app")
began, stopped = threading.Event(), threading.Event()
real_collect, real_commit = fills.collect_results, fills.commit_merges
def collect_results(*arguments):
    began.set()
    if end == "stop":
        stopped.wait()
    return real_collect(*arguments)
def commit_merges(*arguments):
    if end == "die before the commit":
        os.killpg(0, signal.SIGKILL)
    published = real_commit(*arguments)
    if end == "die after the commit":
        os.killpg(0, signal.SIGKILL)
    return published
fills.collect_results, fills.commit_merges = collect_results, commit_merges
drain(spark, source, sink, checkpoint)
began.wait()
if end == "stop":
    spark.stop()
    stopped.set()
print("FINISHED", said(sink.finish(120)), flush=True)
"""


def _run(folder, location, checkpoint, end):
    return subprocess.run(
        [sys.executable, "-c", _CHILD, str(folder), location, checkpoint, end],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
        timeout=400,
        check=False,
    )


@only_in_soak
@pytest.mark.slow
def test_neither_a_stopped_session_nor_a_killed_process_loses_a_row_and_the_next_run_fills(
    spark, tmp_path, location, checkpoint
):
    source = tmp_path / "source"
    add_files(source, range(2))
    stopped = _run(source, location, checkpoint, "stop")
    abandoned = "filling beside the stream was abandoned, since Spark was stopped; a later batch does it"
    assert f"FINISHED {abandoned}" in stopped.stdout, stopped.stdout + stopped.stderr
    assert stopped.stdout.count(f"WARNING streaming_sink {abandoned}: {location}") == 1
    assert "Traceback" not in stopped.stdout + stopped.stderr
    assert stopped.returncode == 0
    assert ids_of(location) == source_ids(2)

    for number, end in ((2, "die before the commit"), (3, "die after the commit")):
        add_files(source, [number])
        assert _run(source, location, checkpoint, end).returncode < 0
        assert ids_of(location) == source_ids(number + 1)

    add_files(source, [4])
    sizing = FileSizing(max_file_bytes="8KiB", small_file_bytes="5KiB", fill_policy="always")
    sink = IcebergSink(location, sizing=sizing, app_id="app")
    drain(spark, source, sink, checkpoint)
    assert said(sink.finish(120)).startswith("filled beside the stream: 2 files")
    assert ids_of(location) == source_ids(5)
    assert _small_files(location)[()] <= 1
