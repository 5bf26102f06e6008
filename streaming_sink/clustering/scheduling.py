"""Scheduling: plans a pass on an open table's head, and saves the plan on its timeline. Without Spark. Files
that another engine has written are looked at by their footers: a pass may not be able to read them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache

from planners.clustering.plan import ClusteringPlan, partition_text
from planners.clustering.planner import plan_clustering
from planners.clustering.strategies import traits
from planners.model import Decision, FileContent, FillVerdict, TableFile, partition_of
from planners.sizing import count_text
from streaming_sink.clustering.known_files import count_data_files, known_files
from streaming_sink.clustering.options import Pass
from streaming_sink.clustering.where import partitions_where
from streaming_sink.reports.cluster_report import ClusterReport
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.foreign_rewrites import ForeignRewrites, Room
from streaming_sink.table.partition_names import as_terms, speller
from streaming_sink.tasks.errors import DataFileError
from streaming_sink.tasks.files.data_file_reader import open_data_file
from timeline import names
from timeline.errors import CommitConflictError
from timeline.plans import instants
from timeline.plans.clustering import CLUSTERING
from timeline.plans.reservations import Reservations
from timeline.stores.base import Store
from timeline.table import Table
from timeline.versions.head import Head

_TRIES = 3
_REASONS = 3


@dataclass(frozen=True)
class Scheduled:
    """A plan that is saved and announced: its files are reserved."""

    plan_id: str
    plan: ClusteringPlan


def plan_pass(
    table: Table,
    reservations: Reservations,
    asked: Pass,
    rewrites: ForeignRewrites | None = None,
    *,
    executes: bool = False,
) -> ClusteringPlan:
    """Return the plan of a pass on the newest head that this process has seen.

    Where other engines may rename columns, each of their files that the plan takes is opened once; the plan
    leaves alone what cannot be read. `rewrites`: leave room for other engines, too. `executes`: the
    caller executes the plan, so that without keys it takes no encrypted file; another executor may have them.
    ValueError for a column that the table lacks, and for a filter of partitions that it has not.
    """
    sets_keys = traits(asked.policy.strategy.name).sets_keys  # no pass of it is executed without
    has_keys = not executes or sets_keys or asked.execution.keys is not None
    seen: dict[str, str | None] = {}

    def planned(head: Head) -> ClusteringPlan:
        asked.check_columns(arrow_schema(head.schema))
        policy = asked.policy
        if asked.where is not None:
            policy = replace(policy, select=(*policy.select, partitions_where(head, asked.where)))
        unfit = {path: why for path, why in seen.items() if why is not None}
        room = Room() if rewrites is None else rewrites.room(head, asked.policy.small_file_bytes)
        reserved = reservations.files(head)
        known = known_files(head, policy, reserved, unfit, room.waiting, asked.max_bytes, has_keys=has_keys)
        plan = plan_clustering(known.files, head.metadata.last_updated_ms, policy)
        others = count_data_files(head) - sum(it.content is FileContent.DATA for it in known.files)
        plan = _named(_bounded(plan, asked.max_bytes, known.files), known.files, head)
        return replace(plan, others=others, has_more=known.has_more and others > 0)

    while True:
        plan = table.on_head(planned)
        if not table.head.version.is_shared:
            return plan
        inputs = (path for group in plan.groups for path in group.inputs)
        new = find_unfit(table.store, [it for it in inputs if is_foreign(it) and it not in seen])
        seen |= new
        if not any(new.values()):
            return plan


def schedule_pass(
    table: Table,
    reservations: Reservations,
    asked: Pass,
    rewrites: ForeignRewrites | None = None,
    *,
    executes: bool,
) -> Scheduled | ClusteringPlan:
    """Plan a pass and save the plan. A plan without groups is returned unsaved: it has the reasons.

    Plans again where another scheduler was first with some of the files. Raises as `Table.commit`.
    """
    for tries in range(1, _TRIES + 1):
        plan = plan_pass(table, reservations, asked, rewrites, executes=executes)
        if not plan.groups:
            return plan
        # Every sink reads the plan for its reservations: the files that it leaves alone are not worth the
        # bytes.
        saved = replace(plan, left_out=()).to_dict()
        try:
            return Scheduled(instants.schedule_plan(table, saved, CLUSTERING), plan)
        except CommitConflictError:
            if tries == _TRIES:
                raise
    raise AssertionError("the last try returns or raises")


def why_nothing(plan: ClusteringPlan) -> str:
    """Return why a plan has no groups: the reasons that most files have."""
    reasons = (
        Counter(it.reason for it in plan.left_out) + Counter({plan.why_others: plan.others})
    ).most_common(_REASONS)
    listed = "; ".join(f"{count_text(count, 'file')}: {reason}" for reason, count in reasons)
    return f"nothing to do: {listed or 'the table has no files'}"


def nothing_to_do(location: str, plan: ClusteringPlan) -> ClusterReport:
    """Return the report of a pass whose plan has no groups."""
    return ClusterReport(table=location, outcome="nothing", why=f"clustering: {why_nothing(plan)}")


def taken(location: str, plan_id: str) -> ClusterReport:
    """Return the report of a pass whose plan another executor was faster to claim."""
    why = f"clustering {plan_id}: another executor has it"
    return ClusterReport(table=location, outcome="taken", plan_id=plan_id, why=why)


def _bounded(plan: ClusteringPlan, max_bytes: int, files: Sequence[TableFile]) -> ClusteringPlan:
    """Return the best groups of a plan, as many as a pass may read; the files of the others are left out."""
    groups, beyond, room = [], set[str](), max_bytes
    for group in plan.groups:
        if group.bytes <= room:
            groups.append(group)
            room -= group.bytes
        else:
            beyond.update(group.inputs)
    reason = f"beyond the {max_bytes:,} bytes of a pass, left for the next"
    left_out = [
        Decision(it.path, partition_text(it.partition), it.bytes, FillVerdict.KEPT, reason)
        for it in files
        if it.path in beyond
    ]
    return replace(plan, groups=tuple(groups), left_out=(*plan.left_out, *left_out))


def _named(plan: ClusteringPlan, files: Sequence[TableFile], head: Head) -> ClusteringPlan:
    """Return a plan with its partitions as the table's folders and the filter of a pass spell them."""
    spell = speller(head)
    name = cache(lambda partition: as_terms(spell(partition)))
    partitions = {it.path: partition_of(it) for it in files}
    left_out = (
        Decision(it.path, name(partitions[it.path]), it.bytes, it.verdict, it.reason) for it in plan.left_out
    )
    groups = (replace(it, partition=name(partitions[it.inputs[0]])) for it in plan.groups)
    return replace(plan, groups=tuple(groups), left_out=tuple(left_out))


_AT_ONCE = 8


def is_foreign(location: str) -> bool:
    """Return whether a data file has a name that this protocol does not write."""
    return names.file_id(location) is None


def find_unfit(store: Store, locations: Sequence[str]) -> dict[str, str | None]:
    """Return, of each file, why a pass must leave it alone; None where it is a Parquet file that can be read,
    and whose columns have field ids.

    StoreUnavailableError where the store does not answer.
    """

    def look(location: str) -> str | None:
        try:
            with open_data_file(store, location, "it", needs_ids=True):
                return None
        except DataFileError as unfit:
            return str(unfit)

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="footers") as pool:
        return dict(zip(locations, pool.map(look, locations), strict=True))
