"""How many manifests a table has, and how big they are: the stated policy that keeps a commit's cost flat.
Pure.

Like the levels of an LSM tree, for metadata. Files that are still small (*open*: a later fill may replace
them) stay in manifests of their own, at most `OPEN_ENTRIES` each and ordered by partition, so that a fill
rewrites a small manifest and never touches the big ones. All others (*sealed*) move up in tiers: when
`min_count` manifests of one tier exist they are merged into one of the next, `min_count` times as big, until
`SEALED_ENTRIES`. An entry is so rewritten about log(files) / log(min_count) times in its life, and a snapshot
lists at most about `min_count` manifests a tier, beside the full ones. What is rewritten keeps the bounds,
also where other engines have merged before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

OPEN_ENTRIES = 256
"""Most entries of an open manifest: rewriting one costs about 10 ms."""
SEALED_ENTRIES = 4096
"""Most entries of a sealed manifest: about 1 MB of Avro. One that is half full is never merged again. Also
the most entries that one commit merges: about 0.4 s, and once in as many files.
"""

Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class ManifestSize:
    """What the policy needs to know of one manifest."""

    path: str
    spec_id: int
    live: int
    open: int


def manifests_to_merge(sizes: Iterable[ManifestSize], min_count: int) -> frozenset[str]:
    """Return the paths of the manifests that the next rewrite should merge; empty while no class has
    `min_count`.

    Full manifests, of either kind, are never candidates. A merge shrinks the list, unless it sorts open from
    sealed files for the first time; so merging what was merged soon ends.
    """
    classes: dict[tuple[int, str, int], list[ManifestSize]] = defaultdict(list)
    for size in filter(may_be_merged, sizes):
        kind, tier = ("open", 0) if _is_open(size) else ("sealed", _tier(size.live, min_count))
        classes[size.spec_id, kind, tier].append(size)
    return frozenset(
        path for members in classes.values() if len(members) >= min_count for path in _at_most(members)
    )


def may_be_merged(size: ManifestSize) -> bool:
    """Return whether a manifest is not full, so that some merge takes it."""
    return 2 * size.live <= (OPEN_ENTRIES if _is_open(size) else SEALED_ENTRIES)


def _is_open(size: ManifestSize) -> bool:
    return 2 * size.open > size.live


def manifests_to_split(sizes: Iterable[ManifestSize]) -> frozenset[str]:
    """Return the paths of the manifests of other engines that the next rewrite should sort open from sealed
    files in, of as many entries as one commit may merge. They merge by bytes alone, over both kinds. A larger
    one is split once a fill takes a file of it.
    """
    return frozenset(_at_most([size for size in sizes if _is_mixed(size)]))


def _is_mixed(size: ManifestSize) -> bool:
    return size.live > OPEN_ENTRIES and size.open > 0


def _at_most(members: Sequence[ManifestSize]) -> Iterator[str]:
    """Yield the paths of the smallest manifests, up to what one commit may merge."""
    entries = 0
    for size in sorted(members, key=lambda size: (size.live, size.path)):
        entries += size.live
        if entries > SEALED_ENTRIES:
            return
        yield size.path


def pack(
    entries: Sequence[Entry],
    is_open: Callable[[Entry], bool],
    partition_of: Callable[[Entry], tuple[object, ...]],
) -> list[list[Entry]]:
    """Return the entries as the contents of manifests: one where they are few, else open and sealed apart,
    each in the order of their partitions, so that the bounds of a manifest say much.

    Every entry is in exactly one list, and no list is empty.
    """
    if len(entries) <= OPEN_ENTRIES:
        return [list(entries)] if entries else []
    ordered = sorted(entries, key=lambda entry: _typed_order(partition_of(entry)))
    opened = [entry for entry in ordered if is_open(entry)]
    sealed = [entry for entry in ordered if not is_open(entry)]
    return [*_cut(opened, OPEN_ENTRIES), *_cut(sealed, SEALED_ENTRIES)]


def _typed_order(partition: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what orders partitions of one spec as their values are: null first, NaN last."""
    return tuple((it is not None, it != it, None if it != it else it) for it in partition)


def _cut(entries: list[Entry], most: int) -> list[list[Entry]]:
    return [entries[start : start + most] for start in range(0, len(entries), most)]


def _tier(live: int, min_count: int) -> int:
    tier, least = 0, min_count
    while live >= least:
        tier, least = tier + 1, least * min_count
    return tier
