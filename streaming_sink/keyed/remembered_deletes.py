"""The deletes of a batch, remembered so that an older change which comes late does not bring a row back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planners.tiers import merges_of_tiers
from streaming_sink.tasks.job import FileIds, KeyJob
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
from timeline.table import Table
from timeline.versions.tombstones import TombstoneFile, tombstones_of

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
