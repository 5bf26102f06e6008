"""The version that one attempt builds on a head in a catalog: every commit moves main, once (R29)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
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
from timeline.errors import StoreUnavailableError
from timeline.manifests.manifests import ManifestFiles
from timeline.retention.expired import pending_notes
from timeline.retention.policy import NOTHING_EXPIRED, Expiry
from timeline.versions.followed import outlived_tags
from timeline.versions.head import Head

_LOG = logging.getLogger("streaming_sink.timeline")


@dataclass
class CatalogDraft(Draft):
    """A draft whose place in the lineage the catalog states: no property says where the head is."""

    plans_apart: ClassVar[bool] = True
    holds_followed: ClassVar[bool] = True

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

    @property
    def maintains(self) -> bool:
        """Whether snapshots are to expire with this commit."""
        asked = self._expiry_policy is not None
        return self._base.expires_next or (asked and not self._base.keeps_files)

    @property
    def _base(self) -> CatalogVersion:
        assert isinstance(self.head.version, CatalogVersion)
        return self.head.version

    def place_in_summaries(self) -> dict[str, str]:
        return {properties.COMMIT_ID: self.commit_id}

    def continue_lineage(self, probed: str | None) -> None:
        """Nothing to state: the snapshots do."""

    def expire(self, snapshots: Sequence[Snapshot], refs: Mapping[str, SnapshotRef]) -> Expiry:
        """Return which snapshots leave: at every twentieth commit of main, in a table that states a policy of
        this sink; none where what they leave could not be found and deleted (R32).
        """
        if not self.maintains:
            return NOTHING_EXPIRED
        try:
            pending_notes(self.manifest_files.store, self.head.version.owner)
            return self.expire_by_policy(snapshots, refs)
        except (StoreUnavailableError, ValueError) as failure:
            # A value that no one can read is of another engine, and no error of this commit.
            _warn_that_snapshots_stay(self.head.metadata.location, str(failure))
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
        if self.maintains:
            self.snapshots[-1] = summaries.stating(self.snapshots[-1], {properties.MAINTAINED: "true"})
            for tag in outlived_tags(self.metadata.refs, self.metadata.snapshots, self.now_ms):
                self.drop_ref(tag)
        self.snapshots[-1] = bear_witness(self.properties, self.snapshots[-1])
        finished, expiry = self.complete()
        version = replace(self._base, number=self.number, metadata=finished, identity="", stored=None)
        return Head(version, self.manifests, self.manifest_files), b"", expiry


@dataclass
class OneSnapshotDraft(CatalogDraft):
    """A draft for a catalog that has not shown that it keeps two snapshots of one commit (R33)."""

    keeps_one_snapshot: ClassVar[bool] = True
    holds_followed: ClassVar[bool] = False


@dataclass
class UntaggedDraft(CatalogDraft):
    """A draft for a catalog that has not shown that it keeps tags (R33)."""

    holds_followed: ClassVar[bool] = False


def newest_ms(metadata: TableMetadata) -> int:
    """Return the newest time in a table's metadata. A snapshot of another engine beside main counts too, and
    logs, to which an engine with a slow clock may have set main back: none may follow that is older (R12).
    """
    times = [metadata.last_updated_ms]
    times += [snapshot.timestamp_ms for snapshot in metadata.snapshots]
    times += [entry.timestamp_ms for entry in metadata.snapshot_log]
    times += [entry.timestamp_ms for entry in metadata.metadata_log]
    return max(times)


@cache
def _warn_that_snapshots_stay(location: str, why: str) -> None:
    """Say it once in a process."""
    _LOG.warning("the snapshots of %s stay: %s", location, why)
