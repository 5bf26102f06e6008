"""Actors of buffered ingestion: producers that announce files, planners, and workers, on one hostile store.

The logs, Flux, the claims and the commit are the real code; the rows of source files are the simulation's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from planners.buffering import BufferedFile, PlannedItem, Rules
from streaming_sink.ingest import worker as worker_module
from streaming_sink.ingest.definition import Definition
from streaming_sink.ingest.flux import Flux
from streaming_sink.ingest.landed import Landed, landed_in, summary_of
from streaming_sink.ingest.ledger import retry
from streaming_sink.ingest.numbered import NumberedLog
from streaming_sink.ingest.worker import Worker
from streaming_sink.ingest.zone import BufferZone
from tests.simulation.acting import Body, commit, think
from tests.simulation.oracle import Work
from tests.simulation.raw import ViolationError
from tests.simulation.scheduler import Actor
from tests.simulation.simulation import Process, Simulation, first_id_time
from tests.simulation.store import LOCATION
from timeline.errors import CommitConflictError, StoreUnavailableError, TableNotFoundError, TimelineError
from timeline.table import AlreadyCommitted, Committed, Table
from timeline.versions.work_items import WorkItem

APP = "ingest-simulated"
_DEFINITION = Definition("simulated", LOCATION, (), {}, {})


class Ingestion:
    """The buffer zone of a simulation, and what its actors do with it."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.rules = Rules(
            max_bytes=sim.random.choice([100, 1 << 40]),
            max_files=sim.random.choice([2, 4, 100]),
            max_age_ms=sim.random.choice([1, 3000, 20_000]),
            per_partition=sim.random.random() < 0.5,
        )
        self.patience = sim.random.choice([0.0, 3.0, 30.0])
        self._works: dict[str, Work] = {}
        self._announced: set[str] = set()

    def zone(self, process: Process) -> BufferZone:
        return _Zone(process, self.rules)

    # ------------------------------------------------------------------------------------ the actors

    def produce(self, times: int) -> Body:
        """A producer announces files, some of them twice, and again where it got no answer."""

        def body(actor: Actor) -> None:
            process = self.sim.process(actor)
            zone = self.zone(process)
            for _ in range(times):
                think(self.sim, process)
                files = [self._file(process) for _ in range(self.sim.random.randrange(1, 4))]
                if self._works and self.sim.random.random() < 0.3:
                    path = self.sim.random.choice(sorted(self._works))
                    files.append(_buffered(path, process))
                    self.sim.meet("announced twice")
                for _ in range(self.sim.random.choice([1, 1, 8])):
                    try:
                        zone.announce(files)
                    except StoreUnavailableError:
                        self.sim.meet("an announcement is tried again")
                        continue
                    self._announced |= {file.path for file in files}
                    break

        return body

    def plan(self, times: int) -> Body:
        """A planner, which may start anew at any time."""

        def body(actor: Actor) -> None:
            process = self.sim.process(actor)
            flux: Flux | None = None
            for _ in range(times):
                think(self.sim, process, self.sim.random.choice([0.3, 3.0]))
                try:
                    if flux is None or self.sim.random.random() < 0.1:
                        flux = Flux(self.zone(process))
                    if flux.plan(flush=self.sim.random.random() < 0.1) is not None:
                        self.sim.meet("items planned")
                except StoreUnavailableError:
                    self.sim.meet("planning is tried again")

        return body

    def work(self, times: int, deadline: float) -> Body:
        """A worker, which may sleep at any time, and start anew."""

        def body(actor: Actor) -> None:
            process = self.sim.process(actor)
            worker: Worker | None = None
            for _ in range(times):
                think(self.sim, process, self.sim.random.choice([0.3, 3.0]))
                if worker is None or self.sim.random.random() < 0.1:
                    worker = self.worker(process, deadline)
                try:
                    landed = worker.land_next(None)  # type: ignore[arg-type]
                except TimelineError as failure:
                    self.sim.meet(f"an item failed: {type(failure).__name__}")
                    continue
                self.sim.met["item landed"] += landed is not None
                self.sim.met["item was published before"] += landed is not None and landed.published_before

        return body

    def worker(self, process: Process, deadline: float) -> Worker:
        made = Worker(self.zone(process), self.patience)
        made._consolidation = _Consolidation(self, process, deadline)  # type: ignore[assignment]
        return made

    # ------------------------------------------------------------------------------------ the end

    def finish(self) -> None:
        """When all is quiet, what was announced lands, each file once."""
        self.sim.scheduler.start("planner-last", self.plan_all)
        self.sim.scheduler.start("worker-last", self.work_all, 50.0)

    def plan_all(self, actor: Actor) -> None:
        Flux(self.zone(self.sim.calm_process(actor))).plan(flush=True)

    def work_all(self, actor: Actor) -> None:
        process = self.sim.calm_process(actor)
        worker = self.worker(process, 60.0)
        for _ in range(200):
            try:
                landed = worker.land_next(None)  # type: ignore[arg-type]
            except CommitConflictError:
                continue
            if landed is None:
                if not worker.open_items():
                    break
                process.environment.sleep(40.0)
                self.sim.met["item set apart"] += len(retry(self.zone(process)))
        done = {work.batch for uuid, work in self.sim.oracle.committed if work.app == "source"}
        missing = sorted(path for path in self._announced if self._works[path].batch not in done)
        if missing:
            raise ViolationError(f"announced files have not landed (R26): {missing}")
        self.sim.meet("all announced files landed")

    # ------------------------------------------------------------------------------------ files

    def _file(self, process: Process) -> BufferedFile:
        number = self.sim.number()
        path = f"/source/{number:06}.parquet"
        self._works[path] = self.sim.work("source", None, number)
        return _buffered(path, process)

    def rows_of(self, item: PlannedItem) -> tuple[int, ...]:
        return tuple(row for file in item.files for row in self._works[file.path].rows)


class _Zone(BufferZone):
    """The zone, in the table's own folder: one store has all faults."""

    def __init__(self, process: Process, rules: Rules) -> None:
        self.store = process.store
        self.environment = process.environment
        self._fixed = rules
        self._log = NumberedLog(process.store, "zone/log", "avro", process.environment)
        self.plans = NumberedLog(process.store, "zone/plans", "avro", process.environment)
        self.storage_options = None

    definition = property(lambda self: _DEFINITION)  # type: ignore[assignment]
    app_id = property(lambda self: APP)  # type: ignore[assignment]
    rules = property(lambda self: self._fixed)  # type: ignore[assignment]
    sources = property(lambda self: None)  # type: ignore[assignment]
    sink_options = property(lambda self: None)  # type: ignore[assignment]


class _Consolidation:
    """In the place of Spark: the rows of an item are known, and become one file."""

    def __init__(self, world: Ingestion, process: Process, deadline: float) -> None:
        self._world, self._process, self._deadline = world, process, deadline
        self._table: Table | None = None

    def table(self) -> Table | None:
        if self._table is None:
            try:
                self._table = self._process.open()
            except TableNotFoundError:
                return None
            self._table.deadline_seconds = self._deadline
        else:
            self._table.refresh()
        return self._table

    def land(self, session: object, item: PlannedItem, is_wanted: Callable[[], bool]) -> Landed:
        sim, process = self._world.sim, self._process
        table = self.table()
        assert table is not None
        transaction = WorkItem(APP, item.number)
        if transaction.check(table.head.properties) is None:
            return landed_in(table.head, APP, item.number)
        if sim.random.random() < 0.3:
            process.environment.sleep(sim.random.choice([1.0, 10.0, 60.0]))
        is_wanted()
        rows = self._world.rows_of(item)
        file = sim.new_file(process, table.head, rows, 0, first_id_time(process, table.head), "ingest")
        landed = Landed(item.number, published_before=False, version=0)
        outcome = commit(
            sim,
            process,
            table,
            [file],
            [],
            transaction,  # type: ignore[arg-type]
            summary=summary_of(APP, landed),
        )
        if isinstance(outcome, Committed):
            for each in item.files:
                work = self._world._works[each.path]
                sim.oracle.acknowledged(work, [file.file_path], outcome.version)
            return Landed(item.number, published_before=False, version=outcome.version)
        if isinstance(outcome, AlreadyCommitted):
            return landed_in(table.head, APP, item.number)
        raise outcome


def _buffered(path: str, process: Process) -> BufferedFile:
    day = "day=mon" if int(path[-9]) % 2 else "day=tue"
    return BufferedFile(path, "v1", 30, process.environment.now_ms(), partition=day)


@contextmanager
def without_threads() -> Iterator[None]:
    """Heartbeats are written when the worker asks whether the item is still its own."""

    @contextmanager
    def heartbeat(claim: Any, seconds: float) -> Iterator[Callable[[], bool]]:
        yield claim.beat

    def nothing(*given: Any) -> None:
        return None

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(worker_module, "heartbeat", heartbeat))
        stack.enter_context(mock.patch.object(worker_module, "Consolidation", nothing))
        yield
