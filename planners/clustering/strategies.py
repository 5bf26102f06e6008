"""Plan strategies: which files a clustering plan may take. Values behind one small protocol.

Several together take the files that all of them let through: `(RecentPartitions(look_back=3), BySize())`.
One's own needs the three members of `PlanStrategy`, for instance

    class WrittenBefore:
        name = "written_before"

        def __init__(self, time: int) -> None:
            self.time = time
            self.parameters = {"time": str(time)}

        def refused(self, files, policy, now):
            return {it.path: "too young" for it in files if it.committed_at >= self.time}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from planners.clustering.overlap import extents, neighbours
from planners.model import PartitionKey, TableFile
from planners.partitions import comparable, sort_key

if TYPE_CHECKING:
    from planners.clustering.policy import ClusteringPolicy


class PlanStrategy(Protocol):
    """Chooses files. Pure: the same files in any order give the same answer."""

    @property
    def name(self) -> str:
        """What the plan calls it."""

    @property
    def parameters(self) -> Mapping[str, str]:
        """What it was made with, for the plan to record."""

    def refused(self, files: Sequence[TableFile], policy: ClusteringPolicy, now: int, /) -> Mapping[str, str]:
        """Return, by path, why files are left alone; all others may be rewritten.

        `files` are all that can be rewritten at all: not reserved, without deletes, of the current partition
        spec. `now` is of the same kind as their `committed_at`.
        """


@dataclass(frozen=True, slots=True)
class All:
    """Every file. Those in the order wanted wait until they overlap enough, so a stream can run with it."""

    name: ClassVar[str] = "all"
    parameters: ClassVar[Mapping[str, str]] = {}

    def refused(
        self, _files: Sequence[TableFile], _policy: ClusteringPolicy, _now: int, /
    ) -> Mapping[str, str]:
        return {}


@dataclass(frozen=True, slots=True)
class BySize:
    """Files below the policy's small limit; so what clustering made full is not sorted again (see `All`)."""

    name: ClassVar[str] = "by_size"
    parameters: ClassVar[Mapping[str, str]] = {}

    def refused(
        self, files: Sequence[TableFile], policy: ClusteringPolicy, _now: int, /
    ) -> Mapping[str, str]:
        reason = f"at or above the small limit of {policy.small_file_bytes:,} bytes"
        return {file.path: reason for file in files if file.bytes >= policy.small_file_bytes}


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
        partitions: dict[PartitionKey, list[TableFile]] = {}
        for file in files:
            partitions.setdefault(comparable(file.partition), []).append(file)
        answer = {}
        for members in partitions.values():
            counts = neighbours(extents(members, policy.sort_by, curve=policy.along_a_curve))
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
        latest: dict[PartitionKey, tuple[bool, int]] = {}
        for file in files:
            key = comparable(file.partition)
            brought = (file.clustered_by is None, file.committed_at)
            latest[key] = max(brought, latest.get(key, brought))
        by_values = sorted(latest, key=sort_key)
        recent = sorted(by_values, key=latest.__getitem__, reverse=True)
        reasons = {
            key: f"its partition is one of the {self.skip_latest:,} written last"
            if place < self.skip_latest
            else f"its partition was written before the {self.look_back:,} that are looked back on"
            for place, key in enumerate(recent)
            if not self.skip_latest <= place < self.skip_latest + self.look_back
        }
        return {file.path: reasons[key] for file in files if (key := comparable(file.partition)) in reasons}


@dataclass(frozen=True, slots=True)
class SelectedPartitions:
    """The partitions that a predicate on their values holds for; `described` is how the plan records it."""

    name: ClassVar[str] = "selected_partitions"
    keep: Callable[[PartitionKey], bool]
    described: str

    @property
    def parameters(self) -> Mapping[str, str]:
        return {"filter": self.described}

    def refused(
        self, files: Sequence[TableFile], _policy: ClusteringPolicy, _now: int, /
    ) -> Mapping[str, str]:
        partitions = {comparable(file.partition) for file in files}
        refused = {key for key in partitions if not self.keep(key)}
        if partitions and refused == partitions:
            reason = f"the filter {self.described} matches no partition at all"
        else:
            reason = f"its partition does not match {self.described}"
        return {file.path: reason for file in files if comparable(file.partition) in refused}
