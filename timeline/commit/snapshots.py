"""The snapshots that one commit adds to a draft: new files and deleted rows, then what replaces live files.

A writer serves all attempts of one commit, and holds what they share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Protocol

from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table.snapshots import Operation, Snapshot

from timeline import names, properties
from timeline.changes.changes import Change
from timeline.changes.intent import Intent
from timeline.changes.purge_changes import AppendNothing, RewriteManifests
from timeline.changes.ref_changes import Rollback, find_snapshot
from timeline.changes.staging_changes import Stage
from timeline.clock import Environment
from timeline.commit import conflicts
from timeline.drafts import succession
from timeline.drafts.draft import Draft
from timeline.drafts.rewriting import Rewrite, choose_manifests, with_idle_deletes
from timeline.drafts.summaries import stating
from timeline.manifests.entries import DeleteFile, added_entry
from timeline.manifests.manifests import ManifestFiles
from timeline.manifests.stated_files import state_files
from timeline.versions.head import Head
from timeline.versions.partitioning import schemas_of_spec


class SnapshotWriter(Protocol):
    """Adds the snapshot of all changes of a kind, where the commit has such changes."""

    def prepare(self, head: Head) -> None:
        """Write what no retry writes again. `head` may be stale."""

    def add_snapshot(self, draft: Draft, kept: Sequence[Change]) -> None:
        """Add the snapshot of the changes that fit the draft's head."""


@dataclass
class AppendWriter:
    """The snapshot of the appended files and of the position-delete files: an append, or a row delta where
    rows are deleted. Pure, its new manifests hold ADDED entries only (R21).
    """

    intent: Intent
    manifest_files: ManifestFiles
    environment: Environment
    _manifests: list[ManifestFile] = field(default_factory=list)
    _files: dict[str, list[DataFile]] = field(default_factory=dict)
    _snapshot_id: int = 0

    @property
    def _added(self) -> tuple[Sequence[DataFile], Sequence[DeleteFile]]:
        """The data files and the delete files of the snapshot."""
        return self.intent.appended_files, self.intent.delete_files

    def prepare(self, head: Head) -> None:
        """Write the manifests of the added files.

        Where that fails, everything is as before: a retry without manifests would commit a version without
        the files.
        """
        appended, deletes = self._added
        if not appended and not deletes:
            return
        conflicts.check_files_have_a_known_spec(head, (*appended, *deletes))
        snapshot_id = succession.new_snapshot_id(self.environment)
        by_kind: dict[tuple[ManifestContent, int], list[DataFile]] = defaultdict(list)
        for file in appended:
            by_kind[ManifestContent.DATA, file.spec_id].append(file)
        for delete in deletes:
            by_kind[ManifestContent.DELETES, delete.spec_id].append(delete)
        manifests, written = [], {}
        for (content, spec_id), files in sorted(by_kind.items()):
            file_id = self.environment.new_id(succession.commit_time(self.environment, head))
            named = state_files(content, files, self.intent.open_below_bytes)
            path, spec = names.manifest_path(file_id, named), head.metadata.specs()[spec_id]
            entries = [added_entry(snapshot_id, file) for file in files]
            schema, stated = schemas_of_spec(head.metadata, spec)
            manifest = self.manifest_files.write_manifest(
                path, spec, schema, snapshot_id, entries, content, stated
            )
            manifests.append(manifest)
            written[manifest.manifest_path] = files
        self._snapshot_id, self._manifests, self._files = snapshot_id, manifests, written

    def add_snapshot(self, draft: Draft, kept: Sequence[Change]) -> None:
        appended = [file for change in kept for file in change.appended_files]
        deletes = [file for change in kept for file in change.delete_files]
        if not appended and not deletes:
            if any(isinstance(change, AppendNothing) for change in kept):
                snapshot_id, carried = succession.new_snapshot_id(self.environment), draft.carried_manifests()
                draft.add_snapshot(Operation.APPEND, snapshot_id, (), carried, (), ())
            return
        self._renew_manifests(draft, len(appended) + len(deletes))
        operation = Operation.APPEND
        if deletes:  # as Iceberg's own row delta
            operation = Operation.OVERWRITE if appended else Operation.DELETE
        added: list[DataFile] = [*appended, *deletes]
        carried = draft.carried_manifests()
        draft.add_snapshot(operation, self._snapshot_id, self._manifests, carried, added, ())
        for manifest in draft.manifests:
            if (files := self._files.get(manifest.manifest_path)) is not None:
                # New entries each time: they inherit this attempt's sequence number, and a retry has another.
                entries = [added_entry(self._snapshot_id, file) for file in files]
                self.manifest_files.remember(manifest, entries)

    def _renew_manifests(self, draft: Draft, files: int) -> None:
        """Write the manifests again where they are below the head's garbage cutoff (R6)."""
        cutoff = draft.head.properties.get(properties.GC_CUTOFF, "")
        if any((names.file_id(m.manifest_path) or "") < cutoff for m in self._manifests):
            self.prepare(draft.head)
        if sum(map(len, self._files.values())) != files:
            raise AssertionError(f"added files are in no manifest: {self._files.keys()}")


@dataclass
class StageWriter(AppendWriter):
    """The snapshot of staged files: an append beside main, pure as one of main."""

    @property
    def _added(self) -> tuple[Sequence[DataFile], Sequence[DeleteFile]]:
        return self.intent.staged_files, ()

    def add_snapshot(self, draft: Draft, kept: Sequence[Change]) -> None:
        for change in kept:
            if isinstance(change, Stage):
                self._renew_manifests(draft, len(change.files))
                draft.stage_snapshot(change.item.tag, self._snapshot_id, self._manifests, change.files)


@dataclass
class RollbackWriter:
    """The snapshot of a rollback: what main has and the old snapshot had not leaves, and what that had is
    added again, as old as it is.
    """

    intent: Intent
    manifest_files: ManifestFiles
    environment: Environment

    def prepare(self, head: Head) -> None:
        """A rollback depends on the head, so an attempt writes all of it."""

    def add_snapshot(self, draft: Draft, kept: Sequence[Change]) -> None:
        for change in kept:
            if isinstance(change, Rollback):
                self._add_snapshot(draft, find_snapshot(draft.head, change.snapshot_id))

    def _add_snapshot(self, draft: Draft, target: Snapshot) -> None:
        files = self.manifest_files
        now = {path for each in draft.manifests for path in files.read_contents(each).files}
        then = {
            entry.data_file.file_path: entry
            for manifest in files.read_list(target.manifest_list)
            for entry in files.entries(manifest)
        }
        removed = now - then.keys()
        returned = [entry for path, entry in then.items() if path not in now]
        chosen = [each for each in draft.manifests if not removed.isdisjoint(files.contents(each).files)]
        operation = Operation.OVERWRITE if returned else Operation.DELETE
        Rewrite(
            draft, chosen, removed, (), self.intent.open_below_bytes, returned=returned, operation=operation
        ).add_snapshot()
        stated = {properties.ROLLED_BACK_TO: str(target.snapshot_id)}
        draft.snapshots[-1] = stating(draft.snapshots[-1], stated)


@dataclass
class ReplaceWriter:
    """The snapshot of the replaces that still fit, and of manifests merged by policy; none where there is
    neither. Where one snapshot of a commit is kept, an append merges no manifests.
    """

    intent: Intent
    manifest_files: ManifestFiles
    environment: Environment
    _attempts: int = 0

    def prepare(self, head: Head) -> None:
        """A replace depends on the head, so an attempt writes all of it."""

    def add_snapshot(self, draft: Draft, kept: Sequence[Change]) -> None:
        self._attempts += 1
        added = [file for change in kept for file in change.rewritten_files]
        removed: AbstractSet[str] = {location for change in kept for location in change.inputs}
        purges = [change for change in kept if isinstance(change, RewriteManifests)]
        stale = {location for change in purges for location in change.manifests}
        if not removed and not stale and not self.intent.appended_files and not self.intent.delete_files:
            return  # a commit that touches no file merges no manifests, and so reads none
        if draft.keeps_one_snapshot and draft.snapshots and not removed and not stale:
            return  # the policy waits for a commit that has no other snapshot
        open_below = self.intent.open_below_bytes
        removed = with_idle_deletes(draft, removed)
        chosen = choose_manifests(draft, removed, open_below, is_retry=self._attempts > 1)
        manifests = [each for each in draft.manifests if each in chosen or each.manifest_path in stale]
        if not removed and not manifests:
            return
        Rewrite(draft, manifests, removed, added, open_below, apart=bool(purges)).add_snapshot()
