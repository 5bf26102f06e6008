"""Which delete files apply to a data file (Iceberg spec, scan planning), and how many rows stay live."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from pyiceberg.manifest import DataFileContent

from timeline.versions.entries import LiveFile


class DeleteIndex:
    """The delete files of one snapshot, found by the data files that they may apply to.

    A position-delete file that names one data file applies to that file alone. One whose paths span a range
    applies to the files of its partition within the range; one without bounds, and equality deletes, to all
    files of their partition. Deletes without partition values apply in every partition: a spec without
    fields, or with `void` transforms only, counts as unpartitioned. (So does a partition of nulls here, which
    costs a replace at most.) None applies to a file of a higher sequence number, since that was added later.
    """

    def __init__(self, deletes: Iterable[LiveFile]) -> None:
        self._by_file: dict[str, list[LiveFile]] = defaultdict(list)
        self._by_partition: dict[tuple[int, tuple[object, ...]], list[LiveFile]] = defaultdict(list)
        self._everywhere: list[LiveFile] = []
        for delete in deletes:
            if (location := delete.refers_to) is not None:
                self._by_file[location].append(delete)
            elif any(value is not None for value in delete.partition):
                self._by_partition[delete.spec_id, delete.partition].append(delete)
            else:
                self._everywhere.append(delete)

    def find(self, file: LiveFile) -> list[LiveFile]:
        """Return the delete files that may apply to a data file."""
        if file.content != DataFileContent.DATA:
            return []
        return [each for each in self._near(file) if each.sequence_number >= file.sequence_number]

    def live_rows(self, file: LiveFile) -> int:
        """Return how many rows of a data file are not deleted, where all its deletes name it alone; else all
        of its rows, since deletes of a range or by value may match none.
        """
        deletes = self.find(file)
        if any(each.refers_to is None for each in deletes):
            return file.rows
        return max(0, file.rows - sum(each.rows for each in deletes))

    def files_with_own_deletes(self) -> Iterable[str]:
        """Return the locations that position-delete files name alone; they may be live or not."""
        return self._by_file.keys()

    def _near(self, file: LiveFile) -> Iterator[LiveFile]:
        yield from self._by_file.get(file.location, ())
        wide = (*self._by_partition.get((file.spec_id, file.partition), ()), *self._everywhere)
        yield from (delete for delete in wide if _may_name(delete, file.location))


def _may_name(delete: LiveFile, location: str) -> bool:
    """Return whether a data file is in the range of those that a delete file names."""
    return delete.applies_to is None or delete.applies_to[0] <= location.encode() <= delete.applies_to[1]
