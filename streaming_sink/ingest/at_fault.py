"""Finds the files of a work item that make it fail, by rehearsing the landing of halves of it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from planners.ingestion.halving import halve
from streaming_sink.ingest.profiling import Work
from streaming_sink.spark.worker_failures import may_be_of_the_rows

_LOG = logging.getLogger("streaming_sink")


def find_at_fault(work: Work, failure: Exception, rehearse: Callable[[Work], bool]) -> dict[int, str]:
    """Return the files of an item that make it fail, by number, with the reasons; empty where the failure is
    no file's, as far as can be known: of a store, a lost worker, a limit, or of all files alike.

    `rehearse` lands a part of the item but for its commit, and returns whether it had a file to do so with.
    Raises what it raises, where that is no file's.
    """
    if not may_be_of_the_rows(failure):
        return {}
    number, reasons = work.item.number, dict[int, str]()
    halving = halve(place for place, _ in work.files())
    while (part := halving.next) is not None:
        _LOG.warning("work item %d fails, and %d of its files are tried: %s", number, len(part), failure)
        try:
            shows = rehearse(work.part(part))
        except Exception as found:
            if not may_be_of_the_rows(found):
                raise
            failure = found
            reasons[part[0]] = f"{type(found).__name__}: {' '.join(str(found).split())[-500:]}"
            halving = halving.after(fails=True)
        else:
            halving = halving.after(fails=False, shows=shows)
    return {place: reasons[place] for place in halving.at_fault}
