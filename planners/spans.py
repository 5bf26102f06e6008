"""Spans of time as people read them."""

from __future__ import annotations

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
