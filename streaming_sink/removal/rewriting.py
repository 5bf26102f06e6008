"""Rewrites the live files that hold rows of wanted keys without these rows, as one version; no Spark."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFileContent, ManifestEntryStatus
from pyiceberg.typedef import Record

from planners import FileSizing
from planners.model import InputFile, PositionDeletes
from streaming_sink.clustering.sort_orders import recorded_sort_order
from streaming_sink.reading.pieces import PURGE
from streaming_sink.removal.leftovers import LeftoverKind, Leftovers
from streaming_sink.removal.matching import RowMatcher
from streaming_sink.removal.places import location_of, own_spelling
from streaming_sink.table.data_files import data_file
from streaming_sink.table.file_jobs import file_job
from streaming_sink.table.planned_files import as_planned
from streaming_sink.table.spec import partition_sources
from streaming_sink.tasks.files.delete_files import (
    folder_of_deletes,
    read_position_deletes,
    write_position_deletes,
)
from streaming_sink.tasks.job import FileIds, WorkerJob
from streaming_sink.tasks.keys.probing import KeyProbe
from streaming_sink.tasks.keys.scanning import KeyColumns, KeyedFile, find_in_file, salted, scope_salt
from streaming_sink.tasks.keys.tombstones import AT_COMMIT, Tombstones, write_tombstones
from streaming_sink.tasks.rows.fill_task import Fill, FillSkipped, execute_fill
from timeline import names
from timeline.changes.changes import Change, Replace
from timeline.changes.key_changes import PutTombstones
from timeline.changes.purge_changes import RewriteManifests
from timeline.changes.row_deltas import RowDelta
from timeline.clock import SYSTEM
from timeline.drafts.succession import commit_time
from timeline.errors import CommitConflictError, StoreUnavailableError
from timeline.manifests.entries import DeleteFile, LiveFile, position_deletes
from timeline.table import Committed, Table
from timeline.versions.keys import PARTITION_SCOPE, key_of
from timeline.versions.partitioning import describe_lost_types, specs_without_types

_APP_ID = "purge"
_NO_ROWS = np.empty(0, np.int64)


@dataclass(frozen=True)
class Rewritten:
    """What one version has done."""

    version: int | None = None
    deleted_rows: int = 0
    """Rows that were live, and that it deleted."""
    files: int = 0
    """Data files that were rewritten."""
    delete_files: int = 0
    """Delete files that left with them."""
    problems: dict[str, str] | None = None
    """Location of a file that cannot be rewritten → why."""


def files_to_rewrite(left: Leftovers) -> list[str]:
    """Return the locations of the live data files that hold rows of the keys, deleted or not."""
    store, known = left.table.store, left.held.known
    live = left.of(LeftoverKind.LIVE, LeftoverKind.DELETED)
    return sorted({known[location_of(store, each.path)].location for each in live})


def stale_manifests(left: Leftovers) -> dict[str, int]:
    """Return the manifests of the head that name files which have left them and held rows of the keys, with
    the ids of their partition specs.
    """
    store, files = left.table.store, left.table.log.manifest_files
    named = {store.uri(each.path) for each in left.of(LeftoverKind.BOUNDS)}
    found = dict[str, int]()
    for manifest in left.table.head.manifests:
        if manifest.deleted_files_count == 0:
            continue  # all that it names is live, also what is missing
        if own_spelling(store, manifest.manifest_path) in named:
            found[manifest.manifest_path] = manifest.partition_spec_id
        else:
            entries = files.find_entries(manifest) or ()
            gone = (it.data_file.file_path for it in entries if it.status == ManifestEntryStatus.DELETED)
            if any(own_spelling(store, each) in left.with_rows for each in gone):
                found[manifest.manifest_path] = manifest.partition_spec_id
    return found


def find_fixed(left: Leftovers) -> dict[str, str]:
    """Return which of the files and manifests that a purge would write again cannot be, by location, and
    why.
    """
    head, known = left.table.head, left.held.known
    fixed = specs_without_types(head.metadata)
    if not fixed:
        return {}
    specs = {it: known[own_spelling(left.table.store, it)].spec_id for it in files_to_rewrite(left)}
    specs |= stale_manifests(left)
    return {it: describe_lost_types(spec_id) for it, spec_id in specs.items() if spec_id in fixed}


def rewrite(
    left: Leftovers,
    locations: Sequence[str],
    stale: Collection[str],
    matcher: RowMatcher,
    own_key: KeyColumns | None,
) -> Rewritten:
    """Delete the live rows of the keys in these files, and rewrite the files without all their deleted rows,
    in one version: a row delta and a replace, so that time travel shows the delete. Manifests that name what
    has left, the stale ones, are written again.

    Of a table with a key, deletes are remembered under the sequence of the row: an older change that comes
    late brings no row back, and a newer one is a new row.

    Where another commit has changed one of the files, nothing or a part of it is done: look again. Raises as
    `Table.commit`, but for conflicts.
    """
    table, head = left.table, left.table.head
    ids = FileIds(commit_time(table.log.environment, head), _APP_ID, 0)
    job = file_job(table.store, head, ids, max_file_bytes=1)  # a file for each that is rewritten
    deletes: list[DeleteFile] = []
    replaces: list[Replace] = []
    problems: dict[str, str] = {}
    shared: set[str] = set()
    for number, location in enumerate(locations):
        file = head.find_live(location)
        if file is None:
            continue  # another commit has replaced it: the next look finds its rows
        applied = head.deletes_of(file)
        if any(each.content == DataFileContent.EQUALITY_DELETES for each in applied):
            problems[location] = "another engine has deleted rows of it by values; have it rewrite the file"
            continue
        if any(each.refers_to is None for each in applied):
            shared.add(location)
        given = InputFile(file.location, file.rows, as_planned(applied))
        gone = read_position_deletes(table.store, [each.location for each in applied], location)
        own = _delete(job, number, file, np.setdiff1d(left.live.get(location, _NO_ROWS), gone))
        if own is not None:
            stated = PositionDeletes(own.file_path, own.record_count)
            given = replace(given, deletes=(*given.deletes, stated))
        order = recorded_sort_order(head, file.sort_order_id)
        sources = partition_sources(head.schema, head.metadata.specs()[file.spec_id])
        folded = execute_fill(job, Fill(number, file.partition, sources, (given,), (), order), 0)
        if own is not None:
            deletes.append(own)
        if isinstance(folded, FillSkipped):
            problems[location] = folded.reason
            continue
        spec = head.metadata.specs()[file.spec_id]
        replaces.append(
            Replace(
                frozenset({location}),
                tuple(data_file(it, spec, file.sort_order_id) for it in folded.files),
                frozenset([*(it.location for it in applied), *([] if own is None else [own.file_path])]),
                folded.deleted_rows,
            )
        )
    changes: list[Change] = [*replaces]
    if deletes:
        files = [
            file for it in deletes if (file := head.find_live(it.referenced_data_file or "")) is not None
        ]
        known = frozenset(each.location for file in files for each in head.deletes_of(file))
        changes.insert(0, RowDelta((), tuple(deletes), known))
        changes += _tombstones(job, left, files, matcher, own_key)
    if not changes and not stale:
        return Rewritten(problems=problems)
    try:
        done = table.commit(
            [*changes, RewriteManifests(frozenset(stale))],
            schema_id=head.schema.schema_id,
            summary={PURGE: "keys"},
            open_below_bytes=FileSizing().small_file_bytes,
        )
    except CommitConflictError as conflict:
        _discard(table, [*(it.file_path for it in deletes), *_added(replaces)])
        return Rewritten(problems=problems | dict.fromkeys(shared, str(conflict)))
    assert isinstance(done, Committed)  # it has no transaction
    dropped = [it.change for it in done.dropped if isinstance(it.change, Replace)]
    for each in done.dropped:
        problems |= dict.fromkeys(each.change.inputs & shared, each.reason)
    _discard(table, _added(dropped))
    kept = [it for it in replaces if it not in dropped]
    return Rewritten(
        done.version,
        sum(it.record_count for it in deletes),
        len(kept),
        sum(len(it.applied) for it in kept),
        problems,
    )


def _delete(job: WorkerJob, number: int, file: LiveFile, positions: np.ndarray) -> DeleteFile | None:
    """Write a delete file of live rows of a data file; None where there are none."""
    if not len(positions):
        return None
    folder = folder_of_deletes(job.store, file.location)
    path = f"{folder}/{names.delete_file_name(SYSTEM.new_id(job.ids.time_ms), _APP_ID, 0, number, 0)}"
    rows, size = write_position_deletes(job.store, path, file.location, pa.array(positions), job.parquet)
    return position_deletes(
        job.store.uri(path),
        file.location,
        rows=rows,
        size=size,
        spec_id=file.spec_id,
        partition=Record(*file.partition),
    )


def _tombstones(
    job: WorkerJob,
    left: Leftovers,
    files: Sequence[LiveFile],
    matcher: RowMatcher,
    own_key: KeyColumns | None,
) -> list[PutTombstones]:
    """Return the change that remembers the deletes of live rows; none where no sequence orders changes."""
    key = key_of(left.table.head.properties)
    if own_key is None or own_key.sequence is None or key is None:
        return []
    hashes, sequences = [], []
    for file in files:
        keyed = KeyedFile(file.location, file.rows, scope_salt(key.scope == PARTITION_SCOPE, file.partition))
        own = salted(matcher.hashes, keyed.salt)
        found = find_in_file(job.store, keyed, own_key, KeyProbe(own))
        assert found.sequences is not None
        live = np.isin(found.positions, left.live[file.location])
        hashes.append(own[found.indexes[live]])
        sequences.append(found.sequences[live])
    count = sum(map(len, sequences))
    if not count:
        return []
    file_id = SYSTEM.new_id(job.ids.time_ms)
    path = names.tombstone_path(file_id, _APP_ID, 0, left.table.log.tombstone_folder)
    stones = Tombstones(np.concatenate(hashes), np.concatenate(sequences), np.full(count, AT_COMMIT))
    write_tombstones(job.store, path, stones)
    return [PutTombstones(job.store.uri(path), count)]


def _added(replaces: Sequence[Replace]) -> list[str]:
    return [file.file_path for each in replaces for file in each.added]


def _discard(table: Table, locations: Sequence[str]) -> None:
    """Delete files that are known to be live in no version, best effort: what remains is an orphan."""
    with suppress(StoreUnavailableError):
        table.store.delete([table.store.relative(each) for each in locations])
