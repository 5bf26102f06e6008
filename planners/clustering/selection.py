"""Plan strategies: which files a clustering plan may take. `All` and `BySize`, the defaults, are in `policy`.

With several, a file must pass all of them: `(RecentPartitions(look_back=3), BySize())`. A custom plan
strategy has the three members of `PlanStrategy`, for instance

    class WrittenBefore:
        name = "written_before"

        def __init__(self, time: int) -> None:
            self.time = time
            self.parameters = {"time": str(time)}

        def refused(self, files, policy, now):
            return {it.path: "too young" for it in files if it.committed_at >= self.time}
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from planners.clustering.overlap import extents, neighbours
from planners.clustering.policy import All, BySize, ClusteringPolicy, PlanStrategy
from planners.model import PartitionKey, TableFile, TablePartition, partition_of, sort_key
from planners.suggestions import unknown_name


@dataclass(frozen=True, slots=True)
class ByOverlap:
    """Files that share keys with so many other files of their partition, by their bounds on the sort columns.

    Unknown bounds count as sharing keys with all. Along a curve the number is an upper bound.
    """

    name: ClassVar[str] = "by_overlap"
    others: int = 1

    def __post_init__(self) -> None:
        if self.others < 1:
            raise ValueError(f"others must be at least 1: others={self.others}")

    @property
    def parameters(self) -> Mapping[str, str]:
        return {"others": str(self.others)}

    def refused(
        self, files: Sequence[TableFile], policy: ClusteringPolicy, _now: int, /
    ) -> Mapping[str, str]:
        partitions: dict[TablePartition, list[TableFile]] = {}
        for file in files:
            partitions.setdefault(partition_of(file), []).append(file)
        answer = {}
        for members in partitions.values():
            counts = neighbours(extents(members, policy.sort_by, curve=policy.along_curve))
            for file, count in zip(members, counts, strict=True):
                if count < self.others:
                    answer[file.path] = f"shares keys with {count:,} other files, below {self.others:,}"
        return answer


@dataclass(frozen=True, slots=True)
class RecentPartitions:
    """The `look_back` partitions that were written last, after the `skip_latest` that are written right now.

    Partitions are ordered by the last commit that brought them rows, not by their values, so that late data
    counts; files that clustering wrote bring no rows, and a partition that has only these comes last.
    """

    name: ClassVar[str] = "recent_partitions"
    look_back: int
    skip_latest: int = 0

    def __post_init__(self) -> None:
        if self.look_back < 1 or self.skip_latest < 0:
            raise ValueError(
                "look_back must be at least 1 and skip_latest at least 0: "
                f"look_back={self.look_back}, skip_latest={self.skip_latest}"
            )

    @property
    def parameters(self) -> Mapping[str, str]:
        return {"look_back": str(self.look_back), "skip_latest": str(self.skip_latest)}

    def refused(
        self, files: Sequence[TableFile], _policy: ClusteringPolicy, _now: int, /
    ) -> Mapping[str, str]:
        latest: dict[TablePartition, tuple[bool, int]] = {}
        for file in files:
            key, brought = partition_of(file), brought_at(file)
            latest[key] = max(brought, latest.get(key, brought))
        recent = last_written_first(latest)
        reasons = {
            key: f"its partition is one of the {self.skip_latest:,} written last"
            if place < self.skip_latest
            else f"its partition was written before the {self.look_back:,} that are looked back on"
            for place, key in enumerate(recent)
            if not self.skip_latest <= place < self.skip_latest + self.look_back
        }
        return {file.path: reasons[key] for file in files if (key := partition_of(file)) in reasons}


def brought_at(file: TableFile) -> tuple[bool, int]:
    """Return what orders partitions by the last file that brought rows: of clustered ones, all come last."""
    return file.clustered_by is None, file.committed_at


def last_written_first(latest: Mapping[TablePartition, tuple[bool, int]]) -> list[TablePartition]:
    """Return partitions in the order of `RecentPartitions`, by the greatest `brought_at` of their files."""
    by_values = sorted(latest, key=lambda it: (it.spec_id, sort_key(it.values)))
    return sorted(by_values, key=latest.__getitem__, reverse=True)


@dataclass(frozen=True, slots=True)
class SelectedPartitions:
    """The partitions that a predicate on their values holds for; `described` is how the plan records it.

    A table that has files of several partition specs needs a predicate for each, by the spec's id; the
    partitions of a spec without one are left alone. ValueError for one predicate over files of several specs.
    """

    name: ClassVar[str] = "selected_partitions"
    keep: Callable[[PartitionKey], bool] | Mapping[int, Callable[[PartitionKey], bool]]
    described: str
    values: Mapping[int, Sequence[Collection[Hashable] | None]] | None = None
    """By the id of a spec the values of each field that all its partitions have one of, None for any: of a
    spec that is missing it holds none. None where that is not known. It spares reading manifests.
    """

    @property
    def parameters(self) -> Mapping[str, str]:
        return {"filter": self.described}

    def refused(
        self, files: Sequence[TableFile], _policy: ClusteringPolicy, _now: int, /
    ) -> Mapping[str, str]:
        partitions = {partition_of(file) for file in files}
        specs = {partition.spec_id for partition in partitions}
        if callable(self.keep) and len(specs) > 1:
            raise ValueError(
                "the table has files of several partition specs, whose values mean different things; give a"
                f" predicate for each, {{spec id: predicate}}, and leave out those that you do not mean:"
                f" {', '.join(map(str, sorted(specs)))}"
            )
        refused = {partition for partition in partitions if not self.holds(partition)}
        if partitions and refused == partitions:
            reason = f"the filter {self.described} matches no partition at all"
        else:
            reason = f"its partition does not match {self.described}"
        return {file.path: reason for file in files if partition_of(file) in refused}

    def holds(self, partition: TablePartition) -> bool:
        """Return whether a partition is one of them."""
        keep = self.keep if callable(self.keep) else self.keep.get(partition.spec_id)
        return keep is not None and keep(partition.values)


def plan_strategy(name: str, **parameters: int) -> PlanStrategy:
    """Return a built-in plan strategy by its name, as a command line gives it.

    ValueError names the nearest known strategy or parameter. `SelectedPartitions` has no such form: it is
    made from a function.
    """
    if name not in _PLAN_STRATEGIES:
        raise unknown_name("plan strategy", name, _PLAN_STRATEGIES)
    kind, known, needed = _PLAN_STRATEGIES[name]
    for parameter in parameters:
        if parameter not in known:
            raise unknown_name(f"parameter of plan strategy {name!r}", parameter, known)
    missing = [parameter for parameter in needed if parameter not in parameters]
    if missing:
        raise ValueError(f"plan strategy {name!r} needs {missing[0]}=..., a whole number")
    return kind(**parameters)


_PLAN_STRATEGIES: Mapping[str, tuple[Callable[..., PlanStrategy], tuple[str, ...], tuple[str, ...]]] = {
    "all": (All, (), ()),
    "by_overlap": (ByOverlap, ("others",), ()),
    "by_size": (BySize, (), ()),
    "recent_partitions": (RecentPartitions, ("look_back", "skip_latest"), ("look_back",)),
}
"""What makes each, the parameters that it takes, and those of them that it needs."""
