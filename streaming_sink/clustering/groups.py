"""The groups of a plan during a pass: their live inputs, the results of their tasks, their reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from planners.clustering.plan import ClusteringGroup, ClusteringPlan
from planners.clustering.strategies import traits
from planners.model import TableFile
from streaming_sink.reports.cluster_report import GroupReport
from streaming_sink.table.planned_files import has_deletes_by_value, planned_file
from streaming_sink.tasks.clustering.job import GroupFailed, GroupResult, GroupWritten
from streaming_sink.tasks.encryption import KeyNames
from streaming_sink.tasks.results import WrittenFile
from timeline.manifests.entries import LiveFile
from timeline.versions.head import Head


@dataclass(frozen=True)
class LiveGroup:
    """A group of the plan, its live files, and the results of its tasks so far."""

    index: int
    planned: ClusteringGroup
    inputs: tuple[LiveFile, ...] = ()
    known: tuple[TableFile, ...] = ()
    """The same files, with their live rows and the delete files that the tasks apply."""
    dropped: str = ""
    """Why it is dropped without any work; "" if it is not."""
    results: tuple[GroupResult, ...] = ()
    """One per task, in the order of their ranges."""

    @property
    def rows(self) -> int:
        """Live rows, by the table."""
        return sum(file.rows for file in self.known)

    @property
    def bytes(self) -> int:
        """Live bytes."""
        return sum(file.bytes for file in self.known)

    @property
    def applied(self) -> frozenset[str]:
        """The locations of the delete files whose rows its files leave out."""
        return frozenset(deletes.path for file in self.known for deletes in file.deletes)

    @property
    def deleted_rows(self) -> int:
        """How many rows these are, as its tasks have counted them."""
        return max((each.deleted_rows for each in self.written), default=0)

    @property
    def spec_id(self) -> int:
        """The partition spec of its inputs, and so of the files that result; see `match_groups`."""
        return self.inputs[0].spec_id

    @property
    def key_names(self) -> KeyNames | None:
        """The keys that encrypt its files, and so the files that result; see `match_groups`."""
        metadata = self.inputs[0].key_metadata
        return None if metadata is None else KeyNames.from_bytes(metadata)

    @property
    def written(self) -> tuple[GroupWritten, ...]:
        """The results of the tasks that wrote files; complete only where `failure` is ""."""
        return tuple(result for result in self.results if isinstance(result, GroupWritten))

    @property
    def files(self) -> tuple[WrittenFile, ...]:
        return tuple(file for each in self.written for file in each.files)

    @property
    def failure(self) -> str:
        """Why it cannot be published: each live row must be in it exactly once. "" if it can."""
        reasons = [result.reason for result in self.results if isinstance(result, GroupFailed)]
        if reasons or not self.results:
            return "; ".join(dict.fromkeys(reasons))
        if len({each.ranges for each in self.written}) > 1:
            return "its tasks did not agree where their ranges meet; nothing of it is published"
        if len({each.deleted_rows for each in self.written}) > 1:
            return "its tasks did not agree which rows are deleted; nothing of it is published"
        wrote = sum(each.rows for each in self.written)
        rows = sum(file.rows for file in self.inputs) - self.deleted_rows
        if wrote != rows:
            return f"its tasks wrote {wrote:,} rows instead of {rows:,}; nothing of it is published"
        return ""

    @property
    def succeeded(self) -> bool:
        return bool(self.results) and not self.failure

    def report(self) -> GroupReport:
        """Return its report, on the assumption that its files are committed."""
        known = GroupReport(
            index=self.index,
            partition=self.planned.partition,
            outcome="failed" if self.failure else "dropped",
            why=self.failure or self.dropped,
            input_files=len(self.planned.inputs),
            input_bytes=sum(file.bytes for file in self.inputs),
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


def match_groups(head: Head, plan: ClusteringPlan, has_keys: bool) -> list[LiveGroup]:
    """Return the groups with their live files, and the delete files that these have on this head, maybe more
    than when the plan was made; or with the reason why they are dropped before any work. One is dropped too
    where the name of a manifest is wrong (R35): no manifest is read that states nothing of its inputs.
    """
    wanted = {path for group in plan.groups for path in group.inputs}
    live = head.find_all_live(wanted, likely=True, once=True)
    groups, seen = [], Counter(path for group in plan.groups for path in group.inputs)
    for index, planned in enumerate(plan.groups):
        if not planned.inputs or planned.output_files < 1 or any(seen[path] > 1 for path in planned.inputs):
            groups.append(LiveGroup(index, planned, dropped="the plan is damaged"))
            continue
        gone = next((path for path in planned.inputs if path not in live), None)
        if gone is not None:
            groups.append(LiveGroup(index, planned, dropped=f"an input is not live: {gone}"))
            continue
        inputs = tuple(live[path] for path in planned.inputs)
        unfit = _why_unfit(head, inputs) or _why_locked(planned, inputs, has_keys)
        groups.append(
            LiveGroup(index, planned, inputs, tuple(planned_file(head, it) for it in inputs), unfit)
        )
    return groups


def _why_unfit(head: Head, inputs: Sequence[LiveFile]) -> str:
    for file in inputs:
        if file.spec_id != inputs[0].spec_id:
            return f"the inputs are of several partition specs: {inputs[0].location} and {file.location}"
        if file.partition != inputs[0].partition:
            return f"the inputs are of several partitions: {inputs[0].location} and {file.location}"
        if has_deletes_by_value(head.deletes_of(file)):
            return f"an input has deletes by value: {file.location}"
    return ""


def _why_locked(planned: ClusteringGroup, inputs: Sequence[LiveFile], has_keys: bool) -> str:
    """Return why the keys of the inputs prevent a rewrite. Rows of encrypted files must not become plain."""
    for file in inputs:
        if file.key_metadata is None:
            continue
        if not has_keys:
            return f"an input is encrypted, and no keys are given: {file.location}"
        if KeyNames.from_bytes(file.key_metadata) is None:
            return f"an input is encrypted by another writer, whose keys are not known: {file.location}"
    if not traits(planned.strategy.name).sets_keys and len({file.key_metadata for file in inputs}) > 1:
        return (
            "the inputs are under different keys; bring them under the same ones with the strategy 'encrypt'"
        )
    return ""
