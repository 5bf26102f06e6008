"""Translates a failure in Spark's Python workers into an error that says what to set."""

from __future__ import annotations

import re
import sys

from timeline.errors import (
    CommitConflictError,
    CorruptTableError,
    SchemaMismatchError,
    StoreUnavailableError,
    TimelineError,
)

_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_OURS = ("streaming_sink", "planners", "timeline")
_NEEDED = (*_OURS, "pyarrow", "pyiceberg_core", "obstore", "tenacity", "pyspark")
_ROWS = re.compile(r"RowsDoNotFitError: (.*)")
_TEXT = re.compile(r"InvalidTextError: (.*)")
_STORE = re.compile(r"StoreUnavailableError: (.*)")
_SOURCE = re.compile(r"SourceFailedError: (\d+: .*)")
_LOST_WORKER = "exited unexpectedly"
_OF_NO_ROW = re.compile(
    r"MemoryError|OutOfMemory|No space left|ConnectionError|ConnectionReset|TimeoutError|ExecutorLost"
    rf"|{_LOST_WORKER}|was cancelled|was canceled|shut down|Too many open files"
)
_PLATFORMS = ("pyspark", "py4j", "grpc")
_FILE = re.compile(r"DataFileError: (.*)")
_RUN = re.compile(r"UnusableRunError: (.*)")


class WorkerEnvironmentError(RuntimeError):
    """Spark's Python workers cannot run the writer. Nothing was committed; fix their environment and start
    again."""


class UnfitRowsError(SchemaMismatchError):
    """Rows contradict the table's schema in a way that only their values show. Nothing of the batch was
    committed.
    """


class InvalidTextFoundError(UnfitRowsError):
    """The batch holds text that is not valid UTF-8. Nothing of it was committed."""


class UnreadableFileError(CorruptTableError):
    """A file of the head that the batch was planned on is missing or damaged. Nothing of it was committed."""


class IndexChangedError(CommitConflictError):
    """A run of the table's key index was deleted, or is damaged, since the batch was planned. Nothing of it
    was committed; plan it again, by the runs that are there.
    """


class SourceUnreadableError(SchemaMismatchError):
    """A source file of a work item cannot be read; the text begins with its number in the item. Nothing of
    the item was committed.
    """

    @property
    def number(self) -> int:
        return int(str(self).partition(":")[0])

    @property
    def reason(self) -> str:
        return str(self).partition(": ")[2]


def explain_worker_failure(failure: BaseException) -> Exception | None:
    """Return the error to raise in place of `failure` of a Spark action (with `from failure`), or None to
    raise it as it is.

    WorkerEnvironmentError for another Python version or a missing package; UnfitRowsError,
    StoreUnavailableError, UnreadableFileError, IndexChangedError and SourceUnreadableError for errors of a
    task's rows, its store, or a file it reads.
    """
    text = str(failure)
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if "PYTHON_VERSION_MISMATCH" in text:
        return WorkerEnvironmentError(
            f"Spark's workers run another Python than the driver's {here}; {_how_to_set(here)}"
        )
    missing = _MISSING.search(text)
    if missing and missing.group(1).partition(".")[0] in _NEEDED:
        package = missing.group(1).partition(".")[0]
        return WorkerEnvironmentError(
            f"the Python of Spark's workers lacks {package}, which this sink runs there; {_how_to_set(here)}"
        )
    for pattern, kind in (
        (_SOURCE, SourceUnreadableError),
        (_TEXT, InvalidTextFoundError),
        (_ROWS, UnfitRowsError),
        (_STORE, StoreUnavailableError),
        (_FILE, UnreadableFileError),
        (_RUN, IndexChangedError),
    ):
        found = pattern.findall(text)
        if found:
            return kind(found[-1].strip())
    return None


def may_be_of_the_rows(failure: BaseException) -> bool:
    """Return whether what was read may be the reason for a failure: not where a store did not answer, a
    worker was lost, a limit was met, or the table was the reason.
    """
    if isinstance(failure, (TimelineError, WorkerEnvironmentError, MemoryError, OSError)):
        return isinstance(failure, SchemaMismatchError)
    text = str(failure)
    if _OF_NO_ROW.search(text):
        return False
    of_platform = type(failure).__module__.partition(".")[0] in _PLATFORMS
    return not of_platform or "Traceback (most recent call last)" in text  # of a task's own Python


def has_lost_its_worker(failure: BaseException) -> bool:
    """Return whether the process of a task ended: it was killed, or a library ended it."""
    return _LOST_WORKER in str(failure)


def _how_to_set(version: str) -> str:
    return (
        "without a setting Spark takes python3 from the path: before the session starts set PYSPARK_PYTHON, "
        f"or with spark-submit spark.pyspark.python, to a Python {version} that has this package installed "
        f"(the driver's is {sys.executable}); on Spark Connect set it where the server starts"
    )
