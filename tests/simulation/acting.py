"""What actors have in common: patience, reading data files, and a commit whose outcome the oracle is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from pyiceberg.manifest import DataFile

from tests.simulation.raw import ViolationError
from tests.simulation.scheduler import Actor
from tests.simulation.simulation import (
    OPEN_BELOW,
    Process,
    Simulation,
    content,
)
from timeline.changes.changes import Append, Change, Replace
from timeline.errors import (
    CheckpointRegressionError,
    CommitConflictError,
    CommitStateUnknownError,
    FencedError,
    KeyConflictError,
    SchemaMismatchError,
    StoreUnavailableError,
    TableDroppedError,
    TimelineError,
)
from timeline.table import AlreadyCommitted, Committed, Table
from timeline.versions.head import Head
from timeline.versions.transactions import Transaction

Body = Callable[[Actor], None]
TRIES = 6


def patiently(sim: Simulation, process: Process, do: Callable[[], Table | Head]) -> Table | Head | None:
    """Return what `do` returns, trying again while the store does not answer; None where it never does."""
    for _ in range(TRIES):
        try:
            return do()
        except StoreUnavailableError:
            process.environment.sleep(sim.random.expovariate(1.0))
    return None


def think(sim: Simulation, process: Process, seconds: float = 1.0) -> None:
    process.environment.sleep(sim.random.expovariate(1 / seconds))


def patiently_refreshed(sim: Simulation, process: Process, table: Table) -> Head | None:
    try:
        head = patiently(sim, process, table.refresh)
    except (CommitConflictError, TableDroppedError):  # whoever goes on opens it anew
        return None
    assert head is None or isinstance(head, Head)
    return head


def read_files(sim: Simulation, process: Process, locations: Iterable[str]) -> tuple[int, ...] | None:
    """Return the rows of some files, or None if one has gone: then the plan was for an old head."""
    rows: list[int] = []
    for location in locations:
        try:
            data = process.store.read(process.store.key(location)).data
        except FileNotFoundError:
            sim.meet("planned on a file that has gone")
            return None
        if data != content(sim.oracle.rows[location]):
            raise ViolationError(f"a data file holds other rows than were written: {location}")
        rows += sim.oracle.rows[location]
    return tuple(rows)


def commit(
    sim: Simulation,
    process: Process,
    table: Table,
    files: Sequence[DataFile],
    replaces: Sequence[Replace],
    transaction: Transaction | None = None,
    more: Sequence[Change] = (),
    summary: Mapping[str, str] | None = None,
    schema_id: int | None = None,
) -> Committed | AlreadyCommitted | TimelineError:
    """Commit, and declare to the oracle what was said of it."""
    changes: list[Change] = [*([Append(tuple(files))] if files else []), *replaces, *more]
    written = [file.file_path for file in files] + [f.file_path for r in replaces for f in r.added]
    written += [file.file_path for change in more for file in change.fenced_files]
    sim.tell(process.actor.name, f"COMMIT {transaction or ''} {len(files)} files, {len(replaces)} replaces")
    return told(
        sim,
        process,
        written,
        lambda: table.commit(
            changes,
            schema_id=table.head.schema.schema_id if schema_id is None else schema_id,
            transaction=transaction,
            summary=summary,
            open_below_bytes=OPEN_BELOW,
        ),
    )


def told(
    sim: Simulation,
    process: Process,
    written: Sequence[str],
    commit: Callable[[], Committed | AlreadyCommitted],
) -> Committed | AlreadyCommitted | TimelineError:
    """Commit, and declare to the oracle what was said of the files that were written for it."""
    name = process.actor.name
    try:
        outcome = commit()
    except CommitStateUnknownError as unknown:
        sim.tell(name, f"=> UNKNOWN {unknown}")
        sim.meet("unknown")
        return unknown
    except (
        CommitConflictError,
        FencedError,
        CheckpointRegressionError,
        KeyConflictError,
        SchemaMismatchError,
        StoreUnavailableError,
        TableDroppedError,
    ) as failure:
        sim.tell(name, f"=> FAILED {type(failure).__name__}: {failure}")
        sim.oracle.failed(written, type(failure).__name__)
        _delete_what_failed(sim, process, written)
        return failure
    sim.tell(name, f"=> {type(outcome).__name__} version {outcome.version}")
    if isinstance(outcome, Committed):
        sim.met["fork or race lost, then won"] += outcome.attempts > 1
        sim.met["replace dropped"] += len(outcome.dropped)
        dropped = [f.file_path for d in outcome.dropped for f in d.change.rewritten_files]
        if dropped:
            sim.oracle.failed(dropped, "replace dropped")
    return outcome


def _delete_what_failed(sim: Simulation, process: Process, written: Sequence[str]) -> None:
    """Data files may be deleted after a definite loss (R3): if it was none, the oracle sees it now."""
    if sim.random.random() < 0.5:
        try:
            process.store.delete([process.store.relative(uri) for uri in written])
        except StoreUnavailableError:
            sim.meet("clean-up failed")


def outputs(replaces: Sequence[Replace], outcome: Committed) -> list[str]:
    dropped = {id(d.change) for d in outcome.dropped}
    return [file.file_path for r in replaces if id(r) not in dropped for file in r.added]
