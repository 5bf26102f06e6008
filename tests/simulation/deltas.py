"""Writers of row deltas: they replace and delete rows of live files by position, fold deletes away, and merge
delete files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from pyiceberg.typedef import Record

from planners.model import TablePartition
from tests.simulation.acting import Body, commit, outputs, patiently, patiently_refreshed, read_files, think
from tests.simulation.key_files import delete_content
from tests.simulation.scheduler import Actor
from tests.simulation.simulation import PARTITIONS, Process, Simulation, first_id_time
from timeline import names
from timeline.changes.changes import Replace
from timeline.changes.delete_merges import MergeDeletes
from timeline.changes.row_deltas import RowDelta
from timeline.errors import CommitConflictError, StoreUnavailableError
from timeline.manifests.entries import DeleteFile, LiveFile, shared_deletes
from timeline.table import Committed, Table
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
    positions: dict[str, frozenset[int]] = {}
    for file in chosen:
        left = _positions_left(sim, head, file)
        for at in sim.random.sample(left, min(len(left), 1)):
            positions[file.location] = frozenset({at})
            gone.append(sim.oracle.rows[file.location][at])
    if not positions:
        return
    for group in _groups(sim, chosen, positions):
        where = next(_partition(file) for file in chosen if file.location == group[0])
        of_group = {each: positions[each] for each in group}
        deletes.append(_delete_file(sim, process, where, of_group, time_ms))
    work = sim.work(f"delta-{process.actor.name}", None, number, tuple(gone))
    new = sim.new_file(process, head, work.rows, sim.random.randrange(PARTITIONS), time_ms, "delta")
    deleted_from = [file for file in chosen if file.location in positions]
    applied = {each.location for file in deleted_from for each in head.deletes_of(file)}
    folds = []
    if sim.random.random() < 0.3:
        own = tuple(each for each in deletes if chosen[0].location in each.rows_of)
        fold = _fold(sim, process, head, chosen[0], own, time_ms)
        folds = [fold] if fold else []
    delta = RowDelta((new,), tuple(deletes), frozenset(applied))
    _finish(sim, process, table, delta, folds)


def _groups(
    sim: Simulation, chosen: list[LiveFile], positions: Mapping[str, frozenset[int]]
) -> list[list[str]]:
    """Return which data files get a delete file together: those of one partition, more often than not."""
    first = _partition(chosen[0])
    near = [it.location for it in chosen if _partition(it) == first and it.location in positions]
    if len(near) < 2 or sim.random.random() < 0.4:
        return [[path] for path in positions]
    sim.meet("a delete file shared")
    return [near, *([path] for path in positions if path not in near)]


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
        found = [it.location for it in head.deletes_of(file) if it.refers_to and _is_known(sim, it)]
        if len(found) > 1:
            removed = frozenset(sim.random.sample(sorted(found), 2))
            here, only = _partition(file), {file.location}
            changes.append(merge_of_deletes(sim, process, here, removed, only, only, time_ms))
    shared = _shared_merge(sim, process, head, time_ms)
    if shared is not None and (not changes or sim.random.random() < 0.5):
        changes.append(shared)
    if not changes:
        return
    think(sim, process)  # a pass takes its time, and others commit meanwhile
    folds = []
    of = min(changes[0].data_files, default="")
    if sim.random.random() < 0.4 and (one := head.find_live(of)):
        fold = _fold(sim, process, head, one, (), time_ms)
        folds = [fold] if fold else []
    outcome = commit(sim, process, table, [], folds, more=changes)
    if isinstance(outcome, Committed):
        left_out = {each.change for each in outcome.dropped}
        sim.met["deletes merged"] += any(change not in left_out for change in changes)
        sim.met["shared deletes merged"] += shared in changes and shared not in left_out
        sim.met["deletes forgotten"] += any(it.forgotten for it in changes if it not in left_out)
        sim.oracle.acknowledged(None, outputs(folds, outcome), outcome.version)


def _shared_merge(sim: Simulation, process: Process, head: Head, time_ms: int) -> MergeDeletes | None:
    """Return a merge of some shared delete files of one partition; None where there are none."""
    live = {file.location: file for file in head.live_files()}
    wide = sorted(
        (it for it in head.delete_files() if it.refers_to is None and _is_known(sim, it)),
        key=lambda it: it.location,
    )
    if not wide:
        return None
    where = sim.random.choice(wide)
    near = [it for it in wide if _partition(it) == _partition(where)]
    removed = [it.location for it in sim.random.sample(near, sim.random.randrange(1, 1 + min(3, len(near))))]
    alone = [path for path in sorted(live) if sim.random.random() < 0.5]
    return merge_of_deletes(sim, process, _partition(where), removed, live, alone, time_ms)


def merge_of_deletes(
    sim: Simulation,
    process: Process,
    where: TablePartition,
    removed: Collection[str],
    live: Collection[str],
    alone: Collection[str],
    time_ms: int,
) -> MergeDeletes:
    """Return a merge of delete files of a partition; `alone`: data files that get one of their own."""
    named = sorted({path for each in removed for path in sim.oracle.deletes.positions[each]})
    positions = {path: sim.oracle.deletes.gone(path, removed) for path in named}
    forgotten = {path: positions.pop(path) for path in named if path not in live}
    together = {path: these for path, these in positions.items() if path not in alone}
    groups = [{path: these} for path, these in positions.items() if path in alone]
    groups += [together] if together else []
    return MergeDeletes(
        frozenset(removed),
        tuple(_delete_file(sim, process, where, group, time_ms) for group in groups),
        frozenset(forgotten),
        sum(map(len, forgotten.values())),
    )


def _partition(file: LiveFile) -> TablePartition:
    return TablePartition(file.spec_id, file.partition)


def _is_known(sim: Simulation, delete: LiveFile) -> bool:
    """Whether a delete file is not another engine's, which has written no such file."""
    return delete.location in sim.oracle.deletes.positions


def _choose(sim: Simulation, head: Head) -> list[LiveFile]:
    """Return one to three live files of any partition, often of those that have deletes."""
    worn = list(head.files_with_deletes()) if sim.random.random() < 0.5 else []
    files = sorted(worn, key=lambda file: file.location) or _by_name(head)
    if files and sim.random.random() < 0.5:
        where = _partition(sim.random.choice(files))
        files = [file for file in _by_name(head) if _partition(file) == where]
    return sim.random.sample(files, min(len(files), sim.random.randrange(1, 4)))


def _crowded(head: Head) -> list[LiveFile]:
    """Return the files that have several delete files, or a shared one."""
    return [
        file
        for file in _by_name(head)
        if len(found := head.deletes_of(file)) > 1 or any(each.refers_to is None for each in found)
    ]


def _by_name(head: Head) -> list[LiveFile]:
    return sorted(head.live_files(), key=lambda file: file.location)


def _positions_left(sim: Simulation, head: Head, file: LiveFile) -> list[int]:
    gone = sim.oracle.deletes.gone(file.location, (each.location for each in head.deletes_of(file)))
    return [at for at in range(file.rows) if at not in gone]


def _delete_file(
    sim: Simulation,
    process: Process,
    where: TablePartition,
    positions: Mapping[str, frozenset[int]],
    time_ms: int,
) -> DeleteFile:
    """Write positions in data files of a partition."""
    file_id = names.ulid(time_ms, process.environment.random.getrandbits(80))
    path = f"data/p={where.values[0]}/{names.delete_file_name(file_id, 'delta', 0, 0, 0)}"
    location = process.store.uri(path)
    sim.oracle.deletes.positions[location] = positions
    with process.store.open_output(path) as output:
        output.write(delete_content(positions).encode())
    rows_of = {data_file: len(these) for data_file, these in positions.items()}
    return shared_deletes(location, rows_of, size=100, spec_id=where.spec_id, partition=Record(*where.values))


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
    gone = sim.oracle.deletes.gone(file.location, deletes)
    rows = tuple(row for at, row in enumerate(sim.oracle.rows[file.location]) if at not in gone)
    if not rows:
        return None
    p = file.partition[0]
    assert isinstance(p, int)
    merged = sim.new_file(process, head, rows, p, time_ms, "fold", spec_id=file.spec_id)
    return Replace(frozenset({file.location}), (merged,), frozenset(deletes), len(gone))
