"""Routing: which task writes which bucket of an insert plan.

Coalesced rows stay where they are read: one task takes all, or each of several has buckets of its own
(`planners.coalesced`). In a shuffle a row's task must be a function of its values: then a task that Spark
retries sees the same rows, and every row of a partition reaches the task that has the partition's buckets.
There,

* a **hot** partition (more than a quarter of a task's share) names its tasks. Where it has several, a row's
  slot (`pmod(xxhash64(all columns), SLOTS)`) chooses among them, in proportion to the rows planned for
  each. There are fewer than four hot partitions a task, so an expression can list them;
* every other partition, forecast or not, goes to task `pmod(hash(partition), cold_tasks)`. Each of these
  tasks has all cold buckets, so no expression lists 10,000 cold partitions.

A bucket belongs to exactly one task. Rows that are equal in all columns share a slot: one task writes a hot
partition of one repeated row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace

from planners.model import Bucket, InsertPlan, PartitionKey, comparable, sort_key

SLOTS = 65_536


@dataclass(frozen=True, slots=True)
class HotRoute:
    """One hot partition.

    `slots` are pairs (upto_slot_exclusive, task), ascending, the last one up to `SLOTS`; a task is in at most
    one of them.
    """

    partition: PartitionKey
    slots: tuple[tuple[int, int], ...]
    buckets: tuple[tuple[int, ...], ...]
    """For each of `slots`, the places in the plan of the buckets that its task fills, in order."""


@dataclass(frozen=True, slots=True)
class Routing:
    """Which task writes which bucket. Tasks count from 0; the first `cold_tasks` take the cold partitions."""

    tasks: int
    cold_tasks: int
    hot: tuple[HotRoute, ...]
    cold_buckets: tuple[int, ...]
    """The places in the plan of the buckets of all partitions that are not hot."""
    shuffled: bool
    own_buckets: tuple[tuple[int, ...], ...] = ()
    """For each task of a coalesced batch that several write, the places in the plan of its buckets."""


def route_single(plan: InsertPlan) -> Routing:
    """Route all buckets to one task: rows are only coalesced, and no expression is needed."""
    return Routing(
        tasks=1, cold_tasks=1, hot=(), cold_buckets=tuple(range(len(plan.buckets))), shuffled=False
    )


def route_shuffled(plan: InsertPlan, *, parallelism: int, rows_per_task: int) -> Routing:
    """Route the buckets by the rows' values to as many tasks as their rows need.

    There are as many tasks as `rows_per_task` asks for, rounded up to full waves of `parallelism` where that
    is more than one wave, and never more than buckets. Let r be the rows of a task if all had the same
    number: no task is planned more than max(2 r, r + its largest bucket) rows, as far as the hash spreads the
    cold partitions evenly. A single task takes all buckets, as in `route_single`, but after a shuffle.
    """
    if parallelism < 1 or rows_per_task < 1:
        raise ValueError(
            "parallelism and rows_per_task must be at least 1: "
            f"parallelism={parallelism}, rows_per_task={rows_per_task}"
        )
    total = sum(bucket.rows for bucket in plan.buckets)
    tasks = -(-total // rows_per_task)
    if tasks > parallelism:
        tasks = -(-tasks // parallelism) * parallelism
    tasks = min(tasks, len(plan.buckets))
    if tasks <= 1:
        return replace(route_single(plan), shuffled=True)
    share = -(-total // tasks)
    places: dict[PartitionKey, list[int]] = {}
    for place, bucket in enumerate(plan.buckets):
        places.setdefault(comparable(bucket.partition), []).append(place)
    rows_of = {key: sum(plan.buckets[place].rows for place in held) for key, held in places.items()}
    hot = [key for key, rows in rows_of.items() if rows * 4 > share]
    cold_rows = total - sum(rows_of[key] for key in hot)
    cold_tasks = max(1, -(-cold_rows // share))

    runs = [(key, run) for key in hot for run in _runs(plan.buckets, places[key], share)]
    owners = _least_loaded(
        [sum(plan.buckets[place].rows for place in run) for _, run in runs],
        [cold_rows // cold_tasks if task < cold_tasks else 0 for task in range(tasks)],
    )
    held: dict[PartitionKey, dict[int, list[int]]] = {key: {} for key in hot}
    for (key, run), owner in zip(runs, owners, strict=True):
        held[key].setdefault(owner, []).extend(run)
    routes = (_hot_route(plan.buckets, key, held[key]) for key in hot)
    return Routing(
        tasks=tasks,
        cold_tasks=cold_tasks,
        hot=tuple(sorted(routes, key=lambda route: sort_key(route.partition))),
        cold_buckets=tuple(sorted(place for key in places.keys() - held.keys() for place in places[key])),
        shuffled=True,
    )


def _runs(buckets: Sequence[Bucket], places: Sequence[int], share: int) -> list[list[int]]:
    """Divide a partition's buckets into runs of at most a task's share, or of one bucket."""
    runs: list[list[int]] = []
    rows = 0
    for place in places:
        rows += buckets[place].rows
        if runs and rows <= share:
            runs[-1].append(place)
        else:
            runs.append([place])
            rows = buckets[place].rows
    return runs


def _least_loaded(weights: Sequence[int], loads: Sequence[int]) -> list[int]:
    """Return a task for each weight: the heaviest first, each to the least loaded (Graham's LPT rule)."""
    heap = [(load, task) for task, load in enumerate(loads)]
    heapify(heap)
    owners = [0] * len(weights)
    for at in sorted(range(len(weights)), key=lambda at: (-weights[at], at)):
        load, task = heap[0]
        owners[at] = task
        heapreplace(heap, (load + weights[at], task))
    return owners


def _hot_route(buckets: Sequence[Bucket], partition: PartitionKey, held: dict[int, list[int]]) -> HotRoute:
    """Give each task of a hot partition slots in proportion to its rows, and at least one."""
    rows = {task: sum(buckets[place].rows for place in places) for task, places in held.items()}
    total = sum(rows.values())
    order = sorted(held, key=lambda task: min(held[task]))
    slots: list[tuple[int, int]] = []
    upto = reached = 0
    for following, task in zip(range(len(order) - 1, -1, -1), order, strict=True):
        reached += rows[task]
        upto = min(max(SLOTS * reached // total, upto + 1), SLOTS - following)
        slots.append((upto, task))
    return HotRoute(partition, tuple(slots), tuple(tuple(sorted(held[task])) for task in order))
