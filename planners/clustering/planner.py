"""The clustering planner: which files are rewritten together so that rows that are queried together are
stored together.

Per partition, with T the target, S the small limit, K `overlap_at_least`, G `max_group_bytes`:

* *New* files, not in the order wanted yet, are all taken, in the order of their keys.
* *Small* files of the order, as earlier passes left them, join when that is repaid: when all together
  reach S, and so leave full files and one remainder at most; or, K or more being there, in the order of their
  size as far as each is no larger than what joined before it. So every rewrite at least doubles a file.
* *Full* files of the order are sorted again where K (or as many as a group holds, if fewer) of one level
  share a range of keys; what they make is one level up and that many times narrower. n full files are
  sorted after log n rounds to the base G / T; two more are allowed, and none after that, so bounds too
  coarse to show the order (long common prefixes, say) cannot keep clustering busy for ever.

Without an order (bin-packing) there are small files only, and full ones are left alone. All of this is about
the files that the plan strategies let through: `BySize`, say, keeps full files from being sorted again.
Files under different keys of encryption are never joined.

A strategy that rewrites file by file takes the files in which it has something to change, and joins none.

What that bounds, for files that come out as planned:

* Bytes written per byte ingested, for passes that find x or more new bytes in a partition: at most

      3 + log2(S / x) + log(n) / log(G / T) + 2

  1 for coming into order; log2 for doubling; 2 for becoming part of a full file, since a pass that makes full
  files rewrites at most as much again that stays small; the rest for the rounds of full files.
* Small files in a partition, when a pass has taken all new ones: below K, or log2(S / x) + 2, since then
  each is larger than all smaller ones together.
* Without new files, passes come to an end: each leaves fewer files, or files one level up, and levels end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from planners.clustering.overlap import Extent, cliques, depth, extents
from planners.clustering.plan import ClusteringGroup, ClusteringPlan, Strategy, partition_text
from planners.clustering.policy import ClusteringPolicy
from planners.model import Decision, PartitionKey, TableFile, Verdict, describe_deletes
from planners.partitions import comparable, sort_key

_SPARE_ROUNDS = 2
"""Rounds of full files beyond those that sort them: groups may hold fewer files than planned with."""

_FITTING = 4
"""A file may outgrow the target by one part in so many where that leaves no small file behind."""


def plan_clustering(files: Iterable[TableFile], now: int, policy: ClusteringPolicy) -> ClusteringPlan:
    """Return which of these live files are rewritten together, and why each other one is left alone.

    `files` are all of the table, or of the partitions in question; `now` is of the same kind as their
    `committed_at`. Each file is in one group at most, and all files of a group are of one partition. No group
    is above the policy's limits. Files that are reserved, with deletes or of another partition spec are
    left alone. The same files in any order give the same plan.

    ValueError: bounds of one column that cannot be compared with each other.
    """
    live = sorted(files, key=lambda file: file.path)
    reasons = {file.path: reason for file in live if (reason := _refusal(file, policy)) is not None}
    for strategy in policy.select:
        usable = [file for file in live if file.path not in reasons]
        reasons |= strategy.refused(usable, policy, now)

    partitions: dict[tuple[PartitionKey, str], list[TableFile]] = {}
    for file in live:
        if file.path not in reasons:
            key = comparable(file.partition), file.encryption or ""
            partitions.setdefault(key, []).append(file)
    groups: list[ClusteringGroup] = []
    for key in sorted(partitions, key=lambda key: (sort_key(key[0]), key[1])):
        if policy.file_by_file:
            groups += _one_by_one(partitions[key], policy)
            continue
        planned = _Partition(partitions[key], policy)
        groups += planned.groups()
        reasons |= planned.reasons
    groups.sort(key=lambda group: (-Fraction(group.files_saved, max(1, group.bytes)), group.inputs))
    for group in groups[policy.max_groups :]:
        reasons |= dict.fromkeys(group.inputs, f"beyond the {policy.max_groups:,} groups of a plan")
    return ClusteringPlan(
        planned_at=now,
        target_file_bytes=policy.target_file_bytes,
        selected_by=tuple(Strategy(it.name, tuple(sorted(it.parameters.items()))) for it in policy.select),
        groups=tuple(groups[: policy.max_groups]),
        left_out=tuple(
            Decision(it.path, partition_text(it.partition), it.bytes, Verdict.KEPT, reasons[it.path])
            for it in live
            if it.path in reasons
        ),
    )


def _refusal(file: TableFile, policy: ClusteringPolicy) -> str | None:
    """Return why this file is never rewritten, or None if it may be."""
    if file.reserved_by is not None:
        return f"reserved by clustering plan {file.reserved_by}"
    if (deletes := describe_deletes(file)) is not None:
        return deletes
    if file.other_spec:
        return "has another partition spec"
    if file.bytes > policy.max_group_bytes:
        return f"above the {policy.max_group_bytes:,} bytes of a group"
    if policy.file_by_file and file.outdated is None:
        return f"{policy.strategy.name} has nothing to change in it"
    return None


def _one_by_one(files: Sequence[TableFile], policy: ClusteringPolicy) -> Iterator[ClusteringGroup]:
    """Groups of about a target file's bytes: nothing is joined, and more of them keep more tasks busy."""
    keyed = [_Keyed(file, ()) for file in files]
    for members in _bounded(keyed, policy.target_file_bytes, policy.max_group_files):
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
            reasons=tuple(f"{count:,} files: {reason}" for reason, count in reasons.items()),
        )


@dataclass(frozen=True, slots=True)
class _Keyed:
    """A file and the range of its keys."""

    file: TableFile
    extent: Extent


class _Partition:
    """The files of one partition that may be rewritten; `reasons` fills with those that are not."""

    def __init__(self, files: Sequence[TableFile], policy: ClusteringPolicy) -> None:
        self.policy = policy
        self.reasons: dict[str, str] = {}
        ranges = extents(files, policy.sort_by, curve=policy.along_a_curve)
        keyed = [_Keyed(file, extent) for file, extent in zip(files, ranges, strict=True)]
        keyed.sort(key=_key_order)
        self.new = [it for it in keyed if policy.order and it.file.clustered_by != policy.order]
        known = [it for it in keyed if not (policy.order and it.file.clustered_by != policy.order)]
        self.small = [it for it in known if it.file.bytes < policy.small_file_bytes]
        self.full = [it for it in known if it.file.bytes >= policy.small_file_bytes]

    def groups(self) -> Iterator[ClusteringGroup]:
        yield from self._joined()
        yield from self._sorted_again()

    def _joined(self) -> Iterator[ClusteringGroup]:
        """New files, and the small ones that repay being rewritten with them."""
        joining = self._repaid()
        new = {it.file.path for it in self.new}
        together = sorted((*self.new, *joining), key=_key_order)
        cut = list(_cut(together, self.policy))
        for members in cut:
            fresh = sum(it.file.path in new for it in members)
            group = self._group(members, level=0, fresh=fresh, beside=len(cut) - 1)
            if fresh or group.output_files < len(members):
                yield group
            else:
                self._leave(members, "alone: nothing to join it with")

    def _repaid(self) -> list[_Keyed]:
        """Return the small files that join, and say of the others why they wait."""
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

    def _sorted_again(self) -> Iterator[ClusteringGroup]:
        """Full files of the order that overlap enough, level by level."""
        policy = self.policy
        if not policy.order:
            self._leave(self.full, "large enough")
            return
        fan = max(2, min(policy.max_group_bytes // policy.target_file_bytes, policy.max_group_files))
        rounds = _SPARE_ROUNDS + next(r for r in range(64) if fan**r >= len(self.full))
        enough = min(policy.overlap_at_least, fan)
        if policy.along_a_curve:  # stretches of a curve overlap in every column, however well they are sorted
            enough *= len(policy.sort_by)
        taken: set[str] = set()
        for level in sorted({it.file.level for it in self.full if it.file.level < rounds}):
            peers = [it for it in self.full if it.file.level == level]
            for places in cliques([it.extent for it in peers], enough):
                for members in self._fans([peers[at] for at in places], min(enough, fan)):
                    taken.update(it.file.path for it in members)
                    yield self._group(members, level=level + 1, fresh=0)
        left = [it for it in self.full if it.file.path not in taken]
        self._leave([it for it in left if it.file.level < rounds], "in this order, and overlaps too little")
        self._leave(
            [it for it in left if it.file.level >= rounds],
            f"sorted {rounds:,} times against its neighbours, as often as {len(self.full):,} files need",
        )

    def _fans(self, members: Sequence[_Keyed], enough: int) -> Iterator[list[_Keyed]]:
        """Cut files that share a key into groups that are as large as they may be, or large enough."""
        pieces = list(_bounded(members, self.policy.max_group_bytes, self.policy.max_group_files))
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
            reasons.append(f"{fresh:,} files not in this order")
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
    """Keys in order, unknown ones last; a path comes last so that no two files are alike."""
    known = tuple(found or (2**63, 2**63) for found in it.extent)
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


def _cut(members: Sequence[_Keyed], policy: ClusteringPolicy) -> Iterator[list[_Keyed]]:
    """Cut files into groups of a whole number of target files, where files end there, and a remainder."""
    whole = policy.max_group_bytes // policy.target_file_bytes * policy.target_file_bytes
    start = 0
    while start < len(members):
        ahead = members[start : start + policy.max_group_files]
        run = next(_bounded(ahead, whole, policy.max_group_files))
        files, remainder = _output_files(sum(it.file.bytes for it in run), policy)
        if remainder and files > 1:
            multiple = (files - 1) * policy.target_file_bytes
            shorter = next(_bounded(run, multiple, policy.max_group_files))
            if sum(it.file.bytes for it in shorter) * 8 >= multiple * 7:
                run = shorter
        yield run
        start += len(run)


def _bounded(members: Sequence[_Keyed], most_bytes: int, most_files: int) -> Iterator[list[_Keyed]]:
    """Cut into runs of at most so many bytes and files; a file above the bytes is a run of its own."""
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
