"""The errors of the timeline, named by what the caller does next. All pickle; messages are lower case, values
last.
"""

from __future__ import annotations


class TimelineError(Exception):
    """Base of every error that the timeline raises on purpose."""


class CommitConflictError(TimelineError):
    """The commit no longer fits the table. Plan again from a fresh head; nothing of it is live or will be."""


class CommitStateUnknownError(TimelineError):
    """It is not known whether the commit happened. Stop and look; nothing was deleted. A restarted query
    settles it.
    """


class FencedError(TimelineError):
    """A newer run of the same application writes to this table. This run must stop; what it had acknowledged
    is kept.
    """


class CheckpointRegressionError(TimelineError):
    """The batch does not continue what this application has committed (a fresh or an older checkpoint).
    Nothing was written.
    """


class StoreUnavailableError(TimelineError):
    """The store does not answer, or refuses. Try again later, or mend access; the table is as it was."""


class UnsafeStoreError(TimelineError):
    """The store does not keep create-if-absent, and would lose acknowledged rows. Use another store."""


class CorruptTableError(TimelineError):
    """The table's files contradict themselves. It needs repair by a person; nothing was changed."""


class MissingMetadataError(CorruptTableError):
    """A manifest, or a list, that a version names does not exist. Damage, if that is still the highest
    version; who held an older one for longer than the grace period meets it too, and takes a newer one.
    """


class TableNotFoundError(TimelineError):
    """There is no table of this protocol at the location."""


class SchemaMismatchError(TimelineError):
    """The rows do not fit the table's schema or partition spec. Nothing was written."""
