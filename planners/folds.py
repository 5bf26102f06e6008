"""Folds: which files are rewritten because many of their rows are deleted.

A file is *worn* once more than the share f of its rows is deleted (`fold_above`), or all of them. The next
pass of fills rewrites it without these rows, and its delete files leave the table with it. A worn file that
is small by then is joined by others like it; a sorted one keeps its order, alone.

What that bounds, for rows of equal width within a file:

* Bytes written by folds per byte deleted: below 1/f - 1. A worn file of which d bytes are deleted has at most
  (1/f - 1) d live ones, and a deleted row is folded once. So a file from which one row is deleted at a time
  is not rewritten until the share is reached, however many delete files it has by then.
* Small files that shrink are filled as before. In the terms of `planners/fills.py`, each byte deleted costs
  1.45 (M / x) ** (1/8) more there: a file of s bytes that loses d of them has s - d left, each of which
  doubles log2(s / (s - d)) times more until it is sealed, and (s - d) log2(1 + d / (s - d)) < d / ln 2. A
  full file that folds below the small limit is sealed once more, for 2 (1/f - 1) per byte deleted.

A full file of which fewer rows are deleted is left alone, though its live bytes may be below the small limit:
one byte deleted of a file of just that size would have all of it merged again.
"""

from __future__ import annotations

from planners.model import TableFile

FOLD_ABOVE = 0.2
"""The default share: below four bytes are written per byte deleted, and readers skip a fifth of a file."""


def is_worn(file: TableFile, fold_above: float) -> bool:
    """Return whether so many rows of a file are deleted that it is to be rewritten without them."""
    return file.deleted_rows > fold_above * (file.rows + file.deleted_rows) or (
        file.deleted_rows > 0 and file.rows == 0
    )


def why_worn(file: TableFile) -> str:
    return f"{file.deleted_rows:,} of {file.rows + file.deleted_rows:,} rows are deleted"
