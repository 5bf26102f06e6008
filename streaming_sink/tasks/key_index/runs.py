"""Runs of the key index: an immutable, memory-mapped run file of hashes in order, each with a row's address.

The columns of an entry are the first word of its hash, the second word, the address, and the sequence where
the key has them, as `sequence_values` returns them; `streaming_sink/tasks/run_files.py` has the format. The
footer says the key's digest, how many bytes a sequence takes, and how many data files the run covers. These
are attached as columns: hashes of their locations, their rows, the scope of their keys, of which each is
spelled once, and their locations, which are unpacked where they are asked for. Runs of earlier releases,
which have no hashes, are read, and merged as others are.

A run covers whole data files: it has an entry for every row that has a key, deleted rows too, so that it is
right for every snapshot that has the file. An address is the number of a data file in the footer, in 24 bits,
and a position in 40. An entry takes 24 bytes, 32 with a sequence of 8, 40 with one of 16. The checksum of a
block is compared when it is first read.
"""

from __future__ import annotations

import json
import mmap
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from streaming_sink.tasks.errors import UnusableRunError
from streaming_sink.tasks.keys.keyed_files import KeyedFiles
from streaming_sink.tasks.keys.probing import KeyProbe
from streaming_sink.tasks.keys.scanning import KeyedFile, KeyMatches
from streaming_sink.tasks.keys.sequences import LONG, WIDE
from streaming_sink.tasks.run_files import WORD, RunLayout, RunWriter, read_layout
from timeline.location_hashes import HASH_BYTES, hash_locations

BLOCK_ENTRIES = 512 * 1024
"""12 to 20 MiB."""
POSITION_BITS = 40
MOST_FILES = 1 << (64 - POSITION_BITS)
_POSITION = np.uint64((1 << POSITION_BITS) - 1)

_MAGIC = b"SSKEYRN3"
_WITHOUT_HASHES = b"SSKEYRN2"
_ROWS, _SCOPE = np.dtype("<i8"), np.dtype("<i4")
_FASTEST = 1
_KINDS = {0: None, LONG.itemsize: LONG, WIDE.itemsize: WIDE}
"""Kinds of sequences by their bytes."""


class RunEntries(NamedTuple):
    """Entries of a run, in ascending order of `high`."""

    high: np.ndarray
    low: np.ndarray
    addresses: np.ndarray
    sequences: np.ndarray | None = None

    @classmethod
    def none(cls, kind: np.dtype | None) -> RunEntries:
        """Return no entries, of a key that has sequences of this kind, or none."""
        words = np.empty(0, np.uint64)
        return cls(words, words, words, None if kind is None else np.empty(0, kind))

    def take(self, chosen: np.ndarray | slice) -> RunEntries:
        """Return the entries at these places, or those that a mask has."""
        sequences = None if self.sequences is None else self.sequences[chosen]
        return RunEntries(self.high[chosen], self.low[chosen], self.addresses[chosen], sequences)


def addresses_of(file_number: int, positions: np.ndarray) -> np.ndarray:
    """Return the addresses of rows of one data file. ValueError where they do not fit into a run."""
    if file_number >= MOST_FILES or (len(positions) and int(positions.max()) >> POSITION_BITS):
        raise ValueError(f"a run has {MOST_FILES} data files of {_POSITION + np.uint64(1)} rows at most")
    addresses: np.ndarray = positions.astype(np.uint64) | np.uint64(file_number << POSITION_BITS)
    return addresses


@dataclass(frozen=True, slots=True)
class RunFooter:
    """What a run says of itself."""

    files: KeyedFiles
    """The data files that it covers; an address has the number of one."""
    kind: np.dtype | None
    """Of its sequences; None where it has none."""
    layout: RunLayout

    @property
    def entries(self) -> int:
        return self.layout.entries


def start_run(
    output: BinaryIO, key_digest: str, files: Sequence[KeyedFile], kind: np.dtype | None
) -> RunWriter:
    """Return the writer of a run, which takes `RunEntries`."""
    columns = KeyedFiles.of(files)
    facts = {
        "key": key_digest,
        "sequence_bytes": 0 if kind is None else kind.itemsize,
        "files": len(columns),
        "scopes": [salt.hex() for salt in columns.scopes],
    }
    locations = zlib.compress(json.dumps(columns.locations).encode(), _FASTEST)
    rows, scope = columns.rows.astype(_ROWS).tobytes(), columns.scope.astype(_SCOPE).tobytes()
    return RunWriter(output, _MAGIC, facts, BLOCK_ENTRIES, columns.hashes + rows + scope + locations)


def _keyed_files(facts: dict[str, Any], attached: bytes) -> KeyedFiles:
    scopes, files = [bytes.fromhex(salt) for salt in facts["scopes"]], facts["files"]
    if isinstance(files, list):
        rows, scope = np.array(facts["rows"], np.int64), np.array(facts["scope"], np.int32)
        return KeyedFiles(lambda: files, hash_locations(files), rows, scopes, scope)
    sizes = (HASH_BYTES * files, _ROWS.itemsize * files, _SCOPE.itemsize * files)
    at_rows, at_scope, at_locations = accumulate(sizes)
    return KeyedFiles(
        lambda: json.loads(zlib.decompress(attached[at_locations:])),
        attached[:at_rows],
        np.frombuffer(attached, _ROWS, files, at_rows),
        scopes,
        np.frombuffer(attached, _SCOPE, files, at_scope),
    )


def _dtypes(facts: dict[str, Any]) -> list[np.dtype]:
    kind = _KINDS[facts["sequence_bytes"]]
    return [WORD, WORD, WORD] if kind is None else [WORD, WORD, WORD, kind]


def read_footer(file: BinaryIO, key_digest: str) -> RunFooter:
    """Return the footer of a run, whose blocks are not read. UnusableRunError where the file is no whole run
    of the key with this digest.
    """
    facts, layout = read_layout(file, _MAGIC, _dtypes, earlier=(_WITHOUT_HASHES,))
    if facts["key"] != key_digest:
        raise UnusableRunError(f"a run of the key {facts['key']}, not {key_digest}")
    return RunFooter(_keyed_files(facts, layout.attached), _KINDS[facts["sequence_bytes"]], layout)


class MappedRun:
    """A run on a local disk, mapped into memory: pages are read as they are needed, and shared by processes.

    It is read after its name was deleted too. Its file is never changed, nor cut.
    """

    def __init__(self, file: BinaryIO, key_digest: str) -> None:
        """Map an open file, which the caller may close then. UnusableRunError as for `read_footer`."""
        self.footer = read_footer(file, key_digest)
        self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.footer.layout.check_magic(self._data)
        self._read: dict[int, RunEntries] = {}

    def find(self, probe: KeyProbe) -> tuple[np.ndarray, KeyMatches]:
        """Return the entries whose hash is in the probe, in no order: the numbers of their data files, and
        the rows. UnusableRunError where a block is damaged.
        """
        numbers: list[np.ndarray] = [np.empty(0, np.int64)]
        found = [KeyMatches.none(self.footer.kind)]
        for number, block in enumerate(self.footer.layout.blocks):
            if not probe.reaches(block.first, block.last):
                continue
            entries = self._block(number)
            indexes, places = probe.match_sorted(entries.high, entries.low)
            addresses = entries.addresses[places]
            sequences = None if entries.sequences is None else entries.sequences[places]
            numbers.append((addresses >> np.uint64(POSITION_BITS)).astype(np.int64))
            found.append(KeyMatches(indexes, (addresses & _POSITION).astype(np.int64), sequences))
        return np.concatenate(numbers), KeyMatches.concatenate(found)

    def between(self, first: int, last: int) -> Iterator[RunEntries]:
        """Yield the entries whose hash begins with a word from `first` to `last`, in ascending order.
        UnusableRunError where a block is damaged.
        """
        for number in self.footer.layout.reached(first, last):
            entries = self._block(number)
            start = int(np.searchsorted(entries.high, np.uint64(first), "left"))
            end = int(np.searchsorted(entries.high, np.uint64(last), "right"))
            yield entries.take(slice(start, end))

    def _block(self, number: int) -> RunEntries:
        if number not in self._read:
            self._read[number] = RunEntries(*self.footer.layout.view(self._data, number))
        return self._read[number]
