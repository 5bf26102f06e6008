"""An exhaustive search of every state that a small model can reach, breadth first, so that what it finds is
shortest.

A model is a frozen value with three methods. Its states are hashable; a step is a sentence and the state
after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

State = TypeVar("State", bound=Hashable)


class Model(Protocol[State]):
    """What the checker asks of a model."""

    def initial(self) -> State:
        """Return where it starts."""

    def steps(self, state: State) -> Iterable[tuple[str, State]]:
        """Return everything that may happen next: a sentence, and the state after it."""

    def violation(self, state: State) -> str | None:
        """Return what is wrong with a state, or None."""


@dataclass(frozen=True)
class Explored:
    """What a search found: the whole space, or the shortest way into a state that must not be."""

    states: int
    violation: str | None = None
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.violation is None:
            return f"{self.states} states, no violation"
        steps = "".join(f"\n  {number:2}. {step}" for number, step in enumerate(self.path, 1))
        return f"{self.violation}, after {len(self.path)} steps:{steps}"


def explore(model: Model[State]) -> Explored:
    """Visit every reachable state once; stop at the first that is in violation."""
    first = model.initial()
    reached: dict[State, tuple[State, str] | None] = {first: None}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        for step, after in model.steps(state):
            if after in reached:
                continue
            reached[after] = (state, step)
            if wrong := model.violation(after):
                return Explored(len(reached), wrong, _path(reached, after))
            waiting.append(after)
    return Explored(len(reached))


def _path(reached: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    path = []
    while (came := reached[state]) is not None:
        state, step = came
        path.append(step)
    return tuple(reversed(path))
