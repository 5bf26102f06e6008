"""Keeps reused Python workers from reading zip archives again that have not changed.

PySpark calls `importlib.invalidate_caches()` before every task, so that files that came with `addPyFile` are
found. Its workers import PySpark itself from `pyspark.zip`, through about a dozen importers, and each of them
then reads the archive's directory of more than a thousand entries again: tens of milliseconds a
task, as long as a small batch takes to write.

While this is enabled, a zip importer reads its archive again only if the archive is another file, or has
another size or time of change, than when that importer last read it. So nothing that changed is missed. The
environment variable STREAMING_SINK_FAST_WORKERS=0, on the driver, disables it.
"""

from __future__ import annotations

import os
import zipimport
from collections.abc import Mapping
from typing import Any

SWITCH = "STREAMING_SINK_FAST_WORKERS"
_original: Any = zipimport.zipimporter.invalidate_caches
_LAST_READ = "_streaming_sink_last_read"


def is_enabled(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the driver's environment leaves it enabled."""
    return environment.get(SWITCH, "1") != "0"


def set_enabled(enabled: bool) -> None:
    """Enable or disable it in this process, from the next task on."""
    # Not by an assignment, which mypy refuses for a method.
    setattr(zipimport.zipimporter, "invalidate_caches", _invalidate_if_changed if enabled else _original)  # noqa: B010


def _invalidate_if_changed(importer: Any) -> None:
    now = _identity(importer.archive)
    if now is None or now != getattr(importer, _LAST_READ, None):
        _original(importer)
        setattr(importer, _LAST_READ, now)


def _identity(archive: str) -> tuple[int, int, int, int] | None:
    try:
        stat = os.stat(archive)
    except OSError:
        return None
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns
