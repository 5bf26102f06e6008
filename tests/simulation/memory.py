"""Schedules in which processes keep few manifests in memory, and in which names of manifests lie.

Both are classes of their own, so that the other seeds stay what they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from timeline.drafts import rewriting
from timeline.manifests import contents, copies, lookup, read_ahead
from timeline.manifests.stated_files import StatedFiles
from timeline.versions import head

MEMORY = 7
"""In two of so many seeds nearly nothing is kept in memory, and each manifest of two files has a copy."""
_SMALL = (3, 5)
_PURGED = (2, 6)
"""The millions of the seeds whose tables are purged."""
_LYING = 5


def has_small_memory(seed: int) -> bool:
    """Return whether the processes of a schedule keep little."""
    return seed % MEMORY in _SMALL


def memory_of(seed: int) -> Iterator[tuple[object, str, object]]:
    """Yield what a schedule has in the place of names of modules. It has no threads."""
    yield read_ahead, "READS_AT_ONCE", 1
    if has_small_memory(seed):
        yield contents, "_CACHED_ENTRIES", 1
        yield contents, "KEPT_FILES", 4
        yield copies, "KEPT_BYTES", 1_500
    if seed % MEMORY == _LYING:
        # A purge that never finds a file again never ends, so there the times of ids are right.
        modules = (rewriting, head) if seed // 1_000_000 in _PURGED else (rewriting, lookup, head)
        yield from ((module, "stated_files", lie) for module in modules)


def lie(manifest_path: str) -> StatedFiles | None:
    """Return what the name of a manifest might state, had somebody written it who knew nothing of it."""
    random = Random(manifest_path)
    if random.random() < 0.3:
        return None
    sizes = [random.choice([None, 0, 1 << 40]) for _ in range(2)]
    times = sorted(random.choice(["0", "01", "7", "Z"]).ljust(10, "0") for _ in range(2))
    return StatedFiles(random.choice([0, 1, 300]), *sizes, *times)
