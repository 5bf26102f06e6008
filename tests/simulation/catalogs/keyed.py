"""A table with a key in a catalog: streams of changes by key, and other engines that know nothing of keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Any
from uuid import UUID

from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2, new_table_metadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField

from streaming_sink.options.values.writes import WriteByKey
from streaming_sink.table.table_keys import table_key
from tests.simulation import deltas, fillers, keyed, writers
from tests.simulation.acting import Body
from tests.simulation.catalogs.engines import Engine, ref_update
from tests.simulation.catalogs.key_judge import KeyedCatalogOracle
from tests.simulation.catalogs.schedule import CatalogWorld
from tests.simulation.catalogs.server import ENGINE, NAME, Loaded, Server
from tests.simulation.key_files import keyed_schema
from tests.simulation.key_judge import NEVER_MS, declared_key
from tests.simulation.oracle import Work
from tests.simulation.purgers import Purgers
from tests.simulation.scheduler import Actor
from tests.simulation.simulation import BY_P, Simulation
from tests.simulation.store import LOCATION, Weather
from tests.unit.timeline.world import DAY_MS
from timeline import properties
from timeline.catalogs.opening import open_in_catalog
from timeline.changes.key_changes import DeclareKey
from timeline.errors import KeyConflictError, SchemaMismatchError, TableReplacedError
from timeline.versions.keys import TABLE_SCOPE

_ROWS = (
    "append", "append", "append", "append", "delete_by_copy", "delete_by_copy", "delete_by_position",
    "delete_by_position", "compact", "rewrite_manifests", "set_property",
)  # fmt: skip
_HISTORY = (
    "roll_back", "roll_back", "branch", "branch", "fast_forward", "fast_forward", "tag", "expire",
)  # fmt: skip
_SCHEMAS = ("add_column", "add_and_drop_column", "partition", "partition")
_ONCE = (
    "replace_table", "edit_memory", "recreate", "rename", "delete_by_value", "delete_by_value",
    "change_key_column", "change_key_column",
)  # fmt: skip
_CHANGED = "theirs: column of the key"
_DAY_SECONDS = 20_000.0
"""No schedule lasts as long: what is then named by no snapshot is older than any batch."""


class _AtOnce:
    """A client of the catalog whose requests never fail, for who makes the table."""

    properties: Mapping[str, str] = MappingProxyType({})

    def __init__(self, server: Server) -> None:
        self._server = server

    def load_table(self, identifier: tuple[str, ...]) -> Loaded:
        return self._server.load(identifier)

    def commit_table(self, table: Any, requirements: Sequence[Any], updates: Sequence[Any]) -> Loaded:
        return self._server.commit(table.name(), requirements, updates, "maker")


@dataclass
class KeyedEngine(Engine):
    """Another engine that writes rows of any key, also of those that are there."""

    world: keyed.Keyed | None = None

    def _rows(self) -> tuple[int, ...]:
        assert self.world is not None
        ids = self.world.keys()
        rows = tuple(
            self.world.change(self.sim.random.choice(ids), deletes=False)
            for _ in range(self.sim.random.randrange(1, 3))
        )
        for row in rows:
            self.world.judge.changes[row.row] = row
            self.oracle.owner[row.row] = Work(self.name, None, row.row, (row.row,))
        return tuple(row.row for row in rows)

    def _write(self, rows: Sequence[int], p: int) -> DataFile:
        assert self.world is not None
        changes = self.world.judge.changes
        for row in rows:  # a new one is of the partition that its file is of
            changes[row] = changes[row]._replace(p=p)
        return super()._write(rows, p)

    def roll_back(self) -> None:
        """As the base, or set_current_snapshot: to any snapshot, so that files of older numbers are live."""
        known = sorted(it.snapshot_id for it in self.metadata.snapshots)
        if not known or self.sim.random.random() < 0.5:
            return super().roll_back()
        self.sim.meet("theirs: set_current_snapshot")
        return self._send([ref_update(MAIN_BRANCH, self.sim.random.choice(known))])

    def change_key_column(self) -> None:
        """ALTER TABLE DROP COLUMN, RENAME COLUMN or ALTER COLUMN TYPE, of a column of the key."""
        key = declared_key(self.oracle.head)
        if key is None:
            return
        sequenced = key.has_sequence  # else `at` is a column as any other
        schema = self.metadata.schema()
        what = self.sim.random.choice(["dropped", "renamed", "dropped and added", "widened"])
        name = "p" if what == "widened" else self.sim.random.choice(["id", "at"] if sequenced else ["id"])
        column = next((it for it in schema.fields if it.name == name), None)
        if column is None or (what.startswith("dropped") and self._partitions_by(column)):
            return
        others = tuple(it for it in schema.fields if it is not column)
        self.sim.meet(f"{_CHANGED} {what}")
        if what == "dropped":
            self._set_schema(others)
        elif what == "renamed":
            self._set_schema((*others, _column(column.field_id, f"{name}2", column.field_type)))
        elif what == "widened":
            kept = [_column(it.field_id, it.name, LongType()) if it is column else it for it in schema.fields]
            self._set_schema(tuple(kept))
        else:
            self._set_schema(others)
            added = _column(self.metadata.last_column_id + 1, name, column.field_type)
            self._set_schema((*others, added))

    def _partitions_by(self, column: NestedField) -> bool:
        specs = self.metadata.partition_specs
        return any(it.source_id == column.field_id for spec in specs for it in spec.fields)

    def partition(self) -> None:
        """As the base, where the files of a simulation need not say in which bucket a row is."""
        if self.sim.repartitioning and any(
            it.field_id == 1 for it in self.metadata.schema().fields
        ):  # what it partitions by
            super().partition()

    def remove_orphan_files(self) -> None:
        """remove_orphan_files: what no snapshot names leaves, but for folders that begin with `_`."""
        named = self.oracle.reachable(self.oracle.head)
        store = self.sim.store(None)
        for path in sorted(self.sim.objects.stored):
            if not path.startswith(("_", "metadata/")) and store.uri(path) not in named:
                self.sim.meet("theirs: orphan deleted")
                self.sim.objects.delete(path, self.name)


def _column(field_id: int, name: str, kind: Any) -> NestedField:
    return NestedField(field_id, name, kind, required=False)


class KeyedCatalogWorld(CatalogWorld):
    """One schedule's table with a key, its server, and who commits to it."""

    def __init__(self, sim: Simulation, world: keyed.Keyed) -> None:
        super().__init__(sim)
        self.keyed = world
        self.main = sim.random.choice(keyed.KEYS)
        sim.repartitioning = self.main.key_scope == TABLE_SCOPE
        # Drawn apart, so that schedules without it are as they were.
        purges = Random(f"purge {sim.seed}").random() < 0.25
        self.purging = Purgers(sim, world.judge.purged, None) if purges else None

    @property
    def schema(self) -> Schema:
        return keyed_schema(self.sim.seed)

    def create(self) -> None:
        random = self.sim.random
        ttl_ms = random.choice([NEVER_MS, NEVER_MS, DAY_MS // 2, 3000, 20_000])
        given = {
            **properties.DEFAULTS,
            properties.MANIFEST_MIN_MERGE_COUNT: random.choice(["2", "4", "32"]),
            properties.TOMBSTONE_TTL_MS: str(ttl_ms),
            properties.NAME_MAPPING: properties.name_mapping(self.schema),
            "format-version": "2",
        }
        uuid = UUID(int=random.getrandbits(128), version=4)
        made = new_table_metadata(self.schema, BY_P, UNSORTED_SORT_ORDER, LOCATION, given, uuid)
        assert isinstance(made, TableMetadataV2)
        self.server.put(made, ENGINE)
        if random.random() < 0.7:
            self._declare(self.main)

    def _declare(self, keys: WriteByKey) -> None:
        self.sim.scheduler.now += 1.0  # no snapshot is as old as its table
        store, environment = self.sim.unfailing()
        catalog: Any = _AtOnce(self.server)
        table = open_in_catalog(catalog, NAME, lambda location: store, environment)
        table.commit([DeclareKey(table_key(keys, self.schema))])

    def arrange(self, start: Callable[..., None], weather: Weather) -> None:
        sim, random = self.sim, self.sim.random
        self.create()
        weather.stale = random.choice([0.0, 0.0, 0.1, 0.3])
        self.server.logs = random.random() < 0.5
        self.server.slow_ms = random.choice([0, 0, 3000])
        sim.weather = weather
        deadline = random.choice([1.0, 5.0, 60.0, 600.0])

        def start_guarded(name: str, body: Body, delay: float = 0.0) -> None:
            start(name, self.guarded(body), delay)

        keyed.arrange(sim, self.keyed, self.main, start_guarded, deadline)
        if random.random() < 0.5:
            start_guarded("filler", fillers.fill_beside(sim, random.randrange(4, 10), deadline))
        if random.random() < 0.2:
            start_guarded("clusterer", writers.cluster(sim, random.randrange(2, 5), deadline))
        if random.random() < 0.2:
            start_guarded("owner", writers.set_properties(sim, random.randrange(1, 5)))
        if random.random() < 0.4:
            start_guarded("changer", deltas.fold_deletes(sim, random.randrange(3, 9), deadline))
        if self.purging is not None:
            sim.bounds = self.keyed.bounds
            drawn = Random(f"purgers {sim.seed}")
            for number in range(drawn.choice([1, 1, 2])):
                purges = self.purging.purge(drawn.randrange(1, 3), self.keyed.keys, (0.0, 0.0, 30.0))
                start_guarded(f"purger{number}", purges)
        self._start_engines(start)

    def _start_engines(self, start: Callable[..., None]) -> None:
        random = self.sim.random
        assert isinstance(self.oracle, KeyedCatalogOracle)
        engine = KeyedEngine(self.sim, self.server, self.oracle, world=self.keyed)
        for number in range(random.choice([1, 1, 2, 3])):
            kinds = random.choice([_ROWS, _ROWS, _HISTORY, (*_ROWS, *_HISTORY), (*_ROWS, *_SCHEMAS)])
            name = f"{ENGINE}{number}"
            start(name, self._change(engine, [random.choice(kinds) for _ in range(random.randrange(3, 12))]))
        if random.random() < 0.25:
            start(f"{ENGINE}-once", self._change(engine, [random.choice(_ONCE)]), random.expovariate(1 / 6))
        start(f"{ENGINE}-orphans", self._change(engine, ["remove_orphan_files"]), _DAY_SECONDS)

    def _may_be_undecided(self, error: Exception) -> bool:
        """As the base; main may also be at a snapshot without files, and its link to the witness gone."""
        undecided = isinstance(error, TableReplacedError) and self.oracle.is_undecidable()
        self.sim.met["cannot be decided"] += undecided
        return undecided

    def guarded(self, body: Body) -> Body:
        """As the base; also where a column of the key is no longer what it was."""
        guarded = super().guarded(body)

        def guarding(actor: Actor) -> None:
            try:
                guarded(actor)
            except (KeyConflictError, SchemaMismatchError) as error:
                if not any(what.startswith(_CHANGED) for what in self.sim.met):
                    raise
                self.sim.meet(f"stopped: {type(error).__name__}")

        return guarding
