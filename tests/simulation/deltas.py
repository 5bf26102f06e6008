"""Writers of row deltas: they replace and delete rows of live files by position, fold deletes away, and merge
delete files.
"""

from __future__ import annotations

from collections.abc import Callable

from pyiceberg.typedef import Record

from tests.simulation.acting import Body, commit, outputs, patiently, patiently_refreshed, read_files, think
from tests.simulation.scheduler import Actor
from tests.simulation.simulation import PARTITIONS, Process, Simulation, first_id_time
from timeline import names
from timeline.commit.changes import Replace
from timeline.commit.delete_merges import MergeDeletes
from timeline.commit.row_deltas import RowDelta
from timeline.errors import CommitConflictError, StoreUnavailableError
from timeline.table import Committed, Table
from timeline.versions.entries import DeleteFile, LiveFile, position_deletes
from timeline.versions.head import Head


def change_rows(sim: Simulation, times: int, deadline: float) -> Body:
    """A process that makes so many row deltas or folds, each planned on a head that may be old."""
    return _at_times(sim, times, deadline, _commit)


def fold_deletes(sim: Simulation, times: int, deadline: float) -> Body:
    """A process that folds, or merges delete files, so many times, on a head that may be old."""

    def fold(sim: Simulation, process: Process, table: Table, number: int) -> None:
        head = table.head
        crowded = table.on_head(_crowded)
        if crowded and table.head is head and sim.random.random() < 0.5:
            _merge_deletes(sim, process, table, crowded, first_id_time(process, head))
            return
        chosen = table.on_head(lambda head: [file for file in _by_name(head) if head.has_deletes(file)])
        chosen = sim.random.sample(chosen, min(len(chosen), sim.random.randrange(1, 4)))
        if table.head is head:
            _fold_all(sim, process, table, chosen, first_id_time(process, head))

    return _at_times(sim, times, deadline, fold)


def _at_times(
    sim: Simulation,
    times: int,
    deadline: float,
    do: Callable[[Simulation, Process, Table, int], None],
) -> Body:
    def body(actor: Actor) -> None:
        process = sim.process(actor)
        table = patiently(sim, process, process.open)
        if not isinstance(table, Table):
            return
        table.deadline_seconds = deadline
        for number in range(times):
            think(sim, process)
            if sim.random.random() < 0.7 and patiently_refreshed(sim, process, table) is None:
                return
            try:
                do(sim, process, table, number)
            except StoreUnavailableError:
                continue
            except CommitConflictError:  # the table was made again
                return

    return body


def _commit(sim: Simulation, process: Process, table: Table, number: int) -> None:
    head = table.head
    chosen = table.on_head(lambda head: _choose(sim, head))
    if not chosen or table.head is not head:
        return
    time_ms = first_id_time(process, head)
    crowded = _crowded(head)
    if crowded and sim.random.random() < 0.5:
        _merge_deletes(sim, process, table, crowded, time_ms)
        return
    if sim.random.random() < 0.2:
        _fold_all(sim, process, table, chosen, time_ms)
        return
    deletes: list[DeleteFile] = []
    gone: list[int] = []
    for file in chosen:
        left = _positions_left(sim, head, file)
        for at in sim.random.sample(left, min(len(left), 1)):
            deletes.append(_delete_file(sim, process, file, frozenset({at}), time_ms))
            gone.append(sim.oracle.rows[file.location][at])
    if not deletes:
        return
    work = sim.work(f"delta-{process.actor.name}", None, number, tuple(gone))
    new = sim.new_file(process, head, work.rows, sim.random.randrange(PARTITIONS), time_ms, "delta")
    named = {delete.referenced_data_file for delete in deletes}
    applied = {each.location for file in chosen if file.location in named for each in head.deletes_of(file)}
    folds = []
    if sim.random.random() < 0.3:
        own = tuple(each for each in deletes if each.referenced_data_file == chosen[0].location)
        fold = _fold(sim, process, head, chosen[0], own, time_ms)
        folds = [fold] if fold else []
    delta = RowDelta((new,), tuple(deletes), frozenset(applied))
    _finish(sim, process, table, delta, folds)


def _fold_all(sim: Simulation, process: Process, table: Table, chosen: list[LiveFile], time_ms: int) -> None:
    head = table.head
    folds = [fold for file in chosen if (fold := _fold(sim, process, head, file, (), time_ms))]
    if folds:
        _finish(sim, process, table, None, folds)


def _finish(
    sim: Simulation, process: Process, table: Table, delta: RowDelta | None, folds: list[Replace]
) -> None:
    outcome = commit(sim, process, table, [], folds, more=[delta] if delta else [])
    if isinstance(outcome, Committed):
        work = None if delta is None else sim.oracle.owner[sim.oracle.rows[delta.added[0].file_path][0]]
        added = [] if delta is None else [delta.added[0].file_path]
        live = outputs(folds, outcome)
        sim.met["row delta"] += delta is not None
        sim.met["deletes folded"] += len(live)
        taken = {where for fold in folds for where in fold.removed}
        sim.oracle.acknowledged(work, [*live, *(uri for uri in added if uri not in taken)], outcome.version)


def _merge_deletes(
    sim: Simulation, process: Process, table: Table, crowded: list[LiveFile], time_ms: int
) -> None:
    """Merge some delete files of each of these data files, maybe beside a fold of one of them."""
    head, changes = table.head, list[MergeDeletes]()
    for file in sorted(crowded, key=lambda file: file.location):
        found = [it.location for it in head.deletes_of(file) if it.location in sim.oracle.deletes.positions]
        if len(found) > 1:
            removed = frozenset(sim.random.sample(sorted(found), 2))
            added = _delete_file(sim, process, file, _positions(sim, sorted(removed)), time_ms)
            changes.append(MergeDeletes(removed, added))
    if not changes:
        return
    think(sim, process)  # a pass takes its time, and others commit meanwhile
    folds = []
    if sim.random.random() < 0.4 and (file := head.find_live(changes[0].data_file)):
        fold = _fold(sim, process, head, file, (), time_ms)
        folds = [fold] if fold else []
    outcome = commit(sim, process, table, [], folds, more=changes)
    if isinstance(outcome, Committed):
        sim.met["deletes merged"] += len(changes) + len(folds) > len(outcome.dropped)
        sim.oracle.acknowledged(None, outputs(folds, outcome), outcome.version)


def _choose(sim: Simulation, head: Head) -> list[LiveFile]:
    """Return one or two live files of any partition, often of those that have deletes."""
    worn = list(head.files_with_own_deletes()) if sim.random.random() < 0.5 else []
    files = sorted(worn, key=lambda file: file.location) or _by_name(head)
    return sim.random.sample(files, min(len(files), sim.random.randrange(1, 3)))


def _crowded(head: Head) -> list[LiveFile]:
    return [file for file in head.files_with_own_deletes() if len(head.deletes_of(file)) > 1]


def _by_name(head: Head) -> list[LiveFile]:
    return sorted(head.live_files(), key=lambda file: file.location)


def _positions_left(sim: Simulation, head: Head, file: LiveFile) -> list[int]:
    gone = _positions(sim, [each.location for each in head.deletes_of(file)])
    return [at for at in range(file.rows) if at not in gone]


def _positions(sim: Simulation, deletes: list[str]) -> frozenset[int]:
    return frozenset[int]().union(*(sim.oracle.deletes.positions.get(each, ()) for each in deletes))


def _delete_file(
    sim: Simulation, process: Process, file: LiveFile, positions: frozenset[int], time_ms: int
) -> DeleteFile:
    file_id = names.ulid(time_ms, process.environment.random.getrandbits(80))
    path = f"data/p={file.partition[0]}/{names.delete_file_name(file_id, 'delta', 0, 0, 0)}"
    location = process.store.uri(path)
    sim.oracle.deletes.positions[location] = positions
    with process.store.open_output(path) as output:
        output.write(f"{file.location} {sorted(positions)}".encode())
    partition = Record(*file.partition)
    return position_deletes(
        location,
        file.location,
        rows=len(positions),
        size=100,
        spec_id=file.spec_id,
        partition=partition,
    )


def _fold(
    sim: Simulation,
    process: Process,
    head: Head,
    file: LiveFile,
    own: tuple[DeleteFile, ...],
    time_ms: int,
) -> Replace | None:
    """Return the replace of a file by its live rows; None where it has no deletes, or no rows are left."""
    found = head.deletes_of(file)
    deletes = [*(each.location for each in found), *(each.file_path for each in own)]
    if not deletes or any(each not in sim.oracle.deletes.positions for each in deletes):
        return None
    if read_files(sim, process, [file.location]) is None:
        return None
    gone = _positions(sim, deletes)
    rows = tuple(row for at, row in enumerate(sim.oracle.rows[file.location]) if at not in gone)
    if not rows:
        return None
    p = file.partition[0]
    assert isinstance(p, int)
    merged = sim.new_file(process, head, rows, p, time_ms, "fold", spec_id=file.spec_id)
    return Replace(frozenset({file.location}), (merged,), frozenset(deletes), len(gone))
