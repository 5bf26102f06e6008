"""The Python that the sink's own tasks run in: the driver's, on a local master where none is configured."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from streaming_sink.spark.jobs import is_connect

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
