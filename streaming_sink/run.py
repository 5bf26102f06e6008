"""Who is calling: which query, which run of it, under which application name, and whether it has given this
batch before (R16). On classic Spark and on Connect.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from pyspark.sql import SparkSession

OUTSIDE = "outside-a-query"
"""The query id of a call that belongs to no query, so that its batches and a stream's of the same name are
told apart: their numbers mean different rows.
"""

_QUERY_ID = "sql.streaming.queryId"
_RUN_ID = "spark.jobGroup.id"
_DESCRIPTION = "spark.job.description"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one query, as the table remembers it."""

    app_id: str
    query_id: str | None
    """`OUTSIDE` where there is none; None where Spark does not tell it (Connect with a named application):
    then its batches are told apart by number alone.
    """
    run_id: str


_landed: dict[tuple[str, str], tuple[Run, int]] = {}
"""The last batch that any sink of this process has landed, by the table's location and the application."""


def identify(session: SparkSession, app_id: str | None, minted_run_id: str, known: Run | None) -> Run:
    """Return the run that is calling. On classic it is read anew on every call, since one sink may be started
    twice.

    On Connect a foreachBatch worker is told no query id: the default is the session's only active query,
    fixed at the first call (`known`); the run is this worker process. Outside a query, which Connect does not
    tell, it is the sink (`minted_run_id`). ValueError where there is no name to go by.
    """
    if is_connect(session):
        return known or _on_connect(session, app_id)
    context = session.sparkContext
    query_id = context.getLocalProperty(_QUERY_ID)
    if query_id is None:
        _check_is_outside(session)
        return _outside_a_query(app_id, minted_run_id)
    return Run(app_id or query_id, query_id, context.getLocalProperty(_RUN_ID) or minted_run_id)


def check_given_once(location: str, run: Run, batch_id: int) -> None:
    """Raise ValueError if a sink of this process has landed the batch of this very run, under this name: it
    would pass for a replay, and its rows be skipped.
    """
    if _landed.get((location, run.app_id)) == (run, batch_id):
        raise given_twice(run, batch_id)


def note_landed(location: str, run: Run, batch_id: int) -> None:
    """Remember for `check_given_once` that the batch is in the table, or was empty."""
    _landed[location, run.app_id] = run, batch_id


def given_twice(run: Run, batch_id: int) -> ValueError:
    """Return the error of a second DataFrame under the number and name of another one."""
    return ValueError(
        f"batch {batch_id} was given to the table twice by one run under the name {run.app_id!r}; the second"
        " one is not written. Two DataFrames of one foreachBatch need a sink each, of distinct names. Leave"
        " the first sink, whose rows are committed, as it is, and name the second:"
        f' IcebergSink(..., app_id="{run.app_id[:8]}-2")'
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
    return Run(app_id, OUTSIDE, minted_run_id)
