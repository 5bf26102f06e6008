"""Judges what is staged of work items (R27): by the lineage's tags and properties alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.raw import OURS, Member, SnapshotFiles, ViolationError
from tests.simulation.store import DROP

_ITEMS, _DISCARDED, _TAG = OURS + "items.", OURS + "discarded.", "wap-"


@dataclass
class StagedJudge:
    """What every version of the lineage may change of staged and settled items."""

    met: Counter[str]
    files_of: Callable[[str], SnapshotFiles]
    exists: Callable[[str], bool]
    approved: set[int] = field(default_factory=set)
    """Staged snapshots that an audit, or an operator, has approved."""

    def check(self, before: Member, member: Member, beside: list[dict[str, Any]]) -> None:
        """`beside`: the new snapshots that main does not have."""
        settled, were = _settled(member), _settled(before)
        if were - settled or _settled(before, _DISCARDED) - _settled(member, _DISCARDED):
            raise ViolationError(f"version {member.number} forgets settled items: {were - settled} (R27)")
        self._check_beside(before, member, beside)
        self._check_sources(before, member)
        discarded = _settled(member, _DISCARDED)
        for item in settled - were:
            held = before.staged.get(item)
            if item in member.staged:
                raise ViolationError(f"version {member.number} settles {item}, and a tag holds it (R27)")
            if item in discarded:
                self.met["item discarded"] += 1
            elif held is not None:
                self._check_published(before, member, item, held)
        self.met["item unstaged"] += len(before.staged.keys() - member.staged.keys() - settled)

    def _check_sources(self, before: Member, member: Member) -> None:
        for at in member.snapshots.keys() - before.snapshots.keys():
            item = member.snapshots[at]["summary"].get("published-wap-id")
            if item is not None and item not in before.staged:
                raise ViolationError(f"version {member.number} publishes {item}, which is not staged (R27)")

    def _check_beside(self, before: Member, member: Member, beside: list[dict[str, Any]]) -> None:
        staged = {item: at for item, at in member.staged.items() if before.staged.get(item) != at}
        if {snapshot["snapshot-id"] for snapshot in beside} != set(staged.values()):
            raise ViolationError(f"version {member.number} stages what no tag holds: {staged} (R27)")
        for item in staged:
            if item in before.staged:
                raise ViolationError(f"version {member.number} stages {item} a second time (R27)")
            if item in _settled(before):
                raise ViolationError(f"version {member.number} stages {item}, which is settled (R27)")
            self.met["item staged"] += 1
        was = before.files.objects
        for snapshot in beside:
            if snapshot.get("parent-snapshot-id") != before.current:
                raise ViolationError(f"what version {member.number} stages does not continue main (R27)")
            for uri in self.files_of(snapshot["manifest-list"]).objects - was:
                if not self.exists(uri):
                    raise ViolationError(f"version {member.number} stages a file that does not exist: {uri}")
                name, cutoff = uri.rpartition("/")[2], before.properties.get(OURS + "gc-cutoff", "")
                if name[:26] < cutoff and not uri.startswith(f"{DROP}/"):
                    raise ViolationError(f"version {member.number} stages a file from below the fence: {uri}")

    def _check_published(self, before: Member, member: Member, item: str, held: int) -> None:
        source = before.snapshots[held]
        wanted = self.own_files(source)
        added = member.files.live.keys() - before.files.live.keys()
        if not wanted <= member.files.live.keys() or not added <= wanted:
            raise ViolationError(
                f"version {member.number} publishes other files of {item} than are staged (R27)"
            )
        new = [snapshot["summary"] for at, snapshot in member.snapshots.items() if at not in before.snapshots]
        (told,) = [summary for summary in new if summary["operation"] == "append"]
        if told.get("source-snapshot-id") != str(held) or told.get("published-wap-id") != item:
            raise ViolationError(f"version {member.number} does not say what it publishes of {item} (R27)")
        if held not in self.approved:
            raise ViolationError(f"version {member.number} publishes {item} before it was audited (R27)")
        self.met["staged item published"] += 1
        cutoff = before.properties.get(OURS + "gc-cutoff", "")
        if any(uri.rpartition("/")[2][:26] < cutoff for uri in wanted):
            self.met["item published from behind the fence"] += 1

    def own_files(self, staged: dict[str, Any]) -> set[str]:
        """The data files that a staged snapshot has added."""
        at = staged["sequence-number"]
        live = self.files_of(staged["manifest-list"]).live
        return {uri for uri, (sequence, _) in live.items() if sequence == at}


def _settled(member: Member, prefix: str = _ITEMS) -> set[str]:
    found = set[str]()
    for key, text in member.properties.items():
        for ends in (each.partition("-") for each in text.split(",") if each and key.startswith(prefix)):
            first, last = int(ends[0]), int(ends[2] or ends[0])
            found |= {f"{key.removeprefix(prefix)}-{number}" for number in range(first, last + 1)}
    return found
