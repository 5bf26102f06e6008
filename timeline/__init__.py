"""A plain Iceberg table on any store that creates a file only if it is absent: its versions, its head, its
commits.

Usable without Spark. See `Table`, `open_store`, `doctor`, the cleaners and docs/protocol.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from timeline.diagnosis import doctor
    from timeline.maintenance.expiry import expire_snapshots
    from timeline.maintenance.orphans import remove_orphan_files

_WHERE = {
    "timeline.diagnosis": ("doctor",),
    "timeline.maintenance.expiry": ("expire_snapshots",),
    "timeline.maintenance.orphans": ("remove_orphan_files",),
}

__all__ = ["doctor", "expire_snapshots", "remove_orphan_files"]


def __getattr__(name: str) -> Any:
    # Loaded when it is asked for: Spark's Python workers import parts of this package, and need few of them.
    for module, names in _WHERE.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'timeline' has no attribute {name!r}")
