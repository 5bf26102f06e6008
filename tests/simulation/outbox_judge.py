"""Judges an outbox: each row that a main commit left to deliver comes into the second table, once (R24)."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.oracle import Oracle, Work
from tests.simulation.raw import OURS, Member, ViolationError

_ENTRY = OURS + "outbox."


@dataclass
class SecondJudge(Oracle):
    """The oracle of the second table. Its commits are deliveries, which have no fence."""

    main: MainJudge | None = None
    _last: dict[str, int] = field(default_factory=dict)
    """Application → the number of its last delivery."""

    def _check_transactions(self, before: Member, member: Member, works: list[Work]) -> None:
        for app, state in member.transactions.items():
            if state["batch"] < self._last.get(app, 0):
                raise ViolationError(f"version {member.number} lowers the deliveries of {app} (R24): {state}")
            self._last[app] = state["batch"]
        if works:
            self.met["delivered"] += 1

    def _check_fence(self, before: Member, member: Member) -> None:
        cutoff = before.properties.get(OURS + "gc-cutoff", "")
        if member.properties.get(OURS + "gc-cutoff", "") < cutoff:
            raise ViolationError(f"version {member.number} lowers the fence (R6)")
        behind = [uri for uri in member.files.live if uri.rpartition("/")[2][:26] < cutoff]
        self.met["delivered from behind the fence"] += len(set(behind) - before.files.live.keys())

    def _check_deleted_file(self, uri: str, path: str, by: str) -> None:
        super()._check_deleted_file(uri, path, by)
        assert self.main is not None
        if uri in self.main.named(self.main.head) and not self.is_delivered(uri):
            raise ViolationError(f"{by} deleted a file that the outbox names (R24): {path}")

    def is_delivered(self, uri: str) -> bool:
        """Return whether the rows of a file are in the lineage."""
        return (self.head.uuid, self.owner[self.rows[uri][0]]) in self.committed


@dataclass
class MainJudge(Oracle):
    """The oracle of the main table, which knows what each batch must leave to deliver."""

    second: SecondJudge | None = None
    left: dict[Work, Work] = field(default_factory=dict)
    """A batch's rows that fit → those that do not, where it has any."""

    def named(self, member: Member) -> set[str]:
        """Return the files that the outbox names."""
        return {uri for uris in _entries(member).values() for uri in uris}

    def _check_rows(self, before: Member, member: Member) -> None:
        super()._check_rows(before, member)
        assert self.second is not None
        old, new = _entries(before), _entries(member)
        added = [work for (_, work), number in self.committed.items() if number == member.number]
        for uri in self.named(before) - self.named(member):
            if not self.second.is_delivered(uri):
                raise ViolationError(f"version {member.number} forgets a file to deliver (R24): {uri}")
        for app in old.keys() | new.keys():
            if new.get(app) == old.get(app):
                continue
            wanted = sorted(
                row for work in added if work.app == app and work in self.left for row in self.left[work].rows
            )
            if sorted(row for uri in new.get(app, ()) for row in self.second.rows[uri]) != wanted:
                raise ViolationError(f"version {member.number} leaves other rows than {wanted} (R24)")
        for uri in self.named(member) - self.named(before):
            if uri.removeprefix(f"{self.second.location}/") not in self.second._raw.objects:
                raise ViolationError(f"version {member.number} names a file that was deleted (R24): {uri}")

    def check_all_delivered(self) -> None:
        """When all is delivered: the second table holds what the commits left, each row once."""
        assert self.second is not None
        live = Counter(row for uri in self.second.head.files.live for row in self.second.rows[uri])
        wanted = Counter(
            row for _, work in self.committed if work in self.left for row in self.left[work].rows
        )
        if live != wanted:
            raise ViolationError(f"in the end the second table holds {live}, and {wanted} was left (R24)")


def _entries(member: Member) -> dict[str, list[str]]:
    """Return the files of each application's entry, as the version's bytes have them."""
    found: dict[str, list[str]] = {}
    for key, text in member.properties.items():
        if key.startswith(_ENTRY):
            stored: dict[str, Any] = json.loads(text)
            found[key.removeprefix(_ENTRY)] = [
                file["path"] for delivery in stored["deliveries"] for file in delivery["files"]
            ]
    return found
