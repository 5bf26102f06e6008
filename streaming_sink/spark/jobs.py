"""Spark's jobs: their descriptions, and how many of their tasks run at once. Classic Spark and Connect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

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
