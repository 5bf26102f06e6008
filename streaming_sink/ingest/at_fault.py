"""Finds the files of a work item that make it fail, by rehearsing the landing of halves of it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from planners.ingestion.halving import halve
from streaming_sink.ingest.profiling import Work
from streaming_sink.spark.worker_failures import UnfitRowsError, may_be_of_the_rows

_LOG = logging.getLogger("streaming_sink")


def find_at_fault(work: Work, failure: Exception, rehearse: Callable[[Work], bool]) -> dict[int, str]:
    """Return the files of an item that make it fail, by number, with the reasons; empty where the failure is
    no file's, as far as can be known: of a store, a lost worker, a limit, or of all files alike. A failure
    that names values of rows is of the file that has them, also where no other file is there to compare with.

    `rehearse` lands a part of the item but for its commit, and returns whether it had a file to do so with.
    Raises what it raises, where that is no file's.
    """
    if not may_be_of_the_rows(failure):
        return {}
    number, reasons = work.item.number, dict[int, str]()
    files = [place for place, _ in work.files()]
    if len(files) == 1 and isinstance(failure, UnfitRowsError):
        return {files[0]: str(failure)}
    halving = halve(files)
    while (part := halving.next) is not None:
        _LOG.warning("work item %d fails, and %d of its files are tried: %s", number, len(part), failure)
        try:
            shows = rehearse(work.part(part))
        except Exception as found:
            if not may_be_of_the_rows(found):
                raise
            failure, of_rows = found, isinstance(found, UnfitRowsError)
            text = " ".join(str(found).split())[-500:]
            reasons[part[0]] = text if of_rows else f"{type(found).__name__}: {text}"
            halving = halving.after(fails=True, shows=of_rows)
        else:
            halving = halving.after(fails=False, shows=shows)
    return {place: reasons[place] for place in halving.at_fault}
