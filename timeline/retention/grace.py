"""Which notes of expiry are in their grace period (R7), by the table's commits and time, and by mirrors."""

from __future__ import annotations

from dataclasses import dataclass

from timeline import names, properties
from timeline.retention.expired import Pending
from timeline.retention.mirrored import held_versions, notes_of_mirrors
from timeline.retention.policy import SAFE_DISTANCE
from timeline.stores.base import Store
from timeline.versions.head import Head


@dataclass(frozen=True, slots=True)
class GracePeriods:
    """The grace periods of a table's notes, as a head has them."""

    head: Head
    grace_ms: int
    held_from: int
    """The oldest version that a mirror names, the head's number where none does: what a later version expired
    is still reached from it.
    """

    @classmethod
    def of(cls, store: Store, head: Head, grace_ms: int | None = None) -> GracePeriods:
        """Return those of a head, by its policy where no time is given. One LIST where it has mirrors."""
        if grace_ms is None:
            grace_ms = properties.number(head.properties, properties.DELETION_GRACE_MS)
        held = held_versions(notes_of_mirrors(store, head), head)
        return cls(head, grace_ms, min(held, default=head.number))

    def age_ms(self, pending: Pending) -> int:
        """Return how much older than the head the commit of a note is."""
        return self.head.metadata.last_updated_ms - names.ulid_time_ms(pending.commit_id)

    def has_lost(self, pending: Pending) -> bool:
        """Return whether a note is known to be of an attempt that lost: the winner has one of its own."""
        version = self.head.version
        near = 0 <= version.commits_since(pending.version) < SAFE_DISTANCE
        return near and not version.may_have(pending.version, pending.commit_id)

    def has(self, pending: Pending) -> bool:
        """Return whether a note is in its grace period: a hundred versions, and a time.

        One whose commit is later than the head is of a clock that was wrong, and of a commit that lost: the
        table's time never goes back (R12). In a catalog an engine with a slow clock sets it back.
        """
        if self.head.version.commits_since(pending.version) < SAFE_DISTANCE:
            return True
        age_ms = self.age_ms(pending)
        is_of_head = age_ms >= 0 or self.head.version.is_shared
        return (is_of_head and age_ms < self.grace_ms) or pending.version > self.held_from

    def has_of_commit(self, pending: Pending) -> bool:
        """Return whether a note is in its grace period, and may be of a commit that landed."""
        return pending.version <= self.head.number and self.has(pending) and not self.has_lost(pending)
