"""What a commit wants to do to the table. Frozen: a retry computes a new attempt from (changes, head), never
edits them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile


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
class ExpireSnapshots:
    """Take old snapshots out of the metadata with this commit, whatever its number (R7)."""

    policy: Mapping[str, str] = field(default_factory=dict)
    """The properties that bound the history, where this commit judges by others than the table's."""


@dataclass(frozen=True)
class RaiseFence:
    """From this version on, refuse files whose ids are below the cutoff (R6). It never sinks."""

    cutoff: str


Change = Append | Replace | SetProperties | ExpireSnapshots | RaiseFence
