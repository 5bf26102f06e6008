"""The report of a clustering pass, group by group, and its entries in the snapshot's summary."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from planners.clustering.plan import ClusteringGroup
from planners.sizing import count_text

_PREFIX = "streaming-sink.clustering."
PLAN_ID = _PREFIX + "plan-id"
"""The summary key that only clustering's REPLACE snapshots have, and not those of fills."""


@dataclass(frozen=True, kw_only=True)
class GroupReport:
    """One group, as it ended. Sizes in bytes."""

    index: int
    """Its place in the plan."""
    partition: tuple[str, ...]
    outcome: str
    """"committed"; "dropped" (its inputs were not live, or changed: plan it again); or "failed"."""
    why: str = ""
    input_files: int = 0
    input_bytes: int = 0
    rows: int = 0
    output_files: int = 0
    output_bytes: int = 0
    tasks: int = 0
    """The number of tasks that shared it, each with a range of its order."""
    seconds: float = 0.0
    """Of its slowest task."""
    cpu_seconds: float = 0.0
    spilled_bytes: int = 0

    @property
    def saved_bytes(self) -> int:
        """The bytes that its files have fewer than before, if it was committed; negative for more."""
        return self.input_bytes - self.output_bytes if self.outcome == "committed" else 0


@dataclass(frozen=True, kw_only=True)
class ClusterReport:
    """One pass of clustering, of a sink or of a call."""

    kind: ClassVar[str] = "cluster"
    table: str = ""
    """The table's location."""
    outcome: str = "executed"
    """"executed" (see its groups); "nothing" (there was nothing to do); "scheduled" (another job executes the
    plan); "taken" (another executor has it); "failed"; or, of a pass that has not ended, "started", and
    "running" where the one before has not.
    """
    why: str = ""
    """Why there are no groups."""
    plan_id: str | None = None
    version: int | None = None
    """The version that committed the pass, the last one where there are several; None where no group was
    committed.
    """
    snapshot_id: int | None = None
    groups: tuple[GroupReport, ...] = ()
    """In the order of the plan."""
    waited: str = ""
    """Why a batch waited for the pass though it was not due."""
    milliseconds: int = 0

    @property
    def committed(self) -> tuple[GroupReport, ...]:
        return tuple(group for group in self.groups if group.outcome == "committed")

    @property
    def saved_bytes(self) -> int:
        """The bytes that the table's files have fewer than before; negative for more."""
        return sum(group.saved_bytes for group in self.groups)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that `json.dumps` takes."""
        return {"kind": self.kind, **asdict(self)}

    def line(self) -> str:
        """Return the report as one log line; groups that were not committed come last."""
        said = self._executed() if self.outcome == "executed" else self.why
        return f"{self.waited}, so now: {said}" if self.waited else said

    def _executed(self) -> str:
        done = self.committed
        text = (
            f"clustering {self.plan_id}: {len(done)} of {count_text(len(self.groups), 'group')},"
            f" {count_text(sum(it.input_files for it in done), 'file')} ->"
            f" {sum(it.output_files for it in done):,}, {count_text(sum(it.rows for it in done), 'row')},"
            f" {sum(it.input_bytes for it in done):,} bytes -> {sum(it.output_bytes for it in done):,}"
        )
        wrong = [
            f"group {it.index} {it.outcome}: {it.why}" for it in self.groups if it.outcome != "committed"
        ]
        return "; ".join([text, *wrong])


def summary(plan_id: str, planned: int, groups: list[ClusteringGroup]) -> dict[str, str]:
    """Return the summary's entries beside Iceberg's own counts of files and rows, which are exact.

    `groups` are those that were rewritten; the commit may still drop one whose inputs another commit took.
    """
    strategies = sorted({group.strategy.name for group in groups})
    parameters = {group.strategy.name: dict(group.strategy.parameters) for group in groups}
    orders = sorted({", ".join(group.sort_by) for group in groups})
    return {
        PLAN_ID: plan_id,
        _PREFIX + "strategy": ",".join(strategies),
        _PREFIX + "parameters": json.dumps(parameters, sort_keys=True),
        _PREFIX + "sort-by": "; ".join(orders),
        _PREFIX + "groups-planned": str(planned),
        _PREFIX + "groups-rewritten": str(len(groups)),
        _PREFIX + "input-files": str(sum(len(group.inputs) for group in groups)),
        _PREFIX + "rows": str(sum(group.rows for group in groups)),
    }
