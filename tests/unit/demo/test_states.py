"""A table's snapshots as the state after each micro-batch."""

from __future__ import annotations

from typing import Any

from demo.states import State, states_of


def test_each_append_is_a_batch_and_a_replace_belongs_to_the_batch_before_it() -> None:
    snapshots = [
        _snapshot(3, "append", 3, 21),
        _snapshot(1, "append", 1, 10),
        _snapshot(2, "append", 2, 20),
        _snapshot(4, "replace", 1, 20),
        _snapshot(5, "append", 2, 30),
    ]
    assert states_of(snapshots) == (State(1, 10), State(2, 20), State(1, 20), State(2, 30))


def test_a_table_without_snapshots_has_no_state() -> None:
    assert states_of([]) == ()


def _snapshot(number: int, operation: str, files: int, size: int) -> dict[str, Any]:
    totals = {"total-data-files": str(files), "total-files-size": str(size)}
    return {"sequence-number": number, "summary": {"operation": operation, **totals}}
