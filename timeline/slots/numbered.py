"""A log in a folder of a store: numbered entries, each created once and never changed.

Numbers count from 1 without gaps. An entry that is read was acknowledged to its writer, or may be, so nothing
here is ever deleted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

from timeline.clock import SYSTEM, Environment
from timeline.errors import CorruptTableError
from timeline.slots.settling import create_settled
from timeline.stores.base import Store, read_if_there

_DIGITS = 12


class NumberedLog:
    """The entries `<folder>/<number>.<suffix>` of a store. Not safe for concurrent use by threads; any number
    of processes may append.
    """

    def __init__(self, store: Store, folder: str, suffix: str, environment: Environment = SYSTEM) -> None:
        self._store, self.folder, self._suffix = store, folder, suffix
        self._environment = environment
        self._name = re.compile(rf"^([0-9]{{{_DIGITS}}})\.{re.escape(suffix)}$")
        self._last: int | None = None

    def path(self, number: int) -> str:
        return f"{self.folder}/{number:0{_DIGITS}}.{self._suffix}"

    def last(self) -> int:
        """Return the number of the newest entry, 0 where there is none. One LIST the first time, afterwards a
        GET for each entry that is new, and one that finds none.
        """
        if self._last is None:
            listed = self._store.list_folder(self.folder)
            named = (self._name.match(each.path.rpartition("/")[2]) for each in listed)
            self._last = max((int(match[1]) for match in named if match), default=0)
        while self.read(self._last + 1) is not None:
            self._last += 1
        return self._last

    def read(self, number: int) -> bytes | None:
        """Return an entry, None where there is none yet. StoreUnavailableError where the store does not
        answer.
        """
        return read_if_there(self._store, self.path(number))

    def open(self, number: int) -> BinaryIO:
        """Open an entry for seeking reads. FileNotFoundError where there is none yet."""
        return self._store.open_input(self.path(number))

    def existing(self, number: int) -> bytes:
        """Return an entry that is known to be there. CorruptTableError where it is not."""
        data = self.read(number)
        if data is None:
            where = self._store.uri(self.path(number))
            raise CorruptTableError(
                f"an entry of the buffer zone is missing, so which files landed is not known; nothing was"
                f" changed. Restore it from a copy: {where}",
                files=[where],
            )
        return data

    def read_after(self, number: int) -> Iterator[tuple[int, bytes]]:
        """Yield the entries after a number, in order."""
        while (data := self.read(number + 1)) is not None:
            number += 1
            yield number, data

    def create(self, number: int, data: bytes) -> bool:
        """Create an entry; return whether this call has created it, and not another writer's.

        `data` must be of this writer alone. StoreUnavailableError where that is not known: the entry may
        appear later, and creating it again is right.
        """
        return create_settled(self._store, self.path(number), data, self._environment).is_own

    def append(self, data: bytes) -> int:
        """Append an entry after all others, and return its number. May leave it twice where the store gave no
        clean answer and the caller tries again.
        """
        number = self.last() + 1
        while not self.create(number, data):
            self._last = number
            number = self.last() + 1
        self._last = number
        return number
