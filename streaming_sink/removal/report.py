"""What a purge has found, what it has done, and what is left until when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streaming_sink.removal.leftovers import LeftoverKind


@dataclass(frozen=True, kw_only=True)
class StillThere:
    """A place where something of the keys is left."""

    kind: LeftoverKind
    path: str
    """Below the table's location."""
    rows: int
    until: str
    """What has to happen before it leaves, for people."""


@dataclass(frozen=True, kw_only=True)
class PurgedTable:
    """What was done to one table; with a dry run, what would be."""

    location: str
    role: str
    """What the table is: "table", "quarantine" or "change log"."""
    found: Mapping[str, int]
    """Rows (hashes, bounds) of the keys by where they were."""
    deleted_rows: int
    """Rows that were live."""
    rewritten_files: int
    delete_files: int
    """Delete files that left with the rewritten ones."""
    versions: tuple[int, ...]
    """Those that this purge has committed with deletes and rewritten files."""
    ends_time_travel: tuple[int, int] | None
    """The first and the last version to which time travel ends, or is to end."""
    expired_snapshots: int
    deleted_files: int
    deleted_runs: int
    """Runs of the key index, which the stream builds again."""
    problems: tuple[str, ...]
    """Why files could not be rewritten."""
    left: tuple[StillThere, ...]


@dataclass(frozen=True, kw_only=True)
class PurgeReport:
    """What a purge has done to a table, first, and to its second tables."""

    keys: int
    dry_run: bool
    tables: tuple[PurgedTable, ...]

    @property
    def is_gone(self) -> bool:
        """Whether no row of the keys, and no value, is left in any file; hashes in tombstones may be."""
        return all(each.kind is LeftoverKind.TOMBSTONE for table in self.tables for each in table.left)
