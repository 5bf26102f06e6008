"""One attempt at a commit: the next version's bytes, as a function of (intent, head).

Nothing here decides whether the attempt wins; `publish` does. A retry calls `build` again with a newer head:
whatever depends on the head (which manifests are carried, sequence numbers, totals, which replaces still
hold) is computed again, and the one thing that does not, the manifest of appended files, is written once (R8,
R15).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotLogEntry

from timeline import added_manifests, conflicts, names, pending, properties, succession, summaries
from timeline.changes import (
    AddSortOrder,
    Announce,
    Append,
    Change,
    CountCommit,
    ExpireSnapshots,
    RaiseFence,
    Replace,
    SetProperties,
    Withdraw,
)
from timeline.clock import Environment
from timeline.expired import expire
from timeline.head import Head
from timeline.manifest_policy import ManifestSize, manifests_to_merge, pack
from timeline.manifests import (
    LiveFile,
    ManifestContents,
    ManifestFiles,
    added_entry,
    deleted_entry,
    existing_entry,
    is_data,
    partition_of,
)
from timeline.retention import MAINTAIN_EVERY, NOTHING_EXPIRED, Expiry
from timeline.transactions import Transaction, TransactionState
from timeline.version_file import Version, encode_metadata

_LONG_LIST = 4
"""So many times what one merge takes is a long list of manifests."""


@dataclass(frozen=True)
class Intent:
    """What a commit wants, and under which schema its files were written. Frozen: every attempt starts from
    it.
    """

    changes: tuple[Change, ...]
    schema_id: int
    transaction: Transaction | None = None
    summary: Mapping[str, str] = field(default_factory=dict)
    """Goes into the summary of the append (of the replace, where nothing is appended)."""
    open_below_bytes: int = 0
    """Files below this size may be filled later; their manifest entries are kept apart from the others."""

    @property
    def appended(self) -> tuple[DataFile, ...]:
        return tuple(file for change in self.changes if isinstance(change, Append) for file in change.files)

    @property
    def replaces(self) -> tuple[Replace, ...]:
        return tuple(change for change in self.changes if isinstance(change, Replace))


@dataclass(frozen=True)
class Dropped:
    """A replace that the commit left out, and why."""

    replace: Replace
    reason: str


@dataclass(frozen=True)
class Candidate:
    """The next version, ready to be published; `head` is the head that it becomes if it wins."""

    head: Head
    data: bytes
    base: Head | None = None
    """The head that it follows."""
    epoch: int | None = None
    dropped: tuple[Dropped, ...] = ()
    expiry: Expiry = NOTHING_EXPIRED
    appended_snapshot_id: int | None = None
    replaced_snapshot_id: int | None = None


@dataclass
class Attempts:
    """Builds the attempts of one commit. Holds only what all of them share."""

    intent: Intent
    manifest_files: ManifestFiles
    environment: Environment
    _append_manifests: list[ManifestFile] = field(default_factory=list)
    _append_files: dict[str, list[DataFile]] = field(default_factory=dict)
    _snapshot_id: int = 0
    _builds: int = 0

    def prepare(self, head: Head) -> None:
        """Write the manifests of the appended files, which no retry writes again. `head` may be stale.

        Where it fails, everything is as before: a retry that found none would commit a version without them.
        """
        if not self.intent.appended:
            return
        conflicts.check_files_have_a_known_spec(head, self.intent.appended)
        snapshot_id = succession.new_snapshot_id(self.environment)
        by_spec: dict[int, list[DataFile]] = defaultdict(list)
        for file in self.intent.appended:
            by_spec[file.spec_id].append(file)
        manifests, written = [], {}
        for spec_id, files in sorted(by_spec.items()):
            path = names.manifest_path(self._new_id(succession.commit_time(self.environment, head)))
            entries = [added_entry(snapshot_id, file) for file in files]
            spec = head.metadata.specs()[spec_id]
            manifest = self.manifest_files.write_manifest(path, spec, head.schema, snapshot_id, entries)
            manifests.append(manifest)
            written[manifest.manifest_path] = files
        self._snapshot_id, self._append_manifests, self._append_files = snapshot_id, manifests, written

    def build(self, head: Head, epoch: int | None, probed: str | None) -> Candidate:
        """Return the version after `head` that carries out the intent.

        Raises CommitConflictError or SchemaMismatchError where the intent no longer fits the head; nothing of
        it is then live.
        """
        intent, appended = self.intent, self.intent.appended
        self._builds += 1
        if appended:
            conflicts.check_appended_files_fit_the_schema(head, intent.schema_id)
        conflicts.check_files_have_a_known_spec(
            head, [*appended, *(file for replace in intent.replaces for file in replace.added)]
        )
        conflicts.check_files_are_above_the_fence(head, [file.file_path for file in appended])
        conflicts.check_files_are_not_live(head, {file.file_path for file in appended})
        now_ms = succession.commit_time(self.environment, head)
        state = _Building(head, head.manifests, now_ms)
        if appended:
            self._add_append(state)
        dropped = self._add_replace(state)
        return self._finish(state, epoch, probed, dropped)

    def _add_append(self, state: _Building) -> None:
        """Snapshot A: pure, its new manifests hold ADDED entries only (R21)."""
        cutoff = state.head.properties.get(properties.GC_CUTOFF, "")
        if any((names.file_id(m.manifest_path) or "") < cutoff for m in self._append_manifests):
            self.prepare(state.head)
        if sum(map(len, self._append_files.values())) != len(self.intent.appended):
            raise AssertionError(f"appended files stand in no manifest: {self._append_files.keys()}")
        snapshot = self._add_snapshot(
            state,
            Operation.APPEND,
            self._snapshot_id,
            self._append_manifests,
            state.carried(),
            self.intent.appended,
            (),
            self.intent.summary,
        )
        state.appended_snapshot_id = snapshot.snapshot_id
        state.appended_files = {
            location: live
            for manifest in state.manifests
            if manifest.manifest_path in self._append_files
            for location, live in self._remember_appended(manifest).files.items()
        }

    def _remember_appended(self, manifest: ManifestFile) -> ManifestContents:
        # New entries each time: they inherit this attempt's sequence number, and a retry has another.
        files = self._append_files[manifest.manifest_path]
        return self.manifest_files.remember(
            manifest, [added_entry(self._snapshot_id, file) for file in files]
        )

    def _add_replace(self, state: _Building) -> tuple[Dropped, ...]:
        """Snapshot B: the replaces that still hold, and manifests merged by policy. Left out where there is
        neither.
        """
        replaces, dropped = self._valid_replaces(state)
        if not replaces and not self.intent.appended:
            return dropped  # a commit that touches no file merges no manifests, and so need not read them
        removed = {location for replace in replaces for location in replace.removed}
        added = [file for replace in replaces for file in replace.added]
        rewritten = self._manifests_to_rewrite(state, removed)
        if not replaces and not rewritten:
            return dropped
        snapshot_id = succession.new_snapshot_id(self.environment)
        removed_files: list[DataFile] = []
        kept: dict[int, list[ManifestEntry]] = defaultdict(list)
        gone: dict[int, list[ManifestEntry]] = defaultdict(list)
        for manifest in rewritten:
            for entry in self.manifest_files.entries(manifest):
                if entry.data_file.file_path in removed:
                    gone[manifest.partition_spec_id].append(deleted_entry(snapshot_id, entry))
                    removed_files.append(entry.data_file)
                else:
                    kept[manifest.partition_spec_id].append(existing_entry(entry))
        if {file.file_path for file in removed_files} != removed:
            # Their rows would stay beside the merged ones. Validation has found each of them in a manifest.
            raise AssertionError(f"files to replace stand in no manifest that is rewritten: {removed}")
        for file in added:
            kept[file.spec_id].append(added_entry(snapshot_id, file))
        manifests, entries = [], {}
        for spec_id in sorted(kept.keys() | gone.keys()):
            packed = pack(
                kept[spec_id], self._is_open, lambda entry: repr(partition_of(entry.data_file))
            ) or [[]]
            packed[0] = packed[0] + gone[spec_id]
            for content in packed:
                path = names.manifest_path(self._new_id(state.now_ms))
                spec = state.head.metadata.specs()[spec_id]
                manifest = self.manifest_files.write_manifest(
                    path, spec, state.head.schema, snapshot_id, content
                )
                manifests.append(manifest)
                entries[manifest.manifest_path] = content
        rewritten_paths = {manifest.manifest_path for manifest in rewritten}
        carried = [m for m in state.carried() if m.manifest_path not in rewritten_paths]
        extra = {} if self.intent.appended else self.intent.summary
        self._add_snapshot(
            state, Operation.REPLACE, snapshot_id, manifests, carried, added, removed_files, extra
        )
        state.replaced_snapshot_id = snapshot_id
        for manifest in state.manifests:
            if manifest.manifest_path in entries:
                self.manifest_files.remember(manifest, entries[manifest.manifest_path])
        return dropped

    def _valid_replaces(self, state: _Building) -> tuple[list[Replace], tuple[Dropped, ...]]:
        valid, dropped, taken = [], [], set[str]()
        for replace in self.intent.replaces:
            conflicts.check_files_are_above_the_fence(state.head, [file.file_path for file in replace.added])
            reason = conflicts.why_replace_must_be_dropped(
                state.head, replace, state.appended_files.keys(), taken, self.intent.schema_id
            )
            if reason is None:
                conflicts.check_replace_keeps_rows(state.head, replace, state.appended_files)
                valid.append(replace)
                taken |= replace.removed
            else:
                dropped.append(Dropped(replace, reason))
        return valid, tuple(dropped)

    def _manifests_to_rewrite(self, state: _Building, removed: set[str]) -> list[ManifestFile]:
        """Return the manifests that hold a removed file, and those that the policy merges.

        Of a list that is not long only what is in memory is looked at: what replaces remove was found there,
        and what others have added is merged by them. After a lost race, while others are waiting, a commit
        that removes nothing merges only a long list.
        """
        data = [manifest for manifest in state.manifests if is_data(manifest)]
        min_count = max(properties.number(state.head.properties, properties.MANIFEST_MIN_MERGE_COUNT), 2)
        long = len(data) >= _LONG_LIST * min_count
        if self._builds > 1 and not removed and not long:
            return []
        sizes = []
        touched = set()
        for manifest in data:
            contents = self.manifest_files.contents(manifest) if long else self.manifest_files.known(manifest)
            if contents is None:
                continue
            if any(location in contents.files for location in removed):
                touched.add(manifest.manifest_path)
            else:
                opened = contents.open_below(self.intent.open_below_bytes)
                sizes.append(
                    ManifestSize(
                        manifest.manifest_path, manifest.partition_spec_id, len(contents.files), opened
                    )
                )
        chosen = touched | manifests_to_merge(sizes, min_count)
        return [manifest for manifest in data if manifest.manifest_path in chosen]

    def _is_open(self, entry: ManifestEntry) -> bool:
        return (
            entry.data_file.file_size_in_bytes < self.intent.open_below_bytes
            and not entry.data_file.sort_order_id
        )

    def _add_snapshot(
        self,
        state: _Building,
        operation: Operation,
        snapshot_id: int,
        new: Sequence[ManifestFile],
        carried: Sequence[ManifestFile],
        added: Iterable[DataFile],
        removed: Iterable[DataFile],
        extra: Mapping[str, str],
    ) -> Snapshot:
        sequence_number = state.sequence_number + 1
        # B is a millisecond after A: with equal times a stream that starts from a time would begin at B and
        # miss A's rows (R12).
        timestamp_ms = state.now_ms + len(state.snapshots)
        location, state.manifests = self.manifest_files.write_list(
            names.manifest_list_path(self._new_id(state.now_ms)),
            snapshot_id,
            state.parent_id,
            sequence_number,
            [*new, *carried],
        )
        previous = state.snapshots[-1] if state.snapshots else state.head.snapshot
        summary = summaries.summarise(
            operation, added, removed, previous, state.head.schema, state.head.metadata.specs()
        )
        snapshot = Snapshot(
            snapshot_id=snapshot_id,
            parent_snapshot_id=state.parent_id,
            sequence_number=sequence_number,
            timestamp_ms=timestamp_ms,
            manifest_list=location,
            summary=summaries.with_extra(summary, {**extra, properties.VERSION: str(state.head.number + 1)}),
            schema_id=state.head.schema.schema_id,
        )
        state.snapshots.append(snapshot)
        return snapshot

    def _finish(
        self, state: _Building, epoch: int | None, probed: str | None, dropped: tuple[Dropped, ...]
    ) -> Candidate:
        head, metadata = state.head, state.head.metadata
        commit_id = self._new_id(state.now_ms)
        updated_ms = state.now_ms + max(len(state.snapshots) - 1, 0)
        table_properties = {**metadata.properties, **succession.place(commit_id, head.version, probed)}
        sort_orders = metadata.sort_orders
        for change in self.intent.changes:
            if isinstance(change, AddSortOrder):
                sort_orders = change.added_to(sort_orders)
            elif isinstance(change, SetProperties):
                table_properties.update(change.updates)
                for key in change.removals:
                    table_properties.pop(key, None)
            elif isinstance(change, RaiseFence):
                raised = max(head.properties.get(properties.GC_CUTOFF, ""), change.cutoff)
                table_properties[properties.GC_CUTOFF] = raised
            elif isinstance(change, Announce):
                pending.announce(table_properties, change.plan_id, head.number + 1, updated_ms)
            elif isinstance(change, Withdraw):
                pending.withdraw(table_properties, change.plan_id)
            elif isinstance(change, CountCommit):
                table_properties[properties.CLUSTERING_COUNT] = str(head.counted_commits + 1)
        if (txn := self.intent.transaction) is not None and epoch is not None:
            table_properties[txn.key] = TransactionState(
                txn.query_id, txn.run_id, epoch, txn.batch, commit_id
            ).to_property()
        update: dict[str, object] = {
            "properties": table_properties,
            "last_updated_ms": updated_ms,
            "sort_orders": sort_orders,
        }
        update["metadata_log"] = succession.metadata_log(
            metadata, self.manifest_files.store.uri(names.version_path(head.number)), table_properties
        )
        snapshots, log, refs = metadata.snapshots, metadata.snapshot_log, metadata.refs
        if state.snapshots:
            current = state.snapshots[-1]
            main = metadata.refs.get("main")
            refs = {
                **metadata.refs,
                "main": (
                    SnapshotRef.model_validate({"snapshot-id": current.snapshot_id, "type": "branch"})
                    if main is None
                    else main.model_copy(update={"snapshot_id": current.snapshot_id})
                ),
            }
            snapshots = [*snapshots, *state.snapshots]
            log = [
                *log,
                SnapshotLogEntry(snapshot_id=current.snapshot_id, timestamp_ms=current.timestamp_ms),
            ]
            update |= {
                "last_sequence_number": state.sequence_number,
                "current_snapshot_id": current.snapshot_id,
                "refs": refs,
            }
        told = self._appended_alone(state)
        if told:
            table_properties[properties.APPENDED_MANIFESTS] = added_manifests.told(head.number + 1, told)
        else:
            table_properties.pop(properties.APPENDED_MANIFESTS, None)
        expiry = NOTHING_EXPIRED
        asked = [change.policy for change in self.intent.changes if isinstance(change, ExpireSnapshots)]
        if asked or (head.number + 1) % MAINTAIN_EVERY == 0:
            policy = {**table_properties, **(asked[0] if asked else {})}
            expiry = expire(
                self.manifest_files, head.number + 1, commit_id, snapshots, refs, policy, updated_ms
            )
        update["snapshots"] = succession.without(snapshots, expiry.snapshot_ids)
        update["snapshot_log"] = succession.log_without(log, expiry.snapshot_ids)
        new_metadata = metadata.model_copy(update=update)
        data, arrays = encode_metadata(new_metadata, head.version.arrays)
        new_version = Version(head.number + 1, new_metadata, arrays=arrays)
        return Candidate(
            Head(new_version, state.manifests, self.manifest_files),
            data,
            head,
            epoch,
            dropped,
            expiry,
            state.appended_snapshot_id,
            state.replaced_snapshot_id,
        )

    def _appended_alone(self, state: _Building) -> list[ManifestFile]:
        """Return the appended manifests, if nothing else sets this version's apart from its parent's."""
        if state.replaced_snapshot_id is not None:
            return []
        return [m for m in state.manifests if m.manifest_path in self._append_files]

    def _new_id(self, time_ms: int) -> str:
        return succession.new_id(self.environment, time_ms)


@dataclass
class _Building:
    """The state of one attempt while its snapshots are added."""

    head: Head
    manifests: tuple[ManifestFile, ...]
    now_ms: int
    snapshots: list[Snapshot] = field(default_factory=list)
    appended_files: dict[str, LiveFile] = field(default_factory=dict)
    appended_snapshot_id: int | None = None
    replaced_snapshot_id: int | None = None

    @property
    def sequence_number(self) -> int:
        return self.head.metadata.last_sequence_number + len(self.snapshots)

    @property
    def parent_id(self) -> int | None:
        return self.snapshots[-1].snapshot_id if self.snapshots else self.head.metadata.current_snapshot_id

    def carried(self) -> list[ManifestFile]:
        """Return the manifests that still hold live files; the others have told what they deleted."""
        return added_manifests.carried(self.manifests)


def first_version(
    metadata: TableMetadataV2, manifest_files: ManifestFiles, environment: Environment, probed: str
) -> Candidate:
    """Return version 1 of a new, empty table."""
    now_ms = environment.now_ms()
    commit_id = succession.new_id(environment, now_ms)
    table_properties = {**metadata.properties, **succession.place(commit_id, None, probed)}
    metadata = metadata.model_copy(update={"properties": table_properties, "last_updated_ms": now_ms})
    data, arrays = encode_metadata(metadata)
    return Candidate(Head(Version(1, metadata, arrays=arrays), (), manifest_files), data)
