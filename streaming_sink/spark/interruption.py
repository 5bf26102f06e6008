"""Says to Spark in few words that a batch was interrupted.

A query that stops in the midst of a batch cancels its jobs and interrupts its thread. Then Spark looks for
that in the text of what the function of `foreachBatch` has raised, by a regular expression that takes a frame
of the stack for each letter from the first error of Py4J on (`StreamExecution.PROXY_ERROR`, in PySpark 4.1 to
4.3). Such a text has the JVM's stack trace, once for each error of a chain: the stack overflows, and all that
a user sees are a thousand lines of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_INTERRUPTED = (
    "java.lang.InterruptedException",
    "java.io.InterruptedIOException",
    "java.nio.channels.ClosedByInterruptException",
    "part of cancelled job group",
)
_AS_SPARK_FINDS_IT = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling Spark: java.lang.InterruptedException"
)


class BatchInterruptedError(RuntimeError):
    """The query was stopped in the midst of a batch. Its next run finds out what is committed of it, and
    lands the rest.
    """


@contextmanager
def brief_interruption(batch_id: int) -> Iterator[None]:
    """Raise BatchInterruptedError, without its cause, in the place of an error by which Spark interrupts a
    batch that is landed in the block.
    """
    try:
        yield
    except Exception as failure:
        if not _is_interruption(failure):
            raise
        raise BatchInterruptedError(
            f"batch {batch_id} was interrupted, as a query that stops does; the next run of the query finds"
            f" out what is committed of it, and lands the rest. {_AS_SPARK_FINDS_IT}"
        ) from None


def _is_interruption(failure: BaseException) -> bool:
    of_spark = type(failure).__module__.startswith(("py4j.", "pyspark."))
    return of_spark and any(each in str(failure) for each in _INTERRUPTED)
