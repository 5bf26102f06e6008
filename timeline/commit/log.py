"""The commit log: the protocol between `publish` and what puts a table's commits in order.

`VersionLog` (version_log.py) is its implementation on version files; a catalog is another one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from timeline.clock import Environment
from timeline.commit.attempts import Candidate
from timeline.drafts.draft import Draft
from timeline.errors import CommitStateUnknownError
from timeline.manifests.manifests import ManifestFiles
from timeline.retention.deletions import Deletions
from timeline.slots.retrying import StillUnknownError, until_known
from timeline.stores.base import Store
from timeline.versions.head import Head
from timeline.versions.version_file import Version


class Standing(Enum):
    """The verdict on a commit whose id the head no longer remembers, from all that the head shows."""

    COMMITTED = auto()
    LOST = auto()
    UNKNOWN = auto()


Judge = Callable[[Head, Candidate], Standing]


@dataclass(frozen=True)
class Won:
    """The candidate is in the table's lineage, durably, and stays in it: it may be acknowledged."""

    candidate: Candidate
    head: Head
    """The newest head that the confirmation saw: the candidate's own, or a descendant of it."""
    seen: object = None
    """What the confirmation saw of the log, for `CommitLog.tidy`. Opaque to everything but the log."""


@dataclass(frozen=True)
class Lost:
    """Another commit has the candidate's place: the candidate is not in the lineage."""

    winner: Version
    """The version to rebase on. It may be unconfirmed: only a commit on it that wins proves it valid."""
    is_newest: bool = False
    """The log has just shown the winner as the newest version."""
    doubtful: bool = False
    """The candidate may have been in the lineage after all: `CommitLog.find_landed` decides."""
    may_land: bool = False
    """A request without an answer may still bring it there, until others have its number, and main is not
    empty any more.
    """


@dataclass(frozen=True)
class StateUnknown:
    """The log cannot say whether the candidate is in the lineage. Nothing of it was deleted (R3)."""

    error: CommitStateUnknownError


class CommitLog(Protocol):
    """Orders the commits of one table. Unknown is never folded into won or lost."""

    @property
    def environment(self) -> Environment: ...

    @property
    def store(self) -> Store:
        """Where the table's data files and manifests are."""

    @property
    def manifest_files(self) -> ManifestFiles: ...

    @property
    def address(self) -> str:
        """How other tables of the same kind of log name this one; see `addresses.py`."""

    @property
    def outbox_folder(self) -> str:
        """Where data files lie that a commit to another table names before this one's: where no engine
        deletes what no snapshot names (R34).
        """

    @property
    def wap_id_key(self) -> str:
        """The key in the summary of a staged snapshot that has the id of its work item."""

    @property
    def needs_probe(self) -> bool:
        """Whether commits rely on the store's create-if-absent, so that the store must be probed (R18)."""

    @property
    def tombstone_folder(self) -> str:
        """Where the files of deleted keys are."""

    @property
    def stale_seconds(self) -> float:
        """For how long the log may show an old head, as a cache before it does; 0 where it never does."""

    @property
    def draft(self) -> type[Draft]:
        """The kind of draft that candidates for this log are built as."""

    def maintains(self, head: Head) -> bool:
        """Return whether the commit that made a head is one after which files are deleted."""

    def check_writable(self, head: Head) -> None:
        """Raise where no writer may build on a head of this log, nor take a batch for committed by it."""

    def newest(self, *, base: Head | None = None) -> Head | None:
        """Return the newest head, or None where there is no table. Faster where it follows `base`.

        StoreUnavailableError where the log does not answer, CorruptTableError where it cannot be read.
        """

    def newer(self, known: Head) -> Head | None:
        """Return the newest head: `known` itself where nothing changed, None where there is no table.

        CorruptTableError where a commit that `known` holds has vanished from the log.
        """

    def head_after(self, base: Head | None, winner: Version) -> Head:
        """Return a winner with its manifests. Lets the loser rebase without reading the list, where the log
        vouches for what the winner states that it added to `base`.
        """

    def publish(self, candidate: Candidate, judge: Judge, give_up_at: float) -> Won | Lost | StateUnknown:
        """Put a candidate after its base, in one atomic step, and confirm that it is in the lineage.

        Answers without a clear outcome are settled until `give_up_at`, by the monotonic clock. `judge`
        decides where the lineage no longer remembers the candidate. StoreUnavailableError: the log refused
        the candidate, and nothing of it is live.
        """

    def find_landed(
        self, doubtful: Sequence[Candidate], base: Head | None, judge: Judge, give_up_at: float
    ) -> Won | Head | StateUnknown:
        """Decide about losses in doubt: Won for the candidate that the newest head descends from, else the
        newest head, which descends from none of them.
        """

    def find_sharer(self, head: Head) -> str | None:
        """Return the name of another table whose folder is this one's, None where there is none."""

    def tidy(self, head: Head, seen: object = None) -> object:
        """Complete what a crash may have cut off after the commit of `head`, and return what the log showed.

        `seen` is that of `Won`, and saves a request.
        """

    def delete_old(self, head: Head, seen: object = None, *, dry_run: bool = False) -> Deletions:
        """Delete the log's own records that newer ones have superseded (R19). `seen` as in `tidy`."""


def finds_newer(log: CommitLog, head: Head, refresh: Callable[[], Head | None]) -> bool:
    """Return whether `refresh` brings a newer head, asked again while the log may still show an old one."""
    began = log.environment.monotonic()

    def look() -> bool:
        asked_at = log.environment.monotonic()
        if refresh() is not head:
            return True
        if asked_at - began < log.stale_seconds:
            raise StillUnknownError
        return False

    return until_known(log.environment, math.inf)(look)
