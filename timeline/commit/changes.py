"""What a commit wants to do to the table. Frozen: a retry computes a new attempt from (changes, head), never
edits them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile
from pyiceberg.table.sorting import SortOrder


@dataclass(frozen=True)
class Append:
    """Add files of new rows. Rebases over everything but a change of schema or partition spec that the files
    do not fit.
    """

    files: tuple[DataFile, ...]


@dataclass(frozen=True)
class Replace:
    """Put `added` in the place of `removed`, rows unchanged: one fill, or one group of a clustering.

    Dropped, alone, when some removed file is no longer live, or has deletes, at the moment of the commit: the
    other changes of the commit go on without it (R13). `removed` may name files that the same commit appends.
    """

    removed: frozenset[str]
    """Locations of the files, as manifests spell them."""
    added: tuple[DataFile, ...]


@dataclass(frozen=True)
class SetProperties:
    """Set and remove table properties; those of the protocol are refused."""

    updates: Mapping[str, str] = field(default_factory=dict)
    removals: frozenset[str] = frozenset()


@dataclass(frozen=True)
class AddSortOrder:
    """Let the table know an order that files may be sorted in; nothing where it knows one of the same fields.

    It gets the next free id, whatever its own says, and the table's default order stays: look it up by
    `Head.sort_order_id` afterwards. An order never leaves the table, so that files may name it for good.
    """

    order: SortOrder

    def added_to(self, known: Sequence[SortOrder]) -> list[SortOrder]:
        """Return the table's orders after the change."""
        if any(each.fields == self.order.fields for each in known):
            return list(known)
        free = max((each.order_id for each in known), default=0) + 1
        return [*known, self.order.model_copy(update={"order_id": free})]


@dataclass(frozen=True)
class ExpireSnapshots:
    """Take old snapshots out of the metadata with this commit, whatever its number (R7)."""

    policy: Mapping[str, str] = field(default_factory=dict)
    """The properties that bound the history, where this commit judges by others than the table's."""


@dataclass(frozen=True)
class RaiseFence:
    """From this version on, refuse files whose ids are below the cutoff (R6). It never sinks."""

    cutoff: str


@dataclass(frozen=True)
class Announce:
    """From this version on, the head names a plan as pending, and its files are reserved (advice, R11)."""

    plan_id: str


@dataclass(frozen=True)
class Withdraw:
    """The head no longer names a plan: it completes with this version, or is given up. No matter if it is not
    named.
    """

    plan_id: str


@dataclass(frozen=True)
class CountCommit:
    """The head counts one commit more, of all writers that cluster inline; see `Head.counted_commits`."""


Change = (
    Append
    | Replace
    | SetProperties
    | AddSortOrder
    | ExpireSnapshots
    | RaiseFence
    | Announce
    | Withdraw
    | CountCommit
)
