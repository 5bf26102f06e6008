"""Very many data files with the scopes of their keys, as columns: a tuple of each would take most of the time
that a look at a million files takes. Their locations are spelled where they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np

from streaming_sink.tasks.keys.scanning import KeyedFile
from timeline.location_hashes import hash_locations

_WORD = np.dtype("<u8")
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""Odd, so that no two numbers of rows have one product."""


@dataclass(frozen=True, eq=False)
class KeyedFiles(Sequence[KeyedFile]):
    """Data files in an order, as columns of one length."""

    spelled: Callable[[], Sequence[str]]
    """Returns the locations."""
    hashes: bytes
    """Those of the locations, by `hash_locations`."""
    rows: np.ndarray
    scopes: Sequence[bytes]
    """The salts that files have."""
    scope: np.ndarray
    """The place of each file's in `scopes`."""

    @classmethod
    def of(cls, files: Iterable[KeyedFile]) -> KeyedFiles:
        """Return the columns of some files. Each of their scopes is there once."""
        files, scopes = list(files), dict[bytes, int]()
        scope = [scopes.setdefault(file.salt, len(scopes)) for file in files]
        locations = [file.location for file in files]
        return cls(
            lambda: locations,
            hash_locations(locations),
            np.array([file.rows for file in files], np.int64),
            list(scopes),
            np.array(scope, np.int32),
        )

    @cached_property
    def locations(self) -> Sequence[str]:
        """As manifests spell them."""
        return self.spelled()

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, number: int) -> KeyedFile: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[KeyedFile]: ...
    def __getitem__(self, number: int | slice) -> KeyedFile | Sequence[KeyedFile]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        return KeyedFile(self.locations[number], int(self.rows[number]), self.scopes[self.scope[number]])

    def __iter__(self) -> Iterator[KeyedFile]:
        salts = map(self.scopes.__getitem__, self.scope.tolist())
        return map(KeyedFile, self.locations, self.rows.tolist(), salts)

    def are_in(self, scopes: Iterable[bytes]) -> np.ndarray:
        """Return of each file whether its scope is one of these."""
        wanted = set(scopes)
        are: np.ndarray = np.array([salt in wanted for salt in self.scopes], bool)[self.scope]
        return are

    def fingerprints(self) -> np.ndarray:
        """Return two words for each file, in two rows: those of files with the same location, rows and scope
        are the same, and all others differ in one of 128 bits, as two keys do.
        """
        words = np.frombuffer(self.hashes, _WORD).reshape(-1, 2)
        salts = np.frombuffer(b"".join(self.scopes), _WORD).reshape(-1, 2)
        found: np.ndarray = np.ascontiguousarray((words ^ salts[self.scope]).T)
        found[0] ^= self.rows.astype(np.uint64) * _SPREAD
        return found
