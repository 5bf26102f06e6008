"""Which row groups of a file that is merged are copied as they are, and which are decoded and encoded again.

A row group is worth keeping from so many bytes on: readers pay for each one, by requests and by setting up
its columns, so many small ones cost more than they hold. All that are smaller become large ones, but for what
is left of a file's: so a file that is merged has one below the bound at most, as far as the rows that the
writer puts into a row group take so many bytes.

So the rows of a small row group are decoded again with each merge of their file, and those of a large one
never again, but to leave out deleted rows, or where another file begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredRows:
    """One row group of a file that is merged."""

    rows: int
    """The rows that it holds, deleted or not."""
    bytes: int
    """Of its column chunks, compressed."""
    deleted: int = 0
    """How many of its rows are deleted."""
    unfit: str = ""
    """Why its bytes cannot be part of another file, "" where they can."""


@dataclass(frozen=True, slots=True)
class RowGroupPlan:
    """What becomes of the row groups of one file, by their numbers, each once."""

    copied: tuple[int, ...]
    decoded: tuple[int, ...]
    reasons: tuple[str, ...]
    """Why each of the decoded ones is."""


def plan_row_groups(groups: Sequence[StoredRows], from_bytes: int, cuts: Sequence[int] = ()) -> RowGroupPlan:
    """Return which row groups are copied: those of so many bytes or more whose rows are all live.

    `cuts`: after so many live rows of the file another one begins, so that its rows are in two; then all are
    decoded.
    """
    live = sum(group.rows - group.deleted for group in groups)
    inside = next((cut for cut in cuts if 0 < cut < live), None)
    reasons = [
        f"a new file begins after {inside:,} of its rows" if inside else _why_decoded(group, from_bytes)
        for group in groups
    ]
    return RowGroupPlan(
        tuple(number for number, reason in enumerate(reasons) if not reason),
        tuple(number for number, reason in enumerate(reasons) if reason),
        tuple(filter(None, reasons)),
    )


def _why_decoded(group: StoredRows, from_bytes: int) -> str:
    if group.bytes < from_bytes:
        return f"{group.bytes:,} bytes, copied from {from_bytes:,} on"
    if group.deleted:
        return f"{group.deleted:,} of its rows are deleted"
    return group.unfit
