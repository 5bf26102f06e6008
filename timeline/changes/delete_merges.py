"""A merge of delete files: fewer files of the same positions, for data files that stay as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyiceberg.manifest import DataFile, DataFileContent

from timeline.changes.changes import Beside, Change, Over
from timeline.changes.row_deltas import by_data_file, check_deletes_fit
from timeline.manifests.entries import DeleteFile, LiveFile
from timeline.versions.head import Head
from timeline.versions.partitioning import find_lost_types


@dataclass(frozen=True)
class MergeDeletes(Change):
    """Replace position-delete files by others of the same positions, but for those of data files that have
    left.

    Dropped, alone, if one of the delete files, or a data file that a new one names alone, is no longer live
    when the commit lands, if a data file is live that the writer took for one that has left, or if a delete
    file is in a manifest that cannot be written again (R13). Deletes that others have added since do not
    matter: they stay beside the merged ones. A row delta whose writer knew the old delete files is refused,
    as over deletes of the same file.
    """

    over: ClassVar[Over] = Over(
        replaces="dropped",
        when=(
            "unless its data files and its own delete files are live, and the types of their partitions are "
            "known"
        ),
    )

    removed: frozenset[str]
    """Locations of delete files."""
    added: tuple[DeleteFile, ...]
    forgotten: frozenset[str] = frozenset()
    """Locations of data files that have left, and whose positions are in no new file."""
    forgotten_rows: int = 0
    """How many positions that is."""

    @property
    def data_files(self) -> frozenset[str]:
        """The locations of the data files whose positions are in the new files."""
        return frozenset(by_data_file(self.added))

    @property
    def rewritten_files(self) -> tuple[DataFile, ...]:
        return self.added

    @property
    def inputs(self) -> frozenset[str]:
        return self.removed

    def check(self) -> None:
        if not self.removed:
            raise ValueError("a merge of delete files merges none")
        for added in self.added:
            if not added.rows_of:
                raise ValueError(
                    f"a merged delete file must say which data files it names: {added.file_path}"
                )

    def find_conflict(self, head: Head, schema_id: int, beside: Beside) -> str | None:  # noqa: ARG002 - as the base
        alone = {each.referenced_data_file for each in self.added if each.referenced_data_file}
        if taken := (alone | self.removed) & beside.taken:
            return f"another change of this commit takes the same file: {min(taken)}"
        data_files = head.find_all_live(self.data_files | self.forgotten)
        for location, deletes in sorted(by_data_file(self.added).items()):
            if (live := data_files.get(location)) is not None:
                check_deletes_fit(live, deletes)
            elif location in alone:
                return f"another commit has replaced the data file: {location}"
        known = {each.location: each for each in head.delete_files() if each.location in self.removed}
        if gone := self.removed - known.keys():
            return f"another commit has replaced a delete file: {min(gone)}"
        if lost := find_lost_types(head.metadata, known.values()):
            return lost
        for location in sorted(self.forgotten):
            if location in data_files:
                return f"a data file is live whose deletes are left out: {location}"
        self._check_keeps_positions([known[location] for location in sorted(self.removed)])
        return None

    def _check_keeps_positions(self, merged: list[LiveFile]) -> None:
        """Raise ValueError unless what is added and left out can be what the merged files hold: the writer is
        at fault. Two files of another engine may hold the same positions.
        """
        covered = self.data_files | self.forgotten
        for each in merged:
            is_covered = each.refers_to is None or each.refers_to in covered
            if each.content != DataFileContent.POSITION_DELETES or not is_covered:
                raise ValueError(f"a merge leaves out what this delete file deletes: {each.location}")
        rows = sum(each.record_count for each in self.added) + self.forgotten_rows
        least, most = max(each.rows for each in merged), sum(each.rows for each in merged)
        if not least <= rows <= most:
            raise ValueError(
                f"a merge of delete files must keep their rows: it has {rows} in the place of {least} to"
                f" {most}: {min(self.removed)}"
            )
