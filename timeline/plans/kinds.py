"""Kinds of plans: what the jobs on the timeline need to know of a plan, described by its kind.

A plan is a list of work items; each item has inputs, and is all or nothing. To add a kind, describe it and
add it to `timeline.plans.registry`: its instants, claims, reservations and time-outs are those of every other
kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.manifest import DataFile

from timeline import names
from timeline.changes.changes import Change
from timeline.plans.plan_file import Plan, PlanSchema

Item = Mapping[str, Any]
"""A work item, as the plan's schema has it."""


@dataclass(frozen=True)
class PlanKind:
    """One kind of plans."""

    name: str
    """Names the folder of its instants (`names.plan_folder`) and begins the ids of its plans."""
    schema: PlanSchema
    items: str
    """The field of a plan that lists its work items."""
    inputs: Callable[[Item], Sequence[str]]
    """The locations of the files that a work item takes, and so reserves."""
    change: Callable[[Item, Sequence[DataFile], frozenset[str], int], Change]
    """What a commit carries for a work item that has written these files, and has left out the rows, so many,
    that the delete files at these locations delete.
    """
    timeout_property: str
    """The table property with the milliseconds after which a pending plan times out."""

    @property
    def folder(self) -> str:
        return names.plan_folder(self.name)

    def inputs_of(self, plan: Plan) -> frozenset[str]:
        """Return the locations of the files that a plan takes."""
        return frozenset(location for item in plan[self.items] for location in self.inputs(item))
