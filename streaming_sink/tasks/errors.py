"""Errors that tasks raise on purpose. The driver reads their names and texts out of the failure of a task."""

from __future__ import annotations


class RowsDoNotFitError(ValueError):
    """Rows contradict the table's schema in a way that only their values show."""


class InvalidTextError(RowsDoNotFitError):
    """Text is not valid UTF-8, in these columns; none where only the driver reads the error, by its text."""

    def __init__(self, reason: str, columns: frozenset[str] = frozenset()) -> None:
        super().__init__(reason)
        self.columns = columns


class KeysError(Exception):
    """A key is not available. The text names the key, and repeats nothing that the client said: that may be a
    secret.
    """


class DataFileError(Exception):
    """A data file is missing, damaged, or not what the table describes."""


class SourceFailedError(Exception):
    """A source file of a work item cannot be read; the text begins with its number in the item."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"{number}: {' '.join(reason.split())}")


class GroupUnfitError(Exception):
    """A clustering group cannot be rewritten; its files stay as they are."""


class UnusableRunError(Exception):
    """A run of an index is damaged, not written to its end, of another index, or cannot be copied. Read what
    it was derived from, data files or plans: they have all that it held.
    """


class NoCopyError(UnusableRunError):
    """A run cannot be copied to this machine's disk, which says nothing of the run."""
