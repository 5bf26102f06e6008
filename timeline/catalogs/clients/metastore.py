"""What pyiceberg's catalogs in SQL, Glue and Hive have in common: the client writes the metadata files.

A commit writes the next metadata file, and sets the catalog's pointer from the file before it to that one. So
each file that was ever current is in the log of its successor, and one that lost a race is in none.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from threading import local
from typing import Any

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchIcebergTableError, NoSuchPropertyException
from pyiceberg.io import FileIO
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from timeline.catalogs.answers import is_refusal
from timeline.catalogs.catalog_draft import newest_ms
from timeline.catalogs.clients.store_io import OpenStore, StoreIO
from timeline.clock import Environment
from timeline.errors import StoreUnavailableError, UnsupportedTableError

_DELETES = "write.metadata.delete-after-commit.enabled"
_IO, _MADE = "py-io-impl", "timeline.catalogs.clients.metastore.given_io"
GIVEN = "streaming-sink.io"
_CLOCKS_DIFFER_MS = 60_000
"""So far Java lets a time in a table's metadata be before another."""


@dataclass(frozen=True)
class _Written:
    """The metadata file of an attempt to commit, and what it was to follow."""

    identifier: Identifier
    base: str
    base_log: frozenset[str]
    file: str
    refused: bool = False
    """Whether the catalog said that the attempt had no effect; else it may have it later."""


def given_io(properties: Properties) -> FileIO:
    """Return the file access that a `Metastore` was made with, as pyiceberg looks for it."""
    made: FileIO = properties[GIVEN]
    return made


class Metastore(MetastoreCatalog):
    """A mixin before one of pyiceberg's own catalogs: metadata files are written through a store (R14), those
    that lost are deleted once that is known, and old ones where the table says so.
    """

    def __init__(self, name: str, open_store: OpenStore, environment: Environment, **given: Any) -> None:
        self._written = local()
        self._unsettled: list[_Written] = []
        self._store_io = StoreIO(open_store, environment)
        super().__init__(name, **{**given, _IO: _MADE, GIVEN: self._store_io})

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load a table, and settle what became of this process' own attempts. UnsupportedTableError for what
        is no table of Iceberg.
        """
        try:
            loaded = super().load_table(identifier)  # type: ignore[safe-super]
        except (NoSuchIcebergTableError, NoSuchPropertyException) as other:
            raise UnsupportedTableError(
                f"what the catalog has under this name is no table of Iceberg; nothing was written: {other}"
            ) from other
        self._settle(loaded)
        return loaded

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit, and delete the old metadata files that have left the log."""
        self._written.now = None
        try:
            answer = super().commit_table(table, requirements, updates)  # type: ignore[safe-super]
        except Exception as failure:
            # Of the store: the pointer is moved after all that goes there, so nothing can take effect.
            from_store = isinstance(failure, StoreUnavailableError)
            if (written := self._written.now) is not None:
                self._unsettled.append(replace(written, refused=from_store or is_refusal(failure)))
            if from_store:
                raise CommitFailedException(f"its metadata cannot be written: {failure}") from failure
            raise
        if (written := self._written.now) is not None:
            self._delete_replaced(written, answer.metadata)
        return answer

    def begin_pointer(self, identifier: Identifier, place: str) -> None:
        """Name a metadata file as a table that is not there yet. TableAlreadyExistsError, where it is."""
        self.register_table(identifier, place)

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:  # noqa: ARG002
        return self._store_io  # a table's properties name no other

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        if current_table is not None:
            _check_snapshots(current_table.metadata, updates)
        staged = super()._update_and_stage_table(current_table, table_identifier, requirements, updates)
        if current_table is not None:
            self._written.now = _Written(
                Catalog.identifier_to_tuple(table_identifier),
                current_table.metadata_location,
                _log(current_table.metadata),
                staged.metadata_location,
            )
        return staged

    def _settle(self, loaded: Table) -> None:
        """Delete what attempts have written that are known to have lost: the pointer has left the file that
        they were to follow, and the log from there on does not have theirs. Without an answer an attempt may
        still take effect, should the pointer be set back: it is left alone.
        """
        seen = _log(loaded.metadata) | {loaded.metadata_location}
        unsettled, self._unsettled = self._unsettled, []
        for written in unsettled:
            other = written.identifier != Catalog.identifier_to_tuple(loaded.name())
            if other or loaded.metadata_location == written.base:
                self._unsettled.append(written)
            elif written.file in seen:
                self._delete_replaced(written, loaded.metadata)
            elif written.refused and written.base in seen:
                self._delete([written.file])

    def _delete_replaced(self, written: _Written, after: TableMetadata) -> None:
        if str(after.properties.get(_DELETES, "false")).lower() == "true":
            self._delete(sorted(written.base_log - _log(after)))

    def _delete(self, files: list[str]) -> None:
        # A file that stays costs space, and no commit depends on it.
        with suppress(StoreUnavailableError):
            for file in files:
                self._store_io.delete(file)


def _log(metadata: TableMetadata) -> frozenset[str]:
    return frozenset(entry.metadata_file for entry in metadata.metadata_log)


def _check_snapshots(metadata: TableMetadata, updates: tuple[TableUpdate, ...]) -> None:
    """Raise CommitFailedException for a snapshot whose number is taken, or whose time others have passed.
    pyiceberg compares no times and, as Iceberg's own servers, no number of a snapshot without a parent.
    """
    last = getattr(metadata, "last_sequence_number", 0)  # format version 1 has none
    earliest = newest_ms(metadata) - _CLOCKS_DIFFER_MS
    for update in updates:
        if isinstance(update, AddSnapshotUpdate):
            number, time = update.snapshot.sequence_number or 0, update.snapshot.timestamp_ms
            if number <= last or time < earliest:
                raise CommitFailedException(
                    f"a snapshot with the sequence number {number} and the time {time} cannot follow a table"
                    f" that has {last} and {earliest}"
                )
