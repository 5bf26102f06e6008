"""Report what a cleaner deleted, or would delete: file by file, with the reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class DeletedKind(str, Enum):
    """What a deleted file was."""

    DATA_FILE = "data file"
    MANIFEST = "manifest"
    MANIFEST_LIST = "manifest list"
    VERSION = "version file"
    STATE_FILE = "state file"


@dataclass(frozen=True, slots=True)
class Deletion:
    """One file that is no longer needed, and why."""

    path: str
    """Below the table's location."""
    kind: DeletedKind
    bytes: int | None
    """None where neither the metadata nor a listing states it."""
    why: str


@dataclass(frozen=True)
class Deletions:
    """What one call deleted; with `dry_run`, what it would delete."""

    files: tuple[Deletion, ...] = ()
    expired_snapshots: int = 0
    waiting: int = 0
    """Versions that expired snapshots whose files stay until the grace period is over."""
    dry_run: bool = False
    kept: str = ""
    """Of a call that expires snapshots: what keeps those that stay."""

    def __add__(self, other: Deletions) -> Deletions:
        return Deletions(
            self.files + other.files,
            self.expired_snapshots + other.expired_snapshots,
            max(self.waiting, other.waiting),
            self.dry_run or other.dry_run,
            self.kept or other.kept,
        )

    @property
    def bytes(self) -> int:
        return sum(file.bytes or 0 for file in self.files)

    def count(self, kind: DeletedKind) -> int:
        return sum(file.kind is kind for file in self.files)

    def __str__(self) -> str:
        """Return a summary in the first line, and then each file with its reason."""
        counts = [(self.count(kind), kind.value) for kind in DeletedKind]
        files = ", ".join(_count(number, noun) for number, noun in counts if number) or "no file"
        summary = f"{'would delete' if self.dry_run else 'deleted'} {files} ({self.bytes:,} bytes)"
        if self.expired_snapshots or self.kept:
            expired = _count(self.expired_snapshots, "snapshot")
            summary = f"{'would expire' if self.dry_run else 'expired'} {expired}; {summary}"
        summary += f"; {self.kept}" if self.kept else ""
        if self.waiting:
            summary += f"; the files of {_count(self.waiting, 'earlier expiry', 'earlier expiries')} wait"
        return "\n".join([summary, *(f"  {file.path}: {file.why}" for file in self.files)])


def by_kind(files: Iterable[Deletion], kind: DeletedKind) -> list[Deletion]:
    return [file for file in files if file.kind is kind]


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
