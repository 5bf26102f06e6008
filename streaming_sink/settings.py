"""Spark's settings around the sink's own jobs, put back afterwards as they were."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

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
_held: WeakKeyDictionary[SparkSession, dict[str, _Held]] = WeakKeyDictionary()


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
    with ExitStack() as held:
        for key, value in settings.items():
            with _lock:
                _hold(session, key, value)
            held.callback(_release, session, key)
        yield


def _hold(session: SparkSession, key: str, value: str) -> None:
    held = _held.setdefault(session, {})
    if key in held:
        held[key].blocks += 1
        return
    before = session.conf.get(key, None)
    if before != value:
        session.conf.set(key, value)
    held[key] = _Held(1, before)


def _release(session: SparkSession, key: str) -> None:
    with _lock:
        held = _held[session]
        held[key].blocks -= 1
        if held[key].blocks:
            return
        before = held.pop(key).before
        if before is None:
            session.conf.unset(key)
        else:
            session.conf.set(key, before)
