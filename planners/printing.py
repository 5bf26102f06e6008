"""What people read: aligned columns, a bounded number of lines, and spans of time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

EXPLAINED_LINES = 100
"""How many files, buckets or groups a plan prints before it only counts them."""


def joined(partition: Sequence[object]) -> str:
    """Return a partition's values with slashes between, or "-" where there is no partition."""
    return "/".join(str(value) for value in partition) if partition else "-"


def table(align: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the rows below their heads in aligned columns; `align` has one of < and > a column. Nothing
    where there are no rows.
    """
    if len(cells := [head, *rows]) == 1:
        return []
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


_SPANS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1))


def span_text(milliseconds: int) -> str:
    """Return a span by its two largest units, such as "2 d 4 h"; from a second on without milliseconds."""
    left = milliseconds - milliseconds % 1_000 if milliseconds >= 1_000 else milliseconds
    parts: list[str] = []
    for unit, size in _SPANS:
        if number := left // size:
            parts.append(f"{number:,} {unit}")
        left %= size
    return " ".join(parts[:2]) or "0 s"
