"""What the suites of the outbox share: a main table, a second one, and writers that deliver."""

from __future__ import annotations

import itertools
from collections import Counter

from pyiceberg.manifest import DataFile

from tests.unit.timeline.cleaning import Shore
from tests.unit.timeline.world import Clock
from timeline.changes.changes import Append, Change
from timeline.changes.outbox_changes import PutOutbox
from timeline.outbox import Delivered, deliver, register_main
from timeline.stores import MemoryStore
from timeline.table import AlreadyCommitted, Committed, Table
from timeline.versions.outbox import Delivery
from timeline.versions.transactions import Transaction

APP = "flights"


class Pair:
    """A main table and a second one on stores of their own, under one clock."""

    def __init__(self, seed: int = 1) -> None:
        self.clock = Clock()
        self.main, self.second = (Shore(clock=self.clock, seed=each) for each in (seed, seed + 1))
        self._seeds = itertools.count(10_000)
        register_main(self.second.table, self.main.table)

    def open_table(self, location: str) -> Table:
        """What a process opens by a location: any table of this process's memory."""
        return Table.open(
            MemoryStore(location.removeprefix("memory://")), self.clock.environment(next(self._seeds))
        )

    def bad_file(self, rows: int = 3) -> DataFile:
        """A file of rows that do not fit, below the second table; its id has the main table's time."""
        return self.second.file(rows, id_ms=self.clock.now_ms)

    def delivery(self, *files: DataFile) -> Delivery:
        metadata = self.second.open().head.metadata
        return Delivery(
            metadata.location,
            str(metadata.table_uuid),
            metadata.current_schema_id,
            files or (self.bad_file(),),
        )

    def writer(self, app_id: str = APP, run: str = "run-1", query: str = "query-1") -> Writer:
        return Writer(self, self.main.open(), app_id, run, query)

    def second_rows(self) -> Counter[int]:
        return self.second.live_rows()


class Writer:
    """One run of an application, as a sink goes about it, step by step."""

    def __init__(self, pair: Pair, table: Table, app_id: str, run: str, query: str) -> None:
        self.pair, self.table, self.app_id = pair, table, app_id
        self._run, self._query = run, query
        self.epoch: int | None = None
        self.delivered: int | None = None

    def commit(
        self, batch: int, *bad: DataFile, takeover_from: str | None = None
    ) -> Committed | AlreadyCommitted:
        """Commit a batch of one good file, and these bad ones."""
        deliveries = (self.pair.delivery(*bad),) if bad else ()
        changes: list[Change] = [
            Append((self.pair.main.file(),)),
            PutOutbox(self.app_id, deliveries, self.delivered),
        ]
        transaction = Transaction(self.app_id, self._query, self._run, batch, self.epoch, takeover_from)
        done = self.table.commit(changes, transaction=transaction)
        self.epoch = done.epoch
        return done

    def deliver(self) -> tuple[Delivered, ...]:
        done = deliver(self.table, self.app_id, self.pair.open_table)
        self.delivered = done[0].sequence if done else None
        return done
