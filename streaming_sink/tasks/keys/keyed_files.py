"""Very many data files with the scopes of their keys, as columns: a tuple of each would take most of the time
that a look at a million files takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from streaming_sink.tasks.keys.scanning import KeyedFile


@dataclass(frozen=True, slots=True, eq=False)
class KeyedFiles(Sequence[KeyedFile]):
    """Data files in an order, as columns of one length."""

    locations: Sequence[str]
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
        return cls(
            [file.location for file in files],
            np.array([file.rows for file in files], np.int64),
            list(scopes),
            np.array(scope, np.int32),
        )

    def __len__(self) -> int:
        return len(self.locations)

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

    def are_alike(self, at: np.ndarray, others: KeyedFiles, there: np.ndarray) -> np.ndarray:
        """Return whether files have as many rows as others have, and the same scope."""
        numbers = {salt: number for number, salt in enumerate(others.scopes)}
        theirs = np.array([numbers.get(salt, -1) for salt in self.scopes], np.int64)
        same_rows = self.rows[at] == others.rows[there]
        alike: np.ndarray = same_rows & (theirs[self.scope[at]] == others.scope[there])
        return alike
