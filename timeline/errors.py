"""The errors of the timeline, named by what the caller does next. All pickle; messages are lower case, values
last, and the same values are attributes, so that no caller parses text.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import ClassVar, TypedDict


class ErrorKind(str, Enum):
    """What the caller of a failed call does next."""

    TRY_AGAIN = "try again"
    """The same call, later: nothing about it is wrong."""
    PLAN_AGAIN = "plan again"
    """The table has changed; the work is to be computed from its newest head. A sink does so by itself."""
    FIX_THE_CALL = "fix the call"
    """The call, its options or its rows do not fit the table, and never will as they are."""
    REPAIR = "repair"
    """A person has to look at the table's files."""


class Where(TypedDict):
    """The table's location and the version that an error is about."""

    location: str
    version: int


class TimelineError(Exception):
    """Base of every error that the timeline raises on purpose.

    `kind` says what to do next, for programs. Attributes that do not apply to an error, or are not known
    where it is raised, are None or empty.
    """

    kind: ClassVar[ErrorKind] = ErrorKind.FIX_THE_CALL

    def __init__(
        self,
        message: str = "",
        *,
        location: str | None = None,
        version: int | None = None,
        app_id: str | None = None,
        batch: int | None = None,
        files: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.location = location
        """The table's location."""
        self.version = version
        """The version of the table that the error is about."""
        self.app_id = app_id
        """The application whose batch it is."""
        self.batch = batch
        """The number of the batch."""
        self.files = tuple(files)
        """The files in conflict, as manifests spell them."""

    def add_batch(self, location: str, app_id: str, batch: int) -> None:
        """Record the batch that raised the error, where the raise site did not know it."""
        self.location = location if self.location is None else self.location
        self.app_id = app_id if self.app_id is None else self.app_id
        self.batch = batch if self.batch is None else self.batch


class CommitConflictError(TimelineError):
    """The commit no longer fits the table. Plan again from a fresh head; nothing of it is live or will be."""

    kind = ErrorKind.PLAN_AGAIN


class RowsChangedError(CommitConflictError):
    """Rows that the commit has looked at were moved, deleted or joined by others, in `files`. Look at these
    again, and commit again; nothing of it is live or will be.
    """


class KeyConflictError(TimelineError):
    """The table's key is not the one that this writer uses, or the table has one and the writer inserts rows
    without a look at it. Nothing was written.
    """


class CommitStateUnknownError(TimelineError):
    """It is not known whether the commit happened; nothing was deleted. A query restarted on its checkpoint
    finds out.
    """

    kind = ErrorKind.TRY_AGAIN


class FencedError(TimelineError):
    """A newer run of the same application writes to this table. This run must stop; what it had acknowledged
    is kept.
    """


class CheckpointRegressionError(TimelineError):
    """The batch does not continue what this application has committed (a fresh or an older checkpoint).
    Nothing was written.
    """


class StoreUnavailableError(TimelineError):
    """The store does not answer, or refuses. Try again later, or restore access; the table is unchanged."""

    kind = ErrorKind.TRY_AGAIN


class UnsafeStoreError(TimelineError):
    """The store does not keep create-if-absent, and would lose acknowledged rows. Use another store."""


class UnsafeCatalogError(TimelineError):
    """The catalog does not keep what commits rely on, and would lose acknowledged rows. Nothing was written;
    use another catalog, or a table at a location.
    """


class CorruptTableError(TimelineError):
    """The table's files contradict themselves. It needs repair by a person; nothing was changed."""

    kind = ErrorKind.REPAIR


class MissingMetadataError(CorruptTableError):
    """A manifest, or a list, that a version names does not exist. That is damage if the version is still the
    highest. A process that held an older version for longer than the grace period gets this too, and
    continues on a newer one.
    """


class TableNotFoundError(TimelineError):
    """There is no table of this protocol at the location."""


class TableDroppedError(TableNotFoundError):
    """The table was dropped, as its last version says. Nothing was written. A stream that is started again
    makes a new table in its place.
    """


class TableRenamedError(TableNotFoundError):
    """A table in a catalog, which is known by its uuid, has another name there now: see the message."""


class TableReplacedError(TimelineError):
    """The table in the catalog was replaced by another one under its name, uuid and properties: its rows are
    gone, and what it remembers of batches is not. Nothing was written; the message says how to go on.
    """

    kind = ErrorKind.REPAIR


class UnsupportedTableError(TimelineError):
    """The table in the catalog is of a kind that this sink does not write, such as Iceberg's format version
    3. Nothing was written.
    """


class MirrorForkedError(TimelineError):
    """What the catalog has under a mirror's name is no version of the table: another table, or one that was
    written through the catalog. Nothing of it was changed; the message says how to go on.
    """

    kind = ErrorKind.REPAIR


class SchemaMismatchError(TimelineError):
    """The rows do not fit the table's schema or partition spec. Nothing was written."""


class UnknownFeatureError(TimelineError):
    """The table requires a feature that this version's writers do not know. Upgrade; nothing was written, and
    reading is safe.
    """

    def __init__(
        self, message: str = "", *, location: str | None = None, features: Sequence[str] = ()
    ) -> None:
        super().__init__(message, location=location)
        self.features = tuple(features)
        """The names of the features."""
