"""Clusterers that go by plans on the timeline: claimed, carried out, taken over. All but Spark is real, from
`PLANNED` on the planner too: it knows files by names of manifests, and by copies of these.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

from planners.clustering.plan import ClusteringPlan
from planners.clustering.planner import plan_clustering
from planners.clustering.policy import ClusteringPolicy
from streaming_sink.clustering.groups import match_groups
from streaming_sink.clustering.known_files import known_files
from tests.simulation.acting import Body, commit, outputs, patiently, read_files, think
from tests.simulation.fillers import read_live
from tests.simulation.plan_judge import PLAN_ID
from tests.simulation.raw import ViolationError
from tests.simulation.scheduler import Actor
from tests.simulation.simulation import (
    OPEN_BELOW,
    PARTITIONS,
    SAFE_DISTANCE,
    Process,
    Simulation,
    first_id_time,
)
from tests.simulation.writers import small_files
from tests.unit.timeline.completing import complete_plan
from tests.unit.timeline.plans import joined_live
from tests.unit.timeline.world import DAY_MS, NOON
from timeline.changes.changes import Replace, SetProperties
from timeline.changes.plan_changes import Withdraw
from timeline.clock import Environment
from timeline.errors import CommitConflictError, CommitStateUnknownError, StoreUnavailableError
from timeline.plans import instants
from timeline.plans.claims import Claim, Watch
from timeline.plans.clustering import CLUSTERING
from timeline.plans.reservations import Reservations
from timeline.table import Committed, Table
from timeline.versions.head import Head
from timeline.versions.pending import pending_plans

PATIENCE_SECONDS = 1.0
_POLICY = ClusteringPolicy(
    target_file_bytes=2 * OPEN_BELOW, small_file_bytes=OPEN_BELOW, max_group_files=4, max_groups=3
)


PLANNED = 500_000
"""From this seed on, up to those of two tables, clusterers take what the planner plans."""


def has_planner(seed: int) -> bool:
    """Return whether the clusterers of a schedule take what the planner plans."""
    return PLANNED <= seed < 2 * PLANNED


def cluster_by_plans(sim: Simulation, times: int, deadline: float) -> Body:
    """A process that carries out what is pending, and schedules what it finds to do."""

    def body(actor: Actor) -> None:
        process = sim.process(actor)
        table = patiently(sim, process, process.open)
        if not isinstance(table, Table):
            return
        table.deadline_seconds = deadline
        clusterer = _Clusterer(sim, process, table)
        for _ in range(times):
            think(sim, process, 1.5)
            try:
                clusterer.run_pass()
            except (CommitConflictError, CommitStateUnknownError, StoreUnavailableError) as failure:
                sim.tell(actor.name, f"=> {type(failure).__name__}: {failure}")

    return body


class _Clusterer:
    def __init__(self, sim: Simulation, process: Process, table: Table) -> None:
        self._sim = sim
        self._process = process
        self._table = table
        self._watch = Watch(process.environment, PATIENCE_SECONDS)
        self._reservations = Reservations(process.store)

    def run_pass(self) -> None:
        random = self._sim.random
        for pending in pending_plans(self._table.refresh().properties):
            if random.random() < 0.1:
                instants.cancel_plan(self._table, pending.plan_id)
                self._sim.meet("plan cancelled")
            elif random.random() < 0.8:
                self._carry_out(pending.plan_id)
        plan = self._table.on_head(self._plan)
        if plan["groups"]:
            self._tell("SCHEDULE")
            plan_id = instants.schedule_plan(self._table, plan, CLUSTERING)
            self._tell(f"=> plan {plan_id}")
            if random.random() < 0.7:
                self._carry_out(plan_id)

    def _plan(self, head: Head) -> dict[str, Any]:
        reserved = self._reservations.files(head)
        if has_planner(self._sim.seed):
            files = known_files(head, _POLICY, reserved).files
            plan = plan_clustering(files, head.metadata.last_updated_ms, _POLICY)
            self._sim.met["planned by the planner"] += bool(plan.groups)
            return replace(plan, left_out=()).to_dict()
        groups = []
        for p, spec_id in product(range(PARTITIONS), head.metadata.specs()):
            free = [file for file in small_files(head, p, spec_id) if file.location not in reserved]
            if len(free) >= 2:
                groups.append(joined_live(p, free[:4]))
        return {"planned_at": 0, "target_file_bytes": 1, "selected_by": [], "groups": groups, "left_out": []}

    def _carry_out(self, plan_id: str) -> None:
        """Claim a plan, rewrite its groups with signs of life, commit, and note it; perhaps ever so late."""
        claim = instants.claim_plan(self._table, plan_id, self._watch)
        if claim is None:
            return
        self._tell(f"CARRY OUT {plan_id}, claim {claim.number}")
        self._sim.oracle.plans.claimed(plan_id, claim.number, claim.executor)
        schema_id = self._table.head.schema.schema_id
        replaces = self._rewritten(claim)
        if replaces is None:
            self._sim.meet("executor stopped by its claim")
            return
        done = commit(
            self._sim,
            self._process,
            self._table,
            [],
            replaces,
            more=[Withdraw(plan_id)],
            summary={PLAN_ID: plan_id},
            schema_id=schema_id,
        )
        if not isinstance(done, Committed):
            return
        live = outputs(replaces, done)
        self._sim.oracle.acknowledged(None, live, done.version)
        if replaces and not live:
            self._sim.oracle.gave_up_nothing(plan_id, done.version)
        groups = len(replaces) - len(done.dropped)
        instants.note_completed(
            self._table, plan_id, version=done.version, done=groups, dropped=len(done.dropped)
        )

    def _rewritten(self, claim: Claim) -> list[Replace] | None:
        """Return the groups whose inputs are there; None where the claim was lost, and that was noticed."""
        replaces = []
        head = self._table.head
        time_ms = first_id_time(self._process, head)
        if has_planner(self._sim.seed):
            return self._rewritten_by_the_planner(claim, time_ms)
        for group in claim.plan["groups"]:
            if self._sim.random.random() < 0.2:
                self._process.environment.sleep(PATIENCE_SECONDS * 10 ** self._sim.random.uniform(0, 1))
            if not claim.beat() and self._sim.random.random() < 0.7:
                return None
            if rows := read_files(self._sim, self._process, group["inputs"]):
                p = int(group["partition"][0])
                spec_id = self._sim.oracle.partitions.written_under[group["inputs"][0]]
                merged = self._sim.new_file(
                    self._process, head, rows, p, time_ms, "cluster", sort_order_id=1, spec_id=spec_id
                )
                replaces.append(Replace(frozenset(group["inputs"]), (merged,)))
        return replaces

    def _rewritten_by_the_planner(self, claim: Claim, time_ms: int) -> list[Replace] | None:
        """Return the groups as a pass has them, with the delete files that their inputs have by now."""
        replaces = []
        plan = ClusteringPlan.from_dict(claim.plan)
        groups = self._table.on_head(lambda head: match_groups(head, plan, has_keys=False))
        for group in groups:
            if group.dropped:
                self._sim.meet("planned group dropped")
                continue
            if self._sim.random.random() < 0.2:
                self._process.environment.sleep(PATIENCE_SECONDS * 10 ** self._sim.random.uniform(0, 1))
            if not claim.beat() and self._sim.random.random() < 0.7:
                return None
            if (read := read_live(self._sim, self._process, group.known)) is not None:
                rows, deleted_rows = read
                p, spec_id = int(str(group.inputs[0].partition[0])), group.spec_id
                made = [
                    self._sim.new_file(
                        self._process, self._table.head, rows, p, time_ms, "cluster", 1, spec_id=spec_id
                    )
                    for rows in filter(None, [rows])
                ]
                removed = frozenset(file.location for file in group.inputs)
                replaces.append(Replace(removed, tuple(made), group.applied, deleted_rows))
                self._sim.met["planned group with deletes"] += bool(group.applied)
        return replaces

    def _tell(self, what: str) -> None:
        self._sim.tell(self._process.actor.name, what)


def end_what_is_pending(sim: Simulation) -> None:
    """Whatever crashes and lost files have left pending, one more scheduler ends, a time-out later (R11)."""
    store, environment = sim.unfailing()
    later = Environment(
        lambda: NOON + 30 * DAY_MS, environment.monotonic, environment.sleep, environment.random
    )
    table = Table.open(store, later)
    for number in range(SAFE_DISTANCE):
        table.commit([SetProperties({"later": str(number)})])
    files = sorted(table.head.live_files(), key=lambda file: file.location)
    if not files:
        return
    plan = {"planned_at": 0, "target_file_bytes": 1, "selected_by": [], "groups": [joined_live(0, files[:1])]}
    plan_id = instants.schedule_plan(table, plan, CLUSTERING)
    if (pending := list(sim.oracle.head.pending)) != [plan_id]:
        raise ViolationError(f"plans stay pending for ever: {pending}")
    claim = instants.claim_plan(table, plan_id)
    if claim is None or not claim.beat():
        raise ViolationError("a plan that nobody else has cannot be claimed")
    complete_plan(table, plan_id, [])
    if sim.oracle.head.pending:
        raise ViolationError("a plan was completed, and stays pending")
