"""How often a landing that has met a conflict is tried again."""

from __future__ import annotations

from streaming_sink.landing.source import FittedT, Source
from streaming_sink.spark.worker_failures import InvalidTextFoundError
from streaming_sink.writing.target import Destination
from timeline.errors import RowsChangedError

_CONFLICT_TRIES = 3
_SHARED_NAME_TRIES = 5
"""Of what lands under the name of others: rows for the quarantine are in one entry of the outbox for all."""
_ROWS_CHANGED_TRIES = 20
"""Where others keep changing the same rows: each time one of the writers has landed."""


def check_helps(conflict: Exception, tries: int, source: Source[FittedT], destination: Destination) -> None:
    """Raise a conflict that has come too often, or that another try does not help."""
    if isinstance(conflict, InvalidTextFoundError) and not destination.begin_to_check_text():
        raise conflict
    most = _SHARED_NAME_TRIES if source.shares_its_name else _CONFLICT_TRIES
    if tries >= (_ROWS_CHANGED_TRIES if isinstance(conflict, RowsChangedError) else most):
        raise conflict
