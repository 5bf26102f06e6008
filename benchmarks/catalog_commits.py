"""Commits of appends to a table in a catalog: ours, and bare ones of the same updates by pyiceberg alone."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.io import load_file_io
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table as LoadedTable
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, TableUpdate
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from benchmarks.aims import Aim
from benchmarks.catalog_servers import CLIENT_WRITES, PARTS, Meter, Sample
from timeline.catalogs.clients import metastore
from timeline.catalogs.clients.store_io import StoreIO
from timeline.catalogs.opening import create_in_catalog, open_in_catalog
from timeline.catalogs.updates import catalog_commit
from timeline.changes.changes import Append
from timeline.changes.intent import Intent
from timeline.clock import SYSTEM
from timeline.commit.attempts import Attempts
from timeline.names import data_file_name, ulid
from timeline.properties import COMMIT_ID
from timeline.table import Committed, Table
from timeline.versions.transactions import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyiceberg.catalog import Catalog

    from benchmarks.catalog_servers import Served
    from timeline.stores import Store

MARKS = (50, 500, 2_000)
APPEND, LOSER = "append", "append that loses a race"
COLUMNS = range(1, 11)
_REAL, _AT_ONCE = 100, 100
"""The last commits before a mark are such as are measured; earlier snapshots are made so many at once."""
_SCHEMA = Schema(*(NestedField(number, f"column_{number}", LongType()) for number in COLUMNS))


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
    def create(cls, served: Served, catalog: Catalog, name: str) -> Appender:
        """Create a table, and be its first writer."""
        place, spec = ("db", name), UNPARTITIONED_PARTITION_SPEC
        table = create_in_catalog(catalog, place, served.open_store, _SCHEMA, spec, {}, create_namespace=True)
        return cls(catalog, place, table)

    @classmethod
    def open(cls, served: Served, catalog: Catalog, name: str, app_id: str) -> Appender:
        """Be one more writer of a table."""
        place = ("db", name)
        return cls(catalog, place, open_in_catalog(catalog, place, served.open_store), app_id)

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

    def prepare_bare(self, bare: Catalog) -> Callable[[], object]:
        """Return what commits the next file by pyiceberg's catalog alone. Refresh the table afterwards."""
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
        loaded = LoadedTable(self.table_name, head.metadata, place, io, bare)
        return lambda: bare.commit_table(loaded, commit.requirements, commit.updates)

    def grow(self, bare: Catalog, snapshots: int) -> None:
        """Add snapshots as other commits have them, without files of their own, some at a time."""
        while snapshots > 0:
            metadata, last = self.table.head.metadata, self.table.head.snapshot
            if last is None or last.summary is None:
                raise TypeError(f"{self.table_name} has no commit to grow from")
            updates = list[TableUpdate]()
            for _ in range(min(snapshots, _AT_ONCE)):
                stated = {**last.summary.additional_properties, COMMIT_ID: SYSTEM.new_id(last.timestamp_ms)}
                last = last.model_copy(
                    update={
                        "snapshot_id": 1 + SYSTEM.random.getrandbits(62),
                        "parent_snapshot_id": last.snapshot_id,
                        "sequence_number": (last.sequence_number or 0) + 1,
                        "timestamp_ms": last.timestamp_ms + 1,
                        "summary": Summary(last.summary.operation, **stated),
                    }
                )
                updates.append(AddSnapshotUpdate(snapshot=last))
            main = {"ref_name": MAIN_BRANCH, "type": "branch", "snapshot_id": last.snapshot_id}
            updates.append(SetSnapshotRefUpdate(**main))
            place = self.table.head.version.identity
            loaded = LoadedTable(self.table_name, metadata, place, load_file_io(), bare)
            bare.commit_table(loaded, (), tuple(updates))
            self.table.refresh()
            snapshots -= _AT_ONCE

    def _next(self) -> tuple[DataFile, Transaction]:
        self.batch += 1
        transaction = Transaction(self.app_id, "query", "run", self.batch, self.epoch)
        return new_file(self.table.store, self.app_id, self.batch), transaction


def new_file(store: Store, app_id: str, batch: int) -> DataFile:
    """Return a file of ten columns with bounds, which no one has written."""
    file_id = ulid(time.time_ns() // 1_000_000, SYSTEM.random.getrandbits(80))
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=store.uri(f"data/{data_file_name(file_id, app_id, batch, 0, 0)}"),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=50_000,
        file_size_in_bytes=2 * 1024 * 1024,
        column_sizes=dict.fromkeys(COLUMNS, 200_000),
        value_counts=dict.fromkeys(COLUMNS, 50_000),
        null_value_counts=dict.fromkeys(COLUMNS, 0),
        lower_bounds=dict.fromkeys(COLUMNS, to_bytes(LongType(), batch)),
        upper_bounds=dict.fromkeys(COLUMNS, to_bytes(LongType(), batch + 1)),
    )
    file.spec_id = 0
    return file


def connect_bare(served: Served) -> Catalog:
    """Return pyiceberg's own catalog, whose files go through the store that ours go through."""
    given = served.properties
    name = given.get("name", "bare")
    if served.kind == "REST":
        return RestCatalog(name, **given)
    through = {"py-io-impl": f"{metastore.__name__}.given_io", metastore.GIVEN: StoreIO(served.open_store)}
    if served.kind == "SQL":
        from pyiceberg.catalog.sql import SqlCatalog

        return SqlCatalog(**{**given, "name": name, **through})
    from pyiceberg.catalog.glue import GlueCatalog

    return GlueCatalog(name, **{**given, **through})


def sample_commits(
    served: Served, meter: Meter, marks: Sequence[int], rounds: int
) -> dict[tuple[int, str], list[Sample]]:
    """Return the commits around each mark: ours, and bare ones."""
    catalog, bare = served.connect(), connect_bare(served)
    tables = {mark: Appender.create(served, catalog, f"at_{mark}") for mark in marks}
    for mark, appender in tables.items():
        real = min(mark - rounds, _REAL)
        appender.prepare()()
        appender.grow(bare, mark - rounds - real)
        for _ in range(real - 1):
            appender.prepare()()
    found: dict[tuple[int, str], list[Sample]] = {(mark, of): [] for mark in marks for of in ("ours", "bare")}
    with meter.noting():
        for _ in range(rounds):
            for mark, appender in tables.items():
                found[mark, "ours"].append(meter.take(appender.prepare()))
                found[mark, "bare"].append(meter.take(appender.prepare_bare(bare)))
                appender.table.refresh()
    return found


def count_requests(served: Served, meter: Meter) -> dict[str, Counter[str]]:
    """Return the requests of twenty appends in a row, and of five that lose a race each, by their order."""
    catalog = served.connect()
    ours = Appender.create(served, catalog, "requests")
    other = Appender.open(served, catalog, "requests", "other")
    with meter.noting():
        found = {APPEND: Counter(meter.take(ours.prepare()).sequence for _ in range(20))}
        lost = found[LOSER] = Counter()
        for _ in range(5):
            other.table.refresh()
            other.prepare()()
            lost[meter.take(ours.prepare()).sequence] += 1
    return found
    return found


def _median(samples: Sequence[Sample], part: str) -> float:
    return statistics.median(sample.parts[part] for sample in samples)


def own_aims(kind: str, samples: dict[tuple[int, str], list[Sample]]) -> list[Aim]:
    """Return the aims at each mark: what is this process' own is short; where the client writes the metadata,
    what is so beyond a bare commit. Both by the clock, and by the time on a processor.
    """
    found = []
    for mark in MARKS:
        ours, bare = samples.get((mark, "ours"), []), samples.get((mark, "bare"), [])
        for part in ("own", "own processor"):
            measured = _median(ours, part) if ours else None
            what = f"{kind}: {part} ms of an append at {mark:,} snapshots"
            if kind in CLIENT_WRITES:
                what += " over a bare commit's"
                measured = _median(ours, part) - _median(bare, part) if ours and bare else None
            found.append(Aim(what=what, bound=20, measured=measured))
    return found


def own_table(samples: dict[str, dict[tuple[int, str], list[Sample]]]) -> str:
    """Return medians and quartiles of the parts of commits, by catalog and mark."""
    lines = [
        f"| catalog | snapshots | of | {' | '.join(PARTS)} |",
        "| --- | ---: | --- |" + " ---: |" * len(PARTS),
    ]
    for kind, marks in samples.items():
        for (mark, of), taken in marks.items():
            cells = " | ".join(_spread([sample.parts[part] for sample in taken]) for part in PARTS)
            lines.append(f"| {kind} | {mark:,} | {of} | {cells} |")
    return "\n".join(lines)


def _spread(values: Sequence[float]) -> str:
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{median:.1f} ({low:.1f} to {high:.1f})"


def requests_aims(requests: dict[str, Counter[str]]) -> list[Aim]:
    """Return the aims of most appends, and of most that lose a race: what the loss adds."""
    (to_catalog, to_store), (again, reread) = (_count_usual(requests.get(of)) for of in (APPEND, LOSER))
    more = None if again is None or to_catalog is None else again - to_catalog
    more_to_store = None if reread is None or to_store is None else reread - to_store
    return [
        Aim(what="REST: requests of an append to the catalog", bound=1, measured=to_catalog),
        Aim(what="REST: requests of an append to the store", bound=2, measured=to_store),
        Aim(what="REST: a lost race: more to the catalog, a GET and a commit", bound=2, measured=more),
        Aim(
            what="REST: a lost race: more to the store, a list and its next", bound=2, measured=more_to_store
        ),
    ]


def _count_usual(sequences: Counter[str] | None) -> tuple[int, int] | tuple[None, None]:
    if not sequences:
        return None, None
    usual = sequences.most_common(1)[0][0].split(", ")
    to_catalog = sum(name.isupper() for name in usual)
    return to_catalog, len(usual) - to_catalog


def requests_table(requests: dict[str, dict[str, Counter[str]]]) -> str:
    """Return how often which requests were sent for one append."""
    lines = ["| catalog | of one | requests | times |", "| --- | --- | --- | ---: |"]
    for kind, each in requests.items():
        lines += [
            f"| {kind} | {of} | {it} | {times} |" for of, found in each.items() for it, times in found.items()
        ]
    return "\n".join(lines)
