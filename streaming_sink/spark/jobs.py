"""Spark's jobs: their descriptions, how many of their tasks run at once, in which Python they run, and what
they report. Classic Spark and Connect.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, StructField, StructType

from streaming_sink.spark.worker_failures import explain_worker_failure
from streaming_sink.tasks.results import RESULT_COLUMN, decode_result

_DESCRIPTION = "spark.job.description"


def is_connect(session: SparkSession) -> bool:
    return type(session).__module__.startswith("pyspark.sql.connect")


def is_stopped(session: SparkSession) -> bool:
    """Return whether the session can run no more jobs: it was stopped, or its JVM was."""
    if is_connect(session):
        return bool(session.is_stopped)  # type: ignore[attr-defined]
    context = session.sparkContext._jsc  # noqa: SLF001 - says it in no other way
    try:
        return context is None or bool(context.sc().isStopped())
    except Exception:  # noqa: BLE001 - Py4J raises all kinds where there is no JVM
        return True


@contextmanager
def described(session: SparkSession, text: str) -> Iterator[None]:
    """Make the jobs of the block readable in Spark's UI: by description on classic, by tag on Connect."""
    if is_connect(session):
        before = set(session.getTags())
        _set_tags(session, before | {text.replace(",", ";")})
        try:
            yield
        finally:
            _set_tags(session, before)
        return
    context = session.sparkContext
    previous = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, text)
    try:
        yield
    finally:
        # PySpark's signature wants text, but None is what removes a property.
        context.setLocalProperty(_DESCRIPTION, previous)  # type: ignore[arg-type]


def _set_tags(session: SparkSession, tags: Iterable[str]) -> None:
    """Set the tags of this thread's operations on Connect, in a set of its own: threads that run one function
    which PySpark has wrapped for them share theirs, and the second that removes a tag from it fails.
    """
    session.clearTags()
    for tag in tags:
        session.addTag(tag)


def parallelism(session: SparkSession) -> int:
    """Return how many tasks can run at once; on Connect, which does not show it, the shuffle partitions."""
    if is_connect(session):
        return int(
            session.conf.get("spark.default.parallelism", None)
            or session.conf.get("spark.sql.shuffle.partitions", "2")
            or 2
        )
    return int(session.sparkContext.defaultParallelism)


_LOG = logging.getLogger("streaming_sink")
_VARIABLE = "PYSPARK_PYTHON"
_SETTING = "spark.pyspark.python"
_FROM_THE_PATH = "python3"
"""What PySpark runs, the first of that name on the path, where nothing is configured."""

Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Called in each Spark task with its rows."""

_lock = threading.Lock()
_logged: set[str] = set()


def map_in_arrow(rows: DataFrame, task: Task, schema: StructType) -> DataFrame:
    """Return `rows.mapInArrow(task, schema)`. It runs in the driver's Python if the master is local and
    neither `PYSPARK_PYTHON` nor `spark.pyspark.python` is set, else in the one that Spark is configured for;
    on Connect in the server's.
    """
    session = rows.sparkSession
    if is_connect(session) or not sys.executable:
        return rows.mapInArrow(task, schema)
    with _lock:  # while another thread is in the block below, the setting is not the user's
        if not _is_unset(session):
            return rows.mapInArrow(task, schema)
        with _python_of_functions(session, sys.executable):
            return rows.mapInArrow(task, schema)


def _is_unset(session: SparkSession) -> bool:
    """Return whether tasks would run in the first python3 on the path, on this machine."""
    context = session.sparkContext
    master = str(context.master)
    is_local = master == "local" or master.startswith("local[")
    return (
        is_local
        and context.pythonExec == _FROM_THE_PATH
        and _VARIABLE not in os.environ
        and session.conf.get(_SETTING, None) is None
    )


@contextmanager
def _python_of_functions(session: SparkSession, python: str) -> Iterator[None]:
    """Let the functions that are passed to Spark within the block run in another Python.

    PySpark writes the interpreter into each function that it passes to the JVM, and takes it from the
    context, which all threads share. So a function that another thread passes in these milliseconds runs in
    that Python too; no other function of the user does. The caller holds `_lock`.
    """
    context = session.sparkContext
    if python not in _logged:
        _logged.add(python)
        _LOG.info(
            "the sink's tasks run in the driver's Python: the master is %s, and neither %s nor %s is set: %s",
            context.master,
            _VARIABLE,
            _SETTING,
            python,
        )
    before, context.pythonExec = context.pythonExec, python
    try:
        yield
    finally:
        context.pythonExec = before


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
