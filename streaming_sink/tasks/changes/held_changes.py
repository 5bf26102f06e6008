"""The changes that a task holds until it has all of them: in memory, and beyond a bound on its disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from streaming_sink.tasks.changes.finding import value_texts
from streaming_sink.tasks.errors import RowsDoNotFitError
from streaming_sink.tasks.files.spill import SpillFile

HELD_BYTES = 128 * 1024 * 1024
"""Arrow bytes of rows that a task holds before it spills them. Beside them it holds 49 bytes a change."""

_DELETE = -1
"""The place of a change that has no row."""


@dataclass(frozen=True)
class Newest:
    """The newest change of each key, ordered by their hashes."""

    hashes: np.ndarray
    sequences: np.ndarray
    deletes: np.ndarray
    """Whether the change deletes its key."""
    places: np.ndarray
    """The place of its row among those that were added; of a delete, none."""
    superseded: int
    """Changes that are not the newest of their key."""
    tied: int
    """Those of them that only the order of their values has decided."""
    all_places: np.ndarray
    """The places of all changes, by key and sequence, -1 for a delete."""
    all_sequences: np.ndarray
    """Their sequences."""
    starts: np.ndarray
    """Where the changes of each key begin in `all_places`."""


class _Tied(NamedTuple):
    """Of the changes of a group the one with the largest values so far."""

    text: str
    place: int
    alike: int
    """Changes with these values."""


class HeldChanges:
    """Rows with the hashes of their keys and their sequences, and deletes with these alone."""

    def __init__(self, schema: pa.Schema, kind: np.dtype) -> None:
        """`kind`: that of all sequences."""
        self._schema = schema
        self._kind = kind
        self._rows: list[pa.RecordBatch] = []
        self._bytes = 0
        self._spill: SpillFile | None = None
        self._reader: pa.ipc.RecordBatchFileReader | None = None
        self._added = 0
        self._hashes: list[np.ndarray] = []
        self._sequences: list[np.ndarray] = []
        self._places: list[np.ndarray] = []
        self.spilled_bytes = 0

    def add(self, rows: pa.RecordBatch, hashes: np.ndarray, sequences: np.ndarray) -> None:
        if not rows.num_rows:
            return
        self._note(hashes, sequences, np.arange(self._added, self._added + rows.num_rows))
        self._added += rows.num_rows
        self._rows.append(rows)
        self._bytes += rows.nbytes
        if self._bytes > HELD_BYTES:
            self._spill_rows()

    def add_deletes(self, hashes: np.ndarray, sequences: np.ndarray) -> None:
        self._note(hashes, sequences, np.full(len(hashes), _DELETE))

    def _note(self, hashes: np.ndarray, sequences: np.ndarray, places: np.ndarray) -> None:
        self._hashes.append(hashes)
        self._sequences.append(sequences)
        self._places.append(places)

    def _spill_rows(self) -> None:
        if self._spill is None:
            self._spill = SpillFile(self._schema)
        for rows in self._rows:
            self._spill.write(rows)
        self.spilled_bytes = self._spill.bytes
        self._rows, self._bytes = [], 0

    def newest(self, *, has_sequence: bool) -> Newest:
        """Return the newest change of each key: that of the largest sequence. Of equal ones a delete counts,
        else the row whose values are the largest as text, so that the order of arrival decides nothing.

        RowsDoNotFitError where a key is there twice and there is no sequence.
        """
        if not self._hashes:
            none, unordered = np.empty(0, np.int64), np.empty(0, self._kind)
            keys = np.empty((0, 2), np.uint64)
            return Newest(keys, unordered, none.astype(bool), none, 0, 0, none, unordered, none)
        hashes = np.concatenate(self._hashes)
        sequences, places = np.concatenate(self._sequences), np.concatenate(self._places)
        deletes = places == _DELETE
        order = _ordered(hashes, sequences, deletes)
        hashes, sequences, places, deletes = hashes[order], sequences[order], places[order], deletes[order]
        same_key = (hashes[1:] == hashes[:-1]).all(axis=1)
        if same_key.any() and not has_sequence:
            raise RowsDoNotFitError(
                f"{int(same_key.sum())} changes of the batch have a key that another one has too, and nothing"
                " says which of them is newer: give the sink sequence_by, or bring each key once"
            )
        tied = same_key & (sequences[1:] == sequences[:-1]) & (deletes[1:] == deletes[:-1])
        last = np.append(~same_key, True)
        ties = self._break_ties(places, tied & ~deletes[1:], last)
        superseded = int(same_key.sum())
        starts = np.flatnonzero(np.append(True, ~same_key))
        return Newest(
            hashes=hashes[last],
            sequences=sequences[last],
            deletes=deletes[last],
            places=places[last],
            superseded=superseded,
            tied=ties,
            all_places=places,
            all_sequences=sequences,
            starts=starts,
        )

    def _break_ties(self, places: np.ndarray, tied: np.ndarray, last: np.ndarray) -> int:
        """Put the place of the row with the largest values last, where the newest changes of a key are tied.
        Return how many rows that has decided against.
        """
        at = np.arange(len(places))
        begins = np.maximum.accumulate(np.where(np.append(False, tied), 0, at))
        ends = np.flatnonzero(last & (begins < at))
        several = np.flatnonzero(np.isin(begins, begins[ends]))
        several = several[np.argsort(places[several])]
        best: dict[int, _Tied] = {}  # by where its group begins: all texts of a batch are too many to hold
        for place, group, text in zip(
            several.tolist(), begins[several].tolist(), self.texts_of(places[several]), strict=True
        ):
            held = best.get(group)
            if held is None or text > held.text:
                best[group] = _Tied(text, place, 1)
            elif text == held.text:
                best[group] = held._replace(alike=held.alike + 1)
        for begin, end in zip(begins[ends].tolist(), ends.tolist(), strict=True):
            chosen = best[begin].place
            places[[chosen, end]] = places[[end, chosen]]
        return len(several) - sum(each.alike for each in best.values())

    def texts_of(self, places: np.ndarray) -> Iterator[str]:
        """Yield the values of the rows at these places as texts, in the order in which they were added."""
        for rows in self.rows_of(places):
            yield from value_texts(rows)

    def all_rows(self) -> pa.Table:
        """Return all rows, in memory, in the order in which they were added."""
        return pa.Table.from_batches(self._batches(), self._schema)

    def rows_of(self, places: np.ndarray) -> Iterator[pa.RecordBatch]:
        """Yield the rows at these places, in the order in which they were added."""
        wanted = np.zeros(self._added, bool)
        wanted[places] = True
        begin = 0
        for rows in self._batches():
            mask = wanted[begin : begin + rows.num_rows]
            begin += rows.num_rows
            if mask.all():
                yield rows
            elif mask.any():
                yield rows.filter(pa.array(mask))

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if self._spill is None:
            yield from self._rows
            return
        if self._reader is None:
            self._spill_rows()
            self._spill.finish()
            self._reader = self._spill.open_reader()
        for number in range(self._spill.count):
            yield self._reader.get_batch(number)

    def close(self) -> None:
        """Free memory and disk."""
        self._rows = []
        if self._spill is not None:
            self._spill.close()


def _ordered(hashes: np.ndarray, sequences: np.ndarray, deletes: np.ndarray) -> np.ndarray:
    """Return the order by hash, sequence and whether it deletes; equal changes stay as they came."""
    order = np.argsort(hashes[:, 0])
    # The first words of different keys differ, so the rest is compared only where a key has several changes.
    first = hashes[order, 0]
    equal = first[1:] == first[:-1]
    several = np.zeros(len(order), bool)
    several[1:] |= equal
    several[:-1] |= equal
    rows = np.sort(order[several])
    order[several] = rows[np.lexsort((deletes[rows], sequences[rows], hashes[rows, 1], hashes[rows, 0]))]
    return order
