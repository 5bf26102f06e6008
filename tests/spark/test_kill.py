"""kill -9 at random moments of a stream, and a restart each time: the table ends with the source's rows.

STREAMING_SINK_KILLS=30 kills more often; STREAMING_SINK_KILL_SEED replays another run.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
import pytest

from tests.spark.streams import add_files, ids_of, metadata_file, source_ids

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("STREAMING_SINK_KILLS", "5"))
SEED = int(os.environ.get("STREAMING_SINK_KILL_SEED", "1"))
FILES = 20 + 4 * KILLS
ROWS = 50

_CHILD = """
import sys, threading
from pyspark.sql import SparkSession
from streaming_sink import IcebergSink
from tests.spark.streams import SMALL, start
source, location, checkpoint = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
sink = IcebergSink(location, partition_by=["p"], sizing=SMALL, fill_policy="always")
query = start(spark, source, sink, checkpoint)
print("STARTED", flush=True)
query.awaitTermination()
print("DONE", sum(report.merged_files for report in sink.reports), flush=True)
"""


class _Child:
    """A streaming process with a JVM and workers of its own, all in one process group."""

    def __init__(self, arguments, errors):
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
        self.lines: list[str] = []
        self.started = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._process.stdout:
            self.lines.append(line)
            if line.startswith("STARTED"):
                self.started.set()
        self.started.set()

    def wait_for_version(self, location, version):
        """Return once the stream runs and the table has come to a version: no time fits all machines."""
        assert self.started.wait(180), "the stream did not start"
        give_up_at = time.monotonic() + 120
        while _version(location) < version:
            assert time.monotonic() < give_up_at, f"the table did not come to version {version}"
            assert self._process.poll() is None, "the stream ended by itself"
            time.sleep(0.002)

    def ends_within(self, seconds):
        try:
            return self._process.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            return False

    def kill(self):
        """End driver, JVM and workers at once, as a power cut of the container does."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        self._process.stdout.close()


def test_a_stream_that_is_killed_at_random_moments_ends_with_exactly_the_sources_rows(
    tmp_path, location, checkpoint
):
    chance = random.Random(SEED)
    add_files(tmp_path / "source", range(FILES), rows=ROWS)
    arguments = [str(tmp_path / "source"), location, checkpoint]
    killed_at = []
    with (tmp_path / "errors").open("w") as errors:
        for _ in range(KILLS):
            child = _Child(arguments, errors)
            try:
                child.wait_for_version(location, _version(location) + chance.randint(0, 3))
                # Half of them at once: after our commit, and before Spark has written that the batch ended.
                moment = chance.choice([0.0, chance.uniform(0.0, 0.6)])
                assert not child.ends_within(moment), "it ended before its kill: give it more files"
            finally:
                child.kill()
            killed_at.append(sum(ids_of(location).values()) // ROWS)
            assert max(ids_of(location).values(), default=1) == 1
        child = _Child(arguments, errors)
        try:
            assert child.ends_within(180), Path(errors.name).read_text()[-2000:]
        finally:
            child.kill()
    print(f"seed {SEED}: batches in the table at each kill: {killed_at}")  # noqa: T201
    assert ids_of(location) == source_ids(FILES, ROWS)
    assert _duckdb_counts(location) == (FILES * ROWS, FILES * ROWS)


def _version(location):
    path = metadata_file(location)
    return 0 if path is None else int(path.rpartition("/v")[2].partition(".")[0])


def _duckdb_counts(location):
    with duckdb.connect(":memory:") as connection:
        for package, name in ((duckdb_extension_avro, "avro"), (duckdb_extension_iceberg, "iceberg")):
            [file] = Path(next(iter(package.__path__))).glob(f"extensions/*/{name}.duckdb_extension")
            connection.load_extension(str(file))
        query = "SELECT count(*), count(DISTINCT id) FROM iceberg_scan(?)"
        return connection.execute(query, [metadata_file(location)]).fetchone()
