"""Numbers as people read them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def bytes_text(size: float) -> str:
    """Return `size` in KiB or MiB, one decimal where that tells something: `"12.3 MiB"`, `"431 KiB"`."""
    kibibytes = size / 1024
    if kibibytes < 1000:
        return f"{kibibytes:,.0f} KiB"
    return f"{kibibytes / 1024:,.1f} MiB"


def times_text(ratio: float) -> str:
    """Return `ratio` with two digits: `"8.6x"`, `"12x"`, `"0.9x"`. It is cut, never rounded up."""
    return f"{math.floor(ratio)}x" if ratio >= 10 else f"{math.floor(ratio * 10) / 10:.1f}x"


def ticks(most: float, at_most: int = 5) -> list[int]:
    """Return round numbers for an axis, from 0 up to the first that is not below `most`."""
    step = 1
    while most / step > at_most:
        step = _next_round(step)
    return [step * number for number in range(math.ceil(most / step) + 1)]


def _next_round(step: int) -> int:
    """Return the next of 1, 2, 5, 10, 20, 50, …"""
    return step * 5 // 2 if str(step).startswith("2") else step * 2


def table_text(rows: Sequence[Sequence[str]]) -> str:
    """Return `rows` as an aligned table: the first row is the head, the first column is to the left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        for row in rows
    ]
    lines.insert(1, ["─" * width for width in widths])
    return "\n".join(("  " + "  ".join(line)).rstrip() for line in lines)
