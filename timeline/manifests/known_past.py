"""What a process knows of the snapshots that a table in a catalog has, or had: facts, which never change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_MOST_SNAPSHOTS = 100_000
"""Some 10 MiB; beyond that it is read anew."""


@dataclass
class KnownPast:
    """Snapshots by what metadata files have said of them."""

    files: set[str] = field(default_factory=set)
    """The locations of these files."""
    parents: dict[int, int | None] = field(default_factory=dict)
    """Snapshot → its parent."""
    sources: dict[int, str] = field(default_factory=dict)
    """Snapshot → the id, as text, of the one whose files it has brought to main; those that state one."""

    def add(self, file: str, parents: Mapping[int, int | None], sources: Mapping[int, str]) -> None:
        """Take note of what a metadata file says."""
        self.files.add(file)
        # Some catalogs cut the link to a parent that they remove: an earlier file has it.
        self.parents |= {key: it for key, it in parents.items() if self.parents.get(key) is None}
        self.sources |= sources

    def bound(self) -> None:
        """Forget all where that is much."""
        if len(self.parents) > _MOST_SNAPSHOTS:
            for each in (self.files, self.parents, self.sources):
                each.clear()
