"""The clustering processes of a race: they plan, claim, rewrite and complete, and take over from the dead.

The timeline is the product's; what Spark's executors would do is done here, file by file.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from tests.processes.streams import Run, ids_in
from tests.unit.timeline.completing import complete_plan
from tests.unit.timeline.plans import joined_live
from timeline.changes.changes import Replace
from timeline.clock import SYSTEM
from timeline.errors import CommitConflictError
from timeline.plans import instants
from timeline.plans.claims import Watch, all_instants
from timeline.plans.clustering import CLUSTERING
from timeline.plans.reservations import Reservations
from timeline.stores import LocalStore
from timeline.table import Table
from timeline.versions.pending import pending_plans

if TYPE_CHECKING:
    from tests.processes.writers import Plan
    from timeline.manifests.entries import LiveFile
    from timeline.plans.claims import Claim
    from timeline.versions.head import Head

_PATIENCE_SECONDS = 0.2
_LEAST, _MOST = 3, 6
"""Files of a group."""
_PLAN_ID = "streaming-sink.clustering.plan-id"


def cluster(plan: Plan, number: int) -> None:
    """Cluster until killed."""
    table = Table.open(LocalStore(plan.location))
    watch, reservations = Watch(SYSTEM, _PATIENCE_SECONDS), Reservations(table.store)
    while True:
        for pending in pending_plans(table.refresh().properties):
            _carry_out(table, pending.plan_id, watch)
        try:
            groups = _groups(table.head, reservations)
            if groups:
                _carry_out(table, instants.schedule_plan(table, _plan(groups), CLUSTERING), watch)
        except CommitConflictError:
            continue  # another process has reserved a file of it: plan again
        time.sleep(0.01)


def have_work(location: str) -> bool:
    """Return whether a plan waits, or could be made, once no writer runs any more."""
    table = Table.open(LocalStore(location))
    return bool(pending_plans(table.head.properties) or _groups(table.head, Reservations(table.store)))


def _groups(head: Head, reservations: Reservations) -> list[list[LiveFile]]:
    reserved = reservations.files(head)
    by_partition: dict[tuple[object, ...], list[LiveFile]] = defaultdict(list)
    for file in head.live_files():
        if file.location not in reserved:
            by_partition[file.partition].append(file)
    found = [sorted(files, key=lambda file: file.rows)[:_MOST] for files in by_partition.values()]
    return [files for files in found if len(files) >= _LEAST]


def _plan(groups: list[list[LiveFile]]) -> dict[str, Any]:
    return {
        "planned_at": 0,
        "target_file_bytes": 1 << 30,
        "selected_by": [],
        "groups": [joined_live(files[0].partition[0], files) for files in groups],
    }


def _carry_out(table: Table, plan_id: str, watch: Watch) -> None:
    claim = instants.claim_plan(table, plan_id, watch)
    if claim is None or (replaces := _rewritten(table, claim)) is None:
        return
    try:
        complete_plan(table, plan_id, replaces, summary={_PLAN_ID: plan_id})
    except CommitConflictError:
        return  # another executor was first


def _rewritten(table: Table, claim: Claim) -> list[Replace] | None:
    """Return the replaces of a plan's groups; None once another executor has the plan."""
    replaces = []
    for group in claim.plan["groups"]:
        if not claim.beat():
            return None
        ids = [each for path in group["inputs"] for each in ids_in(path)]
        merged = Run(int(group["partition"][0]), table).write(0, ids)
        replaces.append(Replace(frozenset(group["inputs"]), (merged,)))
    return replaces


def check(location: str) -> Counter[str]:
    """No plan was completed twice; return how many were, and how many were taken over."""
    store = LocalStore(location)
    snapshots = Table.open(store).head.metadata.snapshots
    told = [s.summary.additional_properties.get(_PLAN_ID) for s in snapshots if s.summary is not None]
    completed = Counter(plan_id for plan_id in told if plan_id is not None)
    assert all(times == 1 for times in completed.values()), f"completed twice: {completed}"
    claims = [kinds.get("inflight", 0) for kinds in all_instants(store, CLUSTERING.name).values()]
    return Counter(completed=len(completed), taken_over=sum(number > 1 for number in claims))
