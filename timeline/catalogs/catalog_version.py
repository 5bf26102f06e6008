"""What a catalog holds of a table, as a version: numbered by sequence numbers, its commits in summaries."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from pyiceberg.table.snapshots import Snapshot

from timeline import properties
from timeline.retention.policy import MAINTAIN_EVERY, commit_of, lineage
from timeline.versions.version_file import Version, stated_by


@dataclass(frozen=True)
class CatalogVersion(Version):
    """The metadata of a table in a catalog. Its number is the last sequence number, so commits of other
    engines are versions too; `identity` is where the catalog has it. Its metadata have whole properties.
    """

    stored: Mapping[str, str] | None = field(default=None, repr=False, compare=False)
    """The properties as the catalog stores them, long values by the names of their files; None where no
    answer has shown it.
    """
    keeps_by_catalog: str = ""
    """Why the catalog has no client delete files; "" where it does not say so."""
    is_shared: ClassVar[bool] = True

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
        ours = dict[str, None]()
        for snapshot in self._main:
            if commit := stated_by(snapshot).get(properties.COMMIT_ID):
                ours[commit] = None
            if len(ours) == properties.RECENT_COMMITS_KEPT:
                break  # a summary takes some microseconds, and main has thousands
        return tuple(ours)[::-1]

    @property
    def place(self) -> str:
        return self.identity

    @property
    def owner(self) -> str:
        return str(self.metadata.table_uuid)

    @property
    def keeps_files(self) -> str:
        if self.metadata.properties.get(properties.GC_ENABLED, "true").lower() == "false":
            return f"the table says {properties.GC_ENABLED}=false"
        return self.keeps_by_catalog

    @property
    def states_policy(self) -> bool:
        """Whether the table says how long this sink is to keep its snapshots: it made the table, or was
        asked to by `retention`. Nothing leaves unasked (R32).
        """
        return properties.MAX_SNAPSHOTS in self.metadata.properties

    @cached_property
    def expires_next(self) -> bool:
        """Whether snapshots are to expire with the next commit of this protocol: with every twentieth of
        main, of any engine. Numbers have gaps, so they decide nothing.
        """
        if not self.states_policy or self.keeps_files:
            return False
        since: set[Hashable] = {None}  # the next commit
        for snapshot in self._main:
            if len(since) >= MAINTAIN_EVERY or stated_by(snapshot).get(properties.MAINTAINED):
                break
            since.add(commit_of(snapshot))
        return len(since) >= MAINTAIN_EVERY

    def commits_since(self, number: int) -> int:
        """Return how many commits on main the version is after the version of that number.

        A commit may take several numbers, also of snapshots beside main. Of those that have expired each
        number counts: who expires them has waited for longer than anything here. What another engine has
        beside main is no commit on main, also where it has expired all of main before it.
        """
        since = [it for it in self._main if (it.sequence_number or 0) > number]
        commits = len({commit_of(it) for it in since})
        if len(since) < len(self._main):
            return commits
        oldest = (since[-1].sequence_number or 0) if since else self.number + 1
        main = {it.snapshot_id for it in since}
        beside = {
            it.sequence_number
            for it in self.metadata.snapshots
            if it.snapshot_id not in main and number < (it.sequence_number or 0) < oldest
        }
        return max(oldest - number - 1 - len(beside), 0) + commits

    def may_have(self, number: int, commit_id: str) -> bool:
        """Return whether main has a commit, or may have had it, or may get it: also one that another engine
        has rolled back since.
        """
        if number > self.number:
            return True
        has_left = not any((it.sequence_number or 0) <= number for it in self._main)
        known = self.metadata.snapshots
        return has_left or any(stated_by(it).get(properties.COMMIT_ID) == commit_id for it in known)

    @cached_property
    def _main(self) -> list[Snapshot]:
        return lineage(self.metadata.current_snapshot_id, self.metadata.snapshots)
