"""The scope of a key: the table, or each of its partitions. Then the hash depends on it too."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from planners.model import PartitionKey
from planners.partitions import comparable

TABLE_SALT = bytes(16)
"""Leaves the hashes of keys as they are."""


def scope_salt(in_partitions: bool, partition: PartitionKey) -> bytes:
    """Return the salt of the keys of a partition, which are unique in it, or in the table."""
    return partition_salt(partition) if in_partitions else TABLE_SALT


def partition_salt(partition: PartitionKey) -> bytes:
    """Return what distinguishes the keys of a partition from the same ones in others."""
    return blake2b(repr(comparable(partition)).encode(), digest_size=16).digest()


def salted(hashes: np.ndarray, salt: bytes) -> np.ndarray:
    """Return the hashes of keys in a scope. Salted again, they are those of the keys alone."""
    return hashes if salt == TABLE_SALT else hashes ^ np.frombuffer(salt, np.uint64)
