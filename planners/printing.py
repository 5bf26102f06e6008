"""The printing of plans: aligned columns, and a bounded number of lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

EXPLAINED_LINES = 100
"""How many files, buckets or groups a plan prints before it only counts them."""


def joined(partition: Sequence[object]) -> str:
    """Return a partition's values with slashes between, or "-" where there is no partition."""
    return "/".join(str(value) for value in partition) if partition else "-"


def table(align: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the rows below their heads in aligned columns; `align` has one of < and > a column."""
    cells = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  "
        + "  ".join(
            f"{cell:{side}{width}}" for cell, side, width in zip(row, align, widths, strict=True)
        ).rstrip()
        for row in cells
    ]


def uncounted(what: str, count: int) -> list[str]:
    """Return the line with the number of those that are not listed, if there are any."""
    left = count - EXPLAINED_LINES
    return [f"  ... and {left:,} {what} more, not listed"] if left > 0 else []
