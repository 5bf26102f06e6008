"""The upkeep of a table's key index beside the stream: runs of files that none covers, and merges of runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from streaming_sink.batch.beside import PassesBeside
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.key_options import KeyOptions
from streaming_sink.tasks.job import SearchedFile
from streaming_sink.tasks.keys.index import KeyIndex
from streaming_sink.tasks.keys.scanning import KeyColumns, KeyedFile
from streaming_sink.tasks.keys.upkeep import maintain
from timeline import names
from timeline.clock import SYSTEM
from timeline.commit.succession import commit_time
from timeline.stores.base import Store
from timeline.versions.head import Head
from timeline.versions.keys import TABLE_SCOPE

_LOG = logging.getLogger("streaming_sink")

INDEXED_ROWS = 4_000_000
"""From so many live rows on, `key_index="auto"` looks keys up in an index: a scan of them takes as long as
the rest of a small batch.
"""
UNCOVERED_ROWS = 1_000_000
"""So many rows of files that no run covers are scanned by each batch before runs are built of them: most
young files are small, and fills soon replace them.
"""


@dataclass(frozen=True)
class _Request:
    """The files of a head, for a pass: a head itself is read by one thread."""

    index: KeyIndex
    files: Sequence[KeyedFile]
    now_ms: int


def is_indexed(options: KeyOptions, files: Iterable[KeyedFile | SearchedFile]) -> bool:
    """Return whether a batch looks its keys up in the table's index."""
    if options.scope != TABLE_SCOPE or options.index == "scan":
        return False
    return options.index == "index" or sum(file.rows for file in files) >= INDEXED_ROWS


class KeyUpkeep:
    """Keeps the index of one sink's table, one pass at a time, in a thread. What fails costs work alone, and
    is tried again after a later batch.
    """

    def __init__(self, options: KeyOptions) -> None:
        self._options = options
        self._passes = PassesBeside[_Request]("upkeep of the key index", self._run)
        self._covered: frozenset[str] = frozenset()
        """Files that a run covered when the last pass had ended."""

    def after_commit(self, store: Store, head: Head) -> None:
        """Have a pass made where batches would scan too many rows."""
        live = [file for file in head.live_files() if not file.encryption]
        files = [KeyedFile(file.location, file.rows) for file in live]
        if not is_indexed(self._options, files) or self._passes.is_running:
            return
        least = 0 if self._options.index == "index" else UNCOVERED_ROWS
        if sum(file.rows for file in files if file.location not in self._covered) > least:
            index = KeyIndex(store, key_columns(head, self._options))
            self._passes.ask(_Request(index, files, commit_time(SYSTEM, head)))

    def finish(self, timeout_seconds: float | None) -> list[str]:
        """Wait for the pass that runs, if any. TimeoutError if it takes longer."""
        self._passes.wait(timeout_seconds)
        return self._passes.ended()

    def _run(self, requests: Sequence[_Request]) -> str:
        newest = requests[-1]
        location = newest.index.store.location
        try:
            new_id = partial(_new_id, newest.now_ms)
            made = maintain(newest.index, newest.files, new_id, newest.now_ms)
        except Exception as failure:  # noqa: BLE001 - no batch depends on it
            _LOG.warning("the key index of %s is not complete: %s", location, failure)
            return ""
        self._covered = frozenset(file.location for file in newest.files)
        done = len(made.built), len(made.merged), len(made.deleted)
        _LOG.info("the key index of %s: %d runs built, %d merged, %d deleted", location, *done)
        return ""


def key_columns(head: Head, options: KeyOptions) -> KeyColumns:
    """Return the key of a sink by the columns of its table."""
    schema = arrow_schema(head.schema)
    sequence = None if options.sequence_by is None else schema.field(options.sequence_by)
    keys = pa.schema([schema.field(name) for name in options.columns])
    return KeyColumns(head.metadata.table_uuid, keys, sequence)


def _new_id(time_ms: int) -> str:
    return names.ulid(time_ms, int.from_bytes(os.urandom(10), "big"))
