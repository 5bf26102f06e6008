"""Runs of the key index: an immutable, memory-mapped file of hashes in order, each with a row's address.

Layout, of little-endian words::

    magic, 8 bytes
    blocks      the columns of up to BLOCK_ENTRIES entries: first words of hashes, second words, addresses,
                and sequences where the key has them, as `sequence_values` returns them
    footer      JSON: the key's digest, the data files that the run covers, each with the salt of its keys
                where a key is unique in each partition, and each block's range and CRC-32
    trailer     the footer's length, the format's version, a CRC-32 of both and of the footer, magic

Entries are ordered by the first words of their hashes. A run covers whole data files: it has an entry for
every row that has a key, deleted rows too, so that it is right for every snapshot that has the file. An
address is the number of a data file in the footer, in 24 bits, and a position in 40. An entry takes 24 bytes,
32 with a sequence of 8, 40 with one of 16. Checksums cover every byte, and those of a block are compared when
it is first read.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, BinaryIO, NamedTuple
from zlib import crc32

import numpy as np

from streaming_sink.tasks.errors import KeyIndexError
from streaming_sink.tasks.keys.probing import KeyProbe
from streaming_sink.tasks.keys.scanning import KeyedFile, KeyMatches
from streaming_sink.tasks.keys.scopes import TABLE_SALT
from streaming_sink.tasks.keys.sequences import LONG, WIDE

BLOCK_ENTRIES = 512 * 1024
"""12 to 20 MiB."""
POSITION_BITS = 40
MOST_FILES = 1 << (64 - POSITION_BITS)
_POSITION = np.uint64((1 << POSITION_BITS) - 1)

_MAGIC = b"SSKEYRUN"
_VERSION = 2
_WORDS = 3
"""Of an entry, beside its sequence."""
_WORD_BYTES = 8
_KINDS = {0: None, LONG.itemsize: LONG, WIDE.itemsize: WIDE}
"""Kinds of sequences by their bytes."""
_TRAILER = struct.Struct("<QII8s")
_TAIL_BYTES = 64 * 1024
"""Read from the end at first: one request for the footer of a run that covers a few hundred files."""


class RunEntries(NamedTuple):
    """Entries of a run, in ascending order of `high`."""

    high: np.ndarray
    low: np.ndarray
    addresses: np.ndarray
    sequences: np.ndarray | None

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
class _Block:
    entries: int
    first: int
    last: int
    crc: int


@dataclass(frozen=True, slots=True)
class RunFooter:
    """What a run says of itself."""

    files: tuple[KeyedFile, ...]
    """The data files that it covers; an address has the number of one."""
    kind: np.dtype | None
    """Of its sequences; None where it has none."""
    blocks: tuple[_Block, ...]

    @property
    def entry_bytes(self) -> int:
        return _WORD_BYTES * _WORDS + _sequence_bytes(self.kind)

    @property
    def entries(self) -> int:
        return sum(block.entries for block in self.blocks)


def _sequence_bytes(kind: np.dtype | None) -> int:
    return 0 if kind is None else kind.itemsize


class RunWriter:
    """Writes a run: its entries in ascending order, then `finish`."""

    def __init__(
        self, output: BinaryIO, key_digest: str, files: Sequence[KeyedFile], kind: np.dtype | None
    ) -> None:
        self._output = output
        self._key_digest = key_digest
        self._files = files
        self._kind = kind
        self._blocks: list[_Block] = []
        output.write(_MAGIC)

    def write(self, entries: RunEntries) -> None:
        """Append entries, none of which is below one that was written before."""
        for start in range(0, len(entries.high), BLOCK_ENTRIES):
            self._write_block(entries.take(slice(start, start + BLOCK_ENTRIES)))

    def finish(self) -> None:
        """End the run. The output is whole when its owner closes it."""
        footer = {
            "key": self._key_digest,
            "sequence_bytes": _sequence_bytes(self._kind),
            "files": [_described(file) for file in self._files],
            "blocks": [[it.entries, it.first, it.last, it.crc] for it in self._blocks],
        }
        data = json.dumps(footer, separators=(",", ":")).encode()
        self._output.write(data + _trailer(data))

    def _write_block(self, entries: RunEntries) -> None:
        crc = 0
        for column in entries:
            if column is not None:
                data = np.ascontiguousarray(column, column.dtype.newbyteorder("<")).tobytes()
                crc = crc32(data, crc)
                self._output.write(data)
        first, last = int(entries.high[0]), int(entries.high[-1])
        self._blocks.append(_Block(len(entries.high), first, last, crc))


def _described(file: KeyedFile) -> list[str | int]:
    scope = [] if file.salt == TABLE_SALT else [file.salt.hex()]
    return [file.location, file.rows, *scope]


def _keyed_file(location: str, rows: int, scope: str = TABLE_SALT.hex()) -> KeyedFile:
    return KeyedFile(location, rows, bytes.fromhex(scope))


def _trailer(footer: bytes) -> bytes:
    stated = struct.pack("<QI", len(footer), _VERSION)
    return stated + struct.pack("<I", crc32(stated, crc32(footer))) + _MAGIC


def read_footer(file: BinaryIO, key_digest: str) -> RunFooter:
    """Return the footer of a run, whose blocks are not read. KeyIndexError where the file is no whole run of
    the key with this digest.
    """
    size = file.seek(0, os.SEEK_END)
    start = max(0, size - _TAIL_BYTES)
    file.seek(start)
    tail = file.read(size - start)
    if len(tail) < _TRAILER.size or tail[-len(_MAGIC) :] != _MAGIC:
        raise KeyIndexError(f"not a whole run: {size} bytes")
    length, version, _, _ = _TRAILER.unpack(tail[-_TRAILER.size :])
    begin = size - _TRAILER.size - length
    if version != _VERSION or begin < len(_MAGIC):
        raise KeyIndexError(f"a run of format {version}, with a footer of {length} bytes in {size}")
    if begin < start:
        file.seek(begin)
        tail = file.read(size - begin)
    data = tail[-_TRAILER.size - length : -_TRAILER.size]
    if _trailer(data) != tail[-_TRAILER.size :]:
        raise KeyIndexError("the footer of a run is damaged")
    said = json.loads(data)
    if said["key"] != key_digest:
        raise KeyIndexError(f"a run of the key {said['key']}, not {key_digest}")
    files = tuple(_keyed_file(*each) for each in said["files"])
    footer = RunFooter(files, _KINDS[said["sequence_bytes"]], tuple(_Block(*each) for each in said["blocks"]))
    if len(_MAGIC) + footer.entries * footer.entry_bytes != begin:
        raise KeyIndexError(f"a run of {footer.entries} entries in {size} bytes")
    return footer


def check_run(file: BinaryIO, key_digest: str) -> None:
    """Read a whole run. KeyIndexError where any of it is damaged, and as for `read_footer`."""
    footer = read_footer(file, key_digest)
    file.seek(0)
    if file.read(len(_MAGIC)) != _MAGIC:
        raise KeyIndexError("not a run")
    for number, block in enumerate(footer.blocks):
        if crc32(file.read(block.entries * footer.entry_bytes)) != block.crc:
            raise KeyIndexError(f"block {number} of a run is damaged")


class MappedRun:
    """A run on a local disk, mapped into memory: pages are read as they are needed, and shared by processes.

    It is read after its name was deleted too. Its file is never changed, nor cut.
    """

    def __init__(self, file: BinaryIO, key_digest: str) -> None:
        """Map an open file, which the caller may close then. KeyIndexError as for `read_footer`."""
        self.footer = read_footer(file, key_digest)
        self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if self._data[: len(_MAGIC)] != _MAGIC:
            raise KeyIndexError("not a run")
        sizes = (block.entries * self.footer.entry_bytes for block in self.footer.blocks)
        self._starts = list(accumulate(sizes, initial=len(_MAGIC)))
        self._read: dict[int, RunEntries] = {}

    def find(self, probe: KeyProbe) -> tuple[np.ndarray, KeyMatches]:
        """Return the entries whose hash is in the probe, in no order: the numbers of their data files, and
        the rows. KeyIndexError where a block is damaged.
        """
        numbers: list[np.ndarray] = [np.empty(0, np.int64)]
        found = [KeyMatches.none(self.footer.kind)]
        for number, block in enumerate(self.footer.blocks):
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
        KeyIndexError where a block is damaged.
        """
        for number, block in enumerate(self.footer.blocks):
            if first <= block.last and block.first <= last:
                entries = self._block(number)
                start = int(np.searchsorted(entries.high, np.uint64(first), "left"))
                end = int(np.searchsorted(entries.high, np.uint64(last), "right"))
                yield entries.take(slice(start, end))

    def _block(self, number: int) -> RunEntries:
        if number not in self._read:
            block, start, end = self.footer.blocks[number], self._starts[number], self._starts[number + 1]
            if crc32(memoryview(self._data)[start:end]) != block.crc:
                raise KeyIndexError(f"block {number} of a run is damaged")
            words: Any = np.frombuffer(self._data, "<u8", (end - start) // _WORD_BYTES, start)
            high, low, addresses = words[: _WORDS * block.entries].reshape(_WORDS, -1)
            kind, rest = self.footer.kind, words[_WORDS * block.entries :]
            sequences = None if kind is None else rest.view(kind.newbyteorder("<"))
            self._read[number] = RunEntries(high, low, addresses, sequences)
        return self._read[number]
