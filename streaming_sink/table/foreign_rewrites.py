"""What other engines rewrite in a table, by its snapshots: merging leaves room there (`planners/room.py`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice

from pyiceberg.manifest import DataFileContent, ManifestEntryStatus
from pyiceberg.table.snapshots import Snapshot

from planners.model import TablePartition, comparable
from planners.room import LONGEST_WAIT_MS, Crowding, ForeignRewrite, partitions_that_wait
from timeline.errors import MissingMetadataError
from timeline.manifests.entries import entry_partition
from timeline.retention.policy import snapshot_version
from timeline.versions.head import Head
from timeline.versions.version_file import stated_by

_LOOKED_AT = 16
"""Commits of others that one look considers, the newest ones."""
_SIGNS = ("deleted-data-files", "added-delete-files")
"""In the summary of a snapshot that removed files, or deleted rows from some."""
_NOWHERE = frozenset[TablePartition]()


@dataclass(frozen=True)
class Room:
    """Where merging leaves room for other engines."""

    rewritten: frozenset[TablePartition] = _NOWHERE
    """The partitions in which others have rewritten files of late; their values are comparable."""
    waiting: frozenset[TablePartition] = _NOWHERE
    """Those of them in which nothing is merged now."""


@dataclass
class ForeignRewrites:
    """The rewriting commits of other engines. Reads the manifests of each once; keep one for the life of the
    process.
    """

    _seen: dict[int, frozenset[TablePartition]] = field(default_factory=dict)

    def room(self, head: Head, below_bytes: int) -> Room:
        """Return where merging leaves room on this head. A file below so many bytes is small.

        No request where no other engine has rewritten files within the longest wait.
        """
        if not head.version.is_shared:
            return Room()
        now_ms = head.metadata.last_updated_ms
        found = list(islice(filter(_rewrites, head.main_snapshots()), _LOOKED_AT))
        if not found or now_ms - found[0].timestamp_ms >= LONGEST_WAIT_MS:
            return Room()
        self._seen = {it.snapshot_id: self._partitions(head, it) for it in found}
        rewrites = [ForeignRewrite(it.timestamp_ms, self._seen[it.snapshot_id]) for it in found]
        late = (it for it in rewrites if now_ms - it.time_ms < LONGEST_WAIT_MS)
        rewritten = _NOWHERE.union(*(it.partitions for it in late))
        crowding = _crowding(head, rewritten, below_bytes)
        return Room(rewritten, partitions_that_wait(rewrites, now_ms, crowding))

    def _partitions(self, head: Head, snapshot: Snapshot) -> frozenset[TablePartition]:
        known = self._seen.get(snapshot.snapshot_id)
        return frozenset(_rewritten_in(head, snapshot)) if known is None else known


def _rewrites(snapshot: Snapshot) -> bool:
    stated = stated_by(snapshot)
    return not snapshot_version(snapshot) and any(stated.get(sign, "0") != "0" for sign in _SIGNS)


def _rewritten_in(head: Head, snapshot: Snapshot) -> Iterator[TablePartition]:
    """Yield the partition of each file that a snapshot removed or deleted from; of none where its manifests
    were deleted, as by an expiry.
    """
    try:
        manifests = head.manifest_files.read_list(snapshot.manifest_list)
    except MissingMetadataError:
        return
    for manifest in manifests:
        if manifest.added_snapshot_id == snapshot.snapshot_id:
            for entry in head.manifest_files.find_entries(manifest) or ():
                removed = entry.status == ManifestEntryStatus.DELETED
                is_delete = entry.data_file.content != DataFileContent.DATA
                if removed or (is_delete and entry.status == ManifestEntryStatus.ADDED):
                    file = entry.data_file
                    yield TablePartition(file.spec_id, comparable(entry_partition(file)))


def _crowding(
    head: Head, partitions: Collection[TablePartition], below_bytes: int
) -> dict[TablePartition, Crowding]:
    small, deletes = Counter[TablePartition](), dict[TablePartition, int]()
    for file in head.files_below(below_bytes, partitions):
        small[TablePartition(file.spec_id, comparable(file.partition))] += 1
    for file in head.files_with_deletes(partitions):
        partition = TablePartition(file.spec_id, comparable(file.partition))
        if partition in partitions:
            deletes[partition] = max(deletes.get(partition, 0), len(head.deletes_of(file)))
    return {it: Crowding(small[it], deletes.get(it, 0)) for it in partitions}
