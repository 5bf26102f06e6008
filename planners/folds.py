"""Folds: which files are rewritten because many of their rows are deleted, and which delete files are merged.

A file is *worn* once more than the share f of its rows is deleted (`fold_above`), or all of them. The next
pass of fills rewrites it without these rows, and its delete files leave the table with it. A worn file that
is small by then is joined by others like it; a sorted one keeps its order, alone.

A file that is not worn, and has more than eight delete files, keeps its rows: some of its delete files are
merged into one. Ordered by their rows, x1 >= x2 >= ..., those from xi on, for the i with the least
xi / (x(i+1) + x(i+2) + ...), so that eight are left at most: as crowded small files are merged
(`planners/fills.py`). To fold it for its number of delete files would have no bound: a stream that deletes a
row a batch of a file of 120 MiB would write 13 MiB a row.

A stream *at rest* has ended, or brings nothing for a while. Then two delete files of a data file are left at
most, a shared one among them: readers open each of them for each part of a file that they read, and find them
so until the stream goes on.

What that bounds, for rows of equal width within a file:

* Delete files of a data file, once a pass that considers it is executed: eight, and at rest two. Where shared
  ones (`planners/shared_deletes.py`) may apply to it, four of its own, and four shared. Of its own four times
  as many where a pending plan has reserved it, and so has read them: beyond these they are merged all the
  same, or plan after plan would put the merge off for ever. The plan loses nothing by it: most of them have
  come since, and its group is dropped for any of these.
* Bytes written by folds per byte deleted: below 1/f - 1. A worn file of which d bytes are deleted has at most
  (1/f - 1) d live ones, and a deleted row is folded once.
* Positions written by merges per deleted row, its own included: 1 + log2(n / x) * (n / x) ** (1/8), where n
  rows of the file are deleted, and the smallest delete file has x: as for the bytes of crowded small files.
  With a row a batch, of a file of a million rows, that is below 80, of a byte or two each.
* Small files that shrink are filled as before. In the terms of `planners/fills.py`, each byte deleted costs
  1.45 (M / x) ** (1/8) more there: a file of s bytes that loses d of them has s - d left, each of which
  doubles log2(s / (s - d)) times more until it is sealed, and (s - d) log2(1 + d / (s - d)) < d / ln 2. A
  full file that folds below the small limit is sealed once more, for 2 (1/f - 1) per byte deleted.

A full file of which fewer rows are deleted is left alone, though its live bytes may be below the small limit:
one byte deleted of a file of just that size would have all of it merged again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from planners.model import FileContent, PositionDeletes, TableFile, TablePartition
from planners.shared_deletes import SHARED_RUNS_AT_MOST, SHARED_RUNS_AT_REST
from planners.tiers import best_repaid

DELETE_FILES_AT_MOST = 8
"""The bound on the delete files of a data file, once a pass has ended."""
DELETE_FILES_AT_REST = 2
"""The same, once passes over a stream at rest have ended, a shared one included."""
PASSES_AT_REST = 2
"""So many it takes: a merge of shared delete files may add one to those of a data file."""
_BESIDE_SHARED = DELETE_FILES_AT_MOST - SHARED_RUNS_AT_MOST - 1
"""As many as stay its own beside shared ones: a merge of these may add one."""
_BESIDE_PLANS = 4
"""So many times the bound may be the delete files of a data file that a pending plan has reserved."""


@dataclass(frozen=True, slots=True)
class PlannedDeleteMerge:
    """Delete files of one data file that become one; the data file stays as it is."""

    file: TableFile
    deletes: tuple[PositionDeletes, ...]
    """Two or more of its delete files, those of the fewest rows."""

    @property
    def partition(self) -> TablePartition:
        return TablePartition(self.file.spec_id, self.file.partition)

    @property
    def reason(self) -> str:
        return f"{len(self.file.deletes)} delete files of one data file"


def is_worn(file: TableFile, fold_above: float) -> bool:
    """Return whether so many rows of a file are deleted that it is to be rewritten without them."""
    return file.deleted_rows > fold_above * (file.rows + file.deleted_rows) or (
        file.deleted_rows > 0 and file.rows == 0
    )


def why_worn(file: TableFile) -> str:
    return f"{file.deleted_rows:,} of {file.rows + file.deleted_rows:,} rows are deleted"


def has_open_deletes(file: TableFile) -> bool:
    """Return whether few delete files of a file are merged, too: a plan that reserves it has read them."""
    return file.content is FileContent.DATA and file.reserved_by is None


def merges_of_deletes(
    files: Iterable[TableFile], rewritten: Collection[str], shared: Collection[str], *, at_rest: bool = False
) -> Iterator[PlannedDeleteMerge]:
    """Yield the merges of the files that have too many delete files of their own, but for those that are
    rewritten, by their paths; in the order of paths. `shared`: the paths of those to which a shared delete
    file may apply from now on.
    """
    for file in sorted(files, key=lambda it: it.path):
        if file.content is FileContent.DATA and file.path not in rewritten:
            own = (it for it in file.deletes if it.run is None)
            deletes = sorted(own, key=lambda it: (it.rows, it.path))
            is_alone = len(deletes) == len(file.deletes) and file.path not in shared
            most = _most_of_its_own(is_alone=is_alone, at_rest=at_rest and has_open_deletes(file))
            if len(deletes) > (most if has_open_deletes(file) else _BESIDE_PLANS * most):
                rows = [it.rows for it in deletes]
                count = best_repaid(rows, sum(rows), most - 1)
                assert count is not None  # there is no limit to one
                yield PlannedDeleteMerge(file, tuple(deletes[:count]))


def _most_of_its_own(*, is_alone: bool, at_rest: bool) -> int:
    """Return how many delete files of a data file stay its own; `is_alone`: no shared one applies to it."""
    if at_rest:
        return DELETE_FILES_AT_REST if is_alone else DELETE_FILES_AT_REST - SHARED_RUNS_AT_REST
    return DELETE_FILES_AT_MOST if is_alone else _BESIDE_SHARED
