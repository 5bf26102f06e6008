"""PySpark's daemon of Python workers, but one that waits for those that have ended.

PySpark's own ignores SIGCHLD, so that the kernel adds the processor time of an ended worker to none. Sessions
of benchmarks run this one in its place (`spark.python.daemon.module`), so that
`benchmarks.measure.processor_seconds` has that of workers which Spark ends.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Any

_set_handler = signal.signal


def wait_for_ended() -> None:
    """From now on, where this process would ignore SIGCHLD, it waits for its ended children instead."""
    signal.signal = _waiting  # type: ignore[assignment]


def _waiting(number: int, handler: Any) -> Any:
    ignores = number == signal.SIGCHLD and handler == signal.SIG_IGN
    return _set_handler(number, _wait if ignores else handler)


def _wait(*_: object) -> None:
    with suppress(ChildProcessError):  # there are no more
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    from pyspark.daemon import manager

    wait_for_ended()
    manager()
