"""A clustering plan: which files are rewritten together, in which order of rows, and why; plain data.

A plan is saved, and another process may execute it. So it holds strings, integers and tuples only, and
records a strategy as its name and its parameters, which are strings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from planners.clustering.strategies import Strategy, order_name
from planners.model import Decision, FillVerdict, PartitionKey
from planners.printing import EXPLAINED_LINES, joined, table, uncounted
from planners.sizing import count_text, size_text

_NOT_ASKED_FOR = "too large, or of partitions that are not asked for, by what the table's manifests state"
_FOR_LATER = (
    "not known to this plan, which has enough to rewrite without them, and left for later passes; or"
    f" {_NOT_ASKED_FOR}"
)


@dataclass(frozen=True, slots=True)
class ClusteringGroup:
    """Files of one partition that are rewritten together: one task, one all-or-nothing replacement."""

    inputs: tuple[str, ...]
    partition: tuple[str, ...]
    """The partition as text, for people; the input files have its values."""
    bytes: int
    rows: int
    output_files: int
    """The expected number of files, of about equal size."""
    sort_by: tuple[str, ...]
    """The sort columns, as `SortField` spells them; () where files are only joined."""
    strategy: Strategy
    remainder: bool
    """The bytes are no whole number of target files: the last file stays small."""
    level: int
    """The level of the files that it writes, as `TableFile.level` has it."""
    files_saved: int
    """The benefit: files that a scan of the partition, plus those that a search for one key, no longer open.
    """
    reasons: tuple[str, ...]

    @property
    def order(self) -> str | None:
        """The order of the files that it writes, as `TableFile.clustered_by` has it."""
        return order_name(self.strategy, self.sort_by)

    def to_dict(self) -> dict[str, Any]:
        """Return the group as a plan saves it; see `from_dict`."""
        return {
            "inputs": list(self.inputs),
            "partition": list(self.partition),
            "bytes": self.bytes,
            "rows": self.rows,
            "output_files": self.output_files,
            "sort_by": list(self.sort_by),
            "strategy": _strategy_to_dict(self.strategy),
            "remainder": self.remainder,
            "level": self.level,
            "files_saved": self.files_saved,
            "reasons": list(self.reasons),
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> ClusteringGroup:
        """Return the group that `to_dict` gave."""
        return cls(
            inputs=tuple(saved["inputs"]),
            partition=tuple(saved["partition"]),
            bytes=saved["bytes"],
            rows=saved["rows"],
            output_files=saved["output_files"],
            sort_by=tuple(saved["sort_by"]),
            strategy=_strategy_from_dict(saved["strategy"]),
            remainder=saved["remainder"],
            level=saved["level"],
            files_saved=saved["files_saved"],
            reasons=tuple(saved["reasons"]),
        )


@dataclass(frozen=True, slots=True)
class ClusteringPlan:
    """What one pass of clustering rewrites. `groups` come with the most benefit per byte first."""

    planned_at: int
    target_file_bytes: int
    selected_by: tuple[Strategy, ...]
    groups: tuple[ClusteringGroup, ...]
    left_out: tuple[Decision, ...]
    others: int = field(default=0, compare=False)
    """How many more live files the table has, which this plan did not need to know. Not saved."""
    has_more: bool = field(default=False, compare=False)
    """Whether some of these may be rewritten too, by later passes. Not saved."""

    @property
    def bytes(self) -> int:
        return sum(group.bytes for group in self.groups)

    @property
    def why_others(self) -> str:
        """Why this plan does not know the others."""
        return _FOR_LATER if self.has_more else _NOT_ASKED_FOR

    def explain(self) -> str:
        """Return the plan as aligned lines: each group with its reasons, then each file left out and why.

        Reasons that several files share are counted first. Beyond `EXPLAINED_LINES` groups or files the rest
        is only counted, and a last line of that part says so.
        """
        inputs = sum(len(group.inputs) for group in self.groups)
        outputs = sum(group.output_files for group in self.groups)
        left_out = len(self.left_out) + self.others
        lines = [
            f"clustering plan: {count_text(len(self.groups), 'group')}, {count_text(inputs, 'file')} ->"
            f" {outputs:,}, {size_text(self.bytes)}, {count_text(left_out, 'file')} left out",
            f"selected by: {', '.join(map(str, self.selected_by)) or 'nothing'}; "
            f"target {size_text(self.target_file_bytes)} a file",
        ]
        if self.groups:
            lines.append("groups:")
        lines += table(
            "<>>>>><<",
            ("partition", "group", "files", "-> files", "bytes", "rows", "how", "why"),
            (
                (
                    joined(it.partition), f"{at}", f"{len(it.inputs):,}", f"{it.output_files:,}",
                    f"{it.bytes:,}", f"{it.rows:,}", it.order or it.strategy.name, "; ".join(it.reasons),
                )
                for at, it in enumerate(self.groups[:EXPLAINED_LINES])
            ),
        )  # fmt: skip
        lines += uncounted("groups", len(self.groups))
        if self.left_out or self.others:
            lines.append("left out:")
        counts = Counter(it.reason for it in self.left_out)
        lines += [f"  {count:,} files: {reason}" for reason, count in sorted(counts.items()) if count > 1]
        if self.others:
            lines.append(f"  {self.others:,} files: {self.why_others}")
        lines += table(
            "<<><",
            ("partition", "path", "bytes", "why"),
            (
                (joined(it.partition), it.path, f"{it.bytes:,}", it.reason)
                for it in self.left_out[:EXPLAINED_LINES]
            ),
        )
        lines += uncounted("files", len(self.left_out))
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as nested dicts and lists of strings, integers and booleans; see `from_dict`."""
        return {
            "planned_at": self.planned_at,
            "target_file_bytes": self.target_file_bytes,
            "selected_by": [_strategy_to_dict(it) for it in self.selected_by],
            "groups": [group.to_dict() for group in self.groups],
            "left_out": [
                {"path": it.path, "partition": list(it.partition), "bytes": it.bytes, "reason": it.reason}
                for it in self.left_out
            ],
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> ClusteringPlan:
        """Return the plan that `to_dict` gave, equal to the first; keys that are not known are ignored.

        The files left out may be missing; any other missing key is a KeyError.
        """
        return cls(
            planned_at=saved["planned_at"],
            target_file_bytes=saved["target_file_bytes"],
            selected_by=tuple(_strategy_from_dict(it) for it in saved["selected_by"]),
            groups=tuple(ClusteringGroup.from_dict(it) for it in saved["groups"]),
            left_out=tuple(
                Decision(it["path"], tuple(it["partition"]), it["bytes"], FillVerdict.KEPT, it["reason"])
                for it in saved.get("left_out", ())
            ),
        )


def partition_text(partition: PartitionKey) -> tuple[str, ...]:
    """Return a partition's values as a plan spells them."""
    return tuple("null" if value is None else str(value) for value in partition)


def _strategy_to_dict(strategy: Strategy) -> dict[str, Any]:
    return {"name": strategy.name, "parameters": dict(strategy.parameters)}


def _strategy_from_dict(saved: Mapping[str, Any]) -> Strategy:
    return Strategy(saved["name"], tuple(sorted(saved["parameters"].items())))
