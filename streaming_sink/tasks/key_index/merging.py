"""Builds and merges runs of the key index, in bounded memory.

Hashes are spread evenly, so a merge takes one range of their first words after the other, each with about a
block of entries: these are put together, ordered and written. It holds about 100 MiB, and the mapped pages of
its inputs, however long they are. The rows of one key are in one range, and are held at a time.

A build orders segments of SEGMENT_ENTRIES entries, in about 350 MiB. Where there are several, it leaves them
in the worker's temporary folder, and merges them.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

import numpy as np

from streaming_sink.tasks.key_index.runs import (
    BLOCK_ENTRIES,
    POSITION_BITS,
    MappedRun,
    RunEntries,
    addresses_of,
    start_run,
)
from streaming_sink.tasks.keys.probing import KeyEntries
from streaming_sink.tasks.keys.scanning import KeyedFile
from streaming_sink.tasks.run_files import RunWriter

SEGMENT_ENTRIES = 2 * 1024 * 1024
_WORDS = 1 << 64


def build_run(
    output: BinaryIO,
    key_digest: str,
    files: Sequence[KeyedFile],
    entries: Iterable[tuple[int, KeyEntries]],
    kind: np.dtype | None,
) -> int:
    """Write a run that covers `files`, and return how many entries it has. `entries` are those of all rows
    that have a key, in any order, with the number of their data file in `files`.
    """
    writer = start_run(output, key_digest, files, kind)
    segments = _segments(entries, kind)
    first, second = next(segments), next(segments, None)
    if second is None:
        writer.write(first)
        writer.finish()
        return len(first.high)
    with tempfile.TemporaryDirectory(prefix="streaming-sink-") as folder:
        runs = [
            _spilled(segment, f"{folder}/{number}", key_digest, files)
            for number, segment in enumerate(itertools.chain([first, second], segments))
        ]
        unchanged = np.arange(len(files))
        return _merge(writer, [(run, unchanged) for run in runs], kind)


def merge_runs(
    output: BinaryIO, key_digest: str, runs: Sequence[MappedRun], keep: Iterable[KeyedFile]
) -> int:
    """Write a run with the entries of `runs`, one or more, of those data files of `keep` that they cover.
    Return how many entries it has.

    Where several runs cover a file, the entries are those of the first one. UnusableRunError where a run is
    damaged: what was written until then is no run.
    """
    wanted = set(keep)
    files: list[KeyedFile] = []
    sources = []
    for run in runs:
        numbers = np.full(len(run.footer.files), -1)
        for number, file in enumerate(run.footer.files):
            if file in wanted:
                wanted.remove(file)
                numbers[number] = len(files)
                files.append(file)
        sources.append((run, numbers))
    kind = runs[0].footer.kind
    return _merge(start_run(output, key_digest, files, kind), sources, kind)


def _merge(writer: RunWriter, sources: Sequence[tuple[MappedRun, np.ndarray]], kind: np.dtype | None) -> int:
    """Write the entries of runs whose data files get other numbers; leave out those of files with none."""
    ranges = -(-sum(run.footer.entries for run, _ in sources) // BLOCK_ENTRIES)
    written = 0
    for number in range(ranges):
        first, end = (_WORDS * place // ranges for place in (number, number + 1))
        parts = [
            _renumbered(entries, numbers)
            for run, numbers in sources
            for entries in run.between(first, end - 1)
        ]
        merged = _in_order(parts, kind)
        writer.write(merged)
        written += len(merged.high)
    writer.finish()
    return written


def _renumbered(entries: RunEntries, numbers: np.ndarray) -> RunEntries:
    shift = np.uint64(POSITION_BITS)
    number = numbers[entries.addresses >> shift]
    if number.min(initial=0) < 0:
        kept = number >= 0
        entries, number = entries.take(kept), number[kept]
    position = entries.addresses & ((np.uint64(1) << shift) - np.uint64(1))
    return entries._replace(addresses=number.astype(np.uint64) << shift | position)


def _segments(entries: Iterable[tuple[int, KeyEntries]], kind: np.dtype | None) -> Iterator[RunEntries]:
    """Yield one or more ordered segments; one that has no entries only where there are none."""
    parts: list[RunEntries] = []
    count = segments = 0
    for number, (hashes, positions, values) in entries:
        parts.append(RunEntries(hashes[:, 0], hashes[:, 1], addresses_of(number, positions), values))
        count += len(positions)
        if count >= SEGMENT_ENTRIES:
            yield _in_order(parts, kind)
            parts, count, segments = [], 0, segments + 1
    if count or not segments:
        yield _in_order(parts, kind)


def _in_order(parts: Sequence[RunEntries], kind: np.dtype | None) -> RunEntries:
    """Return the entries of all parts in ascending order."""
    none = RunEntries.none(kind)
    high, low, addresses, values = zip(none, *parts, strict=True)
    joined = RunEntries(
        np.concatenate(high),
        np.concatenate(low),
        np.concatenate(addresses),
        np.concatenate(values) if kind is not None else None,
    )
    return joined.take(np.argsort(joined.high))


def _spilled(segment: RunEntries, path: str, key_digest: str, files: Sequence[KeyedFile]) -> MappedRun:
    """Return a segment as a run in a file of the worker's."""
    with open(path, "w+b") as file:
        kind = None if segment.sequences is None else segment.sequences.dtype
        writer = start_run(file, key_digest, files, kind)
        writer.write(segment)
        writer.finish()
        file.flush()
        return MappedRun(file, key_digest)
