"""What keeps each file of a table: snapshots, current, older, staged or expired ones; tags and branches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from pyiceberg.manifest import ManifestFile
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from streaming_sink.removal.places import own_spelling
from timeline.manifests.entries import LiveFile
from timeline.retention.expired import pending_notes, read_expiry_notes
from timeline.retention.policy import lineage, snapshot_version
from timeline.table import Table
from timeline.versions.followed import FOLLOWED_TAG_PREFIX
from timeline.versions.head import Head
from timeline.versions.work_items import STAGED_TAG_PREFIX


class How(str, Enum):
    """By what a file is kept."""

    CURRENT = "current"
    REF = "ref"
    """A tag, or a branch beside main."""
    STAGED = "staged"
    """A snapshot that no branch has: that of a work item, or one that another engine may publish."""
    HISTORY = "history"
    """Older snapshots of main, for time travel."""
    EXPIRED = "expired"
    """Snapshots that have left the metadata, whose readers may go on for the grace period."""


@dataclass(frozen=True, slots=True)
class Holder:
    """One thing that keeps a file."""

    how: How
    name: str
    """For people."""


@dataclass
class HeldFiles:
    """The files of a table that snapshots keep, by location, as the store spells it."""

    by: dict[str, frozenset[Holder]] = field(default_factory=dict)
    known: dict[str, LiveFile] = field(default_factory=dict)
    """What a manifest says of each."""
    newest: dict[str, int] = field(default_factory=dict)
    """The sequence number of the newest snapshot in the metadata that has each, and each manifest."""

    def of(self, location: str, how: How) -> list[str]:
        """Return what keeps a file in one way, for people."""
        return sorted(each.name for each in self.by.get(location, ()) if each.how is how)


def read_holders(table: Table) -> HeldFiles:
    """Return what keeps the files of the known head, of all its snapshots, and of those that have expired and
    wait for their deletion. Reads every list and manifest once; one that is missing keeps nothing.
    """
    files = table.log.manifest_files
    lists: dict[str, set[Holder]] = defaultdict(set)
    numbers: dict[str, int] = defaultdict(int)
    for snapshot, holders in _holders(table.head):
        lists[snapshot.manifest_list] |= holders
        numbers[snapshot.manifest_list] = snapshot.sequence_number or 0
    notes, _ = read_expiry_notes(table.store, pending_notes(table.store, table.head.version.owner))
    for note in notes.values():
        for record in note.gone:
            lists[record.manifest_list].add(
                Holder(How.EXPIRED, f"snapshot {record.snapshot_id}, which version {note.version} expired")
            )
    manifests: dict[str, ManifestFile] = {}
    of_manifest: dict[str, set[Holder]] = defaultdict(set)
    found = HeldFiles()
    newest = defaultdict[str, int](int)
    shared: dict[frozenset[Holder], frozenset[Holder]] = {}
    """Each set of holders once: a set of its own for each of a million files would be a fifth of all this."""
    for location, holders in lists.items():
        for manifest in files.find_list(location) or ():
            path = own_spelling(table.store, manifest.manifest_path)
            manifests[path] = manifest
            of_manifest[path] |= holders
            newest[path] = max(newest[path], numbers[location])
    for path, manifest in manifests.items():
        contents = files.find_contents(manifest)
        holders_of = frozenset(of_manifest[path])
        for file in () if contents is None else contents.files.values():
            location = own_spelling(table.store, file.location)
            location = file.location if location == file.location else location  # one text, not two
            held = found.by.get(location, holders_of) | holders_of
            found.by[location] = shared.setdefault(held, held)
            found.known[location] = file
            newest[location] = max(newest[location], newest[path])
    found.newest.update(newest)
    files.keep_only(table.head.manifests)
    return found


def _holders(head: Head) -> Iterable[tuple[Snapshot, set[Holder]]]:
    metadata = head.metadata
    of: dict[int, set[Holder]] = defaultdict(set)
    for snapshot in lineage(metadata.current_snapshot_id, metadata.snapshots):
        of[snapshot.snapshot_id].add(Holder(How.HISTORY, "older snapshots"))
    if metadata.current_snapshot_id is not None:
        of[metadata.current_snapshot_id] = {Holder(How.CURRENT, "the current snapshot")}
    for name, ref in metadata.refs.items():
        if name == "main":
            continue
        if name.startswith(STAGED_TAG_PREFIX):
            of[ref.snapshot_id].add(
                Holder(How.STAGED, f"staged snapshot {name.removeprefix(STAGED_TAG_PREFIX)!r}")
            )
            continue
        if name.startswith(FOLLOWED_TAG_PREFIX):  # which a purge releases
            of[ref.snapshot_id] = of[ref.snapshot_id] or {Holder(How.HISTORY, "older snapshots")}
            continue
        kind = "branch" if ref.snapshot_ref_type == SnapshotRefType.BRANCH else "tag"
        of_branch = lineage(ref.snapshot_id, metadata.snapshots)
        for snapshot in of_branch if kind == "branch" else of_branch[:1]:
            of[snapshot.snapshot_id].add(Holder(How.REF, f"{kind} {name!r}"))
    for snapshot in metadata.snapshots:
        own = of[snapshot.snapshot_id]
        if not own and snapshot_version(snapshot):  # a tag had kept it
            own.add(Holder(How.HISTORY, "older snapshots"))
        elif not own:
            beside = "a snapshot beside main," if head.version.is_shared else "staged snapshot"
            own.add(Holder(How.STAGED, f"{beside} {snapshot.snapshot_id}"))
        yield snapshot, own
