"""The errors of a buffer zone: producers that wait, and work items that are held."""

from __future__ import annotations

from timeline.errors import ErrorKind, TimelineError


class BufferZoneFullError(TimelineError):
    """More bytes wait in the zone than its `max_waiting`, and nothing was announced. Push again once workers
    have landed some.
    """

    kind = ErrorKind.TRY_AGAIN


class AuditFailedError(TimelineError):
    """The audit of a work item has failed: the item stays staged, and is neither published nor lost."""


class StagedFilesLostError(TimelineError):
    """Files of a staged work item are missing, damaged or in the table already: it is to be written again."""

    kind = ErrorKind.PLAN_AGAIN
