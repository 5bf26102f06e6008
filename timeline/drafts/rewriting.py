"""Rewriting manifests: the snapshot in which live files are replaced and manifests merged by policy.

Position-delete files leave with the last live file that they may apply to, or where they are replaced
themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table.snapshots import Operation

from timeline import names, properties
from timeline.drafts import succession
from timeline.drafts.draft import Draft
from timeline.manifests.deletes import find_idle
from timeline.manifests.entries import (
    added_entry,
    deleted_entry,
    entry_partition,
    existing_entry,
    returned_entry,
)
from timeline.manifests.manifest_policy import ManifestSize, manifests_to_merge, manifests_to_split, pack
from timeline.manifests.manifests import is_data

_LONG_LIST = 4
"""A list is long that has so many times the manifests of one merge."""
_Kind = tuple[ManifestContent, int]
"""The content of a manifest, and its partition spec."""


def choose_manifests(
    draft: Draft, removed: AbstractSet[str], open_below_bytes: int, *, is_retry: bool
) -> list[ManifestFile]:
    """Return the manifests that hold a removed file, and those that the policy merges or splits.

    Of a list that is not long only cached manifests are considered: those of removed files were read by the
    checks, and manifests that other writers added are merged by them. After a lost race, while others are
    waiting, a commit that removes nothing merges only a long list.
    """
    chosen = set[str]()
    for content in ManifestContent:
        of_content = [manifest for manifest in draft.manifests if manifest.content == content]
        chosen |= _choose(draft, of_content, removed, open_below_bytes, is_retry=is_retry)
    return [manifest for manifest in draft.manifests if manifest.manifest_path in chosen]


def _choose(
    draft: Draft,
    manifests: Sequence[ManifestFile],
    removed: AbstractSet[str],
    open_below_bytes: int,
    *,
    is_retry: bool,
) -> AbstractSet[str]:
    """Return the paths to choose among manifests of one content, which are merged with each other only."""
    files = draft.manifest_files
    min_count = max(properties.number(draft.head.properties, properties.MANIFEST_MIN_MERGE_COUNT), 2)
    is_long = len(manifests) >= _LONG_LIST * min_count
    if is_retry and not removed and not is_long:
        return set()
    sizes, foreign = [], []
    touched = set()
    for manifest in manifests:
        contents = files.contents(manifest) if is_long else files.known(manifest)
        if contents is None:
            continue
        path = manifest.manifest_path
        if any(location in contents.files for location in removed):
            touched.add(path)
        else:
            live = len(contents.files)
            opened = contents.open_below(open_below_bytes) if is_data(manifest) else live
            sizes.append(ManifestSize(path, manifest.partition_spec_id, live, opened))
            if is_data(manifest) and names.file_id(path) is None:
                foreign.append(sizes[-1])
    return touched | manifests_to_merge(sizes, min_count) | manifests_to_split(foreign)


def with_idle_deletes(draft: Draft, removed: AbstractSet[str]) -> AbstractSet[str]:
    """Return files that leave, and with them all position-delete files that then apply to no data file."""
    files = draft.manifest_files
    of_deletes = [manifest for manifest in draft.manifests if not is_data(manifest)]
    if not removed or not of_deletes:
        return removed
    deletes = [file for each in of_deletes for file in files.contents(each).files.values()]
    of_data = (manifest for manifest in draft.manifests if is_data(manifest))
    data = (file for each in of_data for file in files.contents(each).files.values())
    return removed | find_idle(deletes, [file for file in data if file.location not in removed])


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
        draft, spec = self.draft, self.draft.head.metadata.specs()[spec_id]
        packed = pack(live, self._is_open, lambda entry: repr(entry_partition(entry.data_file))) or [[]]
        if self.apart and live and gone:
            packed = [*packed, gone]
        else:
            packed[0] = packed[0] + gone
        written = []
        for entries in packed:
            path = names.manifest_path(draft.new_id())
            manifest = draft.manifest_files.write_manifest(
                path, spec, draft.head.schema, snapshot_id, entries, content
            )
            written.append((manifest, entries))
        return written

    def _is_open(self, entry: ManifestEntry) -> bool:
        if entry.data_file.content != DataFileContent.DATA:
            return True  # it leaves with its data file
        is_small = entry.data_file.file_size_in_bytes < self.open_below_bytes
        return is_small and not entry.data_file.sort_order_id
