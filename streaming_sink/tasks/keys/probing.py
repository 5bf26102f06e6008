"""The hashes of a batch's keys, ordered so that they are found quickly among those of a table's rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_FILTER_SLOTS_A_KEY = 16
_FILTER_BITS = range(10, 27)
"""From 1 KiB to 64 MiB; a batch of 50,000 keys has 1 MiB, which a core's cache holds."""


class KeyEntries(NamedTuple):
    """Keys of some rows of one data file."""

    hashes: np.ndarray
    """As `hash_keys` returns them."""
    positions: np.ndarray
    """Where the rows are in the file, from 0: signed 64-bit integers."""
    sequences: np.ndarray | None
    """Of the sequence column, as `sequence_values` returns them; None if the key has no such column."""


class KeyFilter:
    """Which upper bits the words of a batch's keys have: of words of other keys it lets few through."""

    def __init__(self, words: np.ndarray) -> None:
        bits = max(1, len(words) * _FILTER_SLOTS_A_KEY - 1).bit_length()
        self._shift = np.uint64(64 - min(max(bits, _FILTER_BITS.start), _FILTER_BITS.stop - 1))
        self._slots = np.zeros(1 << (64 - int(self._shift)), np.bool_)
        self._slots[words >> self._shift] = True

    def may_have(self, words: np.ndarray) -> np.ndarray:
        """Return which of these words the batch may have; none that it has is missed."""
        found: np.ndarray = self._slots[words >> self._shift]
        return found


class KeyProbe:
    """The hashes of the keys that a batch looks for, as `hash_keys` returns them. A hash may be there twice.

    It takes 40 bytes a key, and up to 32 more.
    """

    def __init__(self, hashes: np.ndarray) -> None:
        self._order = np.argsort(hashes[:, 0])
        self._high, self._low = np.ascontiguousarray(hashes[self._order].T)
        self._filter = KeyFilter(self._high)

    def __len__(self) -> int:
        return len(self._high)

    def reaches(self, first: int, last: int) -> bool:
        """Return whether the first word of any hash is from `first` to `last`."""
        start = np.searchsorted(self._high, np.uint64(first), "left")
        return bool(start < np.searchsorted(self._high, np.uint64(last), "right"))

    def match_rows(self, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return every pair of equal hashes of the probe and of `hashes`, which are in no order: which hash
        of the probe it is, and which row of `hashes`, in ascending order.
        """
        high = hashes[:, 0]
        rows = np.flatnonzero(self._filter.may_have(high))
        near, places = _equal_ranges(self._high, high[rows])
        rows = rows[near]
        same = self._low[places] == hashes[rows, 1]
        return self._order[places[same]], rows[same]

    def match_sorted(self, high: np.ndarray, low: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As `match_rows`, for hashes whose first words, `high`, are ascending; the pairs are in no order."""
        if not len(high):
            return _NONE, _NONE
        start = int(np.searchsorted(self._high, high[0], "left"))
        end = int(np.searchsorted(self._high, high[-1], "right"))
        near, rows = _equal_ranges(high, self._high[start:end])
        near += start
        same = self._low[near] == low[rows]
        return self._order[near[same]], rows[same]


_NONE = np.empty(0, np.intp)


def _equal_ranges(ordered: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return every pair of equal words of `values` and `ordered`, as the index of each."""
    first = np.searchsorted(ordered, values, "left")
    # Most values are not there, and hardly any is there twice: a second search is for what was found alone.
    found = np.flatnonzero(ordered[np.minimum(first, len(ordered) - 1)] == values) if len(ordered) else _NONE
    first = first[found]
    counts = np.searchsorted(ordered, values[found], "right") - first
    ends = np.cumsum(counts)
    places = np.arange(counts.sum()) + np.repeat(first - (ends - counts), counts)
    return np.repeat(found, counts), places
