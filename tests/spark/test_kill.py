"""kill -9 and SIGSTOP at random moments of streams, and restarts: the table ends with the sources' rows."""

from __future__ import annotations

import json
import random
from pathlib import Path

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
import pytest

from tests.sinks import flat_sink
from tests.spark.children import Child, Kills, last_batch
from tests.spark.streams import SMALL, add_files, ids_of, metadata_file, source_ids, start
from tests.tiers import SEED, count, longer_in_soak

pytestmark = [pytest.mark.spark, pytest.mark.slow, longer_in_soak]

KILLS = count(2, 12)
FILES = 10 + 4 * KILLS
"""Of each of two streams."""
ROWS = 50

_CHILD = """
import json, os, signal, sys
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.sinks import flat_sink
from tests.spark.streams import SMALL, start
source, location, checkpoint, options, freezes_before, dies_after = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
sink = flat_sink(location, sizing=SMALL, **json.loads(options))
def land(batch, number):
    if number == int(freezes_before):
        print("FROZEN", flush=True)
        os.killpg(0, signal.SIGSTOP)
    sink(batch, number)
    if number == int(dies_after):
        os.killpg(0, signal.SIGKILL)
query = start(spark, source, land, checkpoint)
print("STARTED", flush=True)
try:
    query.awaitTermination()
except StreamingQueryException as failure:
    print("FAILED", " ".join(str(failure).split()), flush=True)
"""


def _options(app_id):
    fill = "beside" if app_id == "refunds" else "inline"
    return {"app_id": app_id, "partition_by": ["p"], "fill_policy": "always", "fill": fill}


def _child(folder, location, errors, app_id="app", freezes_before=-1, dies_after=-1):
    options = json.dumps(_options(app_id))
    arguments = [folder / "source", location, folder / "checkpoint", options, freezes_before, dies_after]
    return Child(_CHILD, arguments, errors)


def _started_here(spark, folder, location, app_id="app"):
    """Start a stream again in this process, which spares the test a JVM."""
    sink = flat_sink(location, sizing=SMALL, **_options(app_id))
    return start(spark, folder / "source", sink, str(folder / "checkpoint"))


@pytest.fixture
def start_child(tmp_path, location):
    """Call it with a stream's folder to start the stream, or to start it again."""
    children = []
    with (tmp_path / "errors").open("w") as errors:

        def started(folder, **options):
            children.append(_child(folder, location, errors, **options))
            return children[-1]

        yield started
        for child in children:
            child.kill()


def test_two_streams_into_one_table_that_are_killed_at_random_moments_end_with_the_rows_of_both(
    spark, tmp_path, location, start_child
):
    chance, kills = random.Random(SEED), Kills(most=2)
    names = ["orders", "refunds"]
    for position, name in enumerate(names):
        first = position * FILES
        add_files(tmp_path / name / "source", range(first, first + FILES), rows=ROWS)
    for _ in range(-(-KILLS // 2)):
        before = {name: last_batch(location, name) for name in names}
        children = {name: start_child(tmp_path / name, app_id=name) for name in names}
        for child in children.values():
            child.says("STARTED")
        for name in chance.sample(names, 2):
            child = children[name]
            child.wait_for_batch(location, name, before[name] + kills.commits_before(chance))
            child.assert_runs_for(chance.choice([0.0, chance.uniform(0.0, 0.3)]))
            child.kill()
            kills.record(committed=last_batch(location, name) > before[name])
        assert max(ids_of(location).values(), default=1) == 1
    kills.assert_half_came_after_a_commit()
    for query in [_started_here(spark, tmp_path / name, location, name) for name in names]:
        query.awaitTermination()
    assert ids_of(location) == source_ids(2 * FILES, ROWS)
    assert _duckdb_counts(location) == (2 * FILES * ROWS, 2 * FILES * ROWS)


def test_an_old_run_that_thaws_after_a_new_one_took_over_is_fenced_and_doubles_nothing(
    spark, tmp_path, location, start_child
):
    """The new run dies between our commit and Spark's: the old one goes on to a batch that is not its own."""
    add_files(tmp_path / "source", range(6), rows=ROWS)
    old = start_child(tmp_path, freezes_before=2)
    old.says("FROZEN")
    assert ids_of(location) == source_ids(2, ROWS)
    new = start_child(tmp_path, dies_after=2)
    new.says("ENDED")
    assert ids_of(location) == source_ids(3, ROWS)
    old.thaw()
    assert "FencedError: a newer run of application 'app' has taken over this table" in old.says("FAILED")
    assert ids_of(location) == source_ids(3, ROWS)
    _started_here(spark, tmp_path, location).awaitTermination()
    assert ids_of(location) == source_ids(6, ROWS)
    assert _duckdb_counts(location) == (6 * ROWS, 6 * ROWS)


def _duckdb_counts(location):
    with duckdb.connect(":memory:") as connection:
        for package, name in ((duckdb_extension_avro, "avro"), (duckdb_extension_iceberg, "iceberg")):
            [file] = Path(next(iter(package.__path__))).glob(f"extensions/*/{name}.duckdb_extension")
            connection.load_extension(str(file))
        query = "SELECT count(*), count(DISTINCT id) FROM iceberg_scan(?)"
        return connection.execute(query, [metadata_file(location)]).fetchone()
