"""How long a table's history stays: the sink's policy. The cleaners that carry it out are the timeline's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from planners.values import Value
from streaming_sink.durations import Duration, duration, spelled
from timeline import properties
from timeline.changes.changes import SetProperties


@dataclass(frozen=True, kw_only=True, repr=False)
class Retention(Value):
    """How long old states of the table stay readable, and when the files go that nothing else needs.

    A snapshot leaves when it is older than `max_snapshot_age` while `min_snapshots_to_keep` stay, or when
    there are more than `max_snapshots`; always the oldest first, and never before 100 later versions exist.
    Branches and tags pin theirs. What only such snapshots reached is deleted after `deletion_grace` and 100
    more versions, so that running readers can finish. All ages are differences of the table's own times.

    The sink does this by itself, a bounded part at every twentieth version. The policy becomes properties of
    the table (Iceberg's own names, where it has one), so that every writer follows it: the last sink that
    started with a policy has said it. Spans are texts such as "1 day" or "90 minutes", or timedeltas.
    """

    max_snapshot_age: Duration = "1 day"
    min_snapshots_to_keep: int = 100
    max_snapshots: int = 2_000
    deletion_grace: Duration = "1 hour"

    def __post_init__(self) -> None:
        for name in ("min_snapshots_to_keep", "max_snapshots"):
            value = getattr(self, name)
            if type(value) is not int:
                raise TypeError(f"{name} must be a whole number, not {value!r}")
            if value < 1:
                raise ValueError(
                    f"{name} must be at least 1, since the newest snapshot is the table: {value}"
                )
        if self.max_snapshots < self.min_snapshots_to_keep:
            raise ValueError(
                f"max_snapshots={self.max_snapshots} is less than"
                f" min_snapshots_to_keep={self.min_snapshots_to_keep}, so no number of snapshots fits both"
            )
        for name in ("max_snapshot_age", "deletion_grace"):
            object.__setattr__(self, name, spelled(name, getattr(self, name)))

    @property
    def table_properties(self) -> Mapping[str, str]:
        """The policy as the table's properties say it."""
        return {
            properties.MAX_SNAPSHOT_AGE_MS: _milliseconds("max_snapshot_age", self.max_snapshot_age),
            properties.MIN_SNAPSHOTS_TO_KEEP: str(self.min_snapshots_to_keep),
            properties.MAX_SNAPSHOTS: str(self.max_snapshots),
            properties.DELETION_GRACE_MS: _milliseconds("deletion_grace", self.deletion_grace),
        }

    def changes(self, stored: Mapping[str, str]) -> list[SetProperties]:
        """Return the change that stores the policy in a table; none where the table has it."""
        updates = {key: value for key, value in self.table_properties.items() if stored.get(key) != value}
        return [SetProperties(updates)] if updates else []


def _milliseconds(name: str, value: Duration) -> str:
    return str(duration(name, value) // timedelta(milliseconds=1))
