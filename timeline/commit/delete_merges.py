"""A merge of delete files: fewer files of the same positions, for a data file that stays as it is."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.manifest import DataFile

from timeline.commit.changes import Beside, Change
from timeline.commit.row_deltas import check_deletes_fit
from timeline.versions.entries import DeleteFile
from timeline.versions.head import Head


@dataclass(frozen=True)
class MergeDeletes(Change):
    """Replace delete files of one data file by one of the same positions.

    Dropped, alone, if the data file or one of the delete files is no longer live when the commit lands (R13).
    Deletes that others have added since do not matter: they stay beside the merged ones. A row delta whose
    writer knew the old delete files is refused, as over deletes of the same file.
    """

    removed: frozenset[str]
    """Locations of delete files that name the data file alone."""
    added: DeleteFile

    @property
    def data_file(self) -> str:
        return self.added.referenced_data_file or ""

    @property
    def rewritten_files(self) -> tuple[DataFile, ...]:
        return (self.added,)

    @property
    def inputs(self) -> frozenset[str]:
        return self.removed

    def check(self) -> None:
        if not self.removed:
            raise ValueError("a merge of delete files merges none")
        if not self.data_file:
            raise ValueError(f"a merged delete file must refer to one data file: {self.added.file_path}")

    def find_conflict(self, head: Head, schema_id: int, beside: Beside) -> str | None:  # noqa: ARG002 - as the base
        if {self.data_file, *self.removed} & beside.taken:
            return f"another change of this commit takes the same file: {self.data_file}"
        live = head.find_live(self.data_file)
        if live is None:
            return f"another commit has replaced the data file: {self.data_file}"
        check_deletes_fit(live, (self.added,))
        rows = {it.location: it.rows for it in head.deletes_of(live) if it.refers_to is not None}
        if gone := self.removed - rows.keys():
            return f"another commit has replaced a delete file: {min(gone)}"
        merged = [rows[location] for location in self.removed]
        if not max(merged) <= self.added.record_count <= sum(merged):
            raise ValueError(
                f"a merge of delete files must keep their rows: it has {self.added.record_count} in the place"
                f" of {max(merged)} to {sum(merged)}: {self.added.file_path}"
            )
        return None
