"""The delete files of a batch of changes, one for each data file that rows leave, or shared by many, and the
keys that it remembers as deleted, so that an older change which comes late does not bring a row back. The
driver writes both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pyarrow as pa
from pyiceberg.typedef import Record

from planners.model import TablePartition, comparable
from planners.shared_deletes import share_delete_files
from planners.tiers import merges_of_tiers
from streaming_sink.tasks.files.delete_files import folder_of_deletes, write_shared_deletes
from streaming_sink.tasks.job import FileIds, KeyJob, ParquetSettings
from streaming_sink.tasks.keys.tombstones import (
    AT_COMMIT,
    Tombstones,
    merge_tombstones,
    read_tombstones,
    write_tombstones,
)
from streaming_sink.writing.writer import WriteResult
from timeline import names, properties
from timeline.changes.key_changes import PutTombstones
from timeline.clock import SYSTEM
from timeline.drafts.succession import commit_time
from timeline.errors import StoreUnavailableError
from timeline.manifests.entries import DeleteFile, LiveFile, shared_deletes
from timeline.stores.base import Store
from timeline.table import Table
from timeline.versions.tombstones import TombstoneFile, tombstones_of

_WRITERS = 16
"""Files that are written at once: each takes a request or two, and little else."""
_Group = tuple[str, ...]


class RowDeletes:
    """Writes delete files, and keeps those that a later call asks for again."""

    def __init__(self, store: Store, ids: FileIds, parquet: ParquetSettings) -> None:
        self._store = store
        self._ids = ids
        self._parquet = parquet
        self._written: dict[_Group, tuple[Sequence[np.ndarray], DeleteFile]] = {}
        self._count = 0

    def write(self, files: Mapping[str, LiveFile], positions: Mapping[str, np.ndarray]) -> list[DeleteFile]:
        """Return durable delete files of the positions in each data file; `files` are the live ones. What the
        last call wrote and this one does not need is deleted, best effort: nothing of it may be live.
        """
        groups = share_delete_files({path: _partition(files[path]) for path in positions})
        wanted = {group: [positions[path] for path in group] for group in groups}
        kept = {
            group: held
            for group, held in self._written.items()
            if group in wanted and all(map(np.array_equal, held[0], wanted[group]))
        }
        useless = [held[1].file_path for group, held in self._written.items() if group not in kept]
        with suppress(StoreUnavailableError):
            self._store.delete([self._store.relative(path) for path in useless])
        missing = sorted(wanted.keys() - kept.keys())
        first, self._count = self._count, self._count + len(missing)

        def write(number: int) -> DeleteFile:
            group = missing[number]
            return self._write(files[group[0]], dict(zip(group, wanted[group], strict=True)), first + number)

        if len(missing) < 2:
            made = [write(number) for number in range(len(missing))]
        else:
            with ThreadPoolExecutor(min(_WRITERS, len(missing)), thread_name_prefix="deletes") as pool:
                made = list(pool.map(write, range(len(missing))))
        kept |= {group: (wanted[group], file) for group, file in zip(missing, made, strict=True)}
        self._written = kept
        return [file for _, file in kept.values()]

    def _write(self, of: LiveFile, positions: Mapping[str, np.ndarray], number: int) -> DeleteFile:
        ids = self._ids
        file_id = SYSTEM.new_id(ids.time_ms)
        folder = folder_of_deletes(self._store, of.location)
        path = f"{folder}/{names.delete_file_name(file_id, ids.app_id, ids.batch, number, 0)}"
        arrays = {data_file: pa.array(these) for data_file, these in positions.items()}
        rows_of, size = write_shared_deletes(self._store, path, arrays, self._parquet)
        return shared_deletes(
            self._store.uri(path),
            rows_of,
            size=size,
            spec_id=of.spec_id,
            partition=Record(*of.partition),
        )


def _partition(file: LiveFile) -> TablePartition:
    return TablePartition(file.spec_id, comparable(file.partition))


FILES_A_TIER = 8
"""So many of a tier become one, so that a key is written again once for every eightfold growth."""
_TIERS = 64
"""All that there are."""


def remember_deletes(table: Table, job: KeyJob, result: WriteResult, ids: FileIds) -> list[PutTombstones]:
    """Return the change that remembers what a batch deletes; none where nothing is deleted, or where no
    sequence says which change is older. Writes the file.
    """
    hashes = [np.frombuffer(each.hashes, np.uint64).reshape(-1, 2) for each in result.deleted_keys]
    sequences = [np.frombuffer(each.sequences, each.kind) for each in result.deleted_keys]
    count = sum(map(len, sequences))
    if not count or job.sequence_by is None:
        return []
    own = Tombstones(np.concatenate(hashes), np.concatenate(sequences), np.full(count, AT_COMMIT))
    store, stated = table.store, table.head.properties
    merged = files_to_merge(tombstones_of(stated), count)
    # A driver's clock may be ahead of a catalog's, by which its versions have their times (R12).
    now_ms = min(ids.time_ms, commit_time(table.log.environment, table.head))
    oldest_ms = now_ms - properties.number(stated, properties.TOMBSTONE_TTL_MS) if merged else 0
    older = [read_tombstones(store, file.location).landed(file.newest_ms) for file in merged]
    together = merge_tombstones([*older, own], oldest_ms)
    file_id = SYSTEM.new_id(ids.time_ms)
    path = names.tombstone_path(file_id, ids.app_id, ids.batch, table.log.tombstone_folder)
    write_tombstones(store, path, together)
    forgotten = frozenset(file.location for file in merged)
    return [PutTombstones(store.uri(path), len(together.sequences), forgotten)]


def files_to_merge(known: Sequence[TombstoneFile], rows: int) -> list[TombstoneFile]:
    """Return the files that a new one of so many rows is merged with: those of its tier where that would be
    full, and of the next one where theirs would be, and so on.
    """
    # The new one is first, so that it is among those that are merged where others are too many by themselves.
    sizes = [rows, *(file.rows for file in known)]
    merges = merges_of_tiers(sizes, FILES_A_TIER, FILES_A_TIER, _TIERS)
    return [known[place - 1] for group in merges if group[0] == 0 for place in group[1:]]
