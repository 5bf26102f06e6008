"""Spark settings for the sink's own jobs, restored afterwards, and for the later batches of a query."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from streaming_sink.spark.caller import query_of_session
from streaming_sink.spark.jobs import is_connect

_LOG = logging.getLogger("streaming_sink")
_CHECKSUMS = tuple(
    f"spark.sql.shuffle.orderIndependentChecksum.{what}" for what in ("enabled", "enableFullRetryOnMismatch")
)
_SAFE_SHUFFLE = {"spark.sql.adaptive.enabled": "false", **dict.fromkeys(_CHECKSUMS, "true")}
_UNCHECKED_SHUFFLE = (
    "the stream shuffles its rows before Spark calls the sink, and Spark does not verify that shuffle in the"
    " first batch of a run: if its rows differ when they are computed again (fresh UUIDs, rand()), a lost"
    " executor loses and doubles some. Set spark.sql.shuffle.orderIndependentChecksum.enabled and"
    " .enableFullRetryOnMismatch to true before the query starts"
)


@dataclass
class _Held:
    """One setting of one session while blocks rely on it."""

    blocks: int
    before: str | None
    """None if it was not set."""


_lock = threading.Lock()
_held: dict[tuple[str, str], _Held] = {}
"""By the session's id, and the setting."""


@contextmanager
def safe_shuffle(session: SparkSession) -> Iterator[None]:
    """Within the block, let Spark verify shuffles by checksums, and switch adaptive execution off, which
    would run each stage of a shuffle as a job of its own.

    With the checksums Spark notices that a partition holds other rows when it is computed again after a lost
    executor (a column of fresh UUIDs, for example). It then recomputes what was derived from the old rows; if
    tasks have already reported, the job fails, and the batch is tried again. Without them, rows would be lost
    and doubled in silence (R10). Spark reads the settings when it creates a shuffle for the first job that
    needs it, so shuffles created before the block are not checked: see `check_later_shuffles`.
    """
    with _holding(session, _SAFE_SHUFFLE):
        yield


@contextmanager
def case_sensitive(session: SparkSession) -> Iterator[None]:
    """Within the block, let Spark distinguish names that differ only in case: where it merges the types of
    JSON objects, it takes `{"n": 1}` and `{"N": 2}` for one type else, and one of the keys is lost.
    """
    with _holding(session, {"spark.sql.caseSensitive": "true"}):
        yield


@contextmanager
def _holding(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    # Threads of one foreachBatch share their session: the last block that needs a setting restores what the
    # first one found.
    session_id = _id_of(session)
    with ExitStack() as held:
        for key, value in settings.items():
            with _lock:
                _hold(session, session_id, key, value)
            held.callback(_release, session, session_id, key)
        yield


def _has_unchecked_shuffle(batch: DataFrame) -> bool:
    """Return whether a query's batch comes through a shuffle that Spark does not verify: the stream's own,
    which Spark creates before it calls the function of foreachBatch. False on Connect, where it cannot be
    seen, and for rows of a session that belongs to no query.
    """
    session = batch.sparkSession
    if (
        is_connect(session)
        or query_of_session(session) is None
        or all(session.conf.get(key) == "true" for key in _CHECKSUMS)
    ):
        return False
    leaves: Any = batch._jdf.queryExecution().analyzed().collectLeaves()  # noqa: SLF001 - no public API shows it
    given = [leaf for leaf in map(leaves.apply, range(leaves.size())) if leaf.nodeName() == "LogicalRDD"]
    return any("Shuffled" in leaf.rdd().toDebugString() for leaf in given)


def check_later_shuffles(batch: DataFrame, location: str) -> None:
    """If the stream's own shuffle is unchecked, warn, and let Spark verify the shuffles of its later batches.

    Their settings are read from the query's own session, a clone that no other query uses, and stay for the
    life of the run. Call this at a run's first batch.
    """
    if _has_unchecked_shuffle(batch):
        for key in _CHECKSUMS:
            batch.sparkSession.conf.set(key, "true")
        _LOG.warning("%s: %s", location, _UNCHECKED_SHUFFLE)


def _id_of(session: SparkSession) -> str:
    """Return an id that all Python objects of one session share."""
    if is_connect(session):
        return str(session.session_id)  # type: ignore[attr-defined]
    return str(session._jsparkSession.sessionUUID())  # noqa: SLF001 - Python's object has no id of its own


def _hold(session: SparkSession, session_id: str, key: str, value: str) -> None:
    held = _held.get((session_id, key))
    if held is not None:
        held.blocks += 1
        return
    before = session.conf.get(key, None)
    if before != value:
        session.conf.set(key, value)
    _held[session_id, key] = _Held(1, before)


def _release(session: SparkSession, session_id: str, key: str) -> None:
    with _lock:
        held = _held[session_id, key]
        held.blocks -= 1
        if held.blocks:
            return
        del _held[session_id, key]
        if held.before is None:
            session.conf.unset(key)
        else:
            session.conf.set(key, held.before)
