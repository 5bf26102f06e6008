"""Spares reused Python workers the re-reading of zip archives that have not changed.

PySpark calls `importlib.invalidate_caches()` before every task, so that files that came with `addPyFile` are
found. Its workers import PySpark itself from `pyspark.zip`, through about a dozen importers, and each of them
answers by reading the archive's directory of more than a thousand entries again: tens of milliseconds a
task, as long as a small batch takes to write.

While this is switched on, a zip importer reads its archive again only if the archive is another file, or has
another size or time of change, than when that importer last read it. So nothing that changed is missed. The
environment variable STREAMING_SINK_FAST_WORKERS=0, on the driver, switches it off.
"""

from __future__ import annotations

import os
import zipimport
from collections.abc import Mapping
from typing import Any

SWITCH = "STREAMING_SINK_FAST_WORKERS"
_original: Any = zipimport.zipimporter.invalidate_caches
_LAST_READ = "_streaming_sink_last_read"


def wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the driver's environment leaves it on."""
    return environment.get(SWITCH, "1") != "0"


def switch(on: bool) -> None:
    """Switch it on or off in this process, from the next task on."""
    # Not by an assignment, which mypy refuses for a method.
    setattr(zipimport.zipimporter, "invalidate_caches", _invalidate_if_changed if on else _original)  # noqa: B010


def _invalidate_if_changed(importer: Any) -> None:
    now = _identity(importer.archive)
    if now is None or now != getattr(importer, _LAST_READ, None):
        _original(importer)
        setattr(importer, _LAST_READ, now)


def _identity(archive: str) -> tuple[int, int, int, int] | None:
    try:
        found = os.stat(archive)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
