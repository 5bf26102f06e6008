"""What a process knows of the runs of its queries."""

from __future__ import annotations

from dataclasses import dataclass, field

from streaming_sink.spark.caller import QueryRun
from streaming_sink.writing.planning import Experience


@dataclass
class RunState:
    """What this process knows of one run of one query."""

    epoch: int | None = None
    last_tried: int | None = None
    last_landed: int | None = None
    experience: Experience = field(default_factory=Experience)


class RunStates:
    """The states of all runs that this process has seen."""

    def __init__(self) -> None:
        self._states: dict[QueryRun, RunState] = {}

    def of(self, run: QueryRun) -> RunState:
        """Return the state of a run. A new run starts with the experience of the last one of its application.

        An earlier run keeps its epoch: if it calls once more, its commit must be fenced instead of passing
        for a newer run's.
        """
        if run not in self._states:
            fresh = RunState()
            for other, state in self._states.items():
                if other.app_id == run.app_id:
                    fresh.experience = state.experience
            self._states[run] = fresh
        return self._states[run]
