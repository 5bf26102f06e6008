"""Actors around a table with a key: streams of changes, who inserts, who declares the key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from streaming_sink.keyed.by_key import ChangesByKey
from streaming_sink.options.values.writes import Upsert, WriteByKey
from streaming_sink.table.table_keys import table_key
from streaming_sink.tasks.errors import DataFileError, UnusableRunError
from streaming_sink.tasks.job import FileIds
from streaming_sink.writing.target import Target
from tests.simulation.acting import TRIES, Body, commit, patiently, patiently_refreshed, think, told
from tests.simulation.key_files import (
    Change,
    bounds_of,
    has_wide_sequences,
    keyed_schema,
    sequence_of,
    write_changes,
)
from tests.simulation.key_judge import NEVER_MS, KeyJudge
from tests.simulation.oracle import Work
from tests.simulation.raw import OURS, ViolationError
from tests.simulation.scheduler import Actor
from tests.simulation.simulation import (
    BY_P,
    OPEN_BELOW,
    PARTITIONS,
    SAFE_DISTANCE,
    VERSIONS_KEPT,
    Process,
    Query,
    Simulation,
    first_id_time,
)
from tests.simulation.store import LOCATION
from tests.unit.timeline.world import DAY_MS
from timeline import properties
from timeline.changes.key_changes import AllowDuplicates, DeclareKey, PutTombstones
from timeline.errors import (
    CheckpointRegressionError,
    CommitConflictError,
    CommitStateUnknownError,
    FencedError,
    KeyConflictError,
    RowsChangedError,
    StoreUnavailableError,
    TimelineError,
)
from timeline.table import AlreadyCommitted, Committed, Table
from timeline.versions.keys import TABLE_SCOPE, Looked
from timeline.versions.transactions import Transaction, check_transaction, epoch_after_skip

BY_ID = Upsert(key=("id",), sequence_by="at")
KEYS = (
    *[BY_ID] * 5,
    Upsert(key=("id",)),
    Upsert(key=("id", "p"), sequence_by="at"),
    Upsert(key=("id",), sequence_by="at", key_scope="partition"),
)
_INSERTED_FROM = 1000
_EMPTY = "the batch changes nothing"


class Keyed:
    """The table with a key of a simulation, and what its actors do with it."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        if isinstance(sim.oracle, KeyJudge):
            self.judge = sim.oracle
        else:
            self.judge = KeyJudge(LOCATION, VERSIONS_KEPT, SAFE_DISTANCE, met=sim.met)
            sim.oracle = sim.objects.watcher = self.judge
        self._ids = sim.random.choice([2, 5, 12])
        self._made: list[Change] = []
        self._inserted: list[int] = []

    def create(self, table_properties: dict[str, str], keys: WriteByKey | None) -> None:
        """Create the table, and declare its key, if there is one from the start."""
        random, schema = self.sim.random, keyed_schema(self.sim.seed)
        self.sim.met["sequences of 16 bytes"] += has_wide_sequences(self.sim.seed)
        ttl_ms = random.choice([NEVER_MS, NEVER_MS, DAY_MS // 2, DAY_MS // 2, 3000, 20_000])
        store, environment = self.sim.unfailing()
        table = Table.create(
            store,
            schema,
            BY_P,
            table_properties={**table_properties, properties.TOMBSTONE_TTL_MS: str(ttl_ms)},
            environment=environment,
            store_is_checked=True,
        )
        if keys is not None:
            table.commit([DeclareKey(table_key(keys, schema))])

    def keys(self) -> list[int]:
        """Return the ids that changes may have."""
        return [*range(self._ids), *self._inserted]

    def bounds(self, rows: tuple[int, ...]) -> dict[str, Any]:
        """Return what a manifest states of the values in a file of rows."""
        lower, upper = bounds_of([self.judge.changes[row] for row in rows])
        return {"lower_bounds": lower, "upper_bounds": upper}

    # ------------------------------------------------------------------------------------ the actors

    def stream(self, query: Query, keys: WriteByKey, deadline: float) -> Body:
        """A process that runs a query of changes on its checkpoint, and restarts it when it fails."""

        def body(actor: Actor) -> None:
            process = self.sim.process(actor)
            for _ in range(TRIES):
                table = patiently(self.sim, process, process.open)
                if not isinstance(table, Table):
                    return
                table.deadline_seconds = deadline
                if self._run(process, table, query, keys):
                    return
                think(self.sim, process)

        return body

    def append(self, times: int, *, knows_keys: bool) -> Body:
        """A writer that inserts rows, of keys that nobody else has, if it knows of keys. If not, it inserts
        rows of any keys, some twice, while the table has none.
        """

        def append(process: Process, table: Table, number: int) -> None:
            head = table.head
            if knows_keys:
                ids = [_INSERTED_FROM + self.sim.number() for _ in range(2)]
            else:
                ids = [self.sim.random.randrange(self._ids) for _ in range(2)]
            changes = [self.change(each, deletes=False) for each in ids]
            work = Work(f"insert-{process.actor.name}", None, number, tuple(each.row for each in changes))
            self._declare_rows(work, changes)
            time_ms = first_id_time(process, head)
            files = [
                self.sim.new_file(process, head, rows, p, time_ms, "insert")
                for p in range(PARTITIONS)
                if (rows := tuple(each.row for each in changes if each.p == p))
            ]
            more = [AllowDuplicates()] if knows_keys else []
            outcome = commit(self.sim, process, table, files, [], more=more)
            if isinstance(outcome, Committed):
                self.sim.oracle.acknowledged(work, [file.file_path for file in files], outcome.version)
                self._inserted += ids if knows_keys else []
                self.sim.meet("inserted beside keys" if knows_keys else "inserted without a key")
            elif isinstance(outcome, KeyConflictError):
                self.sim.meet("insert refused")

        return self._at_times(times, append)

    def declare(self, times: int, keys: WriteByKey) -> Body:
        """Somebody checks that each key is there once, on a head that may be old, and declares the key."""

        def declare(process: Process, table: Table, number: int) -> None:
            def checked(head: Any) -> bool:
                live = [file.location for file in head.live_files()]
                if number_of_rows := [self.judge.changes[row] for at in live for row in self.judge.rows[at]]:
                    ids = [(each.id, each.p)[: len(keys.key)] for each in number_of_rows]
                    return len(set(ids)) == len(ids)
                return True

            if not table.on_head(checked):
                return
            head = table.head
            change = DeclareKey(table_key(keys, head.schema), Looked.at(head))
            outcome = commit(self.sim, process, table, [], [], more=[change])
            if isinstance(outcome, Committed):
                self.sim.oracle.acknowledged(None, [], outcome.version)
                self.sim.meet("key declared over rows that were checked")

        return self._at_times(times, declare)

    def _at_times(self, times: int, do: Callable[[Process, Table, int], None]) -> Body:
        def body(actor: Actor) -> None:
            process = self.sim.process(actor)
            table = patiently(self.sim, process, process.open)
            for number in range(times if isinstance(table, Table) else 0):
                assert isinstance(table, Table)
                think(self.sim, process, self.sim.random.choice([0.1, 1.0]))
                if self.sim.random.random() < 0.5 and patiently_refreshed(self.sim, process, table) is None:
                    return
                try:
                    do(process, table, number)
                except StoreUnavailableError:
                    continue
                except CommitConflictError:  # the table was made again
                    return

        return body

    # ------------------------------------------------------------------------------ a run of a query

    def _run(self, process: Process, table: Table, query: Query, keys: WriteByKey) -> bool:
        """One run of the query; return whether it ended for good."""
        sim, run_id = self.sim, f"run-{self.sim.number()}"
        epoch: int | None = None
        options = SimpleNamespace(keys=keys, allow_duplicates=False, location=LOCATION, table=LOCATION)
        by_key = ChangesByKey(options, keys)  # type: ignore[arg-type]
        batch = query.committed + 1
        while batch < query.limit:
            if batch == len(query.works):
                query.works.append(self._work(query, batch, keys))
            transaction = Transaction(query.app, query.query, run_id, batch, epoch, query.takeover_from)
            for again in range(3):
                outcome = self._land(process, table, query.works[batch], transaction, keys, by_key)
                if isinstance(outcome, Committed | AlreadyCommitted):
                    epoch = outcome.epoch
                    break
                if outcome == _EMPTY:
                    break
                if isinstance(outcome, FencedError | CheckpointRegressionError):
                    return True
                if isinstance(outcome, CommitStateUnknownError | KeyConflictError):
                    return False  # the query fails; somebody may declare the key yet
                if isinstance(outcome, CommitConflictError) and sim.random.random() < 0.7:
                    if patiently_refreshed(sim, process, table) is None:
                        return False
                elif again == 2 or sim.random.random() < 0.5:
                    return False  # the query fails, and its process may start another run
            else:
                return False
            query.committed = max(query.committed, batch)
            batch += 1
            think(sim, process)
        return True

    def _land(
        self,
        process: Process,
        table: Table,
        work: Work,
        transaction: Transaction,
        keys: WriteByKey,
        by_key: ChangesByKey,
    ) -> Committed | AlreadyCommitted | TimelineError | str:
        """Land a batch as the sink does: all but Spark is real."""
        sim, name = self.sim, process.actor.name
        try:
            table.log.check_writable(table.head)
            state = table.head.transaction(transaction.app_id)
            if check_transaction(state, transaction) is None:
                sim.oracle.skipped(work, table.head.number)
                return AlreadyCommitted(table.head.number, epoch_after_skip(state, transaction))
            head = table.head
            self.judge.begun.setdefault((name, work, str(head.metadata.table_uuid)), head.number)
            target = Target(table, head.schema, head.spec, head.properties)
            ids = FileIds(first_id_time(process, head), transaction.app_id, transaction.batch)
            by_key.check(target)
            write = by_key.begin(target)
            changes = self.judge.batches[work.app, work.query, work.batch][1]
            sim.tell(name, f"WRITE {transaction} on version {head.number}: {_said(changes)}")
            result, files = write_changes(
                sim, process, head, write.job, changes, ids.time_ms, transaction.app_id
            )
        except DataFileError as missing:
            return self._outlived(missing)
        except UnusableRunError as unusable:  # the query fails, and looks at the runs anew
            sim.tell(name, f"=> {unusable}")
            sim.meet("a task could not read a run")
            by_key.forget_index()
            return StoreUnavailableError(str(unusable))
        except TimelineError as failure:
            sim.tell(name, f"=> {type(failure).__name__}: {failure}")
            sim.meet(f"before a commit by key: {type(failure).__name__}")
            if not isinstance(failure, _EXPECTED):
                raise
            return failure
        if sim.random.random() < 0.25:  # the tasks of a batch may take long
            process.environment.sleep(sim.random.choice([1.0, 5.0, 25.0, 60.0]))
        if not result.has_effect:
            sim.tell(name, "=> EMPTY")
            self.judge.told_empty(work, str(head.metadata.table_uuid), head.number)
            return _EMPTY
        written = [file.file_path for file in files]

        def publish(made: list[Any], withdrawn: int) -> Committed | AlreadyCommitted:
            deletes = [file.file_path for change in made for file in change.delete_files]
            put = [each for each in made if isinstance(each, PutTombstones)]
            written[len(files) :] = [*deletes, *(each.location for each in put)]
            own = {path for change in made for file in change.delete_files for path in file.rows_of}
            shared = (file for change in made for file in change.delete_files if len(file.rows_of) > 1)
            sim.met["a delete file shared"] += any(True for _ in shared)
            sim.met["own rows taken back"] += any(file.file_path in own for file in files)
            sim.met["deleted keys merged"] += any(each.merged for each in put)
            sim.tell(
                name, f"COMMIT {transaction} {len(files)} files, {len(deletes)} delete files, {len(put)} puts"
            )
            try:
                return table.commit(
                    made,
                    schema_id=head.schema.schema_id,
                    transaction=transaction,
                    open_below_bytes=OPEN_BELOW,
                )
            except RowsChangedError as changed:
                sim.tell(name, f"=> {changed}")
                self.judge.told_refused(deletes)
                raise

        def land() -> Committed | AlreadyCommitted:
            try:
                return by_key.commit(table, target, write, result, files, ids, publish)[0]
            except DataFileError as missing:
                raise self._outlived(missing) from missing

        outcome = told(sim, process, written, land)
        if isinstance(outcome, Committed):
            sim.meet("changes by key")
            sim.oracle.acknowledged(work, [file.file_path for file in files], outcome.version)
        elif isinstance(outcome, AlreadyCommitted):
            sim.oracle.skipped(work, outcome.version)
        return outcome

    def _outlived(self, missing: DataFileError) -> StoreUnavailableError:
        """A file of an old head was deleted: the batch fails, and a restarted query reads a newer one."""
        if "is missing" not in str(missing):
            raise ViolationError(f"a file cannot be read: {missing}")
        self.sim.meet("keys looked for in a file that has gone")
        return StoreUnavailableError(str(missing))

    # ------------------------------------------------------------------------------ batches of changes

    def _work(self, query: Query, batch: int, keys: WriteByKey) -> Work:
        random, count = self.sim.random, self.sim.random.randrange(1, 6)
        ids = self.keys()
        chosen = (
            random.choices(ids, k=count) if keys.sequence_by else random.sample(ids, min(count, len(ids)))
        )
        deletes = random.choice([0.3, 0.3, 0.3, 1.0])
        changes = [self.change(each, deletes=random.random() < deletes) for each in chosen]
        if keys.sequence_by and self._made and random.random() < 0.3:  # a source that delivers twice
            changes += [each._replace(row=self._row(each)) for each in random.sample(self._made, 1)]
        self._made += changes
        rows = tuple({each.values: each.row for each in changes if not each.deletes}.values())
        work = Work(query.app, query.query, batch, rows)
        self._declare_rows(work, changes)
        self.judge.batches[query.app, query.query, batch] = work, tuple(changes)
        return work

    def change(self, key: int, *, deletes: bool) -> Change:
        random = self.sim.random
        at = sequence_of(self.sim.seed, int(self.sim.scheduler.now) // 10 + random.randrange(5))
        change = Change(0, key, random.randrange(PARTITIONS), at, random.choice("ab"), deletes)
        return change._replace(row=self._row(change))

    def _row(self, change: Change) -> int:
        return 0 if change.deletes else self.sim.row()

    def _declare_rows(self, work: Work, changes: Sequence[Change]) -> None:
        for change in changes:
            if not change.deletes:
                self.judge.changes[change.row] = change
                self.judge.owner[change.row] = work


_EXPECTED = (
    StoreUnavailableError,
    CommitConflictError,
    CommitStateUnknownError,
    FencedError,
    CheckpointRegressionError,
    KeyConflictError,
)


def _said(changes: Sequence[Change]) -> str:
    return ", ".join(f"{'-' if each.deletes else '+'}{each.id}@{each.at}{each.v}{each.p}" for each in changes)


def arrange(
    sim: Simulation, keyed: Keyed, main: WriteByKey, start: Callable[..., None], deadline: float
) -> None:
    """Start the actors who write."""
    random = sim.random
    has_key = OURS + "key" in sim.oracle.head.properties
    # The files of a simulation do not say in which bucket a row is, so that no key is unique in one.
    others = [keys for keys in KEYS if keys.key_scope == TABLE_SCOPE or not sim.repartitioning]
    for number in range(random.choice([1, 2, 2, 3])):
        keys = main if random.random() < 0.9 else random.choice(others)
        query = Query(f"app{number}", f"query{number}", random.randrange(3, 9))
        body = keyed.stream(query, keys, deadline)
        start(f"stream{number}", body)
        if random.random() < 0.3:
            start(f"twin{number}", body, random.expovariate(1 / 3))
        if random.random() < 0.15:
            fresh = Query(query.app, f"fresh{number}", random.randrange(2, 5), query.query)
            sim.oracle.takeovers.add((query.app, fresh.query, query.query))
            start(f"fresh{number}", keyed.stream(fresh, keys, deadline), random.expovariate(1 / 3))
    if random.random() < 0.4:
        start("inserter", keyed.append(random.randrange(1, 5), knows_keys=True))
    for number in range(int(random.random() < 0.3) if has_key else 2):
        start(f"appender{number}", keyed.append(random.randrange(1, 4), knows_keys=False))
    for number in range(int(random.random() < 0.2) if has_key else 2):
        start(f"declarer{number}", keyed.declare(random.randrange(1, 5), main))
