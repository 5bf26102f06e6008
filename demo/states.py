"""What a table was after each micro-batch, from the snapshots in its metadata. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True)
class State:
    """The files that a reader of the table finds."""

    files: int
    bytes: int


def states_of(snapshots: Iterable[Mapping[str, Any]]) -> tuple[State, ...]:
    """Return the state after each append, oldest first: one micro-batch is one append.

    A snapshot that replaces files, of a fill say, changes the state of the batch before it.
    """
    states: list[State] = []
    for snapshot in sorted(snapshots, key=lambda it: int(it["sequence-number"])):
        summary = snapshot["summary"]
        state = State(int(summary["total-data-files"]), int(summary["total-files-size"]))
        if summary["operation"] == "append":
            states.append(state)
        else:
            states[-1] = state
    return tuple(states)
