"""Rewriting manifests: the snapshot in which live files are replaced and manifests merged by policy.

Position-delete files leave with the last live file that they may apply to, or where they are replaced
themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table.snapshots import Operation

from timeline import names, properties
from timeline.drafts import succession
from timeline.drafts.draft import Draft
from timeline.manifests.contents import count_live, is_data
from timeline.manifests.deletes import applies_anywhere, find_idle, may_apply_in
from timeline.manifests.entries import (
    added_entry,
    deleted_entry,
    entry_partition,
    existing_entry,
    returned_entry,
)
from timeline.manifests.lookup import find_files
from timeline.manifests.manifest_policy import (
    OPEN_ENTRIES,
    ManifestSize,
    manifests_to_merge,
    manifests_to_split,
    may_be_merged,
    pack,
)
from timeline.manifests.stated_files import is_open, state_files, stated_files
from timeline.versions.partitioning import schemas_of_spec, specs_without_types

_LONG_LIST = 4
"""A list is long that has so many times the manifests of one merge, beside those that no merge takes."""
_Kind = tuple[ManifestContent, int]
"""The content of a manifest, and its partition spec."""


def choose_manifests(
    draft: Draft, removed: AbstractSet[str], open_below_bytes: int, *, is_retry: bool
) -> list[ManifestFile]:
    """Return the manifests that hold a removed file, and those that the policy merges or splits.

    The policy reads none: names state what it needs. Of a list that is not long it considers only
    those in memory: those of removed files were read by the checks, and manifests that other writers added
    are merged by them. After a lost race, while others are waiting, a commit that removes nothing merges only
    a long list.
    """
    found = find_files(draft.manifest_files, draft.manifests, removed)
    touched = {manifest.manifest_path for manifest, _ in found.values()}
    for manifest in draft.manifests if removed else ():  # another engine may have listed a file twice
        known = draft.manifest_files.known(manifest)
        if known is not None and not removed.isdisjoint(known.files):
            touched.add(manifest.manifest_path)
    chosen, fixed = set(touched), specs_without_types(draft.head.metadata)
    left = [it for it in draft.manifests if it.manifest_path not in touched]
    for content in ManifestContent:
        others = [it for it in left if it.content == content and it.partition_spec_id not in fixed]
        chosen |= _choose(draft, others, open_below_bytes, only_long=is_retry and not removed)
    return [manifest for manifest in draft.manifests if manifest.manifest_path in chosen]


def _choose(
    draft: Draft, manifests: Sequence[ManifestFile], open_below_bytes: int, *, only_long: bool
) -> AbstractSet[str]:
    """Return the paths to choose among manifests of one content, which are merged with each other only."""
    files = draft.manifest_files
    min_count = max(properties.number(draft.head.properties, properties.MANIFEST_MIN_MERGE_COUNT), 2)
    sizes = [_size_of(draft, manifest, open_below_bytes) for manifest in manifests]
    is_long = sum(map(may_be_merged, sizes)) >= _LONG_LIST * min_count
    if only_long and not is_long:
        return set()
    known = [it for it, manifest in zip(sizes, manifests, strict=True) if files.known(manifest) is not None]
    foreign = [it for it in known if names.file_id(it.path) is None]
    return manifests_to_merge(sizes if is_long else known, min_count) | manifests_to_split(foreign)


def _size_of(draft: Draft, manifest: ManifestFile, open_below_bytes: int) -> ManifestSize:
    """Return what the policy needs to know of a manifest: as its contents say, where they are in memory and
    its name states nothing, else as name and list do.
    """
    path, live = manifest.manifest_path, count_live(manifest)
    if not is_data(manifest):
        return ManifestSize(path, manifest.partition_spec_id, live, live)
    if (stated := stated_files(path)) is not None:
        opened = stated.open
    elif (contents := draft.manifest_files.known(manifest)) is not None:
        opened = sum(not file.sort_order_id for file in contents.below(open_below_bytes))
    else:
        opened = live if live <= OPEN_ENTRIES else 0
    return ManifestSize(path, manifest.partition_spec_id, live, opened)


def with_idle_deletes(draft: Draft, removed: AbstractSet[str]) -> AbstractSet[str]:
    """Return files that leave, and with them the position-delete files that may apply to one of these, and
    then apply to no data file.
    """
    files = draft.manifest_files
    of_deletes = [manifest for manifest in draft.manifests if removed and not is_data(manifest)]
    if not of_deletes:
        return removed
    of_data = [manifest for manifest in draft.manifests if is_data(manifest)]
    deletes = {it: file for each in of_deletes for it, file in files.contents(each).files.items()}
    idle = {it.location for it in deletes.values() if it.refers_to in removed}
    leaving = find_files(files, of_data, removed - deletes.keys()).values()
    partitions = {(file.spec_id, file.partition) for _, file in leaving}
    known = draft.head.pruning
    wide = [it for it in deletes.values() if it.refers_to is None]
    wide = [it for it in wide if may_apply_in(it, partitions, known.partitioned)]
    if wide:
        if not any(applies_anywhere(it, known.partitioned) for it in wide):
            of_data = list(known.near(of_data, partitions))
        data = (file for each in of_data for file in files.contents(each).files.values())
        left = [file for file in data if file.location not in removed]
        idle |= find_idle(wide, left, known.partitioned)
    return removed | idle


def _content_of(file: DataFile) -> ManifestContent:
    return ManifestContent.DATA if file.content == DataFileContent.DATA else ManifestContent.DELETES


@dataclass
class Rewrite:
    """The entries of some manifests, written to new ones, with files removed and added."""

    draft: Draft
    manifests: Sequence[ManifestFile]
    removed: AbstractSet[str]
    added: Sequence[DataFile]
    open_below_bytes: int
    apart: bool = False
    """Whether removed files are named in manifests of their own, which no later version carries."""
    returned: Sequence[ManifestEntry] = ()
    """Entries of files that are live again."""
    operation: Operation = Operation.REPLACE

    def add_snapshot(self) -> None:
        """Write the new manifests, and add the snapshot that lists them in place of the old ones."""
        draft, snapshot_id = self.draft, succession.new_snapshot_id(self.draft.environment)
        live, gone = self._sort_entries(snapshot_id)
        removed_files = [entry.data_file for entries in gone.values() for entry in entries]
        if missed := self.removed - {file.file_path for file in removed_files}:
            # Their rows would stay beside the merged ones. The checks have found each of them in a manifest.
            raise AssertionError(f"files to replace are in no manifest that is rewritten: {missed}")
        written = []
        for kind in sorted(live.keys() | gone.keys()):
            written += self._write(snapshot_id, *kind, live[kind], gone[kind])
        rewritten = {manifest.manifest_path for manifest in self.manifests}
        carried = [m for m in draft.carried_manifests() if m.manifest_path not in rewritten]
        new = [manifest for manifest, _ in written]
        added = [*self.added, *(entry.data_file for entry in self.returned)]
        draft.add_snapshot(self.operation, snapshot_id, new, carried, added, removed_files)
        entries = {manifest.manifest_path: content for manifest, content in written}
        for manifest in draft.manifests:
            if manifest.manifest_path in entries:
                draft.manifest_files.remember(manifest, entries[manifest.manifest_path])

    def _sort_entries(
        self, snapshot_id: int
    ) -> tuple[dict[_Kind, list[ManifestEntry]], dict[_Kind, list[ManifestEntry]]]:
        """Return the live entries, added ones last, and those of removed files, by content and partition
        spec.
        """
        live: dict[_Kind, list[ManifestEntry]] = defaultdict(list)
        gone: dict[_Kind, list[ManifestEntry]] = defaultdict(list)
        for manifest in self.manifests:
            kind = manifest.content, manifest.partition_spec_id
            for entry in self.draft.manifest_files.entries(manifest):
                if entry.data_file.file_path in self.removed:
                    gone[kind].append(deleted_entry(snapshot_id, entry))
                else:
                    live[kind].append(existing_entry(entry))
        for file in self.added:
            live[_content_of(file), file.spec_id].append(added_entry(snapshot_id, file))
        for entry in self.returned:
            kind = _content_of(entry.data_file), entry.data_file.spec_id
            live[kind].append(returned_entry(snapshot_id, entry))
        return live, gone

    def _write(
        self,
        snapshot_id: int,
        content: ManifestContent,
        spec_id: int,
        live: list[ManifestEntry],
        gone: list[ManifestEntry],
    ) -> list[tuple[ManifestFile, list[ManifestEntry]]]:
        """Write the manifests of one content and partition spec, packed by policy. Return each with its
        entries.
        """
        draft, metadata = self.draft, self.draft.head.metadata
        spec = metadata.specs()[spec_id]
        schema, stated = schemas_of_spec(metadata, spec)
        packed = pack(live, self._is_open, lambda entry: entry_partition(entry.data_file)) or [[]]
        if self.apart and live and gone:
            packed = [*packed, gone]
        else:
            packed[0] = packed[0] + gone
        written = []
        for entries in packed:
            alive = [it.data_file for it in entries if it.status != ManifestEntryStatus.DELETED]
            path = names.manifest_path(draft.new_id(), state_files(content, alive, self.open_below_bytes))
            manifest = draft.manifest_files.write_manifest(
                path, spec, schema, snapshot_id, entries, content, stated
            )
            written.append((manifest, entries))
        return written

    def _is_open(self, entry: ManifestEntry) -> bool:
        if entry.data_file.content != DataFileContent.DATA:
            return True  # it leaves with its data file
        return is_open(entry.data_file, self.open_below_bytes)
