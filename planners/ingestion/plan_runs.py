"""Which runs of a buffer zone's plan index are merged: eight neighbours become one, as in an LSM tree.

A run covers plans that follow one another: 1, 8, 64, ... of them, from a multiple of that on. So of two runs
one lies inside the other, or they have no plan in common, and what a run holds follows from its name alone,
whichever planner writes it. Runs that have more than `MERGED_BYTES` together stay apart, so that no merge
needs more memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FAN_OUT = 8
MERGED_BYTES = 64 * 1024 * 1024
"""Two million files."""


@dataclass(frozen=True, slots=True, order=True)
class PlanRun:
    """A run of the index: the plans that it covers, first and last, and its size."""

    first: int
    last: int
    bytes: int

    @property
    def plans(self) -> int:
        return self.last - self.first + 1


def is_run(first: int, last: int) -> bool:
    """Return whether a run may cover these plans: 1, 8, 64, ... of them, from a multiple of that on."""
    plans = last - first + 1
    if first < 1 or plans < 1 or (first - 1) % plans:
        return False
    while plans % FAN_OUT == 0:
        plans //= FAN_OUT
    return plans == 1


def widest(runs: Iterable[PlanRun]) -> tuple[PlanRun, ...]:
    """Return the runs that lie inside of no other one, in the order of their plans."""
    found: list[PlanRun] = []
    for run in sorted(runs, key=lambda run: (run.first, -run.last)):
        if not found or run.first > found[-1].last:
            found.append(run)
    return tuple(found)


def uncovered(runs: Iterable[PlanRun], last: int) -> tuple[int, ...]:
    """Return the plans from 1 to `last` that no run covers."""
    covered = {number for run in runs for number in range(run.first, run.last + 1)}
    return tuple(number for number in range(1, last + 1) if number not in covered)


def due_merge(runs: Sequence[PlanRun]) -> tuple[PlanRun, ...]:
    """Return eight neighbours that become one run, in order; () where no merge is due. `runs` are widest."""
    together: dict[tuple[int, int], list[PlanRun]] = {}
    for run in sorted(runs):
        parent = run.plans * FAN_OUT
        together.setdefault(((run.first - 1) // parent, parent), []).append(run)
    for key in sorted(together):
        children = together[key]
        if len(children) == FAN_OUT and sum(run.bytes for run in children) <= MERGED_BYTES:
            return tuple(children)
    return ()
