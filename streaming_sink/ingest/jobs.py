"""Runs tasks that bring their own input, each as a Spark job of one task; warms a session before its worker
claims an item, and asks whether it still runs tasks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import WeakSet

from pyspark.sql import SparkSession
from pyspark.util import inheritable_thread_target

from streaming_sink.spark.jobs import Task, collect_results, described, is_stopped, parallelism
from streaming_sink.tasks import fast_workers
from streaming_sink.tasks.ingest.warm_task import WarmTask


def run_tasks(session: SparkSession, what: str, tasks: Sequence[Task]) -> list[list[Any]]:
    """Run all tasks, as many at once as there are cores, and return the results of each. The first failure is
    raised once all have ended, and one that failed is run again as Spark does.
    """

    def run(task: Task) -> list[Any]:
        with described(session, what):
            return collect_results(session.range(0, 1, 1, 1), task)

    if len(tasks) == 1:
        return [run(tasks[0])]
    running = inheritable_thread_target(session)(run)
    with ThreadPoolExecutor(max_workers=parallelism(session), thread_name_prefix="ingest") as pool:
        return list(pool.map(running, tasks))


_LOG = logging.getLogger("streaming_sink")
_warm: WeakSet[SparkSession] = WeakSet()


def warm(session: SparkSession) -> None:
    """Run a task on each core, once for a session: its first jobs take ten times as long as later ones, and
    an item that is claimed before would wait for them, though another worker may be warm.

    Raises what the tasks raise, WorkerEnvironmentError where their Python lacks a package: such a worker
    would fail every item that it claims.
    """
    if session in _warm:
        return
    began = time.perf_counter()
    _run_tasks(session, parallelism(session))
    _warm.add(session)
    _LOG.info("Spark runs tasks after %.1f s", time.perf_counter() - began)


def runs_tasks(session: SparkSession) -> bool:
    """Return whether Spark runs a task now. A session that has lost its JVM or server runs none, and no item
    is the reason.
    """
    if is_stopped(session):
        return False
    try:
        _run_tasks(session, 1)
    except Exception as failure:  # noqa: BLE001 - Spark, Py4J and gRPC raise all kinds where no server is left
        _LOG.warning("Spark runs no tasks: %s: %s", type(failure).__name__, failure)
        return False
    return True


def _run_tasks(session: SparkSession, count: int) -> None:
    with described(session, "streaming-sink ingest: warming"):
        collect_results(session.range(0, count, 1, count), WarmTask(fast_workers.is_enabled()))
