"""Very many paths in few bytes each: whether one is among them, and which number it has."""

from __future__ import annotations

from array import array

_EMPTY = 0
_LEAST_SLOTS = 1 << 10


class PathIndex:
    """Numbers paths by the order in which they came, from 0 on. Keeps no path, but a hash of 64 bits of each:
    14 to 20 bytes.

    A path that came is always known. One that did not may pass for one that did: of a million among a
    million, with a probability of 10^-7. So it may be asked what is needed, never what is
    garbage, or was read.
    """

    def __init__(self) -> None:
        self._hashes = array("q")
        self._slots = _empty(_LEAST_SLOTS)
        """By hashes, with linear probing: one more than the number of a path, or `_EMPTY`."""

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, path: str) -> bool:
        return self.find(path) is not None

    def find(self, path: str) -> int | None:
        """Return the number of a path, or None if it has not come."""
        number: int = self._slots[self._slot(hash(path))] - 1
        return None if number < 0 else number

    def add(self, path: str) -> int:
        """Return the number of a path, which is that of the last one if it is new."""
        wanted = hash(path)
        slot = self._slot(wanted)
        if self._slots[slot] == _EMPTY:
            self._hashes.append(wanted)
            self._slots[slot] = len(self._hashes)
            if 3 * len(self._hashes) > 2 * len(self._slots):
                self._grow()
            return len(self._hashes) - 1
        return int(self._slots[slot] - 1)

    def _slot(self, wanted: int) -> int:
        slots, hashes = self._slots, self._hashes
        mask = len(slots) - 1
        slot = wanted & mask
        while (number := slots[slot]) != _EMPTY and hashes[number - 1] != wanted:
            slot = (slot + 1) & mask
        return slot

    def _grow(self) -> None:
        self._slots = _empty(2 * len(self._slots))
        for number, each in enumerate(self._hashes, start=1):
            self._slots[self._slot(each)] = number


def _empty(slots: int) -> array[int]:
    return array("I", [_EMPTY]) * slots
