"""A change log in the simulation: who follows the table with a key, and the judge of what the log gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

from streaming_sink.options.values.tables import PathTable
from streaming_sink.removal import purge as purging
from streaming_sink.seconds import change_log
from streaming_sink.seconds.change_log import ChangeLog, log_schema
from streaming_sink.tasks.files.change_task import ChangedRows
from streaming_sink.tasks.results import WrittenFile
from tests.simulation.acting import TRIES, Body, think
from tests.simulation.key_files import Change, keyed_schema
from tests.simulation.key_judge import KeyJudge
from tests.simulation.oracle import Oracle
from tests.simulation.purge_judge import PurgeJudge, purges
from tests.simulation.purgers import write_file
from tests.simulation.raw import Member, ViolationError
from tests.simulation.scheduler import Actor
from tests.simulation.simulation import (
    BY_P,
    OPEN_BELOW,
    SAFE_DISTANCE,
    VERSIONS_KEPT,
    Process,
    Simulation,
    content,
)
from tests.simulation.store import LOCATION, Objects, SimulatedStore
from timeline.changes.follow_changes import followed, follower_app
from timeline.errors import CommitConflictError, CommitStateUnknownError, StoreUnavailableError
from timeline.table import Table

LOG = f"{LOCATION}__changes"
_FAILURES = (StoreUnavailableError, CommitStateUnknownError, CommitConflictError)
_Token = tuple[int, bool, int]
"""One row of the log: the version of the main table, whether it added the row, and which row."""


@dataclass
class LogJudge(Oracle):
    """The oracle of the change log: it has what each version of the main table changed, once."""

    main: KeyJudge | None = None
    tokens: dict[int, _Token] = field(default_factory=dict)
    """Row of the log → what it says."""
    purges: PurgeJudge | None = None

    def _check_rows(self, before: Member, member: Member) -> None:
        self._check_files(before, member)
        assert self.main is not None
        assert self.purges is not None
        change = self._change(before.files, member.files)
        gained = Counter(self.tokens[row] for row, count in change.items() for _ in range(count))
        lost = [self.change_of(row) for row, count in change.items() if count < 0]
        if lost and not (purges(before, member) and all(map(self.purges.is_wanted, lost))):
            raise ViolationError(f"version {member.number} of the change log loses {lost}")
        wanted = Counter[_Token]()
        for app, state in member.transactions.items():
            old = before.transactions.get(app)
            if old is not None and old["batch"] > state["batch"]:
                raise ViolationError(f"version {member.number} of the change log goes back: {old}, {state}")
            if old is not None:
                uuid = app.removeprefix(follower_app(""))
                wanted += self.main.changed_between(uuid, old["batch"] + 1, state["batch"])
        if gained != wanted:
            raise ViolationError(
                f"version {member.number} of the change log lacks {wanted - gained}, and is not to have"
                f" {gained - wanted}"
            )
        self.met["change log continued"] += bool(gained)

    def change_of(self, row: int) -> Change:
        """Return the row of the main table that a row of the log is of."""
        assert self.main is not None
        return self.main.changes[self.tokens[row][2]]

    def check_the_end(self) -> None:
        """Every version was compared with the main table's."""


class Log:
    """The change log of a simulation, and what its actors do with it."""

    def __init__(self, sim: Simulation, main: KeyJudge) -> None:
        self.sim = sim
        self.main = main
        self.judge = LogJudge(LOG, VERSIONS_KEPT, SAFE_DISTANCE, met=sim.met, main=main)
        self.purges = self.judge.purges = PurgeJudge(self.judge, self.judge.change_of)
        self.objects = Objects(self.judge)

    def create(self, properties: dict[str, str]) -> None:
        """Create the log, partitioned as the files of a simulation are."""
        store, environment = self.sim.unfailing()
        Table.create(
            self._store(store),
            log_schema(keyed_schema(self.sim.seed)),
            BY_P,
            table_properties=properties,
            environment=environment,
            store_is_checked=True,
        )

    def open(self, process: Process) -> Table:
        return Table.open(self._store(process.store), process.environment)

    def follow(self, times: int) -> Body:
        """A process of a sink that appends to the log what the table's versions have changed."""

        def body(actor: Actor) -> None:
            process, left = self.sim.process(actor), times
            for _ in range(TRIES):
                try:
                    left = self._follow(process, left)
                except _FAILURES as failure:
                    self.sim.tell(actor.name, f"=> {type(failure).__name__}: {failure}")
                except ValueError as expired:
                    if "cannot be read any" not in str(expired):
                        raise
                    self.sim.meet("changes expired before they were appended")
                    return
                if not left:
                    return
                think(self.sim, process)

        return body

    def _follow(self, process: Process, times: int) -> int:
        main = process.open()
        log = self._log(process)
        log.prepare(process, main, "app", _steps)  # type: ignore[arg-type]
        while times:
            think(self.sim, process, 2.0)
            main.refresh()
            log.follow(process, main, "app", _steps)  # type: ignore[arg-type]
            times -= 1
            self.sim.tell(process.actor.name, f"=> FOLLOWED to version {main.head.number}")
        return 0

    def follow_in_the_end(self) -> Body:
        """Append what is left when all others have ended."""

        def body(actor: Actor) -> None:
            process = self.sim.calm_process(actor)
            main, log = process.open(), self._log(process)
            uuid, expired = str(main.head.metadata.table_uuid), False
            begun = followed(log._table.head, uuid) is not None  # type: ignore[union-attr]
            try:
                log.prepare(process, main, "app", _steps)  # type: ignore[arg-type]
            except ValueError:
                expired = True
            after = followed(self.open(process).head, uuid)
            assert after is not None
            if (
                begun
                and not expired
                and (left := self.main.changed_between(uuid, after + 1, main.head.number))
            ):
                raise ViolationError(f"in the end the change log lacks {left}")

        return body

    def _log(self, process: Process) -> ChangeLog:
        """Return what a sink has of its change log, of which maintenance is left out."""
        log: Any = object.__new__(ChangeLog)
        log._place, log._table = PathTable(LOG), self.open(process)
        log._options = SimpleNamespace(
            table=PathTable(LOCATION),
            sizing=SimpleNamespace(max_file_bytes=OPEN_BELOW, small_file_bytes=OPEN_BELOW),
            on_report=None,
        )
        log.maintenance = SimpleNamespace(
            catch_up=lambda table: None, after_commit=lambda *_: SimpleNamespace(reports=())
        )
        return log  # type: ignore[no-any-return]

    def _store(self, store: SimulatedStore) -> SimulatedStore:
        return replace(store, objects=self.objects, location=LOG)

    # ------------------------------------------------------------------------------- what stands for Spark

    @contextmanager
    def read_and_written(self) -> Iterator[None]:
        """Have the log read and write this simulation's files, for as long as its schedule runs."""
        delete_files, read_deletes_in = change_log.delete_files, self._read_deletes_in

        def deleted(store: Any, files: Sequence[WrittenFile]) -> None:
            self.judge.failed([file.path for file in files], "append to the change log lost")
            delete_files(store, files)

        with ExitStack() as stack:
            for module, name, value in (
                (change_log, "changes_of", self._changes_of),
                (change_log, "write", self._write),
                (change_log, "parallelism", lambda _: 1),
                (change_log, "delete_files", deleted),
                (change_log, "read_deletes_in", read_deletes_in),
                (purging, "read_deletes_in", read_deletes_in),
            ):
                stack.enter_context(mock.patch.object(module, name, value))
            yield

    def _read_deletes_in(self, store: SimulatedStore, path: str) -> dict[str, frozenset[int]]:
        return dict(self.main.deletes.positions.get(path, {}))

    def _changes_of(self, _: Any, main: Table, pieces: Sequence[ChangedRows]) -> Any:
        """Return the rows of what versions have changed, which are read when they are written."""
        rows = SimpleNamespace(read=lambda: [token for piece in pieces for token in self._of(main, piece)])
        rows.coalesce = lambda _: rows
        return rows

    def _of(self, main: Table, piece: ChangedRows) -> Iterator[_Token]:
        rows = self.main.rows[piece.location]
        try:
            data = main.store.read(main.store.relative(piece.location)).data
        except FileNotFoundError as missing:
            self.sim.meet("change in a file that has gone")
            raise StoreUnavailableError(f"{missing}") from missing
        if data != content(rows):
            raise ViolationError(f"a data file holds other rows than were written: {piece.location}")
        gone = self.main.deletes.gone(piece.location, piece.deletes)
        for at, row in enumerate(rows):
            if (at not in gone) == piece.added:
                yield piece.version, piece.added, row

    def _write(self, rows: Any, job: Any, *_: Any) -> Any:
        """Write rows of the log as its task does."""
        parts: dict[int, list[int]] = {}
        for token in rows.read():
            number = self.sim.row()
            self.judge.tokens[number] = token
            parts.setdefault(self.main.changes[token[2]].p, []).append(number)
        uuid = self.judge.head.uuid
        return SimpleNamespace(
            new=[
                write_file(self.sim, self.purges, job, None, tuple(each), (p,), uuid)
                for p, each in sorted(parts.items())
            ]
        )


def _steps(name: str) -> Any:
    return nullcontext(name)
