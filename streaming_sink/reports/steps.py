"""A stopwatch for the steps of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter


class Steps:
    """Adds up the wall time of named steps. The first use of a name fixes its place in the order."""

    def __init__(self) -> None:
        self._started = perf_counter()
        self._spent: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Count the block's time under `name`, also if it fails."""
        began = perf_counter()
        try:
            yield
        finally:
            self._spent[name] = self._spent.get(name, 0.0) + perf_counter() - began

    def seconds(self, name: str) -> float:
        return self._spent.get(name, 0.0)

    @property
    def milliseconds(self) -> dict[str, int]:
        """Return step → milliseconds so far, and the total since the stopwatch was made."""
        spent = {name: round(seconds * 1000) for name, seconds in self._spent.items()}
        return {**spent, "total": round((perf_counter() - self._started) * 1000)}
