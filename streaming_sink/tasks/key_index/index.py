"""The key index of a table: which rows of its live data files have a key, looked up in runs and by scans.

The index is a cache of scans, in `_timeline/index/` beside the table. What a data file holds never changes,
so neither does what a run says of it. A live file that no run covers is scanned; what a run says of a file
that is not live is ignored: the driver knows which are live, and a task gets a bit for each of a run's files.
Losing, damaging or not updating the index costs work, never a row, and no commit reads it to decide anything.

Where a key is unique in each partition, hashes are those of a key and its partition, so that the same key in
many partitions is found in those of the batch alone.

Rows that delete files delete are found too: which they are belongs to a snapshot, so the caller takes them
out. A run of 50 million keys answers 50,000 in about 30 ms once its pages are in memory, and takes 1.2 GB of
disk, and of page cache where keys are random. A billion keys are 24 GB, on every worker that looks keys up;
where tasks share a batch by the first words of its hashes, each reads its share of the blocks alone. An
object store still sends whole runs.

Runs hold hashes of keys, and a guess of a key can be tested against them where the table's uuid is known. So
upkeep decrypts no data file, and the files of an encrypted table are scanned.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streaming_sink.tasks.errors import NoCopyError, UnusableRunError
from streaming_sink.tasks.key_index.open_runs import OpenRuns
from streaming_sink.tasks.key_index.runs import RunFooter
from streaming_sink.tasks.key_index.scanned_keys import SCANNED_KEYS, ScannedKeys
from streaming_sink.tasks.keys.probing import KeyFilter, KeyProbe
from streaming_sink.tasks.keys.scanning import KeyColumns, KeyedFile, KeyMatches
from timeline.names import key_run_folder, key_run_id
from timeline.stores.base import Store

_LOG = logging.getLogger("streaming_sink.keys")
INDEXED_ROWS = 4_000_000
"""So many rows, of the table or of the partitions of a batch, are worth an index: a scan of them takes as
long as the rest of a small batch.
"""
OPEN_RUNS = OpenRuns()
"""Those of this worker process."""


class RunPart(NamedTuple):
    """A run, and those of its data files in which it finds keys."""

    path: str
    footer: RunFooter
    has: np.ndarray
    """Of each file of the footer, whether it is one of them."""

    @property
    def files(self) -> list[KeyedFile]:
        return [self.footer.files[number] for number in np.flatnonzero(self.has).tolist()]


@dataclass(frozen=True, slots=True)
class KeyLookup:
    """The rows of live files that have a key of a batch, deleted rows too; in no order."""

    files: np.ndarray
    """The number of each row's data file, among `of`."""
    rows: KeyMatches
    of: Sequence[KeyedFile]
    scanned: tuple[KeyedFile, ...]
    """The files that no run has answered for, so that all their keys were compared."""
    damaged: tuple[str, ...]
    """The paths of runs whose entries are damaged; upkeep replaces them."""


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """The index of one key of one table, and the runs of it that this process has open."""

    store: Store
    columns: KeyColumns
    runs: OpenRuns = OPEN_RUNS

    def part(self, path: str, live: bytes, salts: Collection[bytes] | None = None) -> RunPart:
        """Return a run with the files whose bits are set, of these scopes. UnusableRunError where its footer
        cannot be read.
        """
        try:
            footer = self.runs.footer(self.store, path, self.columns.digest)
        except FileNotFoundError as gone:
            raise UnusableRunError(f"a run of the key index was deleted: {path}") from gone
        has = np.unpackbits(np.frombuffer(live, np.uint8), count=len(footer.files)).astype(bool)
        if salts is not None:
            has &= footer.files.are_in(salts)
        return RunPart(path, footer, has)

    def lookup(
        self,
        parts: Sequence[RunPart],
        files: Sequence[KeyedFile],
        probe: KeyProbe,
        known: ScannedKeys = SCANNED_KEYS,
        wanted: KeyFilter | None = None,
    ) -> KeyLookup:
        """Return the rows that have a key of the probe: of the files of runs, and of `files`, which are
        scanned. No file is there twice. `wanted` has the coarse words of these keys.

        A read of each run, and of each file that is scanned, which this process has not seen. DataFileError
        where such a file is missing or damaged; StoreUnavailableError.
        """
        scanned, of = list(files), list[KeyedFile]()
        files_of: list[np.ndarray] = [np.empty(0, np.int64)]
        found = [KeyMatches.none(self.columns.kind)]
        damaged = []
        for part in parts:
            if not part.has.any():
                continue
            try:
                numbers, rows = self.runs.open(self.store, part.path, self.columns.digest).find(probe)
            except FileNotFoundError:  # upkeep has deleted it since
                scanned += part.files
                continue
            except UnusableRunError as damage:
                _LOG.warning("a run of the key index is not used: %s: %s", part.path, damage)
                self.runs.discard(self.store, part.path)
                if not isinstance(damage, NoCopyError):
                    damaged.append(part.path)
                scanned += part.files
                continue
            live = part.has[numbers]
            hit, place = np.unique(numbers[live], return_inverse=True)
            files_of.append(place + len(of))
            found.append(rows.take(live))
            of += [part.footer.files[number] for number in hit]
        scans = known.find(self.store, scanned, self.columns, probe, wanted)
        found += scans
        files_of += [np.full(len(each.indexes), len(of) + number) for number, each in enumerate(scans)]
        of += scanned
        rows = KeyMatches.concatenate(found)
        return KeyLookup(np.concatenate(files_of), rows, of, tuple(scanned), tuple(damaged))

    def run_paths(self) -> list[str]:
        """Return the paths of all runs, of unfinished ones too."""
        listed = self.store.list_folder(key_run_folder(self.columns.digest))
        return [each.path for each in listed if key_run_id(each.path) is not None]

    def readable_runs(self) -> list[tuple[str, RunFooter]]:
        """Return the runs that are whole by their footers, those with the most entries first."""
        found = [(path, footer) for path in self.run_paths() if (footer := self.find_footer(path, self.runs))]
        return sorted(found, key=lambda run: (-run[1].entries, run[0]))

    def find_footer(self, path: str, runs: OpenRuns) -> RunFooter | None:
        """Return the footer of a run; None where it cannot be used."""
        try:
            return runs.footer(self.store, path, self.columns.digest)
        except FileNotFoundError:
            return None  # upkeep has deleted it since
        except UnusableRunError as unreadable:  # damaged, or not written to its end yet
            _LOG.info("a run of the key index is not used: %s: %s", path, unreadable)
            return None
