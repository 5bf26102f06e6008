"""Spark's settings around the sink's own jobs, put back afterwards as they were."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from pyspark.sql import SparkSession

from streaming_sink.spark.run import is_connect

_ADAPTIVE = {"spark.sql.adaptive.enabled": "false"}
_CHECKSUM = "spark.sql.shuffle.orderIndependentChecksum."
_SAFE_SHUFFLE = {
    **_ADAPTIVE,
    _CHECKSUM + "enabled": "true",
    _CHECKSUM + "enableFullRetryOnMismatch": "true",
}


@dataclass
class _Held:
    """One setting of one session while blocks rely on it."""

    blocks: int
    before: str | None
    """None where it was not set."""


_lock = threading.Lock()
_held: dict[tuple[str, str], _Held] = {}
"""By the session's id, and the setting."""


def without_adaptive_execution(session: SparkSession) -> AbstractContextManager[None]:
    """Switch adaptive execution off for a block: it would run the stages of a shuffle as two jobs."""
    return _configured(session, _ADAPTIVE)


def safe_shuffle(session: SparkSession) -> AbstractContextManager[None]:
    """As `without_adaptive_execution`, and let Spark check, for a block, what it shuffles.

    The checksums make Spark notice a part that has other rows when it is computed again after a lost executor
    (a column of fresh UUIDs, say): the job then fails, and the batch is tried again, where rows would have
    been lost and doubled in silence (R10).
    """
    return _configured(session, _SAFE_SHUFFLE)


@contextmanager
def _configured(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    # Threads of one foreachBatch share their session: the last block that needs a setting puts back what the
    # first one found.
    session_id = _id_of(session)
    with ExitStack() as held:
        for key, value in settings.items():
            with _lock:
                _hold(session, session_id, key, value)
            held.callback(_release, session, session_id, key)
        yield


def _id_of(session: SparkSession) -> str:
    """Return what is one for all of Python's objects of a session."""
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
