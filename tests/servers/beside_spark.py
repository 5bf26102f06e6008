"""Streams that append and streams that change keys, each a process of its own, in one table of a REST catalog
that Spark SQL changes as well; and the model of what the table must hold.

A batch of an appending stream has rows of its own, and so has one of changes beside its keys: once the batch
has landed they are Spark's to delete and update, and no stream changes them any more. The keys of `SHARED`
are the streams' alone, which change and delete them; the change of the highest sequence counts. Those of
`REPEATED` Spark inserts again, so that they may be there twice until the streams change each at the end.

A rollback takes batches away for good, also such as were acknowledged: they stay away on purpose (R30). Which
they are is told by the summaries of the snapshots that left main. The model forgets their rows, and because
a rollback brings rows back of which streams remember a delete, their shared keys are changed at the end too.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections import Counter
from pathlib import Path

from pyiceberg.catalog.rest import RestCatalog as PyIcebergCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from tests.servers.rest_catalog import RestCatalog
from tests.servers.sql import Sql
from tests.spark.children import Child

NAME = "db.events"
SHARED, REPEATED = range(60), range(1_000, 1_030)
HANDED, APPENDED, OWN = 10**6, 10**8, 10**9
"""From where the keys are that one batch of changes or of appends brings, and those of Spark alone."""
LAST = 10**12
"""The sequence of the streams' last changes."""
APPENDS, UPSERTS = "appends", "upserts"
_FEED_AHEAD = 2
"""Batches that a stream always has before it: its kills come while it lands."""
_HANDED_A_BATCH = {APPENDS: 50, UPSERTS: 10}
_FIELDS = ("id", "at", "v", "gone")

_STREAM = """
import os, sys, time
from pyspark.sql import SparkSession
from streaming_sink import Append, CatalogTable, IcebergSink, Upsert
from tests.servers import faults_of_catalogs
from tests.spark.streams import SMALL
source, uri, checkpoint, app_id, finish, fault = sys.argv[1:]
faults_of_catalogs.switch_on(fault)
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
table = CatalogTable("db.events", {"type": "rest", "uri": uri}, create_namespace=True)
upsert = Upsert(key=["id"], sequence_by="at", delete_where="gone", except_columns=["gone"])
keyed = app_id.startswith("upserts")
write = upsert if keyed else Append(allow_duplicates=True)
sink = IcebergSink(table, write, app_id=app_id, partition_by=["bucket(2, id)"], sizing=SMALL)
rows = spark.readStream.schema("id long, at long, v string" + ", gone boolean" * keyed)
rows = rows.option("maxFilesPerTrigger", 1).json(source)
print("STARTED", flush=True)
ended = False
while not ended:
    ended = os.path.exists(finish)
    query = rows.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()
    time.sleep(0.05)
sink.finish()
print("DONE", flush=True)
"""

Row = tuple[int, int, str]
"""A key, its sequence and its value."""


class Lake:
    """A catalog with one table, the streams that change it, and what it must hold."""

    def __init__(
        self, folder: Path, catalog: RestCatalog, stack: contextlib.ExitStack, fault: str, seed: int
    ) -> None:
        self.folder, self.catalog, self.fault = folder, catalog, fault
        self.finish = folder / "finish"
        self.chance = random.Random(seed)
        self.appended: Counter[int] = Counter()
        """How often a reader of appends is to bring each key that only appends have brought."""
        self.taken_back: tuple[int, list[Row]] | None = None
        """An insert of Spark's that was rolled back: its snapshot and its rows."""
        self._handed: dict[str, list[list[Row]]] = {}
        """Of each stream the rows of each batch that Spark may change once the batch has landed."""
        self._shared: dict[str, list[list[int]]] = {}
        self._by_key: dict[int, tuple[int, str, bool]] = {}
        """Of each key the change that counts: its sequence, its value, and whether it deletes the key."""
        self._spark: dict[int, Row | None] = {}
        """What Spark has made of keys that no stream changes any more."""
        self._left: set[int] = set()
        """Snapshots that are not on main, and that the model knows of."""
        self._last_keys = set(REPEATED)
        self._stack = stack
        self._errors = stack.enter_context((folder / "errors").open("w"))
        self._client = PyIcebergCatalog("test", **catalog.properties)

    def start(self, app: str) -> Child:
        self._source(app).mkdir(exist_ok=True)
        arguments = [self._source(app), self.catalog.uri, self.folder / f"checkpoint-{app}", app, self.finish]
        child = Child(_STREAM, [*arguments, self.fault], self._errors)
        self._stack.callback(child.kill)
        return child

    def start_sql(self) -> Sql:
        sql = Sql(self.catalog.uri, self._errors)
        self._stack.callback(sql.kill)
        return sql

    # ------------------------------------------------------------------------------------- what streams get

    def feed(self, app: str, landed: int) -> None:
        """Let a stream have some batches more than have landed."""
        batches = self._handed.setdefault(app, [])
        while len(batches) < landed + _FEED_AHEAD:
            kind, number = app[:-1], int(app[-1])
            size = _HANDED_A_BATCH[kind]
            start = (APPENDED if kind == APPENDS else HANDED) + 10**7 * number
            first = start + len(batches) * size
            handed = [(first + place, 1, f"of {app}") for place in range(size)]
            changes = self._changes(app, len(batches)) if kind == UPSERTS else []
            if kind == APPENDS:
                self.appended.update(key for key, _, _ in handed)
            self._add(app, [*changes, *((*row, False) for row in handed)], handed)

    def feed_last(self, app: str) -> None:
        """Let a stream change all keys of which the model cannot know what became of them."""
        self._add(app, [(key, LAST, "last", False) for key in sorted(self._last_keys)], [])

    def _changes(self, app: str, number: int) -> list[tuple[int, int, str, bool]]:
        keys = [*self.chance.sample(SHARED, 30), *self.chance.sample(REPEATED, 5)]
        # A batch of rows alone has no look but for others' files.
        deletes = 0.0 if number % 3 else 0.8
        drawn = [(key, self.chance.randrange(LAST), self.chance.random() < deletes) for key in keys]
        return [(key, at, f"{app} at {at}", gone) for key, at, gone in drawn]

    def _add(self, app: str, changes: list[tuple[int, int, str, bool]], handed: list[Row]) -> None:
        own = {key for key, _, _ in handed}
        self._handed[app].append(handed)
        self._shared.setdefault(app, []).append([it[0] for it in changes if it[0] not in own])
        for key, at, value, gone in changes:
            if at > self._by_key.get(key, (-1, "", False))[0]:
                self._by_key[key] = (at, value, gone)
        number = len(self._handed[app])
        hidden, path = self._source(app) / f".{number}", self._source(app) / f"{number:05}.json"
        hidden.write_text("\n".join(json.dumps(dict(zip(_FIELDS, it, strict=True))) for it in changes))
        os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))
        hidden.rename(path)

    def _source(self, app: str) -> Path:
        return self.folder / f"source-{app}"

    # ------------------------------------------------------------------------------------- what became of it

    def table(self) -> Table:
        return self._client.load_table(NAME)

    def landed(self, app: str) -> int:
        """Return how many batches of a stream the table has had."""
        try:
            known = self.table().metadata.properties
        except NoSuchTableError:
            return 0
        text = known.get(f"streaming-sink.txn.{app}")
        return 0 if text is None else json.loads(text)["batch"] + 1

    def take_handed(self, apps: list[str]) -> list[Row]:
        """Return the rows of a batch that has landed, for Spark alone; none where there are no such."""
        app = self.chance.choice(apps)
        batches = self._handed.get(app, [])
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

    def note_appended(self, rows: list[Row]) -> None:
        """Note what Spark has inserted."""
        for row in rows:
            self.set(row[0], row)
        self.appended.update(row[0] for row in rows)

    def newest_insert(self) -> int:
        """Return the snapshot of Spark's last insert."""
        return next(it.snapshot_id for it in reversed(self.table().snapshots()) if _is_insert(it))

    def folder_of_table(self) -> Path:
        return self.catalog.warehouse / NAME.replace(".", "/")

    def shared_keys_that_are_there_twice(self) -> set[int]:
        found = self.table().scan(f"id < {len(SHARED)}", ("id",)).to_arrow()["id"].to_pylist()
        return {key for key, times in Counter(found).items() if times > 1}

    def note_what_left(self) -> None:
        """Forget the batches of snapshots that are on main no more."""
        metadata = self.table().metadata
        on_main = {it.snapshot_id for it in ancestors_of(metadata.current_snapshot(), metadata)}
        for snapshot in metadata.snapshots:
            if snapshot.snapshot_id not in on_main | self._left:
                self._left.add(snapshot.snapshot_id)
                self._forget(snapshot)

    def _forget(self, snapshot: Snapshot) -> None:
        assert snapshot.summary is not None
        told = snapshot.summary.additional_properties
        if "streaming-sink.batch.app-id" not in told:
            return  # a merge, or a statement, of which the model knows
        app, number = told["streaming-sink.batch.app-id"], int(told["streaming-sink.batch.batch-id"])
        for key, _, _ in self._handed[app][number]:
            del self._by_key[key]
            self.appended.pop(key, None)
        self._handed[app][number] = []
        self._last_keys.update(self._shared[app][number])

    # --------------------------------------------------------------------------------------- what it must be

    def expected(self) -> Counter[Row]:
        rows = {key: (key, at, v) for key, (at, v, gone) in self._by_key.items() if not gone}
        together: dict[int, Row | None] = {**rows, **self._spark}
        return Counter(row for row in together.values() if row is not None)


def is_appended(key: int) -> bool:
    """Whether a key is one of an appending stream, or of an insert of Spark's own rows."""
    return APPENDED <= key < OWN or (key >= OWN and key % 10 < 6)


def _is_insert(snapshot: Snapshot) -> bool:
    summary = snapshot.summary
    assert summary is not None
    return summary.operation is Operation.APPEND and "spark.app.id" in summary.additional_properties
