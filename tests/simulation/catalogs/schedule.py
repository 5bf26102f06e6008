"""Draws a schedule of a table in a catalog: the streams of this protocol, and other engines beside them."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

from pyiceberg.table.metadata import TableMetadataV2, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from streaming_sink.tasks.leaves import field_id
from tests.simulation import cleaners, clusterers, deltas, fillers, naming, others, repartitioners, writers
from tests.simulation.acting import Body, think
from tests.simulation.catalogs import partition_columns
from tests.simulation.catalogs.engines import Engine
from tests.simulation.catalogs.judge import CatalogOracle
from tests.simulation.catalogs.server import ENGINE, NAME, Server, SimulatedCatalog, server_now_ms
from tests.simulation.raw import ViolationError
from tests.simulation.scheduler import Actor
from tests.simulation.simulation import BY_P, SCHEMA, Process, Query, Simulation
from tests.simulation.store import LOCATION, Weather
from timeline import properties
from timeline.catalogs.opening import open_in_catalog
from timeline.errors import (
    CommitConflictError,
    CorruptTableError,
    TableNotFoundError,
    TableReplacedError,
    UnsupportedTableError,
)
from timeline.table import Table

_ROWS = (
    "append", "append", "append", "delete_by_copy", "delete_by_copy", "delete_by_position",
    "delete_by_position", "compact", "rewrite_manifests", "set_property",
)  # fmt: skip
_HISTORY = (
    "roll_back",
    "roll_back",
    "branch",
    "branch",
    "fast_forward",
    "fast_forward",
    "tag",
    "expire",
    "expire",
)
_SCHEMAS = (
    "add_column",
    "drop_or_rename_column",
    "drop_or_rename_column",
    "add_and_drop_column",
    "partition",
)
_GRACES = ("0", "1000", "10000")
_NAMES = ("tag", "move_tag", "move_tag", "branch", "append")
_ONCE = ("replace_table", "replace_table", "edit_memory", "recreate", "rename", "delete_by_value")
"""What a schedule has once at most: most of it stops the streams for good."""


class CatalogWorld:
    """One schedule's table, its server, and who commits to it."""

    def __init__(self, sim: Simulation) -> None:
        assert isinstance(sim.oracle, CatalogOracle)
        self.sim, self.oracle = sim, sim.oracle
        self.server = Server(lambda: server_now_ms(sim), self.oracle, sim.store(None))
        sim.opening = self._open
        sim.columns_of = lambda head: frozenset(field.field_id for field in head.schema.fields)
        sim.columns_in = lambda schema: frozenset(map(field_id, schema))

    def create(self) -> None:
        """Make an empty table, as the catalog answers its creation."""
        random = self.sim.random
        given = {**properties.DEFAULTS, properties.MANIFEST_MIN_MERGE_COUNT: random.choice(["2", "4", "32"])}
        given |= {properties.MIN_SNAPSHOTS_TO_KEEP: "1", properties.DELETION_GRACE_MS: random.choice(_GRACES)}
        given |= {properties.MAX_SNAPSHOT_AGE_MS: random.choice(["1000", "86400000", "86400000"])}
        if random.random() < 0.3:  # another engine has made it
            del given[properties.MAX_SNAPSHOTS]
        given[properties.NAME_MAPPING] = properties.name_mapping(SCHEMA)
        uuid = UUID(int=random.getrandbits(128), version=4)
        made = new_table_metadata(
            SCHEMA, BY_P, UNSORTED_SORT_ORDER, LOCATION, {**given, "format-version": "2"}, uuid
        )
        assert isinstance(made, TableMetadataV2)
        self.server.put(made, ENGINE)

    def arrange(self, start: Callable[..., None], weather: Weather) -> None:
        sim, random = self.sim, self.sim.random
        self.create()
        weather.stale = random.choice([0.0, 0.0, 0.1, 0.3])
        self.server.logs = random.random() < 0.5
        # Where neither a log nor the time tells an old state, a commit stays unknown until the next one.
        self.server.slow_ms = random.choice([0, 3000]) if self.server.logs else 0
        sim.weather = weather
        deadline = random.choice([1.0, 5.0, 60.0, 600.0])
        fills = random.random() < 0.7
        for number in range(random.choice([1, 2, 2, 3])):
            query = Query(f"app{number}", f"query{number}", random.randrange(2, 7))
            body = self.guarded(writers.stream(sim, query, fills, deadline))
            start(f"stream{number}", body)
            if random.random() < 0.35:
                start(f"twin{number}", body, random.expovariate(1 / 3))
        if random.random() < 0.4:
            appends = writers.append_at_times(sim, "plain", random.randrange(2, 6), fills, deadline)
            start("appender", self.guarded(appends))
        if random.random() < 0.5:
            start("filler", self.guarded(fillers.fill_beside(sim, random.randrange(4, 10), deadline)))
        if random.random() < 0.3:
            start("clusterer", self.guarded(writers.cluster(sim, random.randrange(2, 5), deadline)))
        planned = random.choice([0, 0, 1, 2])
        for number in range(planned):
            plans = clusterers.cluster_by_plans(sim, random.randrange(2, 5), deadline)
            start(f"clusterer{number}", self.guarded(plans))
        if planned and random.random() < 0.3:
            start("vandal", others.spoil_the_timeline(sim, random.randrange(1, 4)))
        if random.random() < 0.3:
            start("owner", self.guarded(writers.set_properties(sim, random.randrange(1, 5))))
        if random.random() < 0.3:
            start("changer", self.guarded(deltas.fold_deletes(sim, random.randrange(3, 9), deadline)))
        if random.random() < 0.2:
            for number in range(2):
                start(f"evolver{number}", self.guarded(writers.evolve(sim, random.randrange(1, 4))))
        elif random.random() < 0.2:
            for number in range(2):
                body = repartitioners.repartition(sim, random.randrange(1, 4))
                start(f"repartitioner{number}", self.guarded(body))
        if random.random() < 0.4:
            start("expirer", self.guarded(cleaners.expire(sim, random.randrange(2, 6))))
        if random.random() < 0.3:
            start("cleaner", self.guarded(cleaners.remove_orphans(sim, random.randrange(1, 4))))
        self._start_engines(start)

    def _start_engines(self, start: Callable[..., None]) -> None:
        random = self.sim.random
        has_columns = partition_columns.has_partition_columns(self.sim.seed)
        kind = partition_columns.ColumnEngine if has_columns else Engine
        engine = kind(self.sim, self.server, self.oracle)
        for number in range(random.choice([1, 1, 2, 3])):
            kinds = random.choice([_ROWS, _ROWS, _HISTORY, (*_ROWS, *_HISTORY), (*_ROWS, *_SCHEMAS)])
            name = f"{ENGINE}{number}"
            start(name, self._change(engine, [random.choice(kinds) for _ in range(random.randrange(3, 12))]))
        if random.random() < 0.3:
            start(f"{ENGINE}-once", self._change(engine, [random.choice(_ONCE)]), random.expovariate(1 / 6))
        if has_columns:
            kinds = [random.choice(partition_columns.KINDS) for _ in range(random.randrange(6, 20))]
            start(f"{ENGINE}-columns", self._change(engine, kinds))
        if naming.has_names_in_a_catalog(self.sim.seed):
            kinds = [random.choice(_NAMES) for _ in range(random.randrange(10, 30))]
            start(f"{ENGINE}-names", self._change(engine, kinds))
            for number in range(2):
                start(
                    f"remover{number}", self.guarded(naming.remove_theirs(self.sim, random.randrange(4, 10)))
                )

    def _change(self, engine: Engine, kinds: list[str]) -> Body:
        pace = self.sim.random.choice([0.2, 1.0, 3.0])

        def body(actor: Actor) -> None:
            process = self.sim.calm_process(actor)
            for kind in kinds:
                think(self.sim, process, pace)
                getattr(engine, kind)()

        return body

    def guarded(self, body: Body) -> Body:
        """Return an actor that stops where the table is no longer what it has opened, and not before."""

        def guarding(actor: Actor) -> None:
            try:
                body(actor)
            except (TableReplacedError, CorruptTableError, UnsupportedTableError) as error:
                edited = isinstance(error, CorruptTableError) and self.oracle.met["theirs: memory edited"]
                again = isinstance(error, UnsupportedTableError) and self.oracle.met["table made again"]
                stops = self.oracle.stops or self._saw_it_replaced(error)
                if not (stops or edited or again or self._may_be_undecided(error)):
                    raise
                self.sim.meet(f"stopped: {type(error).__name__}")
            except TableNotFoundError:
                if self.server.name == NAME:
                    raise
                self.sim.meet("stopped: TableNotFoundError")
            except CommitConflictError:
                if not self.oracle.met["table made again"]:
                    raise

        return guarding

    def _saw_it_replaced(self, error: Exception) -> bool:
        """Return whether the error is of a head of the replaced table, though main was set back since."""
        at = re.search(r"main is at (None|[0-9]+)\.", str(error))
        if at is None or not isinstance(error, TableReplacedError):
            return False
        saw = (None if at[1] == "None" else int(at[1])) in self.oracle.replaced_mains
        self.sim.met["stopped at a head from before a replaced table was set back"] += saw
        return saw

    def _may_be_undecided(self, error: Exception) -> bool:
        """Where all files were written again, and all snapshots from before have expired.

        Then a log may show that main was begun anew, though it was set to a branch from before since (R30).
        """
        if not isinstance(error, TableReplacedError) or not self.oracle.is_undecidable():
            return False
        undecided = "cannot be decided" in str(error)
        self.sim.met["cannot be decided"] += undecided
        return undecided or bool(self.oracle.replaced_mains)

    def _open(self, process: Process) -> Table:
        catalog = SimulatedCatalog(self.sim, self.server, process.actor, process.environment.now_ms)
        return open_in_catalog(catalog, NAME, lambda location: process.store, process.environment)  # type: ignore[arg-type]

    def finish(self) -> None:
        """When all is quiet, a last reader sees what the oracle knows."""

        def last(actor: Actor) -> None:
            with suppress(TableNotFoundError):
                table = self._open(self.sim.process(actor))
                seen = {file.location for file in table.head.live_files()}
                if seen != self.oracle.head.files.live.keys():
                    raise ViolationError("a last reader sees other files than are live")

        self.sim.scheduler.start("last reader", last)
