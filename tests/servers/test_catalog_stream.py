"""Streams into a table of a real REST catalog, killed and started again, while Spark SQL inserts and deletes:
the table ends with exactly what was acknowledged.

STREAMING_SINK_CATALOG_SECONDS=600 STREAMING_SINK_CATALOG_WRITERS=4 is the long version, in `make soak`.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from pyiceberg.catalog.rest import RestCatalog as PyIcebergCatalog
from pyiceberg.exceptions import NoSuchTableError

from demo import duck
from tests.servers import binaries
from tests.servers.rest_catalog import RestCatalog, rest_catalog
from tests.servers.sql import Sql
from tests.spark.children import Child, Kills
from tests.spark.streams import add_files

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.slow]

SECONDS = int(os.environ.get("STREAMING_SINK_CATALOG_SECONDS", "15"))
WRITERS = int(os.environ.get("STREAMING_SINK_CATALOG_WRITERS", "2"))
SEED = int(os.environ.get("STREAMING_SINK_KILL_SEED", "1"))
ROWS, INSERTED_FROM = 50, 10**9
_FEED_AHEAD = 3
"""Batches that a stream always has before it: its kills come while it lands."""

_STREAM = """
import os, sys, time
from pathlib import Path
from pyspark.sql import SparkSession
from streaming_sink import CatalogTable, IcebergSink
from tests.servers import faults_of_catalogs
from tests.spark.streams import SMALL, start
source, uri, checkpoint, app_id, finish, fault = sys.argv[1:]
faults_of_catalogs.switch_on(fault)
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
table = CatalogTable("db.events", {"type": "rest", "uri": uri}, create_namespace=True)
sink = IcebergSink(table, app_id=app_id, partition_by=["p"], sizing=SMALL)
print("STARTED", flush=True)
ended = False
while not ended:
    ended = os.path.exists(finish)
    start(spark, source, sink, checkpoint).awaitTermination()
    time.sleep(0.05)
sink.finish()
print("DONE", flush=True)
"""


class Lake:
    """A catalog with one table, the streams that land in it, and what it must hold."""

    def __init__(self, folder: Path, catalog: RestCatalog, stack: contextlib.ExitStack, fault: str) -> None:
        self.folder, self.catalog, self.fault = folder, catalog, fault
        self.expected: Counter[int] = Counter()
        self.finish = folder / "finish"
        self._stack = stack
        self._errors = stack.enter_context((folder / "errors").open("w"))
        self._client = PyIcebergCatalog("test", **catalog.properties)
        self._fed: Counter[str] = Counter()

    def start(self, app: str) -> Child:
        self.feed(app, 0)
        arguments = [self.source(app), self.catalog.uri, self.folder / f"checkpoint-{app}", app, self.finish]
        child = Child(_STREAM, [*arguments, self.fault], self._errors)
        self._stack.callback(child.kill)
        return child

    def start_sql(self) -> Sql:
        sql = Sql(self.catalog.uri, self._errors)
        self._stack.callback(sql.kill)
        return sql

    def source(self, app: str) -> Path:
        return self.folder / f"source-{app}"

    def feed(self, app: str, landed: int) -> None:
        """Let a stream have some batches more than have landed."""
        first = int(app.removeprefix("app")) * 100_000
        while self._fed[app] < landed + _FEED_AHEAD:
            number = first + self._fed[app]
            add_files(self.source(app), [number], rows=ROWS)
            self.expected.update(range(number * ROWS, (number + 1) * ROWS))
            self._fed[app] += 1

    def landed(self, app: str) -> int:
        """Return how many batches of a stream the table has."""
        try:
            known = self._client.load_table("db.events").metadata.properties
        except NoSuchTableError:
            return 0
        text = known.get(f"streaming-sink.txn.{app}")
        return 0 if text is None else json.loads(text)["batch"] + 1

    def ids(self) -> Counter[int]:
        """Return how often each id is in the table, as pyiceberg reads it."""
        table = self._client.load_table("db.events")
        return Counter(table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())

    def metadata_location(self) -> str:
        return self._client.load_table("db.events").metadata_location

    def wrong(self) -> tuple[Counter[int], Counter[int]]:
        """Return the rows that are missing, and those that are there once too often."""
        found = self.ids()
        return self.expected - found, found - self.expected


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[RestCatalog]:
    (tmp_path / "server").mkdir()
    with contextlib.ExitStack() as running:
        with binaries.or_skip():
            started = running.enter_context(rest_catalog(tmp_path / "server"))
        yield started


def test_streams_that_are_killed_beside_inserts_and_deletes_leave_what_was_acknowledged(
    catalog: RestCatalog, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        lake = Lake(tmp_path, catalog, stack, "none")
        sql = _run_beside_each_other(lake, SECONDS)
        assert lake.wrong() == (Counter(), Counter())
        by_spark = sql.run("SELECT id FROM lake.db.events")
    assert Counter(row[0] for row in by_spark) == lake.expected
    with duck.connect() as connection:
        assert Counter(_ids_by_duckdb(connection, lake.metadata_location())) == lake.expected


@pytest.mark.skipif(WRITERS < 4, reason="a negative control, which takes minutes: make soak")
@pytest.mark.parametrize("fault", ["deletes are ignored"])
def test_without_a_rule_rows_are_wrong(catalog: RestCatalog, tmp_path: Path, fault: str) -> None:
    with contextlib.ExitStack() as stack:
        lake = Lake(tmp_path, catalog, stack, fault)
        _run_beside_each_other(lake, SECONDS)
        lost, surplus = lake.wrong()
    assert lost or surplus


def _run_beside_each_other(lake: Lake, seconds: int) -> Sql:
    """Land, kill, insert and delete for so long, and let all streams end."""
    chance, kills = random.Random(SEED), Kills()
    apps = [f"app{number}" for number in range(WRITERS)]
    sql = lake.start_sql()
    children = {app: lake.start(app) for app in apps}
    started = dict.fromkeys(apps, 0)
    for child in children.values():
        child.says("STARTED")
    sql.says("STARTED")
    children[apps[0]].wait_until(lambda: lake.landed(apps[0]))
    give_up_at, statements = time.monotonic() + seconds, 0
    while time.monotonic() < give_up_at or len(kills.after_a_commit) < WRITERS:
        for app in apps:
            lake.feed(app, lake.landed(app))
        statements += 1
        _insert_and_delete(lake, sql, chance, statements, apps)
        if statements % 3 == 0:
            app = apps[len(kills.after_a_commit) % len(apps)]
            awaited = started[app] + kills.commits_before(chance)
            lake.feed(app, awaited)
            children[app].wait_until(lambda app=app, awaited=awaited: lake.landed(app) >= awaited)
            children[app].kill()
            kills.record(committed=lake.landed(app) > started[app])
            started[app] = lake.landed(app)
            children[app] = lake.start(app)
            children[app].says("STARTED")
    kills.assert_half_came_after_a_commit()
    lake.finish.touch()
    for child in children.values():
        child.says("DONE")
    return sql


def _insert_and_delete(lake: Lake, sql: Sql, chance: random.Random, number: int, apps: list[str]) -> None:
    """Insert rows of Spark's own, and delete some of a batch that has landed, in one of two modes."""
    first = INSERTED_FROM + number * 10
    values = ", ".join(f"({first + place}, 'p{place % 3}', 'by Spark')" for place in range(10))
    sql.try_until_it_runs(f"INSERT INTO lake.db.events VALUES {values}")
    lake.expected.update(range(first, first + 10))
    app = chance.choice(apps)
    landed = lake.landed(app)
    if not landed:
        return
    mode = chance.choice(["copy-on-write", "merge-on-read"])
    sql.try_until_it_runs(f"ALTER TABLE lake.db.events SET TBLPROPERTIES ('write.delete.mode'='{mode}')")
    begin = (int(app.removeprefix("app")) * 100_000 + chance.randrange(landed)) * ROWS
    sql.try_until_it_runs(f"DELETE FROM lake.db.events WHERE id BETWEEN {begin} AND {begin + ROWS // 2}")
    for gone in range(begin, begin + ROWS // 2 + 1):
        del lake.expected[gone]


def _ids_by_duckdb(connection: duckdb.DuckDBPyConnection, location: str) -> list[int]:
    path = location.removeprefix("file:")
    return [row[0] for row in connection.execute("SELECT id FROM iceberg_scan(?)", [path]).fetchall()]
