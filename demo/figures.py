"""Numbers as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def bytes_text(size: float) -> str:
    """Return `size` in KiB or MiB, one decimal where that tells something: `"12.3 MiB"`, `"431 KiB"`."""
    kibibytes = size / 1024
    if kibibytes < 1000:
        return f"{kibibytes:,.0f} KiB"
    return f"{kibibytes / 1024:,.1f} MiB"


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
    return "\n".join("  " + "  ".join(line) for line in lines)
