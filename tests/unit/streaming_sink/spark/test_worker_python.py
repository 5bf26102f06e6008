"""The Python of tasks on a local master: two threads that pass functions at a time both get the driver's."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from streaming_sink.spark import jobs


class Rows:
    """Rows of a session on a local master, whose functions note the Python that they are passed for."""

    def __init__(self, context: Any, in_call: Any = lambda: None) -> None:
        conf = SimpleNamespace(get=lambda name, default: default)
        self.sparkSession = SimpleNamespace(sparkContext=context, conf=conf)
        self._context, self._in_call = context, in_call
        self.pythons: list[str] = []

    def mapInArrow(self, task: Any, schema: Any) -> Rows:  # noqa: N802 - as Spark names it
        self._in_call()
        self.pythons.append(self._context.pythonExec)
        return self


def test_a_function_that_is_passed_beside_another_runs_in_the_drivers_python_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each query of a session has a thread: one that looks at the setting while another has changed it must
    not take the change for what the user has configured.
    """
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setattr(jobs, "is_connect", lambda session: False)
    context = SimpleNamespace(master="local[2]", pythonExec="python3")
    first_ended = threading.Event()
    second = Rows(context, lambda: first_ended.wait(10))

    def pass_second() -> None:
        jobs.map_in_arrow(second, None, None)  # type: ignore[arg-type]

    other = threading.Thread(target=pass_second)

    def in_call() -> None:
        other.start()
        other.join(0.2)  # it has looked by then, or waits for its turn

    first = Rows(context, in_call)
    jobs.map_in_arrow(first, None, None)  # type: ignore[arg-type]
    first_ended.set()
    other.join()
    # With the setting looked at outside of the turn, the second passes its function as the user's Python's.
    assert (first.pythons, second.pythons) == ([sys.executable], [sys.executable])
    assert context.pythonExec == "python3"
