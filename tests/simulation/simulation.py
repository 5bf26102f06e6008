"""One schedule: a table, its actors, the weather and the oracle, all drawn from one seed."""

from __future__ import annotations

import itertools
import logging
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from typing import Any
from unittest import mock

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType, NestedField

from planners import folds, shared_deletes
from tests.simulation.memo import remembered
from tests.simulation.memory import memory_of
from tests.simulation.oracle import Oracle, Work
from tests.simulation.raw import ViolationError
from tests.simulation.scheduler import Actor, Scheduler
from tests.simulation.store import LOCATION, Objects, SimulatedStore, Weather
from tests.unit.timeline.world import NOON
from timeline import names, properties
from timeline.catalogs import catalog_version
from timeline.clock import Environment
from timeline.commit import version_log
from timeline.drafts import draft, succession
from timeline.maintenance import orphans
from timeline.plans import instants, reservations
from timeline.retention import grace, policy
from timeline.table import Table
from timeline.versions.head import Head

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "p", IntegerType(), required=False),
)
BY_P = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="p"))
PARTITIONS = 2
OPEN_BELOW = 5000
MOST_STEPS = 20_000
VERSIONS_KEPT = 3
RECENT_COMMITS = 4
SAFE_DISTANCE = 3


@contextmanager
def small_constants(seed: int) -> Iterator[None]:
    """Make retention bite within a few commits. The rules hold for any such numbers, or for none."""
    with ExitStack() as stack:
        stack.enter_context(remembered())
        for module, name, value in (
            (policy, "VERSIONS_ALWAYS_KEPT", VERSIONS_KEPT),
            (policy, "VERSION_AGE_MS", 2000),
            (policy, "VERSIONS_MOST", 8),
            (policy, "SAFE_DISTANCE", SAFE_DISTANCE),
            (grace, "SAFE_DISTANCE", SAFE_DISTANCE),
            (reservations, "SAFE_DISTANCE", SAFE_DISTANCE),
            (instants, "KEPT_MS", 5000),
            (draft, "MAINTAIN_EVERY", 1),
            (version_log, "MAINTAIN_EVERY", 1),
            (catalog_version, "MAINTAIN_EVERY", 1),
            (orphans, "LEAST_AGE", timedelta(0)),
            (properties, "RECENT_COMMITS_KEPT", RECENT_COMMITS),
            (folds, "DELETE_FILES_AT_MOST", 2),
            (folds, "_BESIDE_SHARED", 1),
            (folds, "_BESIDE_PLANS", 2),
            (shared_deletes, "SHARED_RUNS_AT_MOST", 1),
            (shared_deletes, "RUNS_BESIDE_PLANS", 2),
            *memory_of(seed),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        # Tidying that fails is told as a warning, and here it fails all the time.
        stack.enter_context(mock.patch.object(logging.getLogger("streaming_sink"), "disabled", True))
        stack.enter_context(mock.patch.object(logging.getLogger("streaming_sink.timeline"), "disabled", True))
        yield


@dataclass
class Query:
    """A streaming query as its checkpoint knows it: planned batches, and how many are committed."""

    app: str
    query: str
    limit: int
    takeover_from: str | None = None
    works: list[Work] = field(default_factory=list)
    committed: int = -1


@dataclass
class Process:
    """One actor's own store client, clock and source of randomness."""

    actor: Actor
    store: SimulatedStore
    environment: Environment
    opening: Callable[[Process], Table]
    """Opens the table as this process sees it."""

    def open(self) -> Table:
        return self.opening(self)


@dataclass
class Report:
    """What a schedule came to."""

    seed: int
    violation: str | None
    met: Counter[str]
    versions: int
    steps: int
    trace: list[str]


class Simulation:
    """Draws a schedule from a seed and runs it."""

    def __init__(self, seed: int, traced: bool = False, judge: type[Oracle] = Oracle) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.scheduler = Scheduler(self.random)
        self.oracle = judge(LOCATION, VERSIONS_KEPT, SAFE_DISTANCE)
        self.objects = Objects(self.oracle)
        self.met: Counter[str] = self.oracle.met
        self.weather = Weather()
        self.trace: list[str] = []
        self.bounds: Callable[[tuple[int, ...]], dict[str, Any]] = lambda _: {}
        """What a manifest states of the values in a file of rows; nothing, where no actor reads it."""
        self.opening: Callable[[Process], Table] = lambda it: Table.open(it.store, it.environment)
        """Opens the table as a process sees it."""
        self.columns_of: Callable[[Head], frozenset[Any]] = lambda head: frozenset(head.schema.column_names)
        """What tells the columns of a file: their names, where nobody renames them."""
        self.columns_in: Callable[[Any], frozenset[Any]] = lambda schema: frozenset(schema.names)
        """As `columns_of`, of the Arrow schema that a task writes."""
        self.restarts = 0
        self._traced = traced
        self._rows = itertools.count(1)
        self._numbers = itertools.count(1)

    # --------------------------------------------------------------------------------------- running

    def run(self, arrange: Callable[[Simulation], None], finish: Callable[[Simulation], None]) -> Report:
        violation = None
        try:
            arrange(self)
            ended = self.scheduler.run(MOST_STEPS, self._after_step)
            self.met["schedule cut short"] += not ended
            if ended:
                self.weather = Weather()
                finish(self)
                self.scheduler.run(MOST_STEPS * 2, self._after_step)
                self.oracle.check_the_end()
        except ViolationError as broken:
            violation = str(broken)
        except Exception as failure:  # noqa: BLE001 - whatever it is, no caller should meet it
            violation = f"unexpected {type(failure).__name__}: {failure}"
            self.trace.append(traceback.format_exc())
        finally:
            self.scheduler.close()
        return Report(
            self.seed, violation, self.met, len(self.oracle.lineage), self.scheduler.steps, self.trace
        )

    def _after_step(self) -> None:
        self.oracle.now = self.scheduler.now

    def tell(self, actor: str, what: str) -> None:
        if self._traced:
            head = len(self.oracle.lineage)
            self.trace.append(f"{self.scheduler.now:10.3f}s head v{head:<3} {actor:<14} {what}")

    def meet(self, what: str) -> None:
        self.met[what] += 1

    # ----------------------------------------------------------------------------- what actors are made of

    def process(self, actor: Actor) -> Process:
        def sleep(seconds: float) -> None:
            if seconds > 0:
                actor.wait(lambda answer: self.scheduler.after(seconds, lambda: answer(None)))

        skew = 0
        if self.skewed:
            skew = self.random.choice([0, self.random.randrange(-5000, 5000), *_DAYS_AWAY])
        environment = Environment(
            lambda: NOON + skew + int(self.scheduler.now * 1000),
            lambda: self.scheduler.now,
            sleep,
            Random(self.random.getrandbits(64)),
        )
        return Process(actor, self.store(actor), environment, self.opening)

    skewed = False
    evolving = False
    repartitioning = False
    """Whether a writer adds columns."""

    def store(self, actor: Actor | None) -> SimulatedStore:
        return SimulatedStore(
            self.objects,
            self.scheduler,
            self.weather,
            self.random,
            self.meet,
            self.tell,
            actor,
            self._traced,
        )

    def calm_process(self, actor: Actor) -> Process:
        """A process whose requests never fail, for what stands for other engines and operators."""
        process = self.process(actor)
        return replace(process, store=replace(process.store, weather=Weather()))

    def unfailing(self) -> tuple[SimulatedStore, Environment]:
        """A client for what happens at once and never fails: creating the table, the last look."""
        environment = Environment(
            lambda: NOON + int(self.scheduler.now * 1000),
            lambda: self.scheduler.now,
            lambda seconds: None,
            Random(self.random.getrandbits(64)),
        )
        return self.store(None), environment

    def work(self, app: str, query: str | None, batch: int, deletes: tuple[int, ...] = ()) -> Work:
        rows = tuple(next(self._rows) for _ in range(self.random.randrange(1, 5)))
        work = Work(app, query, batch, rows, deletes)
        for row in work.rows:
            self.oracle.owner[row] = work
        return work

    def row(self) -> int:
        return next(self._rows)

    def number(self) -> int:
        return next(self._numbers)

    def new_file(
        self,
        process: Process,
        head: Head,
        rows: tuple[int, ...],
        p: int,
        time_ms: int,
        what: str,
        sort_order_id: int = 0,
        name: str | None = None,
        spec_id: int | None = None,
    ) -> DataFile:
        """Write one data file under the schema of `head`, and its partition spec or an older one, which may
        be refused, and declare what it holds.
        """
        spec = head.spec if spec_id is None else head.metadata.specs()[spec_id]
        file_id = names.ulid(time_ms, process.environment.random.getrandbits(80))
        name = name or names.data_file_name(file_id, what, 0, p, 0)
        location = process.store.uri(f"data/p={p}/{name}")
        columns = self.columns_of(head)
        self.oracle.wrote(location, rows, str(head.metadata.table_uuid), columns, spec.spec_id)
        with process.store.open_output(process.store.relative(location)) as output:
            output.write(content(rows))
        return self._described(location, rows, p, spec, sort_order_id)

    def referenced_file(self, head: Head, rows: tuple[int, ...], location: str) -> DataFile:
        """Return a data file that its producer has written elsewhere (R28)."""
        columns = frozenset(field.name for field in head.schema.fields)
        self.oracle.wrote(location, rows, str(head.metadata.table_uuid), columns, head.spec.spec_id)
        self.unfailing()[0].overwrite(location, content(rows))
        return self._described(location, rows, 0, head.spec, 0)

    def _described(
        self, location: str, rows: tuple[int, ...], p: int, spec: PartitionSpec, sort_order_id: int
    ) -> DataFile:
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=location,
            file_format=FileFormat.PARQUET,
            partition=Record(*(p for _ in spec.fields)),
            record_count=len(rows),
            file_size_in_bytes=1000 * len(rows),
            sort_order_id=sort_order_id,
            **self.bounds(rows),
        )
        file.spec_id = spec.spec_id
        return file

    def outlived(self, head: Head) -> bool:
        """Return whether a head's snapshot has left the table: the oracle judges when its files may go."""
        current = self.oracle.head
        snapshot = head.snapshot
        return str(head.metadata.table_uuid) != current.uuid or (
            snapshot is not None and snapshot.snapshot_id not in current.snapshots
        )

    def pace(self, actor: Actor) -> None:
        actor.pace = self.random.choice([0.1, 1.0, 1.0, 10.0, 100.0])


_DAYS_AWAY = (-3 * 86_400_000, 86_400_000)


def content(rows: tuple[int, ...]) -> bytes:
    """Return the bytes of a data file in this world."""
    return ",".join(map(str, sorted(rows))).encode()


def first_id_time(process: Process, head: Head) -> int:
    """Return the time for the ids of a batch's files: the table's, by the driver (R6)."""
    return succession.commit_time(process.environment, head)
