"""Run files of the indexes: entries in the order of a word, in columns, written once and looked up by ranges.

Layout, of little-endian words::

    magic       8 bytes, which say whose index it is, and which facts its runs have
    blocks      the columns of so many entries at most, one column after the other
    footer      JSON: facts of the index, and of each block its entries, their first word, their last, CRC-32;
                behind a line feed what the index attaches to its facts
    trailer     the footer's length, the format's version, a CRC-32 of both and of the footer, magic

The first column has the words, in ascending order. Checksums cover every byte between the two magics: the
footer's are compared when it is read, and a block's whenever the block is. What an index is derived from has
all that a run held, so a run that is not whole is passed over.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import accumulate
from mmap import mmap
from typing import Any, BinaryIO, NamedTuple
from zlib import crc32

import numpy as np

from streaming_sink.tasks.errors import UnusableRunError

WORD = np.dtype("<u8")
_VERSION = 2
_MAGIC_BYTES = 8
_TRAILER = struct.Struct(f"<QII{_MAGIC_BYTES}s")
_TAIL_BYTES = 64 * 1024
"""Read from the end at first: one request for the footer of some hundred blocks and facts."""


class RunBlock(NamedTuple):
    """A range of entries that is read at a time, as the footer has it."""

    entries: int
    first: int
    last: int
    crc: int


class RunWriter:
    """Writes a run: its entries in ascending order, then `finish`."""

    def __init__(
        self,
        output: BinaryIO,
        magic: bytes,
        facts: dict[str, Any],
        block_entries: int,
        attached: bytes | None = None,
    ) -> None:
        self._output = output
        self._magic = magic
        self._facts = facts
        self._attached = b"" if attached is None else b"\n" + attached
        self._block_entries = block_entries
        self._blocks: list[RunBlock] = []
        output.write(magic)

    def write(self, columns: Iterable[np.ndarray | None]) -> None:
        """Append entries, none of which is below one that was written before. None is no column."""
        given = [column for column in columns if column is not None]
        for start in range(0, len(given[0]), self._block_entries):
            crc, block = 0, slice(start, start + self._block_entries)
            for column in given:
                little = column.dtype.newbyteorder("<")
                data = np.ascontiguousarray(column[block], little).tobytes()
                crc = crc32(data, crc)
                self._output.write(data)
            words = given[0][block]
            self._blocks.append(RunBlock(len(words), int(words[0]), int(words[-1]), crc))

    def finish(self) -> None:
        """End the run. The output is whole when its owner closes it."""
        facts = json.dumps({**self._facts, "blocks": self._blocks}, separators=(",", ":")).encode()
        footer = facts + self._attached
        self._output.write(footer + _trailer(footer, self._magic))


@dataclass(frozen=True, slots=True)
class RunLayout:
    """Where the blocks of a run are. UnusableRunError where what is read of one is damaged."""

    magic: bytes
    dtypes: tuple[np.dtype, ...]
    blocks: tuple[RunBlock, ...]
    starts: tuple[int, ...]
    """The place of each block in the file, and that of the footer."""
    attached: bytes = b""

    @property
    def entries(self) -> int:
        return sum(block.entries for block in self.blocks)

    def reached(self, first: int, last: int) -> list[int]:
        """Return the numbers of the blocks that may have words from `first` to `last`."""
        return [at for at, (_, low, high, _) in enumerate(self.blocks) if first <= high and low <= last]

    def read(self, file: BinaryIO, number: int) -> list[np.ndarray]:
        """Return the columns of a block of a seekable file, by one request."""
        file.seek(self.starts[number])
        return self._columns(number, file.read(self.starts[number + 1] - self.starts[number]))

    def view(self, run: bytes | mmap, number: int) -> list[np.ndarray]:
        """Return the columns of a block of a run in memory, which are not copied."""
        return self._columns(number, memoryview(run)[self.starts[number] : self.starts[number + 1]])

    def load(self, run: bytes) -> list[np.ndarray]:
        """Return the columns of a run in memory, all of which is checked. Takes their own size alone."""
        self.check_magic(run)
        blocks = [self.view(run, number) for number in range(len(self.blocks))]
        return [
            np.concatenate([np.empty(0, dtype), *(block[at] for block in blocks)])
            for at, dtype in enumerate(self.dtypes)
        ]

    def check(self, file: BinaryIO) -> None:
        """Read a whole run from a seekable file."""
        file.seek(0)
        self.check_magic(file.read(len(self.magic)))
        for number in range(len(self.blocks)):
            self.read(file, number)

    def check_magic(self, run: bytes | mmap) -> None:
        """Check the first bytes of a run, which no other check reads."""
        if run[: len(self.magic)] != self.magic:
            raise UnusableRunError("not a run")

    def _columns(self, number: int, data: bytes | memoryview) -> list[np.ndarray]:
        entries, _, _, crc = self.blocks[number]
        if crc32(data) != crc:
            raise UnusableRunError(f"block {number} of a run is damaged")
        places = accumulate((entries * dtype.itemsize for dtype in self.dtypes), initial=0)
        return [
            np.frombuffer(data, dtype, entries, at) for dtype, at in zip(self.dtypes, places, strict=False)
        ]


def read_layout(
    file: BinaryIO,
    magic: bytes,
    dtypes_of: Callable[[dict[str, Any]], Iterable[np.dtype]],
    *,
    earlier: Collection[bytes] = (),
) -> tuple[dict[str, Any], RunLayout]:
    """Return the facts and the layout of a run in a seekable file, by one request, two where its footer is
    long. `dtypes_of` returns the types of the columns of a run with these facts. `earlier`
    are the magics of runs that other releases have written, with other facts.

    UnusableRunError where the file is no whole run with one of these magics.
    """
    size = file.seek(0, os.SEEK_END)
    start = max(0, size - _TAIL_BYTES)
    file.seek(start)
    tail = file.read(size - start)
    found = tail[-_MAGIC_BYTES:]
    if len(tail) < _TRAILER.size or found not in (magic, *earlier):
        raise UnusableRunError(f"not a whole run: {size} bytes")
    length, version, _, _ = _TRAILER.unpack(tail[-_TRAILER.size :])
    begin = size - _TRAILER.size - length
    if version != _VERSION or begin < _MAGIC_BYTES:
        raise UnusableRunError(f"a run of format {version}, with a footer of {length} bytes in {size}")
    if begin < start:
        file.seek(begin)
        tail = file.read(size - begin)
    footer = tail[-_TRAILER.size - length : -_TRAILER.size]
    if _trailer(footer, found) != tail[-_TRAILER.size :]:
        raise UnusableRunError("the footer of a run is damaged")
    spelled, _, attached = footer.partition(b"\n")
    facts = json.loads(spelled)
    blocks = tuple(RunBlock(*each) for each in facts.pop("blocks"))
    dtypes = tuple(dtype.newbyteorder("<") for dtype in dtypes_of(facts))
    entry_bytes = sum(dtype.itemsize for dtype in dtypes)
    starts = tuple(accumulate((block.entries * entry_bytes for block in blocks), initial=_MAGIC_BYTES))
    layout = RunLayout(found, dtypes, blocks, starts, attached)
    if starts[-1] != begin:
        raise UnusableRunError(f"a run of {layout.entries} entries in {size} bytes")
    return facts, layout


def _trailer(footer: bytes, magic: bytes) -> bytes:
    stated = struct.pack("<QI", len(footer), _VERSION)
    return stated + struct.pack("<I", crc32(stated, crc32(footer))) + magic
