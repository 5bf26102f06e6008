"""Says to Spark in few words that a batch was interrupted.

A query that stops in the midst of a batch cancels its jobs and interrupts its thread. Then Spark looks for
that in the text of what the function of `foreachBatch` has raised, by a regular expression that takes a frame
of the stack for each letter from the first error of Py4J on (`StreamExecution.PROXY_ERROR`, in PySpark 4.1 to
4.3). Such a text has the JVM's stack trace, once for each error of a chain: the stack overflows, and all that
a user sees are a thousand lines of it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

_LOG = logging.getLogger("streaming_sink")
_INTERRUPTED = re.compile(
    r"^.*(?:java\.lang\.InterruptedException|java\.nio\.channels\.ClosedByInterruptException"
    r"|part of cancelled job group).*$",
    re.MULTILINE,
)
"""In what interrupts. Not InterruptedIOException: a source in S3 that did not answer in time raises that."""
_LONGEST = 300
_AS_SPARK_FINDS_IT = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling Spark: java.lang.InterruptedException"
)


class BatchInterruptedError(RuntimeError):
    """The query was stopped in the midst of a batch. Its next run finds out what is committed of it, and
    lands the rest.
    """


@contextmanager
def brief_interruption(batch_id: int) -> Iterator[None]:
    """Raise BatchInterruptedError, which has one line of its cause, in the place of an error by which classic
    Spark interrupts a batch that is landed in the block. The log has all of the cause, as information.
    """
    try:
        yield
    except Exception as failure:
        line = _find_interruption(failure)
        if line is None:
            raise
        _LOG.info("batch %d was interrupted", batch_id, exc_info=failure)
        raise BatchInterruptedError(
            f"batch {batch_id} was interrupted, as a query that stops does ({line}); the next run of the"
            f" query finds out what is committed of it, and lands the rest. {_AS_SPARK_FINDS_IT}"
        ) from None


def _find_interruption(failure: BaseException) -> str | None:
    """Return the line of a failure that says it, after that of the failure itself where it is another one."""
    if not type(failure).__module__.startswith(("py4j.", "pyspark.errors.exceptions.captured")):
        return None
    try:
        text = str(failure)
    except Exception:  # noqa: BLE001 - Py4J asks the JVM for it, which may have ended: the failure says more
        return None
    found = _INTERRUPTED.search(text)
    if found is None:
        return None
    # Py4J puts what it called before the exception.
    whole = next((each for each in text.splitlines() if each.startswith(":")), text.strip())
    first, line = (each.strip(" :\t")[:_LONGEST] for each in (whole.partition("\n")[0], found.group()))
    return line if line == first else f"{first} … {line}"
