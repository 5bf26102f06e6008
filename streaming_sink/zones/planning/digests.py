"""Digests of source files, in sorted arrays: 24 bytes for a version of a file, many looked up at once.

The first word is of the path, so that all versions of a file are neighbours; the other two are of the path
and the identity. So 128 bits and more distinguish two versions: of ten million of one path, two are taken for
one in one zone of 10^24.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from planners.ingestion.buffering import FileKey

Words = Any
"""An array of unsigned 64-bit numbers."""
_MERGED_FILES = 1 << 19
"""Arrays that have more files together stay apart: a merge needs room for itself."""


@dataclass(frozen=True, slots=True, eq=False)
class FileDigests:
    """Versions of files, in the order of their first words."""

    paths: Words
    high: Words
    low: Words

    def __len__(self) -> int:
        return len(self.paths)

    @classmethod
    def of(cls, keys: Iterable[FileKey]) -> FileDigests:
        """Return the digests of these versions, in their order, which is no sorted one."""
        data = b"".join(path_digest(key.path) + _key_digest(key) for key in keys)
        words = np.frombuffer(data, "<u8").reshape(-1, 3)
        return cls(*(np.ascontiguousarray(words[:, column]) for column in range(3)))

    def take(self, chosen: Any) -> FileDigests:
        """Return the versions at these places."""
        return FileDigests(self.paths[chosen], self.high[chosen], self.low[chosen])

    def sorted(self) -> FileDigests:
        return self.take(np.argsort(self.paths, kind="stable"))

    @classmethod
    def concatenate(cls, parts: Sequence[FileDigests]) -> FileDigests:
        return cls(
            np.concatenate([each.paths for each in parts]),
            np.concatenate([each.high for each in parts]),
            np.concatenate([each.low for each in parts]),
        )

    def find(self, wanted: FileDigests) -> tuple[Words, Words]:
        """Return two masks over `wanted`: whether a version is here, and whether any of its path is. `self`
        must be sorted.
        """
        left: Any = np.searchsorted(self.paths, wanted.paths, "left")
        right: Any = np.searchsorted(self.paths, wanted.paths, "right")
        has_path = right > left
        has_key = np.zeros(len(wanted), bool)
        for at in np.flatnonzero(has_path).tolist():
            same = slice(left[at], right[at])
            has_key[at] = np.any((self.high[same] == wanted.high[at]) & (self.low[same] == wanted.low[at]))
        return has_key, has_path


class PlannedFiles:
    """The versions of files that plans have: a few sorted arrays, each larger than the next."""

    def __init__(self) -> None:
        self._parts: list[FileDigests] = []

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts)

    def add(self, part: FileDigests) -> None:
        """Add versions, which must be sorted."""
        if len(part):
            self._parts.append(part)
        while len(self._parts) > 1 and self._may_merge(*self._parts[-2:]):
            self._parts[-2:] = [FileDigests.concatenate(self._parts[-2:]).sorted()]

    @staticmethod
    def _may_merge(larger: FileDigests, last: FileDigests) -> bool:
        return len(larger) < 2 * len(last) and len(larger) + len(last) <= _MERGED_FILES

    def known(self, keys: Sequence[FileKey]) -> tuple[set[FileKey], set[str]]:
        """Return which of these versions plans have, and of which of their paths plans have any version."""
        wanted = FileDigests.of(keys)
        has_key, has_path = np.zeros(len(keys), bool), np.zeros(len(keys), bool)
        for part in self._parts:
            found = part.find(wanted)
            has_key |= found[0]
            has_path |= found[1]
        planned = {keys[at] for at in np.flatnonzero(has_key).tolist()}
        return planned, {keys[at].path for at in np.flatnonzero(has_path).tolist()}


def path_digest(path: str) -> bytes:
    return blake2b(path.encode(), digest_size=8).digest()


def path_word(path: str) -> int:
    """Return the first word of all versions of a file."""
    return int.from_bytes(path_digest(path), "little")


def _key_digest(key: FileKey) -> bytes:
    return blake2b(f"{key.path}\0{key.identity}".encode(), digest_size=16).digest()
