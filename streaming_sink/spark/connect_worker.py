"""Identifies the query of a Spark Connect server's process that runs a foreachBatch function (R16).

Spark passes that process neither query nor run. But its main function holds the session that has started the
query, and a session lists its active queries. The batch's own session does not help: from PySpark 4.3 on it
is a clone that has none.
"""

from __future__ import annotations

import os
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any

import pyspark

_ENVIRONMENT = "SPARK_CONNECT_LOCAL_URL"
"""Set in that process, and in no client's environment."""

_WORKER = "foreach_batch_worker.py"
_SESSION = "spark_connect_session"


def is_connect_worker() -> bool:
    return _ENVIRONMENT in os.environ


@cache
def query_of_worker() -> tuple[str, str]:
    """Return the query whose worker this process is, and its run. Read once: a worker serves one run.

    ValueError if that is not certain: by a batch's number alone, a fresh checkpoint's rows would pass for a
    replay.
    """
    active = _starting_session().streams.active
    if len(active) != 1:
        raise ValueError(
            f"{len(active)} queries are active in the Spark Connect session that has started this one, and"
            " Connect does not say which of them calls: start each query that lands in a table from a session"
            " of its own, spark.cloneSession().readStream, with nothing else streaming in it. Nothing was"
            " written"
        )
    return str(active[0].id), str(active[0].runId)


def _starting_session() -> Any:
    """Return the session that the worker was started with, from the main thread, which runs the worker's
    loop.
    """
    # A documented function; nothing else shows the main thread to a thread of the user's.
    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001
    while frame is not None:
        if Path(frame.f_code.co_filename).name == _WORKER and _SESSION in frame.f_locals:
            return frame.f_locals[_SESSION]
        frame = frame.f_back
    raise ValueError(
        "this process runs a foreachBatch function on a Spark Connect server, and its query cannot be"
        f" determined with PySpark {pyspark.__version__}: use a tested version, 4.1 to 4.3, or classic"
        " Spark. Nothing was written"
    )
