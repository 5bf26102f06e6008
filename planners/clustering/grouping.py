"""The groups of one partition: which of its files are rewritten together. `planner` documents the rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from planners.clustering.overlap import Extent, cliques, depth, extents
from planners.clustering.plan import ClusteringGroup, partition_text
from planners.clustering.policy import ClusteringPolicy
from planners.model import TableFile
from planners.sizing import count_text

_SPARE_ROUNDS = 2
"""Rounds of full files beyond those that sort them: groups may hold fewer files than assumed."""

_FITTING = 4
"""A file may exceed the target by this fraction (one part in so many) where that avoids a small file."""


@dataclass(frozen=True, slots=True)
class _Keyed:
    """A file and the range of its keys."""

    file: TableFile
    extent: Extent


def file_by_file_groups(files: Sequence[TableFile], policy: ClusteringPolicy) -> Iterator[ClusteringGroup]:
    """Return groups of about a target file's bytes: no files are joined, and more groups keep more tasks
    busy.
    """
    keyed = [_Keyed(file, ()) for file in files]
    for members in _bounded_runs(keyed, policy.target_file_bytes, policy.max_group_files):
        reasons = Counter(it.file.outdated for it in members)
        yield ClusteringGroup(
            inputs=tuple(it.file.path for it in members),
            partition=partition_text(members[0].file.partition),
            bytes=sum(it.file.bytes for it in members),
            rows=sum(it.file.rows for it in members),
            output_files=len(members),
            sort_by=(),
            strategy=policy.strategy,
            remainder=False,
            level=0,
            files_saved=0,
            reasons=tuple(f"{count_text(count, 'file')}: {reason}" for reason, count in reasons.items()),
        )


class PartitionGroups:
    """The groups of one partition's files. `reasons` has, by path, why files are in no group."""

    def __init__(self, files: Sequence[TableFile], policy: ClusteringPolicy) -> None:
        self.policy = policy
        self.reasons: dict[str, str] = {}
        ranges = extents(files, policy.sort_by, curve=policy.along_curve)
        keyed = [_Keyed(file, extent) for file, extent in zip(files, ranges, strict=True)]
        keyed.sort(key=_key_order)
        self.new = [it for it in keyed if policy.order and it.file.clustered_by != policy.order]
        known = [it for it in keyed if not (policy.order and it.file.clustered_by != policy.order)]
        self.small = [it for it in known if it.file.bytes < policy.small_file_bytes]
        self.full = [it for it in known if it.file.bytes >= policy.small_file_bytes]
        fan = max(2, min(policy.max_group_bytes // policy.target_file_bytes, policy.max_group_files))
        self._rounds = _SPARE_ROUNDS + next(r for r in range(64) if fan**r >= len(self.full))
        # Files along a curve overlap in every column, even where they are well sorted.
        dimensions = len(policy.sort_by) if policy.along_curve else 1
        self._enough = min(policy.overlap_at_least, fan) * dimensions
        self._fewest = min(self._enough, fan)

    def compared(self) -> Iterator[str]:
        """Yield the files whose bounds decide what is grouped, of files whose bounds are not known yet."""
        peers = (each for _, each in self._peers())
        yield from (it.file.path for it in chain(self.new, self._select_small_files(), *peers))

    def groups(self) -> Iterator[ClusteringGroup]:
        yield from self._join_small_files()
        yield from self._sort_full_files()

    def _join_small_files(self) -> Iterator[ClusteringGroup]:
        """Group the new files with the small ones that repay their rewriting."""
        joining = self._select_small_files()
        new = {it.file.path for it in self.new}
        together = sorted((*self.new, *joining), key=_key_order)
        runs = list(_divide(together, self.policy))
        for members in runs:
            fresh = sum(it.file.path in new for it in members)
            group = self._group(members, level=0, fresh=fresh, beside=len(runs) - 1)
            if fresh or group.output_files < len(members):
                yield group
            else:
                self._leave(members, "alone: nothing to join it with")

    def _select_small_files(self) -> list[_Keyed]:
        """Return the small files that join, and record why the others wait."""
        policy = self.policy
        small = sorted(self.small, key=lambda it: (it.file.bytes, it.file.path))
        below = sum(it.file.bytes for it in self.new)
        if below + sum(it.file.bytes for it in small) >= policy.small_file_bytes:
            return small
        if len(small) + bool(self.new) < policy.overlap_at_least:
            self._leave(
                small, f"waits: {len(small):,} small files, joined from {policy.overlap_at_least:,} on"
            )
            return []
        repaid = 0
        for count, it in enumerate(small, start=1):
            if it.file.bytes <= below:
                repaid = count
            below += it.file.bytes
        self._leave(small[repaid:], "joining it would not be repaid")
        return small[:repaid]

    def _sort_full_files(self) -> Iterator[ClusteringGroup]:
        """Group the full files of the order that overlap enough, level by level."""
        policy = self.policy
        if not policy.order:
            self._leave(self.full, "large enough")
            return
        taken: set[str] = set()
        for level, peers in self._peers():
            for places in cliques([it.extent for it in peers], self._enough):
                for members in self._fan_groups([peers[at] for at in places], self._fewest):
                    taken.update(it.file.path for it in members)
                    yield self._group(members, level=level + 1, fresh=0)
        rounds = self._rounds
        left = [it for it in self.full if it.file.path not in taken]
        self._leave([it for it in left if it.file.level < rounds], "in this order, and overlaps too little")
        self._leave(
            [it for it in left if it.file.level >= rounds],
            f"sorted {rounds:,} times against its neighbours, as often as {len(self.full):,} files need",
        )

    def _peers(self) -> Iterator[tuple[int, list[_Keyed]]]:
        """Yield the full files of each level that has enough of them."""
        of_order = self.full if self.policy.order else []
        for level in sorted({it.file.level for it in of_order if it.file.level < self._rounds}):
            peers = [it for it in of_order if it.file.level == level]
            if len(peers) >= self._enough:
                yield level, peers

    def _fan_groups(self, members: Sequence[_Keyed], enough: int) -> Iterator[list[_Keyed]]:
        """Divide files that share a key into groups of the largest size; keep a smaller last one if it is
        large enough.
        """
        pieces = list(_bounded_runs(members, self.policy.max_group_bytes, self.policy.max_group_files))
        for place, piece in enumerate(pieces, start=1):
            if len(piece) >= (2 if place < len(pieces) else enough):
                yield piece

    def _leave(self, members: Iterable[_Keyed], reason: str) -> None:
        self.reasons |= dict.fromkeys((it.file.path for it in members), reason)

    def _group(
        self, members: Sequence[_Keyed], *, level: int, fresh: int, beside: int = 0
    ) -> ClusteringGroup:
        policy = self.policy
        size = sum(it.file.bytes for it in members)
        files, remainder = _output_files(size, policy)
        deep = depth([it.extent for it in members])
        reasons = []
        if fresh:
            reasons.append(f"{count_text(fresh, 'file')} not in this order")
        if level:
            reasons.append(f"{len(members):,} full files share keys, round {level:,}")
        elif fresh < len(members):
            reasons.append(f"{len(members) - fresh:,} small files join")
        if policy.sort_by and deep > 1:
            reasons.append(f"a key may be in {deep:,} files")
        if policy.sort_by and beside:
            reasons.append(f"sorted per group, {beside + 1:,} of the partition")
        if remainder:
            reasons.append(f"remainder: {size:,} bytes are no multiple of {policy.target_file_bytes:,}")
        return ClusteringGroup(
            inputs=tuple(it.file.path for it in members),
            partition=partition_text(members[0].file.partition),
            bytes=size,
            rows=sum(it.file.rows for it in members),
            output_files=files,
            sort_by=tuple(map(str, policy.sort_by)),
            strategy=policy.strategy,
            remainder=remainder,
            level=level,
            files_saved=max(0, len(members) - files) + (deep - 1 if policy.sort_by else 0),
            reasons=tuple(reasons),
        )


def _key_order(it: _Keyed) -> tuple[object, ...]:
    """Return what orders files by key, unknown keys last. The path makes the order total."""
    known = tuple(each or (2**63, 2**63) for each in it.extent)
    return known, it.file.committed_at, it.file.path


def _output_files(size: int, policy: ClusteringPolicy) -> tuple[int, bool]:
    """Return how many files these bytes make, and whether the last of them stays small."""
    files = max(1, -(-size // policy.target_file_bytes))
    if size >= files * policy.small_file_bytes:
        return files, False
    excess = size - (files - 1) * policy.target_file_bytes
    if files > 1 and excess * _FITTING <= policy.target_file_bytes:
        return files - 1, False
    return files, True


def _divide(members: Sequence[_Keyed], policy: ClusteringPolicy) -> Iterator[list[_Keyed]]:
    """Divide files into groups of a whole number of target files, where files end there, and a remainder."""
    whole = policy.max_group_bytes // policy.target_file_bytes * policy.target_file_bytes
    start = 0
    while start < len(members):
        ahead = members[start : start + policy.max_group_files]
        run = next(_bounded_runs(ahead, whole, policy.max_group_files))
        files, remainder = _output_files(sum(it.file.bytes for it in run), policy)
        if remainder and files > 1:
            multiple = (files - 1) * policy.target_file_bytes
            shorter = next(_bounded_runs(run, multiple, policy.max_group_files))
            if sum(it.file.bytes for it in shorter) * 8 >= multiple * 7:
                run = shorter
        yield run
        start += len(run)


def _bounded_runs(members: Sequence[_Keyed], most_bytes: int, most_files: int) -> Iterator[list[_Keyed]]:
    """Divide files into runs of at most so many bytes and files; a larger file is a run by itself."""
    run: list[_Keyed] = []
    size = 0
    for it in members:
        if run and (size + it.file.bytes > most_bytes or len(run) == most_files):
            yield run
            run, size = [], 0
        run.append(it)
        size += it.file.bytes
    if run:
        yield run
