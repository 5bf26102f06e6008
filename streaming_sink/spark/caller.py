"""Identifies the caller: query, run and application name of a batch (R16). Classic Spark and Connect.

A Spark Connect server's process that runs a foreachBatch function is passed neither query nor run. But its
main function holds the session that has started the query, and a session lists its active queries. The
batch's own session does not help: from PySpark 4.3 on it is a clone that has none.
"""

from __future__ import annotations

import os
import sys
import threading
import uuid
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from streaming_sink.spark.jobs import is_connect

OUTSIDE = "outside-a-query"
"""The query id of a call outside a query. It keeps a backfill's batches apart from those of a stream with the
same name: their numbers mean different rows.
"""

_QUERY_ID = "sql.streaming.queryId"
_JOB_GROUP = "spark.jobGroup.id"
_SESSIONS_KEPT = 1_000
_queries: dict[str, tuple[str, str]] = {}
"""Query and run by the id of the session that the run's batches use, also of runs that have ended."""


@dataclass(frozen=True, slots=True)
class QueryRun:
    """One run of one query, as the table remembers it."""

    app_id: str
    query_id: str
    """`OUTSIDE` outside a query."""
    run_id: str


def identify(session: SparkSession, app_id: str | None, minted_run_id: str) -> QueryRun:
    """Return the run that calls. On classic Spark every call reads it again, since one sink may be started
    twice: from the batch's `session`, in any thread, or, for rows that were made in a session of no query,
    from the calling thread.

    On Connect it is the run of the worker process. Outside a query the run is the sink (`minted_run_id`).
    ValueError if the query cannot be determined, or the application has no name.
    """
    if is_connect(session) and not is_connect_worker():
        return _outside_a_query(app_id, minted_run_id)
    query = query_of_worker() if is_connect(session) else query_of_session(session)
    if query is not None:
        query_id, run_id = query
        return QueryRun(app_id or query_id, query_id, run_id)
    context = session.sparkContext
    named = context.getLocalProperty(_QUERY_ID)
    if named is None:
        _check_is_outside(session)
        return _outside_a_query(app_id, minted_run_id)
    run_id = _run_of(session, named) or context.getLocalProperty(_JOB_GROUP) or minted_run_id
    return QueryRun(app_id or named, named, run_id)


def query_of_session(session: SparkSession) -> tuple[str, str] | None:
    """Return the query and the run whose batches use this session, if any: Spark clones one for each run."""
    java: Any = session._jsparkSession  # noqa: SLF001 - no public API shows it
    session_id = str(java.sessionUUID())
    if session_id not in _queries:
        for query in list(_active_queries(session).values()):
            if query.sparkSessionForStream().equals(java):
                if len(_queries) >= _SESSIONS_KEPT:
                    _queries.pop(next(iter(_queries)), None)
                _queries[session_id] = str(query.id().toString()), str(query.runId().toString())
    return _queries.get(session_id)


def _active_queries(session: SparkSession) -> Any:
    """Return Java's map of the queries of all sessions, by id. `session.streams` does not help: the session
    of a batch is a clone that has none.
    """
    return session._jsparkSession.sharedState().activeStreamingQueries()  # noqa: SLF001 - no public API shows it


def _run_of(session: SparkSession, query_id: str) -> str | None:
    """Return Spark's id of the run of the query that a thread names; None for a name that is not Spark's.

    ValueError if the query has ended: a thread of a pool keeps the name, and its next work is no batch of
    that query.
    """
    try:
        uuid.UUID(query_id)
    except ValueError:
        return None
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - for a key of Java's map
    query = _active_queries(session).get(jvm.java.util.UUID.fromString(query_id))
    if query is None:
        raise ValueError(
            f"this thread carries the name of the streaming query {query_id}, which has ended: call the sink"
            " from a thread that has run no batch of it, as the program's main thread"
        )
    return str(query.runId().toString())


def mint_run_id() -> str:
    return str(uuid.uuid4())


def _check_is_outside(session: SparkSession) -> None:
    """Raise ValueError in a thread that the user's function of foreachBatch may have started: without the
    query's id a fresh checkpoint would pass unnoticed, and its batches would be skipped (R16).
    """
    if threading.current_thread() is threading.main_thread():
        return
    if not _active_queries(session).isEmpty():
        raise ValueError(
            "this call comes from a thread that does not carry a streaming query's name, with rows of a"
            " session that is no query's, while queries are active. If they are a query's: give the sink what"
            " was made of its batch, or wrap what the thread runs,"
            " inheritable_thread_target(session)(function) of pyspark.util. If not: call the sink from the"
            " program's main thread"
        )


def _outside_a_query(app_id: str | None, minted_run_id: str) -> QueryRun:
    if app_id is None:
        raise ValueError(
            "this call comes from outside a streaming query, so nothing names the application:"
            ' IcebergSink(..., app_id="backfill"); its batches count up under that name'
        )
    return QueryRun(app_id, OUTSIDE, minted_run_id)


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
