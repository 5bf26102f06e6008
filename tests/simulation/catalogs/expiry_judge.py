"""Judges what leaves a table in a catalog: which snapshots this protocol expires, which files it deletes."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.raw import OURS, Member, ViolationError

_WRITTEN = re.compile(r"^[0-7][0-9A-Z]{25}-")
"""How the names of files begin that this protocol has written."""
MEMORY = "spark.sql.streaming.epochId"
"""What an engine remembers of its stream, in the summary of a snapshot."""


@dataclass
class ExpiryJudge:
    """Follows which snapshots leave, and since when nothing reaches a file."""

    met: Counter[str]
    safe_distance: int
    unreached: dict[str, tuple[Member, int]] = field(default_factory=dict)
    """File that only expired snapshots reach → the state since then, and how many commits main had."""
    commits: int = 0
    """How often main was moved."""

    newest_ms: int = 0
    """The latest time of the table; an engine with a slow clock may have set it back since."""

    def follow(self, before: Member | None, member: Member, lost: set[str], found: set[str]) -> None:
        """Note which files nothing reaches any more, and which are reached again."""
        self.commits += before is None or before.current != member.current
        self.newest_ms = max(self.newest_ms, member.updated_ms)
        for uri in lost:
            self.unreached.setdefault(uri, (member, self.commits))
        for uri in found:
            self.unreached.pop(uri, None)

    def follow_deleted(self, uri: str) -> None:
        """Forget a file that another engine has deleted: no reader has it any more. If the request that
        created it arrives a second time, what is there then is an orphan like others (R6).
        """
        self.unreached.pop(uri, None)

    def check_expired(self, before: Member, member: Member, refs: dict[str, Any], *, asked: bool) -> None:
        """Judge the snapshots that a commit of this protocol takes out (R7, R32)."""
        gone = before.snapshots.keys() - member.snapshots.keys()
        if not gone:
            return
        number = member.number
        if not asked and OURS + "history.max-snapshots" not in before.properties:
            raise ViolationError(f"version {number} expires {sorted(gone)}, unasked (R32)")
        self.met["snapshot expired"] += len(gone)
        pinned = {ref["snapshot-id"] for name, ref in refs.items() if name != "main"}
        if gone & pinned:
            raise ViolationError(f"version {number} expires a snapshot that a tag or a branch names (R7)")
        main = _line(before, before.current)
        theirs = {key for key in gone if OURS + "commit-id" not in before.snapshots[key]["summary"]}
        if beside := theirs - set(main):
            raise ViolationError(f"version {number} expires what others have beside main: {beside} (R32)")
        for what, found in (("the memory of another engine", _remembers), ("the newest change", _changes)):
            newest = next((key for key in main if found(before.snapshots[key])), None)
            if newest in gone and not any(
                found(each) for key, each in member.snapshots.items() if key not in before.snapshots
            ):
                raise ViolationError(f"version {number} expires {what}, snapshot {newest} (R32)")
        line = _line(member, member.current)
        later = len({_commit(member.snapshots[key]) for key in line})
        if later < self.safe_distance and gone & set(main):
            raise ViolationError(f"version {number} leaves {later} commits of main, too few (R12)")
        if {_commit(before.snapshots[key]) for key in gone} & {
            _commit(each) for each in member.snapshots.values()
        }:
            raise ViolationError(f"version {number} expires half of a commit (R7)")

    def check_deleted(self, uri: str, head: Member, by: str) -> None:
        """Judge that a file of expired snapshots goes: one of this protocol, and after its grace period."""
        if _WRITTEN.match(uri.rpartition("/")[2]) is None:
            raise ViolationError(f"{by} deleted a file of another engine (R32): {uri}")
        since, commits = self.unreached[uri]
        if since.uuid != head.uuid or not since.snapshots:
            self.met["file of a dropped table deleted"] += 1
            return
        grace_ms = int(head.properties.get(OURS + "history.deletion-grace-ms", 3_600_000))
        # The commit's own time, by the server's clock as its writer knew it, and the table's by the server.
        age_ms = self.newest_ms - max(each["timestamp-ms"] for each in since.snapshots.values())
        distance = self._distance(since, commits, head)
        if distance < self.safe_distance or age_ms < grace_ms - 1:
            raise ViolationError(
                f"{by} deleted a file in its grace period, {distance} commits and {age_ms} ms"
                f" after {since.number} (R7): {uri}"
            )
        self.met["expired file deleted"] += 1

    def _distance(self, since: Member, commits: int, head: Member) -> int:
        """Return how often main was moved since. Where another engine has expired snapshots since, which may
        have been of one commit, each number counts: who expires them has waited longer.
        """
        known = {each["sequence-number"] for each in head.snapshots.values()}
        expired = not known.issuperset(range(since.number + 1, head.number + 1))
        return max(self.commits - commits, head.number - since.number if expired else 0)


def _line(member: Member, at: int | None) -> list[int]:
    found = []
    while at is not None and at in member.snapshots:
        found.append(at)
        at = member.snapshots[at].get("parent-snapshot-id")
    return found


def _commit(snapshot: dict[str, Any]) -> object:
    return snapshot["summary"].get(OURS + "commit-id") or snapshot["snapshot-id"]


def _remembers(snapshot: dict[str, Any]) -> bool:
    return MEMORY in snapshot["summary"] and OURS + "commit-id" not in snapshot["summary"]


def _changes(snapshot: dict[str, Any]) -> bool:
    return bool(snapshot["summary"]["operation"] != "replace")
