"""Purges in the simulation: the steps are the real ones, the files are those of the simulation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pyarrow as pa

from streaming_sink.keyed import row_deletes as batch_tombstones
from streaming_sink.removal import leftovers, rewriting, table_purge, until
from streaming_sink.removal.leftovers import LeftoverKind
from streaming_sink.removal.matching import RowMatcher, find_key_columns, matcher_of
from streaming_sink.removal.purge import Purge
from streaming_sink.removal.table_purge import TablePurge
from streaming_sink.removal.tables import CHANGE_LOG, MAIN
from streaming_sink.removal.wanted import WantedKeys
from streaming_sink.tasks.errors import DataFileError
from streaming_sink.tasks.job import WorkerJob
from streaming_sink.tasks.keys import tombstones as key_tombstones
from streaming_sink.tasks.results import WrittenFile
from streaming_sink.tasks.rows.fill_task import Fill, Filled, FillSkipped
from tests.simulation.acting import TRIES, Body, think
from tests.simulation.key_files import OneAfterTheOther, bounds_of, delete_content
from tests.simulation.purge_judge import PurgeJudge, Wanted, is_of
from tests.simulation.raw import ViolationError
from tests.simulation.scheduler import Actor
from tests.simulation.simulation import PARTITIONS, Process, Simulation, content
from timeline import names
from timeline.clock import Environment
from timeline.errors import CommitConflictError, CommitStateUnknownError, StoreUnavailableError
from timeline.stores.base import Store
from timeline.table import Table
from timeline.versions.keys import key_of

if TYPE_CHECKING:
    from tests.simulation.followers import Log

_FAILURES = (StoreUnavailableError, CommitStateUnknownError, CommitConflictError)
_ORPHAN_AGE = timedelta(seconds=2)


@dataclass(frozen=True)
class _Matcher(RowMatcher):
    """Finds rows in the files of a simulation, as their actors declared them."""

    purges: PurgeJudge | None = None
    wanted: Wanted | None = None

    def find(self, store: Store, path: str, partitioned_by: Collection[int] = ()) -> np.ndarray:
        purges, wanted = self.purges, self.wanted
        assert purges is not None
        assert wanted is not None
        rows = purges.oracle.rows.get(store.uri(path), ())
        if rows and store.read(path).data != content(rows):
            raise ViolationError(f"a data file holds other rows than were written: {path}")
        return np.array([at for at, row in enumerate(rows) if is_of(purges.change_of(row), wanted)], np.int64)


class Purgers:
    """Who purges the table of a simulation, and its change log, if it has one."""

    def __init__(self, sim: Simulation, judge: PurgeJudge, log: Log | None) -> None:
        self.sim = sim
        self.judge = judge
        self.log = log
        self._judges = {judge.oracle.location: judge}
        if log is not None:
            self._judges[log.judge.location] = log.purges

    def purge(
        self, times: int, ids: Callable[[], Sequence[int]], waits: Sequence[float] = (0.0, 0.0, 30.0, 300.0)
    ) -> Body:
        """A process that purges keys, each on a table that goes on changing, and comes back to them. `waits`:
        the seconds that it may wait for the last of them to leave.
        """

        def body(actor: Actor) -> None:
            sim, process = self.sim, self.sim.process(actor)
            for _ in range(times):
                think(sim, process, 5.0)
                wanted = {"id": sim.random.choice(ids()), "p": sim.random.randrange(PARTITIONS)}
                for _ in range(TRIES):
                    if self._try(process, wanted, sim.random.choice(waits)):
                        break
                    think(sim, process)

        return body

    def purge_in_the_end(self, wanted: Wanted) -> Body:
        """A purge when all others have ended, which has the time that it needs, by a clock that is right."""

        def body(actor: Actor) -> None:
            process, started = self.sim.calm_process(actor), self.sim.scheduler.now
            ahead = max(each.newest_ms() for each in self._judges.values())
            environment = replace(
                process.environment,
                now_ms=lambda: ahead + int((self.sim.scheduler.now - started) * 1000),
            )
            process = replace(process, environment=environment)
            for last in (False, True):  # orphans may be deleted a while after the first
                self._try(process, wanted, 60.0, alone=True, last=last)
                environment.sleep(10.0)

        return body

    def _try(
        self, process: Process, wanted: Wanted, seconds: float, *, alone: bool = False, last: bool = False
    ) -> bool:
        """Purge a key; return whether that ended."""
        sim = self.sim
        try:
            table = process.open()
            key = key_of(table.head.properties)
            if key is None:
                return True
            columns = {table.head.schema.find_column_name(each) or "" for each in key.column_ids}
            wanted = {name: value for name, value in wanted.items() if name in columns}
            if len(wanted) < len(columns):
                return True  # another engine has dropped or renamed a column of the key
            self._purge(process, table, wanted, seconds, last=last)
        except _FAILURES as failure:
            sim.tell(process.actor.name, f"=> {type(failure).__name__}: {failure}")
            if alone:
                raise
        except DataFileError as missing:
            if "is missing" not in str(missing) or alone:
                raise
            sim.meet("purge of a file that has gone")
        except ValueError as refused:
            sim.tell(process.actor.name, f"=> {refused}")
            if "are kept by" in str(refused):
                sim.meet("purge refused: pinned")
                return True
            if "not in its change log yet" not in str(refused) or alone:
                raise
            sim.meet("purge refused: not followed")
        else:
            return True
        return False

    def _purge(self, process: Process, table: Table, wanted: Wanted, seconds: float, *, last: bool) -> None:
        sim, name = self.sim, process.actor.name
        since = table.head.number
        sim.tell(name, f"PURGE {wanted} from version {since} on")
        keys = WantedKeys.of([wanted])
        own = find_key_columns(keys, table.head)
        tables = [self._of(table, MAIN, keys, own, self.judge, wanted)]
        if self.log is not None:
            log = self.log.open(process)
            tables.append(self._of(log, CHANGE_LOG, keys, None, self.log.purges, wanted))
        for each in self._judges.values():
            each.wanted.append(wanted)
        job = Purge(table, tables, 1, lambda _: process.open(), process.environment)
        job.run()
        sinces = {table.store.location: since}
        self._judge_rewritten(job, wanted, sinces)
        if seconds:
            job.wait(seconds)
        before = {place: judge.stored_with(wanted) for place, judge in self._judges.items()}
        report = job.report()
        sim.tell(name, f"=> {report}")
        if report.is_gone:
            for place, judge in self._judges.items():
                judge.told_gone(wanted, before[place])
        elif last and not any(it.kind in _STAYS for each in report.tables for it in each.left):
            raise ViolationError(f"in the end a purge of {wanted} leaves {report}")

    def _judge_rewritten(self, job: Purge, wanted: Wanted, sinces: dict[str, int]) -> None:
        for each in job._tables:
            unread = each.look().of(LeftoverKind.NOT_CHECKED)
            if not unread and not each._problems:
                place = each.table.store.location
                self._judges[place].told_rewritten(wanted, sinces.get(place, 1))

    def _of(
        self, table: Table, role: str, keys: WantedKeys, own: Any, judge: PurgeJudge, wanted: Wanted
    ) -> TablePurge:
        real = matcher_of(keys, table.head)
        matcher = _Matcher(
            real.keys, real.hashes, real.seed, real.bounds, real.text, purges=judge, wanted=wanted
        )
        return TablePurge(table, role, matcher, own, lambda _: table, tuple)

    # ------------------------------------------------------------------------------- what stands for files

    @contextmanager
    def read_and_written(self) -> Iterator[None]:
        """Have purges read and write this simulation's files, for as long as its schedule runs."""
        sim = self.sim
        drawn = Environment(random=sim.random)
        discard = rewriting._discard

        def discarded(table: Table, locations: Sequence[str]) -> None:
            self._judges[table.store.location].oracle.failed(locations, "purge dropped")
            discard(table, locations)

        with ExitStack() as stack:
            for module, name, value in (
                (leftovers, "ThreadPoolExecutor", OneAfterTheOther),
                (leftovers, "read_position_deletes", self._read_deletes),
                (leftovers, "read_tombstones", key_tombstones.read_tombstones),
                (rewriting, "read_position_deletes", self._read_deletes),
                (rewriting, "write_position_deletes", self._write_deletes),
                (rewriting, "write_tombstones", batch_tombstones.write_tombstones),
                (rewriting, "execute_fill", self._execute_fill),
                (rewriting, "_discard", discarded),
                (rewriting, "SYSTEM", drawn),
                (table_purge, "LEAST_AGE", _ORPHAN_AGE),
                (until, "LEAST_AGE", _ORPHAN_AGE),
            ):
                stack.enter_context(mock.patch.object(module, name, value))
            yield

    def _read_deletes(self, store: Store, paths: Sequence[str], data_file: str) -> np.ndarray:
        deletes = self._judges[store.location].oracle.deletes
        for path in paths:
            if path not in deletes.positions:
                raise DataFileError(f"a delete file of another engine cannot be read: {path}")
            try:
                store.read(store.relative(path))
            except FileNotFoundError as missing:
                raise DataFileError(f"a delete file is missing: {path}") from missing
        return np.array(sorted(deletes.gone(data_file, paths)), np.int64)

    def _write_deletes(
        self, store: Store, path: str, data_file: str, positions: pa.Array, parquet: object
    ) -> tuple[int, int]:
        made = {data_file: frozenset(positions.to_pylist())}
        self._judges[store.location].oracle.deletes.positions[store.uri(path)] = made
        with store.open_output(path) as output:
            return len(positions), output.write(delete_content(made).encode())

    def _execute_fill(self, job: WorkerJob, fill: Fill, attempt: int) -> Filled | FillSkipped:
        judge, store, [given] = self._judges[job.store.location], job.store, fill.inputs
        rows = judge.oracle.rows[given.path]
        paths = [each.path for each in given.deletes]
        try:
            store.read(store.relative(given.path))
            gone = set(self._read_deletes(store, paths, given.path).tolist())
        except (FileNotFoundError, DataFileError) as missing:
            return FillSkipped(fill.number, given.path, f"it is missing: {missing}")
        live = tuple(row for at, row in enumerate(rows) if at not in gone)
        files = (write_file(self.sim, judge, job, given.path, live, fill.partition),) if live else ()
        return Filled(fill.number, files, len(gone))


_STAYS = (LeftoverKind.NOT_CHECKED, LeftoverKind.REF, LeftoverKind.STAGED, LeftoverKind.DELETE_FILE)


def write_file(
    sim: Simulation,
    judge: PurgeJudge,
    job: Any,
    instead_of: str | None,
    rows: tuple[int, ...],
    partition: tuple[Any, ...],
    uuid: str = "",
) -> WrittenFile:
    """Write a data file of rows, and declare what it holds: in the place of another one, or of a new table's
    current spec.
    """
    oracle, store = judge.oracle, job.store
    file_id = names.ulid(job.ids.time_ms, sim.random.getrandbits(80))
    path = f"data/p={partition[0]}/{names.data_file_name(file_id, job.ids.app_id, 0, 0, 0)}"
    spec_id = 0 if instead_of is None else oracle.partitions.written_under[instead_of]
    uuid = uuid if instead_of is None else oracle._tables[instead_of]
    oracle.wrote(store.uri(path), rows, uuid, sim.columns_in(job.schema), spec_id)
    with store.open_output(path) as output:
        output.write(content(rows))
    lower, upper = bounds_of([judge.change_of(row) for row in rows])
    size = 1000 * len(rows)
    return WrittenFile(store.uri(path), partition, 0, len(rows), size, {}, {}, {}, {}, lower, upper, ())
