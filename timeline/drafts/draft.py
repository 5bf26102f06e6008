"""The version that one attempt builds on a head: its snapshots, its manifests, its properties.

A draft knows no kind of change. Writers add snapshots to it, changes apply themselves to it, and it completes
the version: lineage, logs, branch `main` and expiry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotLogEntry

from timeline import names, properties
from timeline.clock import Environment
from timeline.drafts import succession, summaries
from timeline.manifests.manifests import ManifestFiles
from timeline.retention.expired import expire
from timeline.retention.policy import MAINTAIN_EVERY, NOTHING_EXPIRED, Expiry
from timeline.versions.added_manifests import carried_manifests, describe_manifests
from timeline.versions.head import Head
from timeline.versions.version_file import Version, encode_metadata


@dataclass
class Draft:
    """The state of one attempt. A retry begins a new one on a newer head."""

    head: Head
    manifest_files: ManifestFiles
    environment: Environment
    now_ms: int
    manifests: tuple[ManifestFile, ...]
    """Those of the newest snapshot."""
    metadata: TableMetadataV2
    properties: dict[str, str]
    summary: Mapping[str, str] = field(default_factory=dict)
    """Extra entries for the summary of the first snapshot."""
    snapshots: list[Snapshot] = field(default_factory=list)
    """Those that main gets."""
    staged: list[Snapshot] = field(default_factory=list)
    """Those beside main, each of which a tag holds."""
    commit_id: str = ""
    _expiry_policy: Mapping[str, str] | None = None
    _released: dict[str, SnapshotRef] = field(default_factory=dict)
    """Refs that were removed, and hold what they held until the next version."""
    plans_apart: ClassVar[bool] = False
    """Whether each pending plan has a property of its own, which stays short."""
    keeps_one_snapshot: ClassVar[bool] = False
    """Whether the log keeps one snapshot of a commit, so that none may have two."""
    holds_followed: ClassVar[bool] = False
    """Whether others expire snapshots, and the log takes tags that hold some for change logs."""

    @classmethod
    def begin(
        cls,
        head: Head,
        manifest_files: ManifestFiles,
        environment: Environment,
        summary: Mapping[str, str],
    ) -> Draft:
        now_ms = succession.commit_time(environment, head)
        metadata = head.metadata
        table_properties = dict(metadata.properties)
        return cls(
            head, manifest_files, environment, now_ms, head.manifests, metadata, table_properties, summary
        )

    @property
    def number(self) -> int:
        return self.head.number + 1

    @property
    def updated_ms(self) -> int:
        """The version's time: that of its newest snapshot."""
        return self.now_ms + max(len(self.snapshots) - 1, 0)

    @property
    def sequence_number(self) -> int:
        return self.head.metadata.last_sequence_number + len(self.snapshots) + len(self.staged)

    @property
    def parent_id(self) -> int | None:
        return self.snapshots[-1].snapshot_id if self.snapshots else self.head.metadata.current_snapshot_id

    def snapshot_id(self, *operations: Operation) -> int | None:
        """Return the id of the snapshot of one of these operations, or None if the draft has none."""
        made = (s.snapshot_id for s in self.snapshots if s.summary and s.summary.operation in operations)
        return next(made, None)

    def new_id(self) -> str:
        return self.environment.new_id(self.now_ms)

    def carried_manifests(self) -> list[ManifestFile]:
        """Return the manifests that still hold live files; the others only list what they removed."""
        return carried_manifests(self.manifests)

    def add_snapshot(
        self,
        operation: Operation,
        snapshot_id: int,
        new: Sequence[ManifestFile],
        carried: Sequence[ManifestFile],
        added: Iterable[DataFile],
        removed: Iterable[DataFile],
    ) -> None:
        """Write the manifest list of a snapshot that follows the newest one, and add it to main."""
        snapshot, self.manifests = self._write_snapshot(
            operation, snapshot_id, [*new, *carried], added, removed
        )
        self.snapshots.append(snapshot)

    def stage_snapshot(
        self, tag: str, snapshot_id: int, new: Sequence[ManifestFile], added: Iterable[DataFile]
    ) -> None:
        """Write the manifest list of an append to main, and let a tag hold it: main stays where it is."""
        manifests = [*new, *self.carried_manifests()]
        snapshot, _ = self._write_snapshot(Operation.APPEND, snapshot_id, manifests, added, ())
        self.staged.append(snapshot)
        ref = SnapshotRef.model_validate({"snapshot-id": snapshot_id, "type": "tag"})
        self.update_metadata(refs={**self.metadata.refs, tag: ref})

    def _write_snapshot(
        self,
        operation: Operation,
        snapshot_id: int,
        manifests: Sequence[ManifestFile],
        added: Iterable[DataFile],
        removed: Iterable[DataFile],
    ) -> tuple[Snapshot, tuple[ManifestFile, ...]]:
        sequence_number = self.sequence_number + 1
        # A replace is a millisecond after its append: with equal times, a stream that starts from a time
        # would begin at the replace and miss the append's rows (R12).
        timestamp_ms = self.now_ms + len(self.snapshots)
        path = names.manifest_list_path(self.new_id())
        location, numbered = self.manifest_files.write_list(
            path, snapshot_id, self.parent_id, sequence_number, manifests
        )
        previous = self.snapshots[-1] if self.snapshots else self.head.snapshot
        extra = {} if self.snapshots or self.staged else self.summary
        counts = summaries.summarise(
            operation, added, removed, previous, self.head.schema, self.head.metadata.specs()
        )
        snapshot = Snapshot(
            snapshot_id=snapshot_id,
            parent_snapshot_id=self.parent_id,
            sequence_number=sequence_number,
            timestamp_ms=timestamp_ms,
            manifest_list=location,
            summary=summaries.with_extra(counts, {**extra, **self.place_in_summaries()}),
            schema_id=self.head.schema.schema_id,
        )
        return snapshot, numbered

    def drop_ref(self, name: str) -> None:
        """Remove a tag or a branch, where the table has it."""
        self.update_metadata(refs={each: ref for each, ref in self.metadata.refs.items() if each != name})

    def release_ref(self, name: str) -> None:
        """Remove a tag or a branch that a person has set. What it held stays with this version, so that the
        name can be given back.
        """
        if (ref := self.metadata.refs.get(name)) is not None:  # another change of the commit removes it, too
            self._released[name] = ref
            self.drop_ref(name)

    def update_metadata(self, **update: object) -> None:
        """Replace fields of the table metadata, by pyiceberg's names."""
        self.metadata = self.metadata.model_copy(update=update)

    def request_expiry(self, policy: Mapping[str, str]) -> None:
        """Expire snapshots with this version; of several policies the first one counts."""
        if self._expiry_policy is None:
            self._expiry_policy = policy

    def place_in_summaries(self) -> dict[str, str]:
        """Return what each snapshot of the version says of it."""
        return {properties.VERSION: str(self.number)}

    def continue_lineage(self, probed: str | None) -> None:
        """State the version's number, its commit id and its parent's, and the stores that were probed."""
        self.commit_id = self.new_id()
        self.properties |= succession.lineage_properties(self.commit_id, self.head.version, probed)

    def finish(self) -> tuple[Head, bytes, Expiry]:
        """Return the version as a head, the bytes of its file, and what it expires."""
        log_entry_of_parent = self.manifest_files.store.uri(names.version_path(self.head.number))
        log = succession.metadata_log(self.metadata, log_entry_of_parent, self.properties)
        self._describe_added_manifests()
        finished, expiry = self.complete(metadata_log=log)
        data, arrays = encode_metadata(finished, self.head.version.arrays)
        version = Version(self.number, finished, arrays=arrays)
        return Head(version, self.manifests, self.manifest_files), data, expiry

    def complete(self, **update: object) -> tuple[TableMetadataV2, Expiry]:
        """Return the version's metadata, with these fields too, and what it expires."""
        metadata = self.metadata
        update |= {"properties": self.properties, "last_updated_ms": self.updated_ms}
        log, refs = metadata.snapshot_log, metadata.refs
        snapshots = [*metadata.snapshots, *self.staged] if self.staged else metadata.snapshots
        if self.snapshots:
            current = self.snapshots[-1]
            refs = {**refs, "main": _moved_to(refs.get("main"), current)}
            snapshots = [*snapshots, *self.snapshots]
            log = [
                *log,
                SnapshotLogEntry(snapshot_id=current.snapshot_id, timestamp_ms=current.timestamp_ms),
            ]
            update |= {"current_snapshot_id": current.snapshot_id, "refs": refs}
        update["last_sequence_number"] = self.sequence_number
        expiry = self.expire(snapshots, refs)
        update["snapshots"] = succession.drop_expired_snapshots(snapshots, expiry.snapshot_ids)
        update["snapshot_log"] = succession.drop_expired_log_entries(log, expiry.snapshot_ids)
        return metadata.model_copy(update=update), expiry

    def _describe_added_manifests(self) -> None:
        """Describe the new manifests, if all else is carried from the parent: then a rebase needs no list."""
        carried = carried_manifests(self.head.manifests)
        new = self.manifests[: max(0, len(self.manifests) - len(carried))]
        rest = self.manifests[len(new) :]
        if self.snapshots and new and all(a is b for a, b in zip(rest, carried, strict=True)):
            described = describe_manifests(self.number, new)
            self.properties[properties.APPENDED_MANIFESTS] = described
        else:
            self.properties.pop(properties.APPENDED_MANIFESTS, None)

    def expire(self, snapshots: Sequence[Snapshot], refs: Mapping[str, SnapshotRef]) -> Expiry:
        """Return which of the snapshots leave with this version."""
        if self._expiry_policy is None and self.number % MAINTAIN_EVERY:
            return NOTHING_EXPIRED
        return self.expire_by_policy(snapshots, refs)

    def expire_by_policy(self, snapshots: Sequence[Snapshot], refs: Mapping[str, SnapshotRef]) -> Expiry:
        """Choose the snapshots to expire by the policy that was asked for, or the table's, and note them."""
        policy = {**self.properties, **(self._expiry_policy or {})}
        return expire(
            self.manifest_files,
            self.number,
            self.commit_id,
            snapshots,
            {**self._released, **refs},
            policy,
            self.updated_ms,
            self.head.version.owner,
        )


def _moved_to(main: SnapshotRef | None, current: Snapshot) -> SnapshotRef:
    if main is None:
        return SnapshotRef.model_validate({"snapshot-id": current.snapshot_id, "type": "branch"})
    return main.model_copy(update={"snapshot_id": current.snapshot_id})
