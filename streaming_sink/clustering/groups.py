"""The groups of a plan on their way: found in the head, rewritten, reported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from planners.clustering.plan import ClusteringGroup, ClusteringPlan
from streaming_sink.clustering.report import GroupReport
from streaming_sink.tasks.clustering.job import GroupFailed, GroupResult, GroupWritten
from streaming_sink.tasks.encryption import KeyNames
from streaming_sink.tasks.job import WrittenFile
from timeline.versions.entries import LiveFile
from timeline.versions.head import Head


@dataclass(frozen=True)
class Group:
    """A group of the plan with what the head knows of its files, and what came of it so far."""

    index: int
    planned: ClusteringGroup
    inputs: tuple[LiveFile, ...] = ()
    dropped: str = ""
    """Why it is left out without any work."""
    results: tuple[GroupResult, ...] = ()
    """One of each of its tasks, in the order of their ranges."""

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.inputs)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.inputs)

    @property
    def key_names(self) -> KeyNames | None:
        """What its files are encrypted under, and so what is made of them; see `found`."""
        said = self.inputs[0].key_metadata
        return None if said is None else KeyNames.from_bytes(said)

    @property
    def written(self) -> tuple[GroupWritten, ...]:
        """What its tasks wrote; not all of it is worth anything where `failure` says why."""
        return tuple(result for result in self.results if isinstance(result, GroupWritten))

    @property
    def files(self) -> tuple[WrittenFile, ...]:
        return tuple(file for each in self.written for file in each.files)

    @property
    def failure(self) -> str:
        """Why it cannot be published, if it was rewritten at all: each row has to be there once."""
        reasons = [result.reason for result in self.results if isinstance(result, GroupFailed)]
        rows = sum(each.rows for each in self.written)
        if reasons or not self.results:
            return "; ".join(dict.fromkeys(reasons))
        if len({each.ranges for each in self.written}) > 1:
            return "its tasks did not agree where their ranges meet; nothing of it is published"
        if rows != self.rows:
            return f"its tasks wrote {rows:,} rows instead of {self.rows:,}; nothing of it is published"
        return ""

    @property
    def succeeded(self) -> bool:
        return bool(self.results) and not self.failure

    def report(self) -> GroupReport:
        """Return what came of it, if what it wrote is committed."""
        known = GroupReport(
            index=self.index,
            partition=self.planned.partition,
            outcome="failed" if self.failure else "dropped",
            why=self.failure or self.dropped,
            input_files=len(self.planned.inputs),
            input_bytes=self.bytes,
            rows=self.rows,
        )
        if not self.succeeded:
            return known
        return replace(
            known,
            outcome="committed",
            output_files=len(self.files),
            output_bytes=sum(file.bytes for file in self.files),
            tasks=len(self.written),
            seconds=max(each.seconds for each in self.written),
            cpu_seconds=sum(each.cpu_seconds for each in self.written),
            spilled_bytes=sum(each.spilled_bytes for each in self.written),
        )


def found(head: Head, plan: ClusteringPlan, has_keys: bool) -> list[Group]:
    """Return the groups with their live files, or why they must be left out before any work."""
    wanted = {path for group in plan.groups for path in group.inputs}
    live = {file.location: file for file in head.live_files() if file.location in wanted}
    groups, seen = [], Counter(path for group in plan.groups for path in group.inputs)
    for index, planned in enumerate(plan.groups):
        if not planned.inputs or planned.output_files < 1 or any(seen[path] > 1 for path in planned.inputs):
            groups.append(Group(index, planned, dropped="the plan is damaged"))
            continue
        gone = next((path for path in planned.inputs if path not in live), None)
        if gone is not None:
            groups.append(Group(index, planned, dropped=f"an input is gone: {gone}"))
            continue
        inputs = tuple(live[path] for path in planned.inputs)
        unfit = _why_unfit(head, inputs) or _why_locked(planned, inputs, has_keys)
        groups.append(Group(index, planned, inputs, unfit))
    return groups


def _why_unfit(head: Head, inputs: Sequence[LiveFile]) -> str:
    for file in inputs:
        if file.spec_id != head.spec.spec_id:
            return f"an input is of another partition spec than the table's current one: {file.location}"
        if file.partition != inputs[0].partition:
            return f"the inputs are of several partitions: {inputs[0].location} and {file.location}"
        if head.has_deletes(file):
            return f"an input has deletes: {file.location}"
    return ""


def _why_locked(planned: ClusteringGroup, inputs: Sequence[LiveFile], has_keys: bool) -> str:
    """Return why the keys of the inputs stand in the way. What is encrypted must not come out plain."""
    for file in inputs:
        if file.key_metadata is None:
            continue
        if not has_keys:
            return f"an input is encrypted, and no keys are given: {file.location}"
        if KeyNames.from_bytes(file.key_metadata) is None:
            return f"an input is encrypted by another writer, whose keys are not known: {file.location}"
    if planned.strategy.name != "encrypt" and len({file.key_metadata for file in inputs}) > 1:
        return (
            "the inputs are under different keys; bring them under the same ones with the strategy 'encrypt'"
        )
    return ""
