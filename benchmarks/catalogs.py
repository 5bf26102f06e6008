"""What commits to a table of a REST catalog cost, on Iceberg's own server. No Spark and no data files.

    python -m benchmarks.catalogs --quick
    python -m benchmarks.catalogs --check --json

Milliseconds of an append that no other writer races, at tables of so many snapshots: in all; in requests to
the catalog; in requests to the store, a folder of this machine, synced; and `own`, the rest: the manifests,
the next metadata, the JSON of the request and of the answer. `processor` is this process' time on a
processor, in requests too. `bare` are commits of such updates by pyiceberg's `commit_table` alone. Both, and
the tables, take turns, so that the noise of the machine meets them alike. A figure is the median, and the
quartiles follow it. On a busy machine `own` has waits for a processor in it, and `processor` has not.

Requests are those of twenty appends in a row, and of one append that loses a race. Writers are processes
that append to one table as fast as they can. With turns they see each other, as on a local disk; without
turns they do not, as on an object store. A commit is missing if it was acknowledged and the table does not
have its file.

The server shares the cores with its clients, so that what its answers take says little of other servers.
Unlike elsewhere, `--check` exits with 1 only if the figure of an aim was not measured; a missed aim is
reported as one.
"""

from __future__ import annotations

import multiprocessing
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from pyiceberg.conversions import to_bytes
from pyiceberg.io import load_file_io
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table as LoadedTable
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField
from requests import Session

from benchmarks.aims import Aim, benchmark_parser, conclude
from tests.servers.rest_catalog import rest_catalog
from timeline.catalogs.opening import connect_catalog, create_in_catalog, open_in_catalog
from timeline.catalogs.updates import catalog_commit
from timeline.changes.changes import Append
from timeline.changes.intent import Intent
from timeline.clock import SYSTEM
from timeline.commit.attempts import Attempts
from timeline.names import data_file_name, ulid
from timeline.stores import LocalStore
from timeline.table import Committed, Table
from timeline.versions.transactions import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyiceberg.catalog import Catalog

    from timeline.stores import Store

MARKS = (50, 500, 2_000)
WRITERS = ((1, True), (4, True), (4, False))
"""How many, and whether they take turns."""
PARTS = ("all", "catalog", "store", "own", "processor")
_REQUESTS = ((Session, "send"), (LocalStore, "create"), (LocalStore, "read"), (LocalStore, "list_folder"))
_COLUMNS = range(1, 11)
_SCHEMA = Schema(*(NestedField(number, f"column_{number}", LongType()) for number in _COLUMNS))
_START_TIMEOUT_SECONDS = 120


class UnseenWritersStore(LocalStore):
    """A local store whose writers do not see each other."""

    def take_turn(self) -> AbstractContextManager[object]:
        return nullcontext()


@dataclass
class Appender:
    """One application's commits to one table, a file each."""

    catalog: Catalog
    table_name: tuple[str, str]
    table: Table
    app_id: str = "app"
    batch: int = 0
    epoch: int | None = None
    acknowledged: list[str] = field(default_factory=list)
    """The files of its commits."""

    @classmethod
    def create(cls, catalog: Catalog, name: str) -> Appender:
        """Create a table, and be its first writer."""
        spec = UNPARTITIONED_PARTITION_SPEC
        table = create_in_catalog(catalog, ("db", name), LocalStore, _SCHEMA, spec, {}, create_namespace=True)
        return cls(catalog, ("db", name), table)

    @classmethod
    def open(cls, catalog: Catalog, name: str, app_id: str, open_store: Callable[[str], Store]) -> Appender:
        return cls(catalog, ("db", name), open_in_catalog(catalog, ("db", name), open_store), app_id)

    def prepare(self) -> Callable[[], Committed]:
        """Return what commits the next file."""
        file, transaction = self._next()

        def commit() -> Committed:
            committed = self.table.commit([Append((file,))], transaction=transaction)
            if not isinstance(committed, Committed):
                raise TypeError(f"batch {transaction.batch} of {self.app_id} was skipped")
            self.epoch = committed.epoch
            self.acknowledged.append(file.file_path)
            return committed

        return commit

    def prepare_bare(self) -> Callable[[], object]:
        """Return what commits the next file by pyiceberg alone. Refresh the table afterwards."""
        file, transaction = self._next()
        head, log = self.table.head, self.table.log
        uuid = str(head.metadata.table_uuid)
        intent = Intent((Append((file,)),), head.schema.schema_id, uuid, transaction)
        attempts = Attempts(intent, log.manifest_files, log.environment, log.draft)
        attempts.prepare(head)
        candidate = attempts.build(head, None)
        if candidate is None:
            raise TypeError(f"batch {transaction.batch} of {self.app_id} was skipped")
        self.epoch = candidate.epoch
        commit = catalog_commit(head.metadata, candidate.head.metadata)
        place, io = head.version.identity, load_file_io()
        loaded = LoadedTable(self.table_name, head.metadata, place, io, self.catalog)
        return lambda: self.catalog.commit_table(loaded, commit.requirements, commit.updates)

    def _next(self) -> tuple[DataFile, Transaction]:
        self.batch += 1
        transaction = Transaction(self.app_id, "query", "run", self.batch, self.epoch)
        return _new_file(self.table.store, self.app_id, self.batch), transaction


def _new_file(store: Store, app_id: str, batch: int) -> DataFile:
    file_id = ulid(time.time_ns() // 1_000_000, SYSTEM.random.getrandbits(80))
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=store.uri(f"data/{data_file_name(file_id, app_id, batch, 0, 0)}"),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=50_000,
        file_size_in_bytes=2 * 1024 * 1024,
        column_sizes=dict.fromkeys(_COLUMNS, 200_000),
        value_counts=dict.fromkeys(_COLUMNS, 50_000),
        null_value_counts=dict.fromkeys(_COLUMNS, 0),
        lower_bounds=dict.fromkeys(_COLUMNS, to_bytes(LongType(), batch)),
        upper_bounds=dict.fromkeys(_COLUMNS, to_bytes(LongType(), batch + 1)),
    )
    file.spec_id = 0
    return file


@dataclass(frozen=True)
class Sample:
    """One commit, in milliseconds."""

    total: float
    processor: float
    requests: list[tuple[str, float]]
    """In their order: those to the catalog by their methods, and those to the store by the store's."""

    @property
    def parts(self) -> dict[str, float]:
        catalog = sum(taken for name, taken in self.requests if name.isupper())
        store = sum(taken for name, taken in self.requests if not name.isupper())
        own = self.total - catalog - store
        return dict(zip(PARTS, (self.total, catalog, store, own, self.processor), strict=True))

    @property
    def sequence(self) -> str:
        return ", ".join(name for name, _ in self.requests)


class Meter:
    """Notes the requests of this process, and how long they take."""

    def __init__(self) -> None:
        self._requests: list[tuple[str, float]] = []

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note requests till the block is left."""
        with ExitStack() as patched:
            for owner, name in _REQUESTS:
                patched.enter_context(patch.object(owner, name, self._noted(name, getattr(owner, name))))
            yield

    def _noted(self, name: str, send: Callable[..., Any]) -> Callable[..., Any]:
        def request(*arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return send(*arguments, **options)
            finally:
                kind = arguments[1].method if name == "send" else name
                self._requests.append((kind, 1_000 * (time.perf_counter() - start)))

        return request

    def take(self, act: Callable[[], object]) -> Sample:
        """Return what an act takes."""
        self._requests.clear()
        start, start_processor = time.perf_counter(), time.process_time()
        act()
        processor = 1_000 * (time.process_time() - start_processor)
        return Sample(1_000 * (time.perf_counter() - start), processor, self._requests.copy())


def sample_commits(
    catalog: Catalog, meter: Meter, marks: Sequence[int], rounds: int
) -> dict[tuple[int, str], list[Sample]]:
    """Return the commits around each mark: ours, and bare ones."""
    tables = {mark: Appender.create(catalog, f"at_{mark}") for mark in marks}
    for mark, appender in tables.items():
        for _ in range(mark - rounds):
            appender.prepare()()
    found: dict[tuple[int, str], list[Sample]] = {(mark, of): [] for mark in marks for of in ("ours", "bare")}
    for _ in range(rounds):
        for mark, appender in tables.items():
            found[mark, "ours"].append(meter.take(appender.prepare()))
            found[mark, "bare"].append(meter.take(appender.prepare_bare()))
            appender.table.refresh()
    return found


def count_requests(catalog: Catalog, meter: Meter) -> dict[str, Counter[str]]:
    """Return the requests of twenty appends in a row, and of one that loses a race, by their sequence."""
    ours = Appender.create(catalog, "requests")
    found = {"append": Counter(meter.take(ours.prepare()).sequence for _ in range(20))}
    Appender.open(catalog, "requests", "other", LocalStore).prepare()()
    found["append that loses a race"] = Counter([meter.take(ours.prepare()).sequence])
    return found


@dataclass(frozen=True)
class Writing:
    """What writers did together."""

    turns: bool
    seconds: float
    commits: list[int]
    """Of each writer, within the time."""
    attempts: int
    missing: int

    @property
    def per_minute(self) -> float:
        return 60 * sum(self.commits) / self.seconds

    @property
    def slowest_share(self) -> float:
        return min(self.commits) * len(self.commits) / max(1, sum(self.commits))


def _write(settings: Any, table: str, turns: bool, writer: int, seconds: float, gate: Any, done: Any) -> None:
    """Commit until the time is over; the last commit ends after it, and is acknowledged without counting."""
    open_store = LocalStore if turns else UnseenWritersStore
    appender = Appender.open(connect_catalog(settings), table, f"writer-{writer}", open_store)
    gate.wait(_START_TIMEOUT_SECONDS)
    attempts, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        attempts += appender.prepare()().attempts
    done.put((attempts, appender.acknowledged))


def let_write(catalog: Catalog, settings: Any, writers: int, turns: bool, seconds: float) -> Writing:
    """Let writers append to a new table, and look for the files of their commits in it."""
    name = f"of_{writers}_{'with' if turns else 'without'}_turns"
    Appender.create(catalog, name)
    context = multiprocessing.get_context("spawn")
    gate, done = context.Barrier(writers), context.Queue()
    processes = [
        context.Process(target=_write, args=(settings, name, turns, writer, seconds, gate, done), daemon=True)
        for writer in range(writers)
    ]
    for process in processes:
        process.start()
    shares = [done.get(timeout=_START_TIMEOUT_SECONDS + 2 * seconds) for _ in processes]
    for process in processes:
        process.join()
    live = {task.file.file_path for task in catalog.load_table(("db", name)).scan().plan_files()}
    missing = sum(file not in live for _, files in shares for file in files)
    return Writing(
        turns, seconds, [len(files) - 1 for _, files in shares], sum(it for it, _ in shares), missing
    )


def _spread(values: Sequence[float]) -> str:
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{median:.1f} ({low:.1f} to {high:.1f})"


def _tables(
    samples: dict[tuple[int, str], list[Sample]], requests: dict[str, Counter[str]], writing: list[Writing]
) -> list[str]:
    parts = [f"| snapshots | of | {' | '.join(PARTS)} |", "| ---: | --- |" + " ---: |" * len(PARTS)]
    for (mark, of), taken in samples.items():
        cells = " | ".join(_spread([sample.parts[part] for sample in taken]) for part in PARTS)
        parts.append(f"| {mark:,} | {of} | {cells} |")
    sent = ["| of one | requests | times |", "| --- | --- | ---: |"]
    sent += [f"| {of} | {it} | {times} |" for of, found in requests.items() for it, times in found.items()]
    header = "| writers | turns | commits a minute | attempts | slowest ÷ mean | missing |"
    wrote = [header, "| ---: | --- |" + " ---: |" * 4]
    wrote += [
        f"| {len(it.commits)} | {'yes' if it.turns else 'no'} | {it.per_minute:,.0f} | {it.attempts} |"
        f" {it.slowest_share:.0%} | {it.missing} |"
        for it in writing
    ]
    return ["\n".join(lines) for lines in (parts, sent, wrote)]


def aims(
    samples: dict[tuple[int, str], list[Sample]], requests: dict[str, Counter[str]], writing: list[Writing]
) -> list[Aim]:
    """Return the aims: what is this process' own stays below 20 ms, most appends are one request to the
    catalog and two to the store, and no acknowledged commit is missing.
    """
    found = []
    for mark in MARKS:
        own = [sample.parts["own"] for sample in samples.get((mark, "ours"), ())]
        measured = statistics.median(own) if own else None
        found.append(Aim(what=f"own ms of an append at {mark:,} snapshots", bound=20, measured=measured))
    usual = requests["append"].most_common(1)[0][0].split(", ")
    to_catalog = sum(name.isupper() for name in usual)
    found.append(Aim(what="requests of most appends to the catalog", bound=1, measured=to_catalog))
    found.append(Aim(what="requests of most appends to the store", bound=2, measured=len(usual) - to_catalog))
    missing = sum(it.missing for it in writing)
    return [*found, Aim(what="acknowledged commits that are missing", bound=0, measured=missing)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, report, and return the exit code."""
    parser = benchmark_parser("benchmarks.catalogs", __doc__, "up to 500 snapshots, writers of 3 seconds")
    parser.add_argument("--rounds", type=int, default=30, help="commits of each kind at each table, up to 50")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long writers write")
    options = parser.parse_args(arguments)
    marks, seconds = (MARKS[:2], 3.0) if options.quick else (MARKS, options.seconds)
    work, meter = Path(tempfile.mkdtemp(prefix="catalogs-", dir=options.work)), Meter()
    try:
        with rest_catalog(work) as server:
            catalog = connect_catalog(server.properties)
            with meter.noting():
                requests = count_requests(catalog, meter)
                samples = sample_commits(catalog, meter, marks, options.rounds)
            writing = [let_write(catalog, server.properties, *each, seconds) for each in WRITERS]
    finally:
        shutil.rmtree(work)
    found = aims(samples, requests, writing)
    figures = {
        "milliseconds": [
            {"snapshots": mark, "of": of, "commits": [sample.parts for sample in taken]}
            for (mark, of), taken in samples.items()
        ],
        "requests": requests,
        "writers": [asdict(it) for it in writing],
    }
    conclude(options, "", _tables(samples, requests, writing), figures, found)
    return 1 if options.check and any(aim.measured is None for aim in found) else 0


if __name__ == "__main__":
    sys.exit(main())
