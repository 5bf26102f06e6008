"""Actors around an outbox: streams whose rows do not all fit, who deliver, and a second table's cleaner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from tests.simulation import cleaners
from tests.simulation.acting import TRIES, Body, commit, patiently, patiently_refreshed, think
from tests.simulation.oracle import Work
from tests.simulation.outbox_judge import MainJudge, SecondJudge
from tests.simulation.raw import ViolationError
from tests.simulation.scheduler import Actor
from tests.simulation.simulation import (
    BY_P,
    PARTITIONS,
    SAFE_DISTANCE,
    SCHEMA,
    VERSIONS_KEPT,
    Process,
    Query,
    Simulation,
    content,
    first_id_time,
)
from tests.simulation.store import LOCATION, Objects, SimulatedStore
from timeline import names
from timeline.changes.outbox_changes import PutOutbox
from timeline.errors import (
    CheckpointRegressionError,
    CommitConflictError,
    CommitStateUnknownError,
    FencedError,
    StoreUnavailableError,
)
from timeline.maintenance.orphans import remove_orphan_files
from timeline.outbox import Delivered, Outcome, deliver, deliver_all, register_main
from timeline.table import AlreadyCommitted, Committed, Table
from timeline.versions.outbox import Delivery
from timeline.versions.transactions import Transaction

SECOND = f"{LOCATION}__second"
_FAILURES = (CommitStateUnknownError, StoreUnavailableError, CommitConflictError)


class Outbox:
    """The two tables of a simulation, and what its actors do with them."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.judge = MainJudge(LOCATION, VERSIONS_KEPT, SAFE_DISTANCE, met=sim.met)
        self.second = SecondJudge(SECOND, VERSIONS_KEPT, SAFE_DISTANCE, met=sim.met, main=self.judge)
        self.judge.second = self.second
        sim.oracle = sim.objects.watcher = self.judge
        self.objects = Objects(self.second)

    def create(self, properties: dict[str, str]) -> None:
        """Create both tables, the second without knowing the main one."""
        store, environment = self.sim.unfailing()
        for each in (store, self._second_store(store)):
            Table.create(
                each,
                SCHEMA,
                BY_P,
                table_properties=properties,
                environment=environment,
                store_is_checked=True,
            )

    def finish(self) -> None:
        """Deliver what is left, and judge the end."""
        store, environment = self.sim.unfailing()
        second = self._second_store(store)
        deliver_all(Table.open(store, environment), lambda _: Table.open(second, environment))
        self.judge.check_all_delivered()

    # ------------------------------------------------------------------------------------ the actors

    def stream(self, query: Query, deadline: float) -> Body:
        """A process that runs a query on its checkpoint, and restarts it when it fails."""

        def body(actor: Actor) -> None:
            process = self.sim.process(actor)
            for _ in range(TRIES):
                try:
                    if self._run(process, query, deadline):
                        return
                except _FAILURES as failure:
                    self.sim.tell(actor.name, f"=> {type(failure).__name__}: {failure}")
                think(self.sim, process)

        return body

    def deliver_late(self, times: int) -> Body:
        """Delivers what a head named that may be old by then."""

        def body(actor: Actor) -> None:
            process = self.sim.process(actor)
            table = patiently(self.sim, process, process.open)
            for _ in range(times if isinstance(table, Table) else 0):
                assert isinstance(table, Table)
                think(self.sim, process, 3.0)
                try:
                    app = self.sim.random.choice(["app0", "app1"])
                    self._judge(process, deliver(table, app, lambda _: self._open_second(process)))
                except _FAILURES as failure:
                    self.sim.tell(actor.name, f"=> {type(failure).__name__}: {failure}")
                if self.sim.random.random() < 0.7:
                    patiently_refreshed(self.sim, process, table)

        return body

    def clean(self, times: int) -> Body:
        """Removes the orphans of the second table."""

        def body(actor: Actor) -> None:
            process = self.sim.process(actor)
            for _ in range(times):
                think(self.sim, process, 2.0)
                age = timedelta(seconds=self.sim.random.choice([0.1, 1, 5]))
                self.sim.tell(actor.name, "CLEAN THE SECOND TABLE")
                try:
                    second = self._open_second(process)
                    remove_orphan_files(second, older_than=age, open_table=lambda _: process.open())
                    self.sim.meet("second table cleaned")
                except _FAILURES as failure:
                    self.sim.tell(actor.name, f"=> {type(failure).__name__}: {failure}")

        return body

    def clean_main(self, times: int) -> Body:
        return cleaners.remove_orphans(self.sim, times)

    # ------------------------------------------------------------------------------- a run of a query

    def _run(self, process: Process, query: Query, deadline: float) -> bool:
        """Return whether the query ended for good."""
        sim, run_id = self.sim, f"run-{self.sim.number()}"
        table, second = process.open(), self._open_second(process)
        table.deadline_seconds = deadline
        register_main(second, table)
        epoch, delivered, batch = None, None, query.committed + 1
        while batch < query.limit:
            if (table.head.outbox(query.app) or _NOTHING).sequence != delivered:
                delivered = self._deliver(process, table, query.app, second)
            if batch == len(query.works):
                query.works.append(self._work(query, batch))
            transaction = Transaction(query.app, query.query, run_id, batch, epoch, query.takeover_from)
            try:
                outcome = self._commit(process, table, second, query.works[batch], transaction, delivered)
            except (FencedError, CheckpointRegressionError):
                return True
            except CommitConflictError:
                if sim.random.random() < 0.5 or patiently_refreshed(sim, process, table) is None:
                    return False
                continue
            epoch = outcome.epoch
            query.committed = max(query.committed, batch)
            batch += 1
            if sim.random.random() < 0.7:
                delivered = self._deliver(process, table, query.app, second)
            think(sim, process)
        return True

    def _work(self, query: Query, batch: int) -> Work:
        work = self.sim.work(query.app, query.query, batch)
        if self.sim.random.random() < 0.8:
            self.judge.left[work] = self.sim.work(query.app, "outbox", batch)
            self.second.owner.update(dict.fromkeys(self.judge.left[work].rows, self.judge.left[work]))
        return work

    def _commit(
        self,
        process: Process,
        table: Table,
        second: Table,
        work: Work,
        transaction: Transaction,
        delivered: int | None,
    ) -> Committed | AlreadyCommitted:
        sim, known, time_ms = self.sim, table.head, first_id_time(process, table.head)
        bad = self._write(process, second, self.judge.left.get(work), time_ms)
        if sim.random.random() < 0.5:  # the rows that fit are written later, under younger ids
            think(sim, process)
            time_ms = first_id_time(process, known)
        files = [sim.new_file(process, known, rows, p, time_ms, work.app) for p, rows in _by_partition(work)]
        metadata = second.head.metadata
        to_second = Delivery(SECOND, str(metadata.table_uuid), metadata.current_schema_id, tuple(bad))
        put = PutOutbox(work.app, (to_second,) if bad else (), delivered)
        outcome = commit(sim, process, table, files, [], transaction, more=[put])
        if isinstance(outcome, Committed):
            sim.oracle.acknowledged(work, [file.file_path for file in files], outcome.version)
        elif isinstance(outcome, AlreadyCommitted):
            sim.oracle.skipped(work, outcome.version)
        else:
            if not isinstance(outcome, CommitStateUnknownError):
                self.second.failed([file.file_path for file in bad], type(outcome).__name__)
            raise outcome
        return outcome

    def _write(self, process: Process, second: Table, work: Work | None, time_ms: int) -> list[DataFile]:
        """Write the rows that do not fit below the second table, under ids of the main table's time."""
        files = []
        for p, rows in () if work is None else _by_partition(work):
            file_id = names.ulid(time_ms, process.environment.random.getrandbits(80))
            path = f"data/p={p}/{names.data_file_name(file_id, 'bad', 0, p, 0)}"
            uuid = str(second.head.metadata.table_uuid)
            self.second.wrote(f"{SECOND}/{path}", rows, uuid, frozenset(SCHEMA.column_names))
            with second.store.open_output(path) as output:
                output.write(content(rows))
            file = DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=f"{SECOND}/{path}",
                file_format=FileFormat.PARQUET,
                partition=Record(p),
                record_count=len(rows),
                file_size_in_bytes=1000 * len(rows),
            )
            file.spec_id = 0
            files.append(file)
        return files

    def _deliver(self, process: Process, table: Table, app: str, second: Table) -> int | None:
        done = deliver(table, app, lambda _: second)
        self._judge(process, done)
        return done[0].sequence if done else None

    def _judge(self, process: Process, done: tuple[Delivered, ...]) -> None:
        for each in done:
            self.sim.tell(process.actor.name, f"DELIVERY {each.sequence}: {each.outcome.value}")
            self.sim.meet(f"delivery: {each.outcome.value}")
            lost = [f.file_path for f in each.delivery.files if not self.second.is_delivered(f.file_path)]
            if lost or each.outcome is Outcome.UNDELIVERABLE:
                raise ViolationError(f"a delivery was acknowledged, and is not there (R24): {lost}")

    def _open_second(self, process: Process) -> Table:
        return Table.open(self._second_store(process.store), process.environment)

    def _second_store(self, store: SimulatedStore) -> SimulatedStore:
        return replace(store, objects=self.objects, location=SECOND)


_NOTHING = type("Nothing", (), {"sequence": None})


def _by_partition(work: Work) -> list[tuple[int, tuple[int, ...]]]:
    parts = {p: tuple(row for row in work.rows if row % PARTITIONS == p) for p in range(PARTITIONS)}
    return [(p, rows) for p, rows in parts.items() if rows]


def arrange(sim: Simulation, outbox: Outbox, start: Callable[..., None], deadline: float) -> None:
    """Start the actors of a schedule."""
    random = sim.random
    for number in range(random.choice([1, 2])):
        query = Query(f"app{number}", f"query{number}", random.randrange(3, 7))
        body = outbox.stream(query, deadline)
        start(f"stream{number}", body)
        if random.random() < 0.5:
            start(f"twin{number}", body, random.expovariate(1 / 3))
        if random.random() < 0.2:
            fresh = Query(query.app, f"fresh{number}", random.randrange(2, 5), query.query)
            sim.oracle.takeovers.add((query.app, fresh.query, query.query))
            start(f"fresh{number}", outbox.stream(fresh, deadline), random.expovariate(1 / 3))
    for number in range(random.choice([0, 1, 2])):
        start(f"deliverer{number}", outbox.deliver_late(random.randrange(2, 7)))
    for number in range(random.choice([1, 1, 2])):
        start(f"second cleaner{number}", outbox.clean(random.randrange(2, 6)))
    if random.random() < 0.4:
        start("cleaner", outbox.clean_main(random.randrange(1, 4)))
