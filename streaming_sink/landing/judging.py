"""The judgement of what was written: only what passes it can be committed."""

from __future__ import annotations

from streaming_sink.checks.quarantine_table import RowsRefusedError
from streaming_sink.landing.checking import check_failed_rows, delete_written
from streaming_sink.landing.source import FittedT, SinkParts, Source
from streaming_sink.landing.stages import Judged, Written
from timeline.errors import CommitConflictError


def judge(source: Source[FittedT], written: Written, parts: SinkParts) -> Judged:
    """Return what may be committed. What may not is deleted, best effort: CommitConflictError where other
    rows were written than there are; RowsRefusedError where the checks of the rows refuse them all.
    """
    try:
        source.check(written)
        check_failed_rows(written.fitted.rules, written.result, parts.options)
    except (CommitConflictError, RowsRefusedError):
        delete_written(written.result, parts.destination.store, parts.quarantine)
        raise
    return Judged(written)
