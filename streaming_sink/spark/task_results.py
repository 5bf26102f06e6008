"""Runs a task over a DataFrame's partitions, and collects what its tasks report."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructField, StructType

from streaming_sink.spark.worker_failures import explain_worker_failure
from streaming_sink.spark.worker_python import Task, map_in_arrow
from streaming_sink.tasks.results import RESULT_COLUMN, decode_result

_RESULT = StructType([StructField(RESULT_COLUMN, BinaryType())])


def collect_results(rows: DataFrame, task: Task) -> list[Any]:
    """Run `task`, which yields `encode_results`, in one Spark action, and return the results of the attempts
    that Spark accepted.

    Raises the error of a failing task, translated by `explain_worker_failure`.
    """
    try:
        reported = map_in_arrow(rows, task, _RESULT).collect()
    except Exception as failure:
        explained = explain_worker_failure(failure)
        if explained is None:
            raise
        raise explained from failure
    return [decode_result(bytes(row[0])) for row in reported]
