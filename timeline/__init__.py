"""A plain Iceberg table on any store that creates a file only if it is absent: its versions, its head, its
commits.

Usable without Spark. See `Table`, `open_store`, `doctor` and docs/protocol.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from timeline.diagnosis import doctor

__all__ = ["doctor"]


def __getattr__(name: str) -> Any:
    # Loaded when it is asked for: Spark's Python workers import parts of this package, and need few of them.
    if name != "doctor":
        raise AttributeError(f"module 'timeline' has no attribute {name!r}")
    from timeline.diagnosis import doctor

    return doctor
