"""Fills beside a stream and merges of delete files, as writers of their own: planner and commit are real,
Spark is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from planners import FileSizing
from planners.fills import FillPlan, plan_fills
from planners.model import TableFile
from planners.shared_deletes import PlannedRunMerge
from planners.sizing import FillPolicy
from streaming_sink.table.planned_files import planned_file
from streaming_sink.upkeep import fills
from tests.simulation.acting import Body, patiently, patiently_refreshed, read_files, think
from tests.simulation.deltas import merge_of_deletes
from tests.simulation.scheduler import Actor
from tests.simulation.simulation import OPEN_BELOW, Process, Simulation, first_id_time
from timeline.changes.changes import Replace
from timeline.changes.delete_merges import MergeDeletes
from timeline.errors import CommitConflictError, CommitStateUnknownError, StoreUnavailableError
from timeline.plans.reservations import Reservations
from timeline.table import Table
from timeline.versions.head import Head

SIZING = FileSizing(max_file_bytes=OPEN_BELOW + 2000, small_file_bytes=OPEN_BELOW)


def fill_beside(sim: Simulation, times: int, deadline: float) -> Body:
    """A process that makes so many passes over the whole table, each on a head that may be old."""

    def body(actor: Actor) -> None:
        process = sim.process(actor)
        table = patiently(sim, process, process.open)
        if not isinstance(table, Table):
            return
        table.deadline_seconds = deadline
        for _ in range(times):
            think(sim, process)
            if sim.random.random() < 0.7 and patiently_refreshed(sim, process, table) is None:
                return
            try:
                _run_pass(sim, process, table)
            except CommitStateUnknownError:
                sim.meet("unknown")
            except StoreUnavailableError:
                continue
            except CommitConflictError:  # the table was made again
                return

    return body


def _run_pass(sim: Simulation, process: Process, table: Table) -> None:
    reservations = Reservations(process.store)
    changes = table.on_head(lambda head: _merged(sim, process, head, reservations))
    if not changes:
        return
    name = process.actor.name
    sim.tell(name, f"FILL {len(changes)} times")
    known = reservations.files(table.head)
    done = fills.commit_merges(table, changes, table.head.schema.schema_id, OPEN_BELOW, reservations, known)
    sim.tell(name, f"=> version {done.version}, {len(done.live)} are live {done.problems}")
    if done.lost:
        sim.oracle.failed(
            [file.file_path for lost in done.lost for file in lost.rewritten_files], "fill dropped"
        )
        fills.delete_lost(table, done)
    if done.version is not None:
        sim.meet("filled beside")
        replaces = [change for change in done.live if isinstance(change, Replace)]
        live = [file.file_path for replace in replaces for file in replace.added]
        sim.met["deletes folded beside"] += any(replace.applied for replace in replaces)
        sim.met["deletes merged beside"] += len(replaces) < len(done.live)
        sim.oracle.acknowledged(None, live, done.version)


def _merged(
    sim: Simulation, process: Process, head: Head, reservations: Reservations
) -> list[Replace | MergeDeletes]:
    """Write the merges and folds that the planner wants."""
    reserved = reservations.files(head)
    known = {file.location: file for file in (*head.files_below(OPEN_BELOW), *head.files_with_deletes())}
    files = [planned_file(head, known[it], reserved.get(it)) for it in sorted(known)]
    policy = sim.random.choice([FillPolicy.ALWAYS, FillPolicy.ALWAYS, FillPolicy.AMORTIZED])
    time_ms = first_id_time(process, head)
    replaces: list[Replace | MergeDeletes] = []
    plan = plan_fills(files, SIZING, policy)
    for fill in plan.fills:
        if (read := read_live(sim, process, fill.inputs)) is not None:
            rows, deleted_rows = read
            spec_id, (p, *_) = fill.partition
            added = [
                sim.new_file(process, head, rows[start:end], int(str(p)), time_ms, "fill", spec_id=spec_id)
                for start, end in pairwise((0, *fill.cuts, len(rows)))
                if start < end
            ]
            applied = frozenset(each.path for file in fill.inputs for each in file.deletes)
            removed = frozenset(file.path for file in fill.inputs)
            replaces.append(Replace(removed, tuple(added), applied, deleted_rows))
    return [*replaces, *_merges_of_deletes(sim, process, head, plan, time_ms)]


def _merges_of_deletes(
    sim: Simulation, process: Process, head: Head, plan: FillPlan, time_ms: int
) -> Iterator[MergeDeletes]:
    rewritten = {file.path for fill in plan.fills for file in fill.inputs}
    for merge in (*plan.delete_merges, *plan.run_merges):
        removed = [each.path for each in merge.deletes]
        if all(path in sim.oracle.deletes.positions for path in removed):  # none is of another engine
            live = sorted(file.location for file in head.live_files())
            alone = [path for path in live if path not in rewritten and sim.random.random() < 0.3]
            alone = alone if isinstance(merge, PlannedRunMerge) else [merge.file.path]
            yield merge_of_deletes(sim, process, merge.partition, removed, live, alone, time_ms)


def read_live(
    sim: Simulation, process: Process, inputs: Iterable[TableFile]
) -> tuple[tuple[int, ...], int] | None:
    """Return the live rows of some files, and how many others they hold; None where one cannot be read."""
    positions, live, deleted = sim.oracle.deletes.positions, list[int](), 0
    for file in inputs:
        if any(each.path not in positions for each in file.deletes):
            return None  # of another engine, which has written no such file
        if (rows := read_files(sim, process, [file.path])) is None:
            return None
        gone = sim.oracle.deletes.gone(file.path, (each.path for each in file.deletes))
        live += [row for at, row in enumerate(rows) if at not in gone]
        deleted += len(gone)
    return tuple(live), deleted
