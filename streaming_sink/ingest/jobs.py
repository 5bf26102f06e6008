"""Runs tasks that bring their own input, each as a Spark job of one task."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark.sql import SparkSession
from pyspark.util import inheritable_thread_target

from streaming_sink.spark.jobs import described, parallelism
from streaming_sink.spark.task_results import collect_results
from streaming_sink.spark.worker_python import Task


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
