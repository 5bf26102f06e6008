"""The data files of a head, one by one and by partition."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import compress
from typing import Any

from planners.model import TablePartition, comparable
from streaming_sink.table.partition_names import as_terms, speller
from timeline.manifests.entries import LiveFile
from timeline.manifests.packed import PackedFiles
from timeline.names import clustering_of
from timeline.versions.head import Head


@dataclass(frozen=True, kw_only=True)
class FileDetails:
    """One live data file."""

    path: str
    """Below the table's location."""
    partition: str
    """As its folders are called, "region=eu/day=2026-01-01"; "" where its spec has no fields."""
    spec_id: int
    """The partition spec that it was written under."""
    bytes: int
    rows: int
    sorted: bool
    """By an Iceberg sort order, or along a curve, which only its name records."""
    encrypted: bool
    deletes: bool
    """Delete files may apply to it."""
    plan_id: str | None
    """The pending clustering plan that reserves it."""


@dataclass(frozen=True, kw_only=True)
class PartitionDetails:
    """The live data files of one partition together."""

    partition: str
    spec_id: int
    files: int
    small_files: int
    rows: int
    bytes: int
    mean_bytes: int


def list_files(
    head: Head,
    reserved: Mapping[str, str],
    keep: Callable[[TablePartition], bool] | None = None,
) -> list[FileDetails]:
    """Return the live data files, largest first; those of the partitions that `keep` holds for, if given.
    `reserved`: location → the plan that has the file.
    """
    root = f"{head.metadata.location}/"
    listed = [
        FileDetails(
            path=file.location.removeprefix(root),
            partition=partition,
            spec_id=file.spec_id,
            bytes=file.bytes,
            rows=file.rows,
            sorted=bool(file.sort_order_id) or clustering_of(file.location) is not None,
            encrypted=file.encryption is not None,
            deletes=head.has_deletes(file),
            plan_id=reserved.get(file.location),
        )
        for (_, partition), files in _by_partition(head, keep).items()
        for file in files
    ]
    return sorted(listed, key=lambda it: (-it.bytes, it.path))


@dataclass(slots=True)
class _Sums:
    """Of the files of one partition."""

    files: int = 0
    small_files: int = 0
    rows: int = 0
    bytes: int = 0


def list_partitions(head: Head, small_below: int) -> list[PartitionDetails]:
    """Return the partitions with files, those with most files below so many bytes first. Keeps nothing of a
    file: 0.5 µs each where manifests have copies.
    """
    return sum_partitions(head, head.columns(), small_below)


def sum_partitions(head: Head, files: Iterable[PackedFiles], small_below: int) -> list[PartitionDetails]:
    """As `list_partitions`, of these files of a head."""
    by_key = defaultdict[tuple[int, tuple[Any, ...]], _Sums](_Sums)
    for columns in files:
        small = Counter(compress(columns.partition, map(small_below.__gt__, columns.bytes)))
        sizes, rows = [0] * len(columns.partitions), [0] * len(columns.partitions)
        for place, size in zip(columns.partition, columns.bytes, strict=True):
            sizes[place] += size
        for place, number in zip(columns.partition, columns.rows, strict=True):
            rows[place] += number
        for place, count in Counter(columns.partition).items():
            own = by_key[columns.spec_id, columns.partitions[place]]  # in which each NaN is the same
            own.files += count
            own.small_files += small[place]
            own.rows += rows[place]
            own.bytes += sizes[place]
    spell = speller(head)
    listed = [
        PartitionDetails(
            partition="/".join(as_terms(spell(TablePartition(spec_id, values)))),
            spec_id=spec_id,
            files=own.files,
            small_files=own.small_files,
            rows=own.rows,
            bytes=own.bytes,
            mean_bytes=own.bytes // own.files,
        )
        for (spec_id, values), own in by_key.items()
    ]
    return sorted(listed, key=lambda it: (-it.small_files, -it.files, it.partition, it.spec_id))


def _by_partition(
    head: Head, keep: Callable[[TablePartition], bool] | None = None
) -> Mapping[tuple[int, str], list[LiveFile]]:
    """Return the live data files by their partition specs and the names of their partitions."""
    # There may be thousands of files in a partition, which is spelled once.
    by_key: dict[TablePartition, list[LiveFile]] = defaultdict(list)
    for file in head.live_files():
        by_key[TablePartition(file.spec_id, comparable(file.partition))].append(file)
    by_name: dict[tuple[int, str], list[LiveFile]] = defaultdict(list)
    spell = speller(head)
    for partition, files in by_key.items():
        if keep is None or keep(partition):
            by_name[partition.spec_id, "/".join(as_terms(spell(partition)))] += files
    return by_name
