"""Judges the names of snapshots: a tag or a branch leaves as its remover saw it, and comes when it is set."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.simulation.raw import Member, Ref, ViolationError

PREFIX = "n"
"""How the names begin that only this protocol's actors set and remove."""


@dataclass
class RefJudge:
    """What actors have asked for, and what became of it. Each request takes effect once at most."""

    met: Counter[str]
    _sets: Counter[Ref] = field(default_factory=Counter)
    _removals: Counter[Ref] = field(default_factory=Counter)
    _removed: dict[int, set[Ref]] = field(default_factory=dict)
    """Version → what it has removed."""

    def will_set(self, ref: Ref) -> None:
        """An actor is about to set a name."""
        self._sets[ref] += 1

    def will_remove(self, ref: Ref) -> None:
        """An actor is about to remove a name that it has seen so."""
        self._removals[ref] += 1

    def removed(self, ref: Ref, version: int) -> None:
        """A removal was acknowledged at a version."""
        if ref not in self._removed.get(version, ()):
            raise ViolationError(f"the removal of {ref} was acknowledged, and version {version} has none")
        self.met["name removed"] += 1

    def check(self, before: Member, member: Member) -> None:
        """A version sets and removes names that somebody has asked for, and moves none."""
        was, now = ({ref for ref in each.refs if ref[0].startswith(PREFIX)} for each in (before, member))
        for ref in sorted(was - now):
            if any(other[0] == ref[0] for other in now):
                raise ViolationError(f"version {member.number} moves the name {ref}")
            if not self.take_removal(ref, member.number):
                raise ViolationError(f"version {member.number} removes {ref}, which no remover has seen so")
        for ref in sorted(now - was):
            if not self._sets[ref]:
                raise ViolationError(f"version {member.number} sets {ref}, which nobody has asked for")
            self._sets[ref] -= 1
            self.met["name set"] += 1

    def take_removal(self, ref: Ref, number: int) -> bool:
        """Return whether a remover has asked for this removal, which takes effect with a version."""
        if not self._removals[ref]:
            return False
        self._removals[ref] -= 1
        self._removed.setdefault(number, set()).add(ref)
        return True
