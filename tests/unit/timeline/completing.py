"""Completes a plan of clustering as its executor does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from timeline.changes.changes import Change
from timeline.changes.plan_changes import Withdraw
from timeline.plans.instants import note_completed
from timeline.table import Committed, Table


def complete_plan(
    table: Table,
    plan_id: str,
    changes: Sequence[Change],
    *,
    schema_id: int | None = None,
    summary: Mapping[str, str] | None = None,
) -> Committed:
    """Commit the changes of a plan's work items, as `PlanKind.change` makes them, and withdraw the plan, in
    one version.

    Replaces whose inputs are not live are listed in `Committed.dropped`. CommitConflictError where that is
    all of them and the plan is no longer pending: another executor has completed it, and nothing of this call
    is live. Otherwise raises as `Table.commit`.
    """
    committed = table.commit([*changes, Withdraw(plan_id)], schema_id=schema_id, summary=summary)
    assert isinstance(committed, Committed)  # only a batch of a transaction can have been committed before
    done = len(changes) - len(committed.dropped)
    note_completed(table, plan_id, version=committed.version, done=done, dropped=len(committed.dropped))
    return committed
