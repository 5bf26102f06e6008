"""Passes beside the stream: one thread, one pass at a time, and their results for the next report."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

_Request = TypeVar("_Request")
_Report = TypeVar("_Report")


class PassesBeside(Generic[_Request, _Report]):
    """Runs passes of one kind in a thread of the sink, while the stream's next batches run.

    `run` gets all that was asked for since the last pass began, and returns the reports of what it did. It
    never raises.
    """

    def __init__(self, name: str, run: Callable[[Sequence[_Request]], Sequence[_Report]]) -> None:
        self._name = name
        self._run = run
        self._lock = threading.Lock()
        self._asked: list[_Request] = []
        self._thread: threading.Thread | None = None
        self._ended: queue.SimpleQueue[_Report] = queue.SimpleQueue()

    @property
    def is_running(self) -> bool:
        with self._lock:
            return self._thread is not None

    def ask(self, request: _Request) -> None:
        """Have a pass made of a request: now, or once the running one has ended. In a process that is ending
        none starts: its stream goes on until then, and would always have another one to wait for.

        RuntimeError if the process can start no thread; then the next call starts the pass.
        """
        with self._lock:
            self._asked.append(request)
            if self._thread is None:
                # Not a daemon thread: a process that ends waits for a pass that has started.
                thread = threading.Thread(target=self._run_all, name=self._name)
                thread.start()
                self._thread = thread

    def wait(self, timeout_seconds: float | None = None) -> None:
        """Return once nothing runs and all that was asked for is done. TimeoutError if it takes longer."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(timeout_seconds)
            if thread.is_alive():
                raise TimeoutError(
                    f"{self._name} is still running after {timeout_seconds} s, and continues;"
                    " wait longer, or stop Spark: what is left of it is planned again"
                )

    def ended(self) -> list[_Report]:
        """Return, once each, the reports of the passes that have ended."""
        results = []
        with suppress(queue.Empty):
            while True:
                results.append(self._ended.get_nowait())
        return results

    def _run_all(self) -> None:
        while True:
            with self._lock:
                requests, self._asked = self._asked, []
                if not requests or not threading.main_thread().is_alive():
                    self._thread = None
                    return
            for report in self._run(requests):
                self._ended.put(report)
