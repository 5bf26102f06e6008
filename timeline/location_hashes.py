"""Hashes of locations, by which very many are compared: the same in every process, since they are on disk.

Standard library only: Spark workers import this.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

HASH_BYTES = 16


def hash_locations(locations: Iterable[str]) -> bytes:
    """Return `HASH_BYTES` for each location, one after the other."""
    encoded = (it.encode(errors="surrogatepass") for it in locations)
    return b"".join([blake2b(it, digest_size=HASH_BYTES).digest() for it in encoded])
