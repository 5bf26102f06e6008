"""Actors that write: streams and appends with fills, a clusterer, an owner who sets properties.

They go about it as their real counterparts do: plan on a known head, write files, commit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import product

from pyiceberg.manifest import DataFile
from pyiceberg.types import NestedField, StringType, StructType

from tests.simulation.acting import (
    TRIES,
    Body,
    commit,
    outputs,
    patiently,
    patiently_refreshed,
    read_files,
    think,
)
from tests.simulation.oracle import Work
from tests.simulation.raw import ViolationError
from tests.simulation.scheduler import Actor
from tests.simulation.simulation import (
    OPEN_BELOW,
    PARTITIONS,
    Process,
    Query,
    Simulation,
    first_id_time,
)
from timeline.changes.changes import Replace, SetProperties
from timeline.changes.schema_changes import MergeSchema
from timeline.errors import (
    CheckpointRegressionError,
    CommitConflictError,
    CommitStateUnknownError,
    FencedError,
    StoreUnavailableError,
    TimelineError,
)
from timeline.manifests.entries import LiveFile
from timeline.plans.reservations import Reservations
from timeline.table import AlreadyCommitted, Committed, Table
from timeline.versions.head import Head
from timeline.versions.transactions import Transaction


def stream(sim: Simulation, query: Query, fills: bool, deadline: float) -> Body:
    """A process that runs a query on its checkpoint, and restarts it when it fails."""

    def body(actor: Actor) -> None:
        process = sim.process(actor)
        reservations = _reservations(sim, process)
        for _ in range(TRIES):
            table = patiently(sim, process, process.open)
            if not isinstance(table, Table):
                return
            table.deadline_seconds = deadline
            if _run(sim, process, table, query, fills, reservations):
                return
            think(sim, process)

    return body


def _reservations(sim: Simulation, process: Process) -> Reservations | None:
    """None for a writer that does not look for them: it costs work only."""
    return Reservations(process.store) if sim.random.random() < 0.7 else None


def _run(
    sim: Simulation,
    process: Process,
    table: Table,
    query: Query,
    fills: bool,
    reservations: Reservations | None,
) -> bool:
    """One run of the query; return whether it ended for good."""
    run_id = f"run-{sim.number()}"
    epoch: int | None = None
    batch = query.committed + 1
    while batch < query.limit:
        if batch == len(query.works):
            query.works.append(sim.work(query.app, query.query, batch))
        work = query.works[batch]
        transaction = Transaction(query.app, query.query, run_id, batch, epoch, query.takeover_from)
        for again in range(3):
            outcome = _commit_work(sim, process, table, work, transaction, fills, reservations)
            if isinstance(outcome, Committed):
                epoch = outcome.epoch
                break
            if isinstance(outcome, AlreadyCommitted):
                epoch = outcome.epoch
                break
            if isinstance(outcome, FencedError | CheckpointRegressionError):
                return True
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


def append_at_times(sim: Simulation, name: str, times: int, fills: bool, deadline: float) -> Body:
    """A writer without transactions: what is unknown it leaves alone, what has failed it writes again."""

    def body(actor: Actor) -> None:
        process = sim.process(actor)
        table = patiently(sim, process, process.open)
        if not isinstance(table, Table):
            return
        table.deadline_seconds = deadline
        reservations = _reservations(sim, process)
        for number in range(times):
            work = sim.work(f"{name}-{actor.name}", None, number)
            for _ in range(3):
                outcome = _commit_work(sim, process, table, work, None, fills, reservations)
                if isinstance(outcome, Committed | CommitStateUnknownError):
                    break
                if patiently_refreshed(sim, process, table) is None:
                    return
            think(sim, process)

    return body


def _commit_work(
    sim: Simulation,
    process: Process,
    table: Table,
    work: Work,
    transaction: Transaction | None,
    fills: bool,
    reservations: Reservations | None,
) -> Committed | AlreadyCommitted | TimelineError:
    known = table.head
    time_ms = first_id_time(process, known)
    if (sim.evolving or sim.repartitioning) and sim.random.random() < 0.3:  # as files of an older head land
        patiently_refreshed(sim, process, table)

    def written(head: Head) -> tuple[list[DataFile], list[Replace]]:
        reserved = {} if reservations is None else reservations.files(head)
        return _write_files(sim, process, head, known, work, fills, time_ms, reserved)

    try:
        files, replaces = table.on_head(written)
    except (StoreUnavailableError, CommitConflictError) as failure:
        return failure
    schema_id = known.schema.schema_id
    outcome = commit(sim, process, table, files, replaces, transaction, schema_id=schema_id)
    if isinstance(outcome, Committed):
        sim.oracle.acknowledged(work, outputs(replaces, outcome), outcome.version)
    elif isinstance(outcome, AlreadyCommitted):
        sim.oracle.skipped(work, outcome.version)
        if sim.random.random() < 0.5:
            table.tidy()
    return outcome


def _write_files(
    sim: Simulation,
    process: Process,
    head: Head,
    written_under: Head,
    work: Work,
    fills: bool,
    time_ms: int,
    reserved: Mapping[str, str],
) -> tuple[list[DataFile], list[Replace]]:
    """Write a batch: a file per partition, and for some a merged one that also holds older small files."""
    parts: dict[int, list[int]] = defaultdict(list)
    for row in work.rows:
        parts[row % PARTITIONS].append(row)
    files, replaces = [], []
    for p, rows in sorted(parts.items()):
        # Files that somebody else wrote, under names that tell no age, may be appended too.
        foreign = f"part-{sim.number()}.parquet" if work.query is None and sim.random.random() < 0.5 else None
        new = sim.new_file(process, written_under, tuple(rows), p, time_ms, work.app, name=foreign)
        files.append(new)
        if fills and sim.random.random() < 0.8:
            spec_id = written_under.spec.spec_id
            small = [f.location for f in small_files(head, p, spec_id) if f.location not in reserved]
            chosen = sim.random.sample(small, min(len(small), sim.random.randrange(1, 3)))
            if (held := read_files(sim, process, chosen)) is not None and chosen:
                merged = sim.new_file(process, written_under, (*rows, *held), p, time_ms, "fill")
                replaces.append(Replace(frozenset([new.file_path, *chosen]), (merged,)))
    return files, replaces


def small_files(head: Head, p: int, spec_id: int) -> list[LiveFile]:
    """Return the files of a partition that may be merged, in the order of their names."""
    here = (f for f in head.files_below(OPEN_BELOW) if (f.spec_id, f.partition[0]) == (spec_id, p))
    small = (f for f in here if not f.sort_order_id)
    return sorted((f for f in small if not head.has_deletes(f)), key=lambda f: f.location)


def cluster(sim: Simulation, times: int, deadline: float) -> Body:
    """A clusterer without a plan: one Replace for each partition, several in one commit."""

    def body(actor: Actor) -> None:
        process = sim.process(actor)
        table = patiently(sim, process, process.open)
        if not isinstance(table, Table):
            return
        table.deadline_seconds = deadline
        for _ in range(times):
            think(sim, process, 1.5)
            if sim.random.random() < 0.7 and patiently_refreshed(sim, process, table) is None:
                return
            try:
                groups = table.on_head(lambda head: _groups(sim, process, head))
            except StoreUnavailableError:
                continue
            except CommitConflictError:
                return
            if groups:
                outcome = commit(sim, process, table, [], groups)
                if isinstance(outcome, Committed):
                    sim.oracle.acknowledged(None, outputs(groups, outcome), outcome.version)

    return body


def _groups(sim: Simulation, process: Process, head: Head) -> list[Replace]:
    groups = []
    time_ms = first_id_time(process, head)
    for p, spec_id in product(range(PARTITIONS), head.metadata.specs()):
        small = [file.location for file in small_files(head, p, spec_id)][:4]
        if len(small) >= 2 and (rows := read_files(sim, process, small)):
            how = {"sort_order_id": 1, "spec_id": spec_id}
            merged = sim.new_file(process, head, rows, p, time_ms, "cluster", **how)
            groups.append(Replace(frozenset(small), (merged,)))
            if sim.random.random() < 0.1:  # a planner that gives one file to two groups
                again = sim.new_file(process, head, rows, p, time_ms, "cluster", **how)
                groups.append(Replace(groups[-1].removed, (again,)))
    return groups


def set_properties(sim: Simulation, times: int) -> Body:
    def body(actor: Actor) -> None:
        process = sim.process(actor)
        table = patiently(sim, process, process.open)
        for _ in range(times if isinstance(table, Table) else 0):
            assert isinstance(table, Table)
            think(sim, process, 2.0)
            by = f"{actor.name}-{sim.number()}"
            try:
                outcome = table.commit([SetProperties({"by": by})])
            except (CommitStateUnknownError, StoreUnavailableError, CommitConflictError):
                continue
            assert isinstance(outcome, Committed)
            sim.oracle.acknowledged(None, [], outcome.version)
            if sim.oracle.member(outcome.version).properties.get("by") != by:
                raise ViolationError(f"a property was acknowledged at {outcome.version} and is not there")

    return body


def evolve(sim: Simulation, times: int) -> Body:
    """A writer whose rows have new columns: others may add the same ones at the same time."""

    def body(actor: Actor) -> None:
        process = sim.process(actor)
        table = patiently(sim, process, process.open)
        for _ in range(times if isinstance(table, Table) else 0):
            assert isinstance(table, Table)
            think(sim, process, 2.0)
            names = sim.random.sample(["a", "b", "c"], sim.random.randrange(1, 3))
            wanted = StructType(*(NestedField(0, name, StringType(), required=False) for name in names))
            try:
                outcome = table.commit([MergeSchema(wanted)])
            except CommitConflictError:
                sim.meet("another had evolved the schema")
                patiently_refreshed(sim, process, table)
                continue
            except (CommitStateUnknownError, StoreUnavailableError):
                continue
            assert isinstance(outcome, Committed)
            sim.meet("schema evolved")
            sim.oracle.acknowledged(None, [], outcome.version)
            known = sim.oracle.columns_at(outcome.version, table.head.schema.column_names)
            if not set(names) <= known:
                raise ViolationError(f"{names} were acknowledged at {outcome.version} and are not there")

    return body
