"""Readers, and what other engines and operators do to the table: tags, deletes, dropping it."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.typedef import Record

from tests.simulation.acting import (
    TRIES,
    Body,
    patiently,
    patiently_refreshed,
    read_files,
    think,
)
from tests.simulation.memory import has_small_memory
from tests.simulation.raw import ViolationError
from tests.simulation.scheduler import Actor
from tests.simulation.simulation import (
    PARTITIONS,
    Process,
    Simulation,
    first_id_time,
)
from tests.unit.timeline import world
from timeline import names, refs
from timeline.commit import conflicts
from timeline.commit.attempts import Candidate
from timeline.commit.log import Standing
from timeline.commit.publish import publish_version
from timeline.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    CorruptTableError,
    MissingMetadataError,
    StoreUnavailableError,
)
from timeline.manifests.entries import LiveFile
from timeline.plans.clustering import CLUSTERING
from timeline.stores.base import Store, read_if_there
from timeline.table import Table
from timeline.versions.head import Head

_OF_ROWS = re.compile(r"txn\.|\.key$|\.tombstones$")
"""Properties that a table made anew does not have."""


def tag(sim: Simulation) -> Body:
    """Somebody tags the current snapshot, and takes the tag off again."""

    def body(actor: Actor) -> None:
        process = sim.calm_process(actor)
        think(sim, process, 3.0)
        _change_metadata(sim, process, lambda head: {"refs": {**head.metadata.refs, **_tag_of(head)}})
        sim.meet("tagged")
        think(sim, process, sim.random.choice([3.0, 100.0]))
        _change_metadata(
            sim, process, lambda head: {"refs": {k: v for k, v in head.metadata.refs.items() if k != "kept"}}
        )

    return body


def roll_back(sim: Simulation, times: int) -> Body:
    """Somebody sets the table back by a few versions, again and again."""

    def body(actor: Actor) -> None:
        process = sim.process(actor)
        for _ in range(times):
            think(sim, process, 2.0)
            table = patiently(sim, process, process.open)
            if not isinstance(table, Table):
                return
            with suppress(ValueError, CommitConflictError, CommitStateUnknownError, StoreUnavailableError):
                refs.roll_back(table, table.head.number - sim.random.randrange(1, 8))
                sim.meet("rollback acknowledged")

    return body


def _tag_of(head: Head) -> dict[str, SnapshotRef]:
    if head.snapshot is None:
        return {}
    ref = SnapshotRef(snapshot_id=head.snapshot.snapshot_id, snapshot_ref_type=SnapshotRefType.TAG)
    return {"kept": ref}


def _change_metadata(sim: Simulation, process: Process, update: Callable[[Head], dict[str, object]]) -> None:
    table = patiently(sim, process, process.open)
    if not isinstance(table, Table):
        return

    def build(head: Head | None) -> Candidate:
        assert head is not None
        return world._next_version(table, head, head.manifests, update(head))

    with suppress(CommitStateUnknownError):
        publish_version(table.log, table.head, build, lambda head, candidate: Standing.UNKNOWN)


def delete_rows(sim: Simulation, times: int) -> Body:
    """Another engine adds position deletes to a partition, or to one file of it: the older files of the
    partition, or this one, are then left alone (R13).
    """

    def body(actor: Actor) -> None:
        process = sim.calm_process(actor)
        for _ in range(times):
            think(sim, process, 3.0)
            p = sim.random.randrange(PARTITIONS)
            table = patiently(sim, process, process.open)
            if not isinstance(table, Table):
                return
            file_id = names.ulid(first_id_time(process, table.head), sim.random.getrandbits(80))
            location = process.store.uri(f"data/p={p}/{names.data_file_name(file_id, 'deletes', 0, p, 0)}")
            process.store.overwrite(process.store.relative(location), b"positions")
            delete = world.data_file(
                location, 1, partition=Record(p), content=DataFileContent.POSITION_DELETES
            )
            if live := _files_of(sim, process, table, p):
                one = sim.random.choice(live)
                world.bound_paths(delete, one, one)

            def build(head: Head | None, table: Table = table, delete: DataFile = delete) -> Candidate:
                assert head is not None
                conflicts.check_files_are_above_the_fence(head, [delete])
                return world._with_deletes(table, head, delete)

            try:
                publish_version(table.log, table.head, build, lambda head, candidate: Standing.UNKNOWN)
                sim.meet("deletes added")
            except (CommitConflictError, CommitStateUnknownError) as failure:
                sim.meet(f"deletes: {type(failure).__name__}")

    return body


def _files_of(sim: Simulation, process: Process, table: Table, p: int) -> list[str]:
    """The live files of a partition, half of the time; else none, and the deletes are the partition's. None
    either where the version was deleted while this engine read it.
    """
    if sim.random.random() < 0.5:
        return []
    try:
        live = patiently(sim, process, lambda: list(table.head.live_files()))
    except MissingMetadataError:
        if table.head.number >= sim.oracle.head.number:
            raise
        return []
    return sorted(file.location for file in live or () if file.partition == (p,))


def make_again(sim: Simulation) -> Body:
    """Somebody drops the table and makes it again: the numbers go on, under another uuid (R17)."""

    def body(actor: Actor) -> None:
        process = sim.calm_process(actor)
        think(sim, process, 5.0)
        uuid = UUID(int=sim.random.getrandbits(128), version=4)
        _change_metadata(
            sim,
            process,
            lambda head: {
                "table_uuid": uuid,
                "snapshots": [],
                "snapshot_log": [],
                "refs": {},
                "current_snapshot_id": None,
                "last_sequence_number": 0,
                # The files of a simulation do not say in which bucket a row is: in a table whose key is
                # unique in a partition there are none.
                "partition_specs": head.metadata.partition_specs[:1],
                "default_spec_id": head.metadata.partition_specs[0].spec_id,
                "properties": {k: v for k, v in head.properties.items() if not _OF_ROWS.search(k)},
            },
        )

    return body


def spoil_the_timeline(sim: Simulation, times: int) -> Body:
    """Somebody deletes or damages some instants, all of them, or everything below `_timeline`."""

    def body(actor: Actor) -> None:
        process = sim.calm_process(actor)
        for _ in range(times):
            think(sim, process, 3.0)
            paths = _some_of_the_timeline(sim, process.store)
            sim.tell(actor.name, f"SPOIL {len(paths)} files")
            if sim.random.random() < 0.6:
                process.store.delete(paths)
            else:
                damaged = [b"", b"{}", b"Obj\1 and then nothing"]
                if has_small_memory(sim.seed):  # the copy of one manifest in the place of another's
                    damaged += filter(None, (read_if_there(process.store, path) for path in paths))
                for path in paths:
                    process.store.overwrite(path, sim.random.choice(damaged))
            sim.met["instants spoiled"] += len(paths)

    return body


def _some_of_the_timeline(sim: Simulation, store: Store) -> list[str]:
    folder = sim.random.choice([CLUSTERING.folder, CLUSTERING.folder, "_timeline"])
    found = sorted(listed.path for listed in store.list_below(folder))
    return found if sim.random.random() < 0.5 else sim.random.sample(found, min(len(found), 2))


def read(sim: Simulation, times: int) -> Body:
    """A reader pins the version that it opens, and reads its files at leisure."""

    def body(actor: Actor) -> None:
        process = sim.process(actor)
        table: Table | None = None
        for _ in range(times):
            think(sim, process, 1.5)
            highest_before = len(sim.oracle.lineage)
            got: Table | Head | None
            if table is None or sim.random.random() < 0.5:
                got = patiently(sim, process, process.open)
                table = got if isinstance(got, Table) else None
            elif patiently_refreshed(sim, process, table) is None:
                table = None
            if table is not None:
                _read_pinned(sim, process, table.head, highest_before)

    return body


def _read_pinned(sim: Simulation, process: Process, head: Head, highest_before: int) -> None:
    sim.tell(process.actor.name, f"READ v{head.number}")
    if not highest_before <= head.number <= len(sim.oracle.lineage):
        raise ViolationError(
            f"a reader opened version {head.number}; {highest_before} was the highest before"
        )
    member = sim.oracle.member(head.number)
    if head.version.commit_id != member.commit_id:
        raise ViolationError(f"a reader opened a version {head.number} that was never committed (R4)")
    seen: dict[str, LiveFile] = {}
    for _ in range(TRIES):
        try:
            seen = {file.location: file for file in head.live_files()}
            break
        except StoreUnavailableError:
            think(sim, process)
        except CorruptTableError:
            if not sim.outlived(head):
                raise
            sim.meet("reader outlived the grace period")
            return
    else:
        return
    if seen.keys() != member.files.live.keys():
        raise ViolationError(f"a reader of version {head.number} saw {sorted(seen)}")
    for file in seen.values():
        partition = file.spec_id, file.partition[0]
        if (file.sequence_number, partition) != member.files.live[file.location]:
            raise ViolationError(f"a reader of version {head.number} saw {file} otherwise than it is")
        try:
            if read_files(sim, process, [file.location]) is None:
                if not sim.outlived(head):
                    raise ViolationError(f"a reader of version {head.number} found no {file.location}")
                sim.meet("reader outlived the grace period")
                return
        except StoreUnavailableError:
            continue
    sim.meet("version read in whole")
