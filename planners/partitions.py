"""Comparing and ordering partition keys, whose values may be of any type, None and NaN included."""

from __future__ import annotations

from planners.model import PartitionKey, TableFile, TablePartition

_NAN = float("nan")


def comparable(partition: PartitionKey) -> PartitionKey:
    """Return the key with one and the same NaN for every NaN, so that a partition of NaN equals itself."""
    if not any(value != value for value in partition):
        return partition
    return tuple(_NAN if value != value else value for value in partition)


def partition_of(file: TableFile) -> TablePartition:
    """Return the partition of a file, whose key is comparable."""
    return TablePartition(file.spec_id, comparable(file.partition))


def sort_key(partition: PartitionKey) -> tuple[tuple[str, str], ...]:
    """Return what orders partitions of mixed types and None: each value's type name and repr."""
    return tuple((type(value).__name__, repr(value)) for value in partition)
