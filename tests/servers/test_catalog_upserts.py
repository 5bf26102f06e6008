"""Streams of changes by key into a table of a real REST catalog, killed and started again, while Spark SQL
inserts, updates, merges, deletes and compacts: the table ends as a model has it.

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
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog as PyIcebergCatalog
from pyiceberg.exceptions import NoSuchTableError

from demo import duck
from tests.servers import binaries
from tests.servers.rest_catalog import RestCatalog, rest_catalog
from tests.servers.sql import Sql
from tests.spark.children import Child, Kills

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.slow]

SECONDS = int(os.environ.get("STREAMING_SINK_CATALOG_SECONDS", "15"))
WRITERS = int(os.environ.get("STREAMING_SINK_CATALOG_WRITERS", "2"))
SEED = int(os.environ.get("STREAMING_SINK_KILL_SEED", "1"))
SHARED = range(60)
"""Keys that all streams change and delete, and nobody else."""
REPEATED = range(1_000, 1_030)
"""Keys that the streams change, and that Spark inserts again: the streams change each of them at the end."""
HANDED, OWN = 10**6, 10**9
"""From where the keys are that one batch inserts and Spark changes afterwards, and those of Spark alone."""
LAST = 10**12
"""The sequence of the streams' last changes."""
_FEED_AHEAD = 2
"""Batches that a stream always has before it: its kills come while it lands."""
_HANDED_A_BATCH = 10

_STREAM = """
import os, sys, time
from pyspark.sql import SparkSession
from streaming_sink import CatalogTable, IcebergSink, Upsert
from tests.servers import faults_of_catalogs
from tests.spark.streams import SMALL
source, uri, checkpoint, app_id, finish, fault = sys.argv[1:]
faults_of_catalogs.switch_on(fault)
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
table = CatalogTable("db.events", {"type": "rest", "uri": uri}, create_namespace=True)
write = Upsert(key=["id"], sequence_by="at", delete_where="gone", except_columns=["gone"])
sink = IcebergSink(table, write, app_id=app_id, partition_by=["bucket(2, id)"], sizing=SMALL)
changes = spark.readStream.schema("id long, at long, v string, gone boolean")
changes = changes.option("maxFilesPerTrigger", 1).json(source)
print("STARTED", flush=True)
ended = False
while not ended:
    ended = os.path.exists(finish)
    query = changes.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()
    time.sleep(0.05)
sink.finish()
print("DONE", flush=True)
"""

Row = tuple[int, int, str]
"""A key, its sequence and its value."""


class Lake:
    """A catalog with one table, the streams that change it, and what it must hold."""

    def __init__(self, folder: Path, catalog: RestCatalog, stack: contextlib.ExitStack, fault: str) -> None:
        self.folder, self.catalog, self.fault = folder, catalog, fault
        self.finish = folder / "finish"
        self.chance = random.Random(SEED)
        self.handed: dict[str, list[list[Row]]] = {}
        """Of each stream the rows of each batch that Spark may change once the batch has landed."""
        self._by_key: dict[int, tuple[int, str, bool]] = {}
        """Of each key the change that counts: its sequence, its value, and whether it deletes the key."""
        self._spark: dict[int, Row | None] = {}
        """What Spark has made of keys that no stream changes any more."""
        self._stack = stack
        self._errors = stack.enter_context((folder / "errors").open("w"))
        self._client = PyIcebergCatalog("test", **catalog.properties)

    def start(self, app: str) -> Child:
        self.feed(app, 0)
        arguments = [self._source(app), self.catalog.uri, self.folder / f"checkpoint-{app}", app, self.finish]
        child = Child(_STREAM, [*arguments, self.fault], self._errors)
        self._stack.callback(child.kill)
        return child

    def start_sql(self) -> Sql:
        sql = Sql(self.catalog.uri, self._errors)
        self._stack.callback(sql.kill)
        return sql

    def feed(self, app: str, landed: int) -> None:
        """Let a stream have some batches more than have landed."""
        batches = self.handed.setdefault(app, [])
        while len(batches) < landed + _FEED_AHEAD:
            first = HANDED * (1 + int(app.removeprefix("app"))) + len(batches) * _HANDED_A_BATCH
            handed = [(first + place, 1, f"of {app}") for place in range(_HANDED_A_BATCH)]
            keys = [*self.chance.sample(SHARED, 30), *self.chance.sample(REPEATED, 5)]
            deletes = (
                0.0 if len(batches) % 3 else 0.8
            )  # a batch of rows alone has no look but for others' files
            changes = [(key, self.chance.randrange(LAST), self.chance.random() < deletes) for key in keys]
            rows = [(key, at, f"{app} at {at}", gone) for key, at, gone in changes]
            batches.append(handed)
            self._add(app, len(batches), [*rows, *((*row, False) for row in handed)])

    def feed_last(self, app: str) -> None:
        """Let a stream change all keys that Spark has inserted again."""
        self.handed[app].append([])
        self._add(app, len(self.handed[app]), [(key, LAST, "last", False) for key in REPEATED])

    def _add(self, app: str, number: int, changes: list[tuple[int, int, str, bool]]) -> None:
        for key, at, value, gone in changes:
            if at > self._by_key.get(key, (-1, "", False))[0]:
                self._by_key[key] = (at, value, gone)
        self._source(app).mkdir(exist_ok=True)
        hidden, path = self._source(app) / f".{number}", self._source(app) / f"{number:05}.json"
        fields = ("id", "at", "v", "gone")
        hidden.write_text("\n".join(json.dumps(dict(zip(fields, it, strict=True))) for it in changes))
        os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))
        hidden.rename(path)

    def _source(self, app: str) -> Path:
        return self.folder / f"source-{app}"

    def landed(self, app: str) -> int:
        """Return how many batches of a stream the table has."""
        try:
            known = self._client.load_table("db.events").metadata.properties
        except NoSuchTableError:
            return 0
        text = known.get(f"streaming-sink.txn.{app}")
        return 0 if text is None else json.loads(text)["batch"] + 1

    def take_handed(self, apps: list[str]) -> list[Row]:
        """Return the rows of a batch that has landed, for Spark alone; none where there are no such."""
        app = self.chance.choice(apps)
        batches = self.handed[app]
        for place in range(min(self.landed(app), len(batches))):
            if batches[place]:
                taken, batches[place] = batches[place], []
                return taken
        return []

    def set(self, key: int, row: Row | None) -> None:
        """Note what Spark has made of a key."""
        self._spark[key] = row

    def own(self) -> list[Row]:
        return [row for row in self._spark.values() if row is not None and row[0] >= OWN]

    def expected(self) -> Counter[Row]:
        rows = {key: (key, at, v) for key, (at, v, gone) in self._by_key.items() if not gone}
        together: dict[int, Row | None] = {**rows, **self._spark}
        return Counter(row for row in together.values() if row is not None)

    def rows(self) -> Counter[Row]:
        """Return the rows of the table, as pyiceberg reads it."""
        found = self._client.load_table("db.events").scan(selected_fields=("id", "at", "v")).to_arrow()
        return Counter((it["id"], it["at"], it["v"]) for it in found.to_pylist())

    def rows_by_duckdb(self) -> Counter[Row]:
        path = self._client.load_table("db.events").metadata_location.removeprefix("file:")
        with duck.connect() as connection:
            found = connection.execute('SELECT id, "at", v FROM iceberg_scan(?)', [path]).fetchall()
        return Counter(tuple(row) for row in found)

    def wrong(self) -> tuple[Counter[Row], Counter[Row]]:
        """Return the rows that are missing, and those that are there once too often."""
        found = self.rows()
        return self.expected() - found, found - self.expected()


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[RestCatalog]:
    (tmp_path / "server").mkdir()
    with contextlib.ExitStack() as running:
        with binaries.or_skip():
            started = running.enter_context(rest_catalog(tmp_path / "server"))
        yield started


def test_changes_by_key_beside_all_that_spark_does_end_as_the_model_has_them(
    catalog: RestCatalog, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        lake = Lake(tmp_path, catalog, stack, "none")
        sql = _run_beside_each_other(lake, SECONDS)
        assert lake.wrong() == (Counter(), Counter())
        by_spark = sql.run("SELECT id, at, v FROM lake.db.events")
    assert Counter(tuple(row) for row in by_spark) == lake.expected()
    assert lake.rows_by_duckdb() == lake.expected()


@pytest.mark.skipif(WRITERS < 4, reason="a negative control, which takes minutes: make soak")
@pytest.mark.parametrize("fault", ["deletes are ignored", "keys are looked for once"])
def test_without_a_rule_keys_are_wrong(catalog: RestCatalog, tmp_path: Path, fault: str) -> None:
    with contextlib.ExitStack() as stack:
        lake = Lake(tmp_path, catalog, stack, fault)
        _run_beside_each_other(lake, SECONDS)
        lost, surplus = lake.wrong()
    assert lost or surplus


def _run_beside_each_other(lake: Lake, seconds: int) -> Sql:
    """Land, kill, and let Spark do what it does, for so long; and let all streams end."""
    kills, statements = Kills(), 0
    apps = [f"app{number}" for number in range(WRITERS)]
    sql = lake.start_sql()
    children = {app: lake.start(app) for app in apps}
    started = dict.fromkeys(apps, 0)
    for child in children.values():
        child.says("STARTED")
    sql.says("STARTED")
    children[apps[0]].wait_until(lambda: lake.landed(apps[0]))
    # Spark's statements conflict with changes of the rows that they read, and not with all that is inserted.
    levels = ", ".join(f"'write.{it}.isolation-level'='snapshot'" for it in ("delete", "update", "merge"))
    sql.try_until_it_runs(f"ALTER TABLE lake.db.events SET TBLPROPERTIES ({levels})")
    give_up_at = time.monotonic() + seconds
    while time.monotonic() < give_up_at or len(kills.after_a_commit) < WRITERS or statements < len(_DO):
        for app in apps:
            lake.feed(app, lake.landed(app))
        _DO[statements % len(_DO)](lake, sql, apps, statements)
        statements += 1
        if statements % 4 == 0:
            app = apps[len(kills.after_a_commit) % len(apps)]
            awaited = started[app] + kills.commits_before(lake.chance)
            lake.feed(app, awaited)
            children[app].wait_until(lambda app=app, awaited=awaited: lake.landed(app) >= awaited)
            children[app].kill()
            kills.record(committed=lake.landed(app) > started[app])
            started[app] = lake.landed(app)
            children[app] = lake.start(app)
            children[app].says("STARTED")
    kills.assert_half_came_after_a_commit()
    lake.feed_last(apps[0])
    lake.finish.touch()
    for child in children.values():
        child.says("DONE")
    return sql


def _insert(lake: Lake, sql: Sql, apps: list[str], number: int) -> None:
    """Insert rows of Spark's own, and keys that the streams have."""
    rows = [(OWN + number * 10 + place, 1, "own") for place in range(6)]
    again = [(key, lake.chance.randrange(LAST), "again") for key in lake.chance.sample(REPEATED, 3)]
    sql.try_until_it_runs(f"INSERT INTO lake.db.events (id, at, v) VALUES {_values([*rows, *again])}")
    for row in rows:
        lake.set(row[0], row)


def _delete(lake: Lake, sql: Sql, apps: list[str], number: int) -> None:
    """Delete some rows of a batch that has landed, in one of two modes."""
    _choose_modes(lake, sql)
    if rows := lake.take_handed(apps):
        first, last = rows[0][0], rows[len(rows) // 2][0]
        sql.try_until_it_runs(f"DELETE FROM lake.db.events WHERE id BETWEEN {first} AND {last}")
        for key in range(first, last + 1):
            lake.set(key, None)


def _update(lake: Lake, sql: Sql, apps: list[str], number: int) -> None:
    """Update some rows of a batch that has landed, in one of two modes."""
    _choose_modes(lake, sql)
    if rows := lake.take_handed(apps):
        keys = [row[0] for row in rows[::2]]
        sql.try_until_it_runs(
            f"UPDATE lake.db.events SET v = 'updated' WHERE id IN ({', '.join(map(str, keys))})"
        )
        for key in keys:
            lake.set(key, (key, 1, "updated"))


def _merge(lake: Lake, sql: Sql, apps: list[str], number: int) -> None:
    """Merge into Spark's own rows: update some, and insert others."""
    known = [row[0] for row in lake.own()]
    keys = [*lake.chance.sample(known, min(4, len(known))), OWN + number * 10, OWN + number * 10 + 1]
    rows = [(key, number, "merged") for key in keys]
    sql.try_until_it_runs(
        f"MERGE INTO lake.db.events t USING (SELECT * FROM VALUES {_values(rows)} AS s(id, at, v)) s"
        " ON t.id = s.id WHEN MATCHED THEN UPDATE SET at = s.at, v = s.v"
        " WHEN NOT MATCHED THEN INSERT (id, at, v) VALUES (s.id, s.at, s.v)"
    )
    for row in rows:
        lake.set(row[0], row)


def _compact(lake: Lake, sql: Sql, apps: list[str], number: int) -> None:
    sql.try_until_it_runs(
        "CALL lake.system.rewrite_data_files(table => 'db.events', options => map('rewrite-all', 'true'))"
    )


def _compact_deletes(lake: Lake, sql: Sql, apps: list[str], number: int) -> None:
    sql.try_until_it_runs(
        "CALL lake.system.rewrite_position_delete_files(table => 'db.events',"
        " options => map('rewrite-all', 'true'))"
    )
    sql.try_until_it_runs("CALL lake.system.rewrite_manifests('db.events')")


_DO: list[Any] = [_insert, _delete, _update, _merge, _compact, _insert, _delete, _compact_deletes]


def _choose_modes(lake: Lake, sql: Sql) -> None:
    mode = lake.chance.choice(["copy-on-write", "merge-on-read"])
    modes = ", ".join(f"'write.{it}.mode'='{mode}'" for it in ("delete", "update", "merge"))
    sql.try_until_it_runs(f"ALTER TABLE lake.db.events SET TBLPROPERTIES ({modes})")


def _values(rows: list[Row]) -> str:
    return ", ".join(f"({key}, {at}, '{value}')" for key, at, value in rows)
