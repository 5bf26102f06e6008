"""Streams that append and streams that change keys in one table of a real REST catalog, killed and started
again while Spark SQL does all that it does to a table: the table ends as a model has it, by five readers, and
Spark's stream reader brings each appended row once.

How the model follows what takes rows away: a rollback leads back to a snapshot that the stream reader has
just reached, younger than all statements but one insert; so batches of the streams leave, and this insert,
and nothing else (`beside_spark`). A later cherry-pick brings the insert back. Snapshots expire up to where
the stream reader stands. Orphans are removed while all streams are dead, from files that look a week old.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from pyiceberg.table.snapshots import Snapshot

from tests.readers import judges
from tests.readers.canonical import canonical
from tests.servers import binaries
from tests.servers.beside_spark import APPENDS, LAST, NAME, OWN, REPEATED, UPSERTS, Lake, Row, is_appended
from tests.servers.rest_catalog import RestCatalog, rest_catalog
from tests.spark.children import Kills
from tests.tiers import IN_SOAK, SEED, count, longer_in_soak

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.slow, longer_in_soak]

SECONDS = count(0, 600)
"""How long the streams run at least; each statement comes once in any case."""
WRITERS = 4 if IN_SOAK else 2
_WEEK_SECONDS = 7 * 24 * 3600
_COLUMNS = ["id", "at", "v"]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[RestCatalog]:
    (tmp_path / "server").mkdir()
    with contextlib.ExitStack() as running:
        with binaries.or_skip():
            started = running.enter_context(rest_catalog(tmp_path / "server"))
        yield started


def test_streams_that_are_killed_beside_all_that_spark_does_leave_what_the_model_has(
    catalog: RestCatalog, tmp_path: Path
) -> None:
    logging.getLogger(__name__).warning("STREAMING_SINK_KILL_SEED=%d", SEED)
    with contextlib.ExitStack() as stack:
        lake = Lake(tmp_path, catalog, stack, "none", SEED)
        beside = BesideEachOther(lake)
        beside.run(SECONDS)
        beside.kills.assert_half_came_after_a_commit()
        assert not beside.twice
        beside.catch_up()
        by_spark = beside.sql.run(f"SELECT id, at, v FROM lake.{NAME}")
    table, expected = lake.table(), lake.expected()
    judges.assert_same_rows(Counter(map(tuple, by_spark)), expected, "spark")
    for reader in ("pyiceberg", "duckdb", "chdb", "polars"):
        found = judges.read(reader, table.metadata_location.removeprefix("file:"), _COLUMNS)
        judges.assert_same_rows(canonical(found, table.schema(), _COLUMNS), expected, reader)
    assert beside.followed == lake.appended


@pytest.mark.skipif(WRITERS < 4, reason="a negative control, which takes minutes: make soak")
def test_without_a_look_at_deletes_rows_are_wrong(catalog: RestCatalog, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        lake = Lake(tmp_path, catalog, stack, "deletes are ignored", SEED)
        beside = BesideEachOther(lake)
        beside.run(SECONDS // 6)
        found = lake.table().scan(selected_fields=tuple(_COLUMNS)).to_arrow()
        assert beside.twice or canonical(found, lake.table().schema(), _COLUMNS) != lake.expected()


class BesideEachOther:
    """The streams, and Spark SQL beside them."""

    def __init__(self, lake: Lake) -> None:
        self.lake, self.kills = lake, Kills()
        self.apps = [f"{kind}{number}" for number in range(WRITERS // 2) for kind in (UPSERTS, APPENDS)]
        self.sql = lake.start_sql()
        self._children = {app: lake.start(app) for app in self.apps}
        self._began = dict.fromkeys(self.apps, 0)
        """How many batches of each stream had landed when it was last started."""
        self.statements = 0
        self.has_note = False
        self.twice: set[int] = set()
        """Keys of the streams alone that were there twice after a statement: their next change heals it."""
        self.followed: Counter[int] = Counter()
        """How often Spark's stream reader has brought each key that appends alone bring."""

    def run(self, seconds: int) -> None:
        """Land, kill, and let Spark do what it does, for so long, or till a key is there twice; and let all
        streams end.
        """
        keyed = self.apps[0]
        self.lake.feed(keyed, 0)  # its first batch declares the key of the table
        for child in (self.sql, *self._children.values()):
            child.says("STARTED")
        self._children[keyed].wait_until(lambda: self.lake.landed(keyed))
        # Spark's statements conflict with changes of the rows that they read, not with all that is inserted.
        levels = ", ".join(f"'write.{it}.isolation-level'='snapshot'" for it in ("delete", "update", "merge"))
        self.do(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({levels})")
        give_up_at = time.monotonic() + seconds
        while not self.twice and (time.monotonic() < give_up_at or self.statements < len(_STATEMENTS)):
            for app in self.apps:
                self.lake.feed(app, self.lake.landed(app))
            _STATEMENTS[self.statements % len(_STATEMENTS)](self)
            self.statements += 1
            self.twice |= self.lake.shared_keys_that_are_there_twice()
            if self.statements > len(_STATEMENTS) and self.statements % len(_STATEMENTS) == _KILL_AFTER:
                self._start_again(self.apps[len(self.kills.after_a_commit) % len(self.apps)])
        self.lake.feed_last(keyed)
        self.lake.finish.touch()
        for child in self._children.values():
            child.says("DONE")

    def do(self, statement: str) -> None:
        """Run a statement of Spark on the table, which is `{t}` in it, again after each conflict."""
        self.sql.try_until_it_runs(statement.format(t=f"lake.{NAME}"))

    def call(self, procedure: str, arguments: str = "") -> None:
        """Call one of Iceberg's procedures on the table."""
        self.do(f"CALL lake.system.{procedure}(table => '{NAME}'{arguments and ', '}{arguments})")

    def catch_up(self) -> Snapshot:
        """Let Spark's stream reader bring what was appended, and return the snapshot that it has come to."""
        checkpoint = self.lake.folder / "reader"
        found = self.sql.follow(f"lake.{NAME}", checkpoint, "id")
        self.followed.update(key for (key,) in found if is_appended(key))
        newest = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda it: int(it.name))
        known = self.lake.table().snapshot_by_id(
            json.loads(newest.read_text().splitlines()[-1])["snapshot_id"]
        )
        assert known is not None
        return known

    def kill_all(self) -> None:
        for app in self.apps:
            self._kill(app)

    def start_all(self) -> None:
        for app in self.apps:
            self._start(app)

    def _start_again(self, app: str) -> None:
        self._kill(app)
        self._start(app)

    def _start(self, app: str) -> None:
        self._began[app] = self.lake.landed(app)
        self._children[app] = self.lake.start(app)

    def _kill(self, app: str) -> None:
        awaited = self._began[app] + self.kills.commits_before(self.lake.chance)
        self.lake.feed(app, awaited)
        self._children[app].wait_until(lambda: self.lake.landed(app) >= awaited)
        self._children[app].kill()
        self.kills.record(committed=self.lake.landed(app) > self._began[app])


def _insert(beside: BesideEachOther) -> None:
    """Insert rows of Spark's own, and keys that the streams have."""
    lake = beside.lake
    rows = _own_rows(beside, range(6))
    again = [(key, lake.chance.randrange(LAST), "again") for key in lake.chance.sample(REPEATED, 3)]
    beside.do(f"INSERT INTO {{t}} (id, at, v) VALUES {_values([*rows, *again])}")
    lake.note_appended(rows)


def _delete(beside: BesideEachOther) -> None:
    """Delete some rows of a batch that has landed, in one of two modes."""
    _choose_modes(beside)
    if rows := beside.lake.take_handed(beside.apps):
        first, last = rows[0][0], rows[len(rows) // 2][0]
        beside.do(f"DELETE FROM {{t}} WHERE id BETWEEN {first} AND {last}")
        for key in range(first, last + 1):
            beside.lake.set(key, None)


def _update(beside: BesideEachOther) -> None:
    """Update some rows of a batch that has landed, in one of two modes."""
    _choose_modes(beside)
    if rows := beside.lake.take_handed(beside.apps):
        keys = [row[0] for row in rows[::2]]
        beside.do(f"UPDATE {{t}} SET v = 'updated' WHERE id IN ({', '.join(map(str, keys))})")
        for key in keys:
            beside.lake.set(key, (key, 1, "updated"))


def _merge(beside: BesideEachOther) -> None:
    """Merge into Spark's own rows: update some, and insert others."""
    lake = beside.lake
    known = [row[0] for row in lake.own()]
    new = [row[0] for row in _own_rows(beside, range(6, 8))]
    keys = [*lake.chance.sample(known, min(4, len(known))), *new]
    rows = [(key, beside.statements, "merged") for key in keys]
    beside.do(
        f"MERGE INTO {{t}} t USING (SELECT * FROM VALUES {_values(rows)} AS s(id, at, v)) s"
        " ON t.id = s.id WHEN MATCHED THEN UPDATE SET at = s.at, v = s.v"
        " WHEN NOT MATCHED THEN INSERT (id, at, v) VALUES (s.id, s.at, s.v)"
    )
    for row in rows:
        lake.set(row[0], row)


def _compact(beside: BesideEachOther) -> None:
    beside.call("rewrite_data_files", "options => map('rewrite-all', 'true')")


def _compact_deletes(beside: BesideEachOther) -> None:
    beside.call("rewrite_position_delete_files", "options => map('rewrite-all', 'true')")
    beside.call("rewrite_manifests")


def _alter(beside: BesideEachOther) -> None:
    """Add a column, or drop it again."""
    beside.do(f"ALTER TABLE {{t}} {'DROP COLUMN note' if beside.has_note else 'ADD COLUMN note STRING'}")
    beside.has_note = not beside.has_note


def _roll_back(beside: BesideEachOther) -> None:
    """Insert, and take that and what the streams do meanwhile back; what was there before stays."""
    lake = beside.lake
    stay, leave = _own_rows(beside, range(3)), _own_rows(beside, range(3, 6))
    beside.do(f"INSERT INTO {{t}} (id, at, v) VALUES {_values(stay)}")
    lake.note_appended(stay)
    back_to = beside.catch_up()
    beside.do(f"INSERT INTO {{t}} (id, at, v) VALUES {_values(leave)}")
    lake.taken_back = lake.newest_insert(), leave
    beside.call("rollback_to_snapshot", f"snapshot_id => {back_to.snapshot_id}")
    lake.note_what_left()


def _cherry_pick(beside: BesideEachOther) -> None:
    """Bring the insert back that a rollback took."""
    if beside.lake.taken_back is not None:
        snapshot_id, rows = beside.lake.taken_back
        beside.call("cherrypick_snapshot", f"snapshot_id => {snapshot_id}")
        beside.lake.note_appended(rows)
        beside.lake.taken_back = None


def _expire(beside: BesideEachOther) -> None:
    """Expire all snapshots but those that the stream reader has before it."""
    at = dt.datetime.fromtimestamp(beside.catch_up().timestamp_ms / 1000, dt.timezone.utc)
    beside.call("expire_snapshots", f"older_than => TIMESTAMP '{at:%Y-%m-%d %H:%M:%S.%f}'")
    beside.lake.taken_back = None


def _remove_orphans(beside: BesideEachOther) -> None:
    """Remove what no snapshot names, once no stream is there to name it."""
    beside.kill_all()
    week_ago = time.time() - _WEEK_SECONDS
    for file in beside.lake.folder_of_table().rglob("*"):
        os.utime(file, (week_ago, week_ago))
    beside.call("remove_orphan_files")
    beside.start_all()


_KILL_AFTER = 5
"""So many statements of each round but the first; all streams are killed where orphans are removed."""
_STATEMENTS: list[Callable[[BesideEachOther], None]] = [
    *(_insert, _delete, _update, _alter, _roll_back, _merge, _compact, _cherry_pick, _remove_orphans),
    *(_expire, _delete, _compact_deletes, _alter),
]


def _own_rows(beside: BesideEachOther, places: Iterable[int]) -> list[Row]:
    return [(OWN + beside.statements * 10 + place, 1, "own") for place in places]


def _choose_modes(beside: BesideEachOther) -> None:
    mode = beside.lake.chance.choice(["copy-on-write", "merge-on-read"])
    modes = ", ".join(f"'write.{it}.mode'='{mode}'" for it in ("delete", "update", "merge"))
    beside.do(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({modes})")


def _values(rows: list[Row]) -> str:
    return ", ".join(f"({key}, {at}, '{value}')" for key, at, value in rows)
