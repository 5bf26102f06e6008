"""Actors of buffered ingestion: producers that announce files, planners, and workers, on one hostile store.

The logs, Flux, the claims and the commit are the real code; the rows of source files are the simulation's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from pyiceberg.manifest import DataFile
from pyiceberg.table.snapshots import Snapshot

from planners.ingestion.buffering import BufferedFile, PlannedItem, PlanningRules
from streaming_sink.ingest import worker as worker_module
from streaming_sink.ingest.publishing import NotWantedError
from streaming_sink.ingest.worker import Worker
from streaming_sink.ingest.zone import BufferZone
from streaming_sink.zones.definition import Definition
from streaming_sink.zones.errors import AuditFailedError, StagedFilesLostError
from streaming_sink.zones.landed import Landed, landed_in, summary_of
from streaming_sink.zones.ledger import retry
from streaming_sink.zones.planning.flux import Flux
from streaming_sink.zones.records import Plan, mark_of
from streaming_sink.zones.write_audit_publish import settle
from tests.simulation.acting import OPEN_BELOW, Body, think, told
from tests.simulation.oracle import Work
from tests.simulation.raw import ViolationError
from tests.simulation.scheduler import Actor
from tests.simulation.simulation import Process, Simulation, content, first_id_time
from tests.simulation.store import DROP, LOCATION
from timeline import staging
from timeline.changes.changes import Append
from timeline.changes.references import AllowReferences, allows_references
from timeline.changes.staging_changes import Publish
from timeline.errors import (
    CommitConflictError,
    CorruptTableError,
    StoreUnavailableError,
    TableNotFoundError,
    TimelineError,
)
from timeline.slots.numbered import NumberedLog
from timeline.table import AlreadyCommitted, Committed, Table
from timeline.versions.past import SOURCE_SNAPSHOT_ID
from timeline.versions.staged import PUBLISHED_WAP_ID, find_staged, staged_files
from timeline.versions.work_items import PlanOfItem, WorkItem, discarded_items, published_items, settled_items

APP = "ingest-simulated"
_DEFINITION = Definition("simulated", LOCATION, {}, {}, {})


class Ingestion:
    """The buffer zone of a simulation, and what its actors do with it."""

    def __init__(self, sim: Simulation, audited: bool = False) -> None:
        self.sim = sim
        self.audited = audited
        self.references = sim.seed % 4 == 1
        """Whether every second item is one large file, which is registered by reference."""
        self.lenient = False
        """Whether audits let everything pass."""
        self.items: dict[int, PlannedItem] = {}
        """Those that a worker has seen."""
        self.rules = PlanningRules(
            max_bytes=sim.random.choice([100, 1 << 40]),
            max_files=sim.random.choice([2, 4, 100]),
            max_age_ms=sim.random.choice([1, 3000, 20_000]),
            per_partition=sim.random.random() < 0.5,
        )
        self.patience = sim.random.choice([0.0, 3.0, 30.0])
        self._works: dict[str, Work] = {}
        self._announced: set[str] = set()
        self._discarded: set[str] = set()
        self.staged_timeout_ms = sim.random.choice([500, 60_000]) if audited else 60_000

    def zone(self, process: Process) -> BufferZone:
        return _Zone(process, self.rules, self.staged_timeout_ms)

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
                    if self.audited and self.sim.random.random() < 0.1:
                        worker.unstage_old()
                except TimelineError as failure:
                    self.sim.meet(f"an item failed: {type(failure).__name__}")
                    continue
                self.sim.met["item landed"] += landed is not None
                self.sim.met["item was published before"] += landed is not None and landed.published_before

        return body

    def decide(self, times: int) -> Body:
        """An operator, who frees, publishes or discards items, held or not."""

        def body(actor: Actor) -> None:
            process = self.sim.calm_process(actor)
            table = process.open()
            for _ in range(times):
                think(self.sim, process, self.sim.random.choice([0.3, 3.0]))
                if self.sim.random.random() < 0.3:
                    retry(self.zone(process))
                if not self.items:
                    continue
                number = self.sim.random.choice(sorted(self.items))
                numbered = WorkItem(APP, number)
                table.refresh()
                staged = find_staged(table.head, numbered)
                try:
                    what = self.sim.random.random()
                    if what < 0.1:
                        staging.discard_item(table, numbered)
                    elif staged is not None and what < 0.5:
                        self.sim.oracle.staged.approved.add(staged.snapshot_id)
                        self._publish_late(process, table, numbered, staged)
                    elif staged is not None:
                        staging.unstage_item(table, numbered, staged.snapshot_id)
                except TimelineError as failure:
                    self.sim.meet(f"a decision failed: {type(failure).__name__}")
                if number in discarded_items(table.head.properties, APP):
                    self.note_discarded(number)

        return body

    def copy(self, actor: Actor) -> None:
        """A process of a copy of the zone, as of some moment: it plans on by itself, and lands an item once
        the table has one of a later plan of the zone. The item has the number of another one.
        """
        process = self.sim.calm_process(actor)
        zone, plans = self.zone(process), dict[int, Plan]()
        for _ in range(30):
            plans = dict(zone.plans_after(0))
            if plans:
                break
            think(self.sim, process, 1.0)
        else:
            self.sim.meet("nothing to copy of a zone")
            return
        marks = {number: mark_of(plan) for number, plan in plans.items()}
        last, item = max(plans), plans[max(plans)].items[-1].number + 1
        marks[last + 1] = "OF-THE-COPY-----"
        table = process.open()
        for _ in range(30):
            think(self.sim, process, 3.0)
            if any(highest >= item for _, highest in settled_items(table.refresh().properties, APP).ranges):
                break
        else:
            self.sim.meet("copy of a zone that went no further")
            return
        copied = WorkItem(APP, item, PlanOfItem(last + 1, marks[last + 1], marks.get))
        try:
            table.commit([], transaction=copied)
        except CorruptTableError:
            self.sim.meet("copy of a zone refused")
        else:
            raise ViolationError(f"work item {item} of a copy passes for the zone's (R26)")

    def _publish_late(self, process: Process, table: Table, item: WorkItem, staged: Snapshot) -> None:
        """As `staging.publish`, by a process that sleeps between its look and its commit."""
        change = Publish(staged_files(table.head, staged), item, staged.snapshot_id)
        process.environment.sleep(self.sim.random.choice([0.0, 3.0, 30.0]))
        told = {PUBLISHED_WAP_ID: item.wap_id, SOURCE_SNAPSHOT_ID: str(staged.snapshot_id)}
        table.commit([change], schema_id=staged.schema_id, transaction=item, summary=told)

    def note_discarded(self, number: int) -> None:
        """An item is known to be discarded: none of its rows may ever land."""
        for file in self.items[number].files:
            self._discarded.add(file.path)
            self.sim.oracle.never.add(self._works[file.path])

    def worker(self, process: Process, deadline: float) -> Worker:
        made = Worker(self.zone(process), self.patience)
        made._landing = _ItemLanding(self, process, deadline, made._zone.work_item)  # type: ignore[assignment]
        return made

    # ------------------------------------------------------------------------------------ the end

    def finish(self) -> None:
        """When all is quiet, what was announced lands, each file once."""
        self.lenient = True
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
            except (CommitConflictError, NotWantedError):
                continue
            if landed is None:
                if not worker.open_items():
                    break
                process.environment.sleep(40.0)
                self.sim.met["item set apart"] += len(retry(self.zone(process)))
        done = {work.batch for uuid, work in self.sim.oracle.committed if work.app == "source"}
        missing = sorted(
            path
            for path in self._announced
            if self._works[path].batch not in done and path not in self._discarded
        )
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

    def __init__(self, process: Process, rules: PlanningRules, staged_timeout_ms: int) -> None:
        self._timeout_ms = staged_timeout_ms
        self.store = process.store
        self.environment = process.environment
        self._fixed = rules
        self._log = NumberedLog(process.store, "zone/log", "avro", process.environment)
        self.plans = NumberedLog(process.store, "zone/plans", "avro", process.environment)
        self.storage_options = None
        self.given_audit = None

    definition = property(lambda self: _DEFINITION)  # type: ignore[assignment]
    app_id = property(lambda self: APP)  # type: ignore[assignment]
    rules = property(lambda self: self._fixed)  # type: ignore[assignment]
    sources = property(lambda self: None)  # type: ignore[assignment]
    staged_timeout_ms = property(lambda self: self._timeout_ms)  # type: ignore[assignment]
    sink_options = property(lambda self: None)  # type: ignore[assignment]


class _ItemLanding:
    """In the place of Spark: the rows of an item are known, and become one file."""

    def __init__(
        self, world: Ingestion, process: Process, deadline: float, work_item: Callable[[int], WorkItem]
    ) -> None:
        self._world, self._process, self._deadline = world, process, deadline
        self._work_item = work_item
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

    def has_published(self, item: PlannedItem) -> bool:
        table = self._table
        return table is not None and item.number in published_items(table.head.properties, APP)

    def land(self, session: object, item: PlannedItem, is_wanted: Callable[[], bool]) -> Landed:
        sim, process = self._world.sim, self._process
        table = self.table()
        assert table is not None
        transaction = self._work_item(item.number)
        self._world.items[item.number] = item
        done = settle(table, transaction, lambda staged, files: self._audit(item, staged, files), OPEN_BELOW)
        if done is not None:
            return self._settled(table, item, done)
        if sim.random.random() < 0.3:
            process.environment.sleep(sim.random.choice([1.0, 10.0, 60.0]))
        is_wanted()
        file, own = self._file(table, item)
        landed = Landed(item.number, published_before=False, version=0)
        if self._world.audited and sim.random.random() < 0.85:
            staged = told(
                sim,
                process,
                own,
                lambda: staging.stage_item(table, transaction, [file], summary=summary_of(APP, landed)),
            )
            if isinstance(staged, TimelineError):
                raise staged
            if sim.random.random() < 0.3:
                process.environment.sleep(sim.random.choice([1.0, 10.0, 60.0]))
            return self.land(session, item, is_wanted)
        outcome = told(
            sim,
            process,
            own,
            lambda: table.commit(
                [Append((file,))],
                transaction=transaction,
                summary=summary_of(APP, landed),
                open_below_bytes=OPEN_BELOW,
            ),
        )
        if isinstance(outcome, Committed):
            for each in item.files:
                work = self._world._works[each.path]
                sim.oracle.acknowledged(work, own, outcome.version)
            return Landed(item.number, published_before=False, version=outcome.version)
        if isinstance(outcome, AlreadyCommitted):
            return self._settled(table, item, outcome)
        raise outcome

    def _file(self, table: Table, item: PlannedItem) -> tuple[DataFile, list[str]]:
        """Return the file of an item, and which files this worker has written for it: none where the file is
        registered by reference, whichever worker lands it.
        """
        sim, process, rows = self._world.sim, self._process, self._world.rows_of(item)
        if not self._world.references or item.number % 2:
            file = sim.new_file(process, table.head, rows, 0, first_id_time(process, table.head), "ingest")
            return file, [file.file_path]
        if not allows_references(table.head):
            table.commit([AllowReferences()])
        sim.meet("file by reference")
        return sim.referenced_file(table.head, rows, f"{DROP}/{item.number:06}.parquet"), []

    def _audit(self, item: PlannedItem, staged: Snapshot, files: Sequence[DataFile]) -> None:
        """The staged files hold the rows of the item; some items fail until an operator lets them pass."""
        sim, rows = self._world.sim, list[int]()
        for file in files:
            try:
                data = self._process.store.read(self._process.store.key(file.file_path)).data
            except FileNotFoundError as missing:
                raise StagedFilesLostError(f"it is missing: {file.file_path}") from missing
            if data != content(sim.oracle.rows[file.file_path]):
                raise ViolationError(f"a staged file holds other rows than were written: {file.file_path}")
            rows += sim.oracle.rows[file.file_path]
        if sorted(rows) != sorted(self._world.rows_of(item)):
            raise ViolationError(f"work item {item.number} is staged with other rows than its own (R27)")
        if sim.random.random() < 0.5:
            self._process.environment.sleep(sim.random.choice([1.0, 10.0, 60.0]))
        if item.number % 4 == 3 and not self._world.lenient:
            sim.meet("item held")
            raise AuditFailedError("it is a number that fails")
        sim.oracle.staged.approved.add(staged.snapshot_id)

    def _settled(self, table: Table, item: PlannedItem, done: Committed | AlreadyCommitted) -> Landed:
        """What became of an item that the head has."""
        if item.number in discarded_items(table.head.properties, APP):
            self._world.note_discarded(item.number)
            raise NotWantedError(f"work item {item.number} was discarded")
        if isinstance(done, AlreadyCommitted):
            return landed_in(table.head, APP, item.number)
        for each in item.files:
            self._world.sim.oracle.acknowledged(self._world._works[each.path], [], done.version)
        return Landed(item.number, published_before=False, version=done.version)


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
        stack.enter_context(mock.patch.object(worker_module, "ItemLanding", nothing))
        yield
