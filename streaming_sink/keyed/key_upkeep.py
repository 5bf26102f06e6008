"""The upkeep of a table's key index beside the stream: runs of files that none covers, and merges of runs."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from pyiceberg.schema import Schema

from planners.model import TablePartition, comparable
from streaming_sink.keyed.searched_files import SearchedFiles, listed_rows, reused_names
from streaming_sink.options.values.writes import WriteByKey
from streaming_sink.table.arrow_types import arrow_schema, needs_field_ids
from streaming_sink.tasks.key_index.index import INDEXED_ROWS, KeyIndex
from streaming_sink.tasks.key_index.upkeep import maintain
from streaming_sink.tasks.keys.scanning import KeyColumns, KeyedFile, scope_salt
from streaming_sink.upkeep.beside import PassesBeside
from timeline.clock import SYSTEM
from timeline.drafts.succession import commit_time
from timeline.stores.base import Store
from timeline.versions.head import Head
from timeline.versions.keys import PARTITION_SCOPE

_LOG = logging.getLogger("streaming_sink")

UNCOVERED_ROWS = 1_000_000
"""So many rows of files that no run covers are scanned by each batch before runs are built of them: most
young files are small, and fills soon replace them.
"""


@dataclass(frozen=True)
class _Request:
    """The files of a head, for a pass: a head itself is read by one thread."""

    index: KeyIndex
    files: Sequence[KeyedFile]
    uncovered: frozenset[str]
    """The locations of those that no run covers."""
    now_ms: int
    damaged: frozenset[str]
    """The runs that tasks could not read."""


def indexed_from(options: WriteByKey) -> int | None:
    """Return from how many rows on, in which its keys may be, a batch looks them up in the table's index."""
    return {"auto": INDEXED_ROWS, "index": 0, "scan": None}[options.key_index]


class KeyUpkeep:
    """Keeps the index of one sink's table, one pass at a time, in a thread. What fails costs work alone, and
    is tried again after a later batch.
    """

    def __init__(self, options: WriteByKey, searched: SearchedFiles) -> None:
        self._options = options
        self._searched = searched
        self._passes = PassesBeside[_Request, None]("upkeep of the key index", self._run)
        self._seen_to: frozenset[str] = frozenset()
        """Files that no run covered when the last pass began, which has ended."""
        self._suspected = set[str]()

    def suspect(self, paths: Iterable[str]) -> None:
        """Have the next pass look at runs that tasks could not read, and build new ones for those that are
        damaged in the store. Until then each batch scans what they cover.
        """
        self._suspected.update(paths)

    def after_commit(self, store: Store, head: Head, touched: Collection[TablePartition]) -> None:
        """Have a pass made where batches like the last one, which has `touched` these partitions, would scan
        too many rows, or where a run is suspected.
        """
        least = indexed_from(self._options)
        if least is None or self._passes.is_running:
            return
        scoped = self._options.key_scope == PARTITION_SCOPE
        if listed_rows(head.manifests) < least:
            return
        uncovered = self._searched.uncovered(head)
        rows = sum(file.rows for file in uncovered if file.location not in self._seen_to)
        if not self._suspected:
            if rows <= (0 if self._options.key_index == "index" else UNCOVERED_ROWS):
                return
            if scoped and _rows_in(touched, head) < least:
                return
        index = KeyIndex(store, key_columns(head, self._options))
        is_reused = reused_names(head) or (lambda _: False)
        live = (it for it in head.live_files() if not it.encryption and not is_reused(it.location))
        files = [KeyedFile(it.location, it.rows, scope_salt(scoped, it.partition)) for it in live]
        locations = frozenset(file.location for file in uncovered)
        suspected, self._suspected = frozenset(self._suspected), set()
        self._passes.ask(_Request(index, files, locations, commit_time(SYSTEM, head), suspected))

    def finish(self, timeout_seconds: float | None) -> None:
        """Wait for the pass that runs, if any. TimeoutError if it takes longer."""
        self._passes.wait(timeout_seconds)

    def _run(self, requests: Sequence[_Request]) -> Sequence[None]:
        newest = requests[-1]
        location = newest.index.store.location
        try:
            new_id = partial(SYSTEM.new_id, newest.now_ms)
            made = maintain(newest.index, newest.files, new_id, newest.now_ms, damaged=newest.damaged)
        except Exception as failure:  # noqa: BLE001 - no batch depends on it
            _LOG.warning("the key index of %s is not complete: %s", location, failure)
            return ()
        self._seen_to = newest.uncovered
        done = len(made.built), len(made.merged), len(made.deleted)
        _LOG.info("the key index of %s: %d runs built, %d merged, %d deleted", location, *done)
        return ()


def key_columns(head: Head, options: WriteByKey, known: Schema | None = None) -> KeyColumns:
    """Return the key of a sink by the columns of its table, as the head has them or as a batch knows them."""
    schema, needs_ids = arrow_schema(known or head.schema), needs_field_ids(head)
    uuid = head.metadata.table_uuid
    return KeyColumns.of(uuid, schema, options.key, options.sequence_by, needs_ids=needs_ids)


def _rows_in(partitions: Collection[TablePartition], head: Head) -> int:
    wanted, rows = {TablePartition(spec_id, comparable(values)) for spec_id, values in partitions}, 0
    for columns in head.columns(partitions):
        places = [TablePartition(columns.spec_id, comparable(it)) in wanted for it in columns.partitions]
        rows += sum(
            count for count, place in zip(columns.rows, columns.partition, strict=True) if places[place]
        )
    return rows
