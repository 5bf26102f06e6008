"""A row delta: new rows, and deletes of rows by their positions in live files, in one snapshot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pyiceberg.manifest import DataFile, DataFileContent

from timeline.changes.changes import Beside, Change, Over
from timeline.errors import RowsChangedError
from timeline.manifests.entries import DeleteFile, LiveFile, added_file, entry_partition
from timeline.versions.head import Head


@dataclass(frozen=True)
class RowDelta(Change):
    """Add files of new rows and position-delete files, each of live data files of one partition or of files
    that it adds itself, or nothing at all.

    Rebases over everything that leaves the data files that it deletes from as its writer has read them. Where
    another commit has replaced one or deleted from one, the whole commit is refused, with the locations of
    these files: the rows are at other positions, or deleted. The writer finds its rows again, or shows that
    the other one deletes other positions and adds its delete files to `applied`.
    """

    over: ClassVar[Over] = Over(
        replaces="refused",
        deletes="refused",
        schema="checked again",
        when="where they replaced, or deleted from, a data file that it deletes from",
    )

    added: tuple[DataFile, ...]
    deletes: tuple[DeleteFile, ...]
    applied: frozenset[str] = frozenset()
    """The locations of all delete files that the data files had when the writer looked for its rows."""

    @property
    def appended_files(self) -> tuple[DataFile, ...]:
        return self.added

    @property
    def delete_files(self) -> tuple[DeleteFile, ...]:
        return self.deletes

    def check(self) -> None:
        if not self.deletes:
            raise ValueError("a row delta deletes nothing; use Append for new rows")
        for delete in self.deletes:
            if not isinstance(delete, DeleteFile):
                raise TypeError(f"not a delete file, which `position_deletes` makes: {delete!r}")
            if delete.content != DataFileContent.POSITION_DELETES or not delete.rows_of:
                raise ValueError(
                    "a row delta's delete file must say which data files it names, as one from"
                    f" `position_deletes` does: {delete.file_path}"
                )
            if min(delete.rows_of.values()) < 1:
                raise ValueError(f"a delete file without rows; leave it out: {delete.file_path}")

    def find_conflict(self, head: Head, schema_id: int, beside: Beside) -> None:  # noqa: ARG002 - as the base
        by_file = by_data_file(self.deletes)
        own = {file.file_path: file for file in self.added}
        for location in own.keys() & by_file.keys():
            check_deletes_fit(added_file(own[location]), by_file[location])
        known = head.find_all_live(by_file.keys() - own.keys())
        live = {location: known.get(location) for location in sorted(by_file.keys() - own.keys())}
        check_data_files_are_live(head, live)
        files = [file for file in live.values() if file is not None]
        for file in files:
            check_deletes_fit(file, by_file[file.location])
        check_deletes_are_known(head, files, self.applied)


def by_data_file(deletes: Iterable[DeleteFile]) -> dict[str, list[DeleteFile]]:
    """Return position-delete files by the locations of the data files that they name."""
    found: dict[str, list[DeleteFile]] = defaultdict(list)
    for delete in deletes:
        for location in delete.rows_of:
            found[location].append(delete)
    return found


def check_data_files_are_live(head: Head, files: Mapping[str, LiveFile | None]) -> None:
    """Every data file that rows are deleted from is live: no replace has moved them to another position."""
    if gone := [location for location, file in files.items() if file is None]:
        raise RowsChangedError(
            "another commit has replaced a file that this one deletes from, and its rows have moved; nothing"
            f" of the commit is live, find the rows again: {gone[0]}",
            **head.where,
            files=gone,
        )


def check_deletes_are_known(head: Head, files: Sequence[LiveFile], applied: frozenset[str]) -> None:
    """No data file has other deletes than those that the writer had applied. A row that another commit has
    deleted since may be there again under another position, so to delete it once more would keep both.
    """
    deletes = {file.location: {each.location for each in head.deletes_of(file)} for file in files}
    changed = [location for location, found in deletes.items() if not found <= applied]
    if changed:
        raise RowsChangedError(
            "another commit has deleted from a file that this one deletes from, maybe the same rows; nothing"
            f" of the commit is live, find the rows again: {changed[0]}",
            **head.where,
            files=changed,
        )
    if gone := sorted(applied.difference(*deletes.values())):
        raise RowsChangedError(
            "rows that this commit's writer found deleted are live again; nothing of the commit is live, find"
            f" the rows again: {gone[0]}",
            **head.where,
            files=sorted(deletes),
        )


def check_deletes_fit(file: LiveFile, deletes: Sequence[DeleteFile]) -> None:
    """Raise ValueError for deletes that no reader could apply to their data file: the writer is at fault."""
    rows = sum(delete.rows_of[file.location] for delete in deletes)
    if rows > file.rows:
        raise ValueError(f"{rows} rows are deleted of a file of {file.rows}: {file.location}")
    for delete in deletes:
        if (delete.spec_id, entry_partition(delete)) != (file.spec_id, file.partition):
            raise ValueError(
                f"a delete file must be of the partition of its data file, {file.partition} of spec"
                f" {file.spec_id}: {delete.file_path}"
            )
