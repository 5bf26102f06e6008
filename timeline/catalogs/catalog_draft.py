"""The version that one attempt builds on a head in a catalog: every commit moves main, once (R29)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Operation, Snapshot

from timeline import properties
from timeline.catalogs.catalog_version import CatalogVersion
from timeline.catalogs.memory import bear_witness
from timeline.clock import Environment
from timeline.drafts import succession, summaries
from timeline.drafts.draft import Draft
from timeline.errors import UnsupportedTableError
from timeline.manifests.manifests import ManifestFiles
from timeline.retention.policy import NOTHING_EXPIRED, Expiry
from timeline.versions.head import Head


@dataclass
class CatalogDraft(Draft):
    """A draft whose place in the lineage the catalog states: no property says where the head is."""

    plans_apart: ClassVar[bool] = True

    @classmethod
    def begin(
        cls,
        head: Head,
        manifest_files: ManifestFiles,
        environment: Environment,
        summary: Mapping[str, str],
    ) -> CatalogDraft:
        draft = super().begin(head, manifest_files, environment, summary)
        assert isinstance(draft, CatalogDraft)
        draft.now_ms = max(draft.now_ms, newest_ms(head.metadata) + 1)
        draft.commit_id = draft.new_id()
        return draft

    @property
    def number(self) -> int:
        return self.sequence_number + (not self.snapshots)  # which `finish` adds

    def place_in_summaries(self) -> dict[str, str]:
        return {properties.COMMIT_ID: self.commit_id}

    def continue_lineage(self, probed: str | None) -> None:
        """Nothing to state: the snapshots do."""

    def request_expiry(self, policy: Mapping[str, str]) -> None:
        """Raise UnsupportedTableError."""
        raise UnsupportedTableError(
            "snapshots of a table in a catalog are not expired by this sink; nothing was changed. Use another"
            f" engine's expiry, such as Spark's expire_snapshots: {self.head.metadata.location}",
            location=self.head.metadata.location,
        )

    def expire(self, snapshots: Sequence[Snapshot], refs: Mapping[str, SnapshotRef]) -> Expiry:
        """Expire nothing: what other engines have committed is theirs (R32)."""
        return NOTHING_EXPIRED

    def finish(self) -> tuple[Head, bytes, Expiry]:
        """Return the version as a head. A commit that changes no file moves main by an empty replace: what
        it decides is guarded by the requirement on main, and by nothing else (R29).
        """
        if not self.snapshots:
            snapshot_id = succession.new_snapshot_id(self.environment)
            self.add_snapshot(Operation.REPLACE, snapshot_id, (), self.carried_manifests(), (), ())
        # Only now it is known which snapshot is the commit's last, whose number is the version.
        number = {properties.VERSION: str(self.number)}
        self.snapshots = [summaries.stating(each, number) for each in self.snapshots]
        self.staged = [summaries.stating(each, number) for each in self.staged]
        self.snapshots[-1] = bear_witness(self.properties, self.snapshots[-1])
        finished, expiry = self.complete()
        version = CatalogVersion(self.number, finished)
        return Head(version, self.manifests, self.manifest_files), b"", expiry


def newest_ms(metadata: TableMetadata) -> int:
    """Return the newest time in a table's metadata. A snapshot of another engine beside main counts too, and
    logs, to which an engine with a slow clock may have set main back: none may follow that is older (R12).
    """
    times = [metadata.last_updated_ms]
    times += [snapshot.timestamp_ms for snapshot in metadata.snapshots]
    times += [entry.timestamp_ms for entry in metadata.snapshot_log]
    times += [entry.timestamp_ms for entry in metadata.metadata_log]
    return max(times)
