"""Who is calling: which query, which run of it, under which application name (R16). On classic Spark and on
Connect.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from pyspark.sql import SparkSession

_QUERY_ID = "sql.streaming.queryId"
_RUN_ID = "spark.jobGroup.id"
_DESCRIPTION = "spark.job.description"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one query, as the table remembers it."""

    app_id: str
    query_id: str | None
    """None where Spark does not tell it: then a named application's batches are told apart by number alone.
    """
    run_id: str


def identify(session: SparkSession, app_id: str | None, minted_run_id: str, known: Run | None) -> Run:
    """Return the run that is calling. On classic it is read anew on every call, since one sink may be started
    twice.

    On Connect a foreachBatch worker is told no query id: the default is the session's only active query,
    fixed at the first call (`known`); the run is this worker process. Outside a query it is the sink
    (`minted_run_id`). ValueError where there is no name to go by.
    """
    if is_connect(session):
        return known or _on_connect(session, app_id)
    context = session.sparkContext
    query_id = context.getLocalProperty(_QUERY_ID)
    if query_id is None:
        _check_is_outside(session)
        return _outside_a_query(app_id, minted_run_id)
    return Run(app_id or query_id, query_id, context.getLocalProperty(_RUN_ID) or minted_run_id)


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


@cache
def _process_run_id() -> str:
    # One for all sinks of a worker: two of them under one name are then seen to be one run, whose batch came
    # twice.
    return mint_run_id()


def _on_connect(session: SparkSession, app_id: str | None) -> Run:
    active = [query.id for query in session.streams.active]
    if len(active) == 1:
        return Run(app_id or active[0], active[0], _process_run_id())
    if app_id is not None:
        return Run(app_id, None, _process_run_id())
    raise ValueError(
        f"{len(active)} queries are active in this Spark Connect session, and Connect does not say which of"
        " them calls: "
        f'name the application, IcebergSink(..., app_id="events"), once for each query'
    )


def _check_is_outside(session: SparkSession) -> None:
    """Raise ValueError where this may as well be a thread that a user's function of foreachBatch has started:
    without the query's id a fresh checkpoint would go unnoticed, and its batches be skipped (R16).
    """
    if threading.current_thread() is not threading.main_thread() and session.streams.active:
        raise ValueError(
            "this call comes from a thread that does not carry the streaming query's name, while queries are"
            " active: wrap what the thread runs, inheritable_thread_target(session)(function) of"
            " pyspark.util; or, if this is no batch of a query, call the sink from the program's main thread"
        )


def _outside_a_query(app_id: str | None, minted_run_id: str) -> Run:
    if app_id is None:
        raise ValueError(
            "this call comes from outside a streaming query, so nothing names the application:"
            ' IcebergSink(..., app_id="backfill"); its batches count up under that name'
        )
    return Run(app_id, None, minted_run_id)
