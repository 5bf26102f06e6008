"""Keeps reused Python workers from doing work again before and after each task.

PySpark calls `importlib.invalidate_caches()` before every task, so that files that came with `addPyFile` are
found. Its workers import PySpark itself from `pyspark.zip`, through about a dozen importers, and each of them
then reads the archive's directory of more than a thousand entries again: tens of milliseconds a
task, as long as a small batch takes to write.

While this is enabled, a zip importer reads its archive again only if the archive is another file, or has
another size or time of change, than when that importer last read it. So nothing that changed is missed.
PySpark has just read all archives when a worker's first task enables it: those that have not changed for a
minute are not read a second time before its second task.

PySpark also collects garbage after every task, and goes through the 80,000 objects of what was imported,
which takes 15 to 30 ms of a processor: those that are there when a worker's first task enables this are left
out (`gc.freeze`), so that only a cycle which is garbage at that moment is kept.

The environment variable STREAMING_SINK_FAST_WORKERS=0, on the driver, disables both.
"""

from __future__ import annotations

import gc
import os
import sys
import time
import zipimport
from collections.abc import Mapping
from typing import Any

SWITCH = "STREAMING_SINK_FAST_WORKERS"
_original: Any = zipimport.zipimporter.invalidate_caches
_LAST_READ = "_streaming_sink_last_read"
_SETTLED_SECONDS = 60
"""An archive that was last touched before that is the one that PySpark read as the task began."""


def is_enabled(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the driver's environment leaves it enabled."""
    return environment.get(SWITCH, "1") != "0"


def set_enabled(enabled: bool) -> None:
    """Enable or disable it in this process, from this task on."""
    wanted = _invalidate_if_changed if enabled else _original
    if zipimport.zipimporter.invalidate_caches is wanted:
        return
    # Not by an assignment, which mypy refuses for a method.
    setattr(zipimport.zipimporter, "invalidate_caches", wanted)  # noqa: B010
    if enabled:
        _note_settled_archives()
        gc.freeze()
    else:
        gc.unfreeze()


def _note_settled_archives() -> None:
    settled_before = time.time() - _SETTLED_SECONDS
    for importer in sys.path_importer_cache.values():
        if isinstance(importer, zipimport.zipimporter):
            stat = _stat(importer.archive)
            if stat is not None and stat.st_ctime < settled_before:
                setattr(importer, _LAST_READ, _identity(stat))


def _invalidate_if_changed(importer: Any) -> None:
    stat = _stat(importer.archive)
    now = None if stat is None else _identity(stat)
    if now is None or now != getattr(importer, _LAST_READ, None):
        _original(importer)
        setattr(importer, _LAST_READ, now)


def _stat(archive: str) -> os.stat_result | None:
    try:
        return os.stat(archive)
    except OSError:
        return None


def _identity(stat: os.stat_result) -> tuple[int, int, int, int]:
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns
