"""What a catalog holds of a table, as a version: numbered by sequence numbers, its commits in summaries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from pyiceberg.table.snapshots import Snapshot

from timeline import properties
from timeline.retention.policy import lineage
from timeline.versions.version_file import Version


@dataclass(frozen=True)
class CatalogVersion(Version):
    """The metadata of a table in a catalog. Its number is the last sequence number, so commits of other
    engines are versions too; `identity` is where the catalog has it. Its metadata have whole properties.
    """

    stored: Mapping[str, str] | None = field(default=None, repr=False, compare=False)
    """The properties as the catalog stores them, long values by the names of their files; None where no
    answer has shown it.
    """
    schemas_only_grow: ClassVar[bool] = False

    @property
    def stored_properties(self) -> Mapping[str, str]:
        """The properties as the catalog stores them; whole where that is not known."""
        return self.metadata.properties if self.stored is None else self.stored

    @property
    def commit_id(self) -> str:
        """The id of the newest commit of this protocol on main; "" where there is none."""
        return self.recent_commits[-1] if self.recent_commits else ""

    @cached_property
    def recent_commits(self) -> tuple[str, ...]:
        """The ids of the last commits of this protocol on main, by the summaries of its snapshots."""
        snapshots = {snapshot.snapshot_id: snapshot for snapshot in self.metadata.snapshots}
        main = lineage(self.metadata.current_snapshot_id, snapshots)[: properties.RECENT_COMMITS_KEPT]
        return tuple(dict.fromkeys(commit for commit in map(commit_of, main) if commit))[::-1]

    def commits_since(self, number: int) -> int:
        """Return how many commits on main the version is after the version of that number.

        A commit may take several numbers, also of snapshots beside main. Of those of main that have expired
        each number counts: who expires them has waited for longer than anything here.
        """
        snapshots = {snapshot.snapshot_id: snapshot for snapshot in self.metadata.snapshots}
        main = lineage(self.metadata.current_snapshot_id, snapshots)
        since = [it for it in main if (it.sequence_number or 0) > number]
        oldest = (since[-1].sequence_number or 0) if since else self.number + 1
        expired = oldest - number - 1 if len(since) == len(main) else 0
        return expired + len({commit_of(it) or it.snapshot_id for it in since})


def commit_of(snapshot: Snapshot) -> str:
    """Return the id of the commit of this protocol that added a snapshot; "" for another engine's."""
    stated = {} if snapshot.summary is None else snapshot.summary.additional_properties
    return stated.get(properties.COMMIT_ID, "")
