"""Who is calling: which query, which run of it, under which application name, and whether it has given this
batch before (R16). On classic Spark and on Connect.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from streaming_sink.connect_worker import is_connect_worker, query_of_worker

OUTSIDE = "outside-a-query"
"""The query id of a call that belongs to no query, so that its batches and a stream's of the same name are
told apart: their numbers mean different rows.
"""

_QUERY_ID = "sql.streaming.queryId"
_JOB_GROUP = "spark.jobGroup.id"
_DESCRIPTION = "spark.job.description"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one query, as the table remembers it."""

    app_id: str
    query_id: str
    """`OUTSIDE` where there is none."""
    run_id: str


@dataclass
class _Given:
    """A batch that a sink of this process was given, until it fails."""

    run: Run
    batch_id: int
    batch: object
    sink: object
    landed: bool = False


_given: dict[tuple[str, str], _Given] = {}
"""The last one, by the table's location and the application."""
_given_lock = threading.Lock()

_SESSIONS_KEPT = 1_000
_queries: dict[str, tuple[str, str]] = {}
"""Query and run by the id of the session that the run's batches come in, also of runs that have ended."""


def identify(session: SparkSession, app_id: str | None, minted_run_id: str) -> Run:
    """Return the run that is calling. On classic it is read anew on every call, since one sink may be started
    twice: from the batch's `session`, whatever thread calls, or from the thread where the batch was made anew
    in a session that is no query's.

    On Connect it is that of the worker process. Outside a query the run is the sink (`minted_run_id`).
    ValueError where the query cannot be told, or there is no name to go by.
    """
    if is_connect(session) and not is_connect_worker():
        return _outside_a_query(app_id, minted_run_id)
    query = query_of_worker() if is_connect(session) else _query_of(session)
    if query is not None:
        query_id, run_id = query
        return Run(app_id or query_id, query_id, run_id)
    context = session.sparkContext
    named = context.getLocalProperty(_QUERY_ID)
    if named is None:
        _check_is_outside(session)
        return _outside_a_query(app_id, minted_run_id)
    run_id = _run_of(session, named) or context.getLocalProperty(_JOB_GROUP) or minted_run_id
    return Run(app_id or named, named, run_id)


def _query_of(session: SparkSession) -> tuple[str, str] | None:
    """Return the query and the run whose batches come in this session, if any. Spark clones one for each
    run.
    """
    java: Any = session._jsparkSession  # noqa: SLF001 - Spark tells it nowhere else
    session_id = str(java.sessionUUID())
    if session_id not in _queries:
        for query in list(_active_queries(session).values()):
            if query.sparkSessionForStream().equals(java):
                if len(_queries) >= _SESSIONS_KEPT:
                    _queries.pop(next(iter(_queries)), None)
                _queries[session_id] = str(query.id().toString()), str(query.runId().toString())
    return _queries.get(session_id)


def _active_queries(session: SparkSession) -> Any:
    """Return Java's map of the queries of all sessions, by id. `session.streams` is no help: the session of a
    batch is a clone, which knows of none.
    """
    return session._jsparkSession.sharedState().activeStreamingQueries()  # noqa: SLF001 - told nowhere else


def _run_of(session: SparkSession, query_id: str) -> str | None:
    """Return Spark's id of the run of the query that a thread names; None for a name that is not Spark's.

    ValueError where the query has ended: a thread of a pool keeps the name, and what it does next is no batch
    of that query.
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


@contextmanager
def given_once(location: str, run: Run, batch_id: int, batch: object, sink: object) -> Iterator[bool]:
    """Remember that `sink` lands the batch in the block, unless that fails. Yields whether this very
    DataFrame has landed before in this run, under this number and name: a function of the user's that tries
    again.

    ValueError if another DataFrame has, or is about to: this one would pass for a replay, and its rows be
    skipped.
    """
    mine, key = _Given(run, batch_id, batch, sink), (location, run.app_id)
    with _given_lock:
        other = _given.get(key)
        is_this = other is not None and (other.run, other.batch_id) == (run, batch_id)
        again = other is not None and is_this and other.landed and other.batch is batch
        if other is not None and is_this and not again and (other.landed or other.sink is not sink):
            raise given_twice(run, batch_id)
        _given[key] = mine
        mine.landed = again
    try:
        yield again
    except BaseException:
        with _given_lock:
            if _given.get(key) is mine and not again:
                del _given[key]
        raise
    mine.landed = True


def given_twice(run: Run, batch_id: int) -> ValueError:
    """Return the error of a second DataFrame under the number and name of another one."""
    return ValueError(
        f"batch {batch_id} was given to the table twice by one run under the name {run.app_id!r}; the second"
        " one is not written. Two DataFrames of one foreachBatch need a sink each, of distinct names: leave"
        " the first sink, whose rows are in the table if it had any, as it is, and name the second,"
        f' IcebergSink(..., app_id="{run.app_id[:8]}-2"). But if this is another try of the same rows, they'
        " were taken care of: under another name they would be written again"
    )


def mint_run_id() -> str:
    return str(uuid.uuid4())


def is_connect(session: SparkSession) -> bool:
    return type(session).__module__.startswith("pyspark.sql.connect")


@contextmanager
def described(session: SparkSession, text: str) -> Iterator[None]:
    """Make the jobs of the block readable in Spark's UI: by description on classic, by tag on Connect."""
    if is_connect(session):
        tag = "".join(letter if letter != "," else ";" for letter in text)
        session.addTag(tag)
        try:
            yield
        finally:
            session.removeTag(tag)
        return
    context = session.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, text)
    try:
        yield
    finally:
        # PySpark's signature wants text, but None is what removes a property.
        context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]


def parallelism(session: SparkSession) -> int:
    """Return how many tasks can run at once; on Connect, which does not tell, what it shuffles into."""
    if is_connect(session):
        return int(
            session.conf.get("spark.default.parallelism", None)
            or session.conf.get("spark.sql.shuffle.partitions", "2")
            or 2
        )
    return int(session.sparkContext.defaultParallelism)


def _check_is_outside(session: SparkSession) -> None:
    """Raise ValueError where this may as well be a thread that a user's function of foreachBatch has started:
    without the query's id a fresh checkpoint would go unnoticed, and its batches be skipped (R16).
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


def _outside_a_query(app_id: str | None, minted_run_id: str) -> Run:
    if app_id is None:
        raise ValueError(
            "this call comes from outside a streaming query, so nothing names the application:"
            ' IcebergSink(..., app_id="backfill"); its batches count up under that name'
        )
    return Run(app_id, OUTSIDE, minted_run_id)
