"""pyiceberg's Hive catalog, whose requests end, and whose commits compare the pointer that they move.

pyiceberg writes a table's metadata while it holds the metastore's lock, which may have ended by the time it
moves the pointer. Here the lock is held for a comparison and the move alone, and is shown to be held between
them. A metastore that compares by itself (2.3.10, 4) is asked to.
"""

from __future__ import annotations

import logging
from typing import Any
from urllib.parse import urlsplit

from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import EnvironmentContext, InvalidOperationException, MetaException
from hive_metastore.ttypes import Table as HiveTable
from pyiceberg.catalog import METADATA_LOCATION
from pyiceberg.catalog.hive import (
    DO_NOT_UPDATE_STATS,
    DO_NOT_UPDATE_STATS_DEFAULT,
    HIVE2_COMPATIBLE,
    HIVE2_COMPATIBLE_DEFAULT,
    HiveCatalog,
    _construct_hive_storage_descriptor,
    _construct_parameters,
    _HiveClient,
)
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    WaitingForLockException,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from pyiceberg.utils.properties import property_as_bool
from thrift.Thrift import TApplicationException, TException
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from timeline.catalogs.clients.hive_lock import TableLock
from timeline.catalogs.clients.metastore import Metastore
from timeline.catalogs.clients.store_io import OpenStore
from timeline.clock import Environment
from timeline.slots.retrying import StillUnknownError, until_known

_LOG = logging.getLogger(__name__)
_ANSWER_SECONDS = 60
_FRESH_SECONDS = 10.0
"""So long after the metastore was asked whether the lock is held may the pointer be moved."""
_LATE_SECONDS = 10.0
"""So long is it looked for whether a move without an answer has happened."""
_EXPECTED = "expected_parameter_key", "expected_parameter_value"
"""By which a metastore compares by itself. One that does not know them passes over them."""

_ANSWERS = (InvalidOperationException, MetaException, TApplicationException)
"""After these the metastore is done with a request, with or without an effect."""


class _Connection(_HiveClient):
    """A connection whose requests end."""

    def _init_thrift_transport(self) -> TBufferedTransport:
        address = urlsplit(self._uri)
        socket = TSocket(address.hostname, address.port)
        socket.setTimeout(_ANSWER_SECONDS * 1000)
        return TBufferedTransport(socket)


class _LockingCatalog(HiveCatalog):
    """A Hive catalog whose commit is safe, unless its process is stopped for minutes just before the move."""

    _environment: Environment

    @property
    def _client(self) -> _HiveClient:
        """A connection of its own for each use: threads share a catalog, and pyiceberg's has one for all."""
        return _Connection(self.properties["uri"], self.properties.get("ugi"))

    @_client.setter
    def _client(self, _: _HiveClient) -> None:
        """Pass over the connection that pyiceberg makes."""

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Write the next metadata, and move the pointer to it. CommitFailedException where another writer
        was first, or nothing could be sent.
        """
        identifier = table.name()
        try:
            with self._client as client:
                known = self._get_hive_table(client, *self._names(identifier))
        except (TException, OSError) as failure:
            raise CommitFailedException(f"nothing was sent: {failure}") from failure
        current = self._convert_hive_into_iceberg(known)
        staged = self._update_and_stage_table(current, identifier, requirements, updates)
        if staged.metadata == current.metadata:
            return CommitTableResponse(metadata=current.metadata, metadata_location=current.metadata_location)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        self._move(current, staged)
        return CommitTableResponse(metadata=staged.metadata, metadata_location=staged.metadata_location)

    def read_pointer(self, identifier: Identifier) -> str | None:
        """Return the place of a table's metadata file, "" where it is no table of Iceberg; None where there
        is no table of this name.
        """
        try:
            with self._client as client:
                known = self._get_hive_table(client, *self._names(identifier))
        except NoSuchTableError:
            return None
        return str(known.parameters.get(METADATA_LOCATION, ""))

    def move_pointer(self, identifier: Identifier, base: str, place: str) -> None:
        """Move the pointer of a table from one metadata file to another, by a compare-and-swap.
        CommitFailedException where it is no longer at `base`.
        """
        with self._client as client:
            known = self._get_hive_table(client, *self._names(identifier))
        if known.parameters.get(METADATA_LOCATION) != base:
            raise CommitFailedException("another writer was first")
        io = self._load_file_io(location=place)
        metadata = FromInputFile.table_metadata(io.new_input(place))
        try:
            current = self._convert_hive_into_iceberg(known)
        except FileNotFoundError:  # a mirror that was behind for long: columns and properties are set anew
            nothing = new_table_metadata(Schema(), UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, base)
            current = Table(identifier, nothing, base, io, self)
        self._move(current, StagedTable(identifier, metadata, place, io, self))

    def _move(self, current: Table, staged: StagedTable) -> None:
        """Move the pointer from one metadata file to the next, if it is still there."""
        lock = TableLock(lambda: self._client, self._environment, *self._names(current.name()))
        try:
            held = lock.acquire()
        except (TException, OSError, WaitingForLockException) as failure:
            raise CommitFailedException(f"nothing was sent: {failure}") from failure
        try:
            self._compare_and_move(lock, held, current, staged)
        except CommitStateUnknownException:
            raise  # it may still happen: until the lock ends, no other writer may move the pointer
        except (TException, OSError) as failure:
            lock.release(held)
            raise CommitFailedException(f"nothing was sent: {failure}") from failure
        except Exception:
            lock.release(held)
            raise
        lock.release(held)

    def _compare_and_move(self, lock: TableLock, held: int, current: Table, staged: StagedTable) -> None:
        """TException and OSError, where nothing was sent; CommitStateUnknownException as it says."""
        clock = self._environment.monotonic
        with self._client as client:
            changed = self._change(client, current, staged)
            asked_at = lock.show_held(client, held)
            if clock() - asked_at > _FRESH_SECONDS:
                raise CommitFailedException("nothing was sent: the metastore answers too late")
            compared = dict(zip(_EXPECTED, (METADATA_LOCATION, current.metadata_location), strict=True))
            context = EnvironmentContext({DO_NOT_UPDATE_STATS: DO_NOT_UPDATE_STATS_DEFAULT, **compared})
            try:
                client.alter_table_with_environment_context(lock.database, lock.table, changed, context)
            except (TException, OSError) as failure:
                self._find_out(failure, current, staged)
        if (took := clock() - asked_at) > _ANSWER_SECONDS + _LATE_SECONDS:
            _LOG.error(
                "a commit to %s.%s took %.0f s, in which the metastore may have ended its lock: if another"
                " writer has committed in that time, its rows are in a metadata file that follows %s too",
                lock.database, lock.table, took, current.metadata_location,
            )  # fmt: skip

    def _change(self, client: Client, current: Table, staged: StagedTable) -> HiveTable:
        """Return the metastore's table as it is to be, with what other engines have put into it."""
        table = self._get_hive_table(client, *self._names(current.name()))
        if table.parameters.get(METADATA_LOCATION) != current.metadata_location:
            raise CommitFailedException("another writer was first")
        gone = current.properties.keys() - staged.properties.keys()
        kept = {key: value for key, value in table.parameters.items() if key not in gone}
        ours = _construct_parameters(staged.metadata_location, current.metadata_location, staged.properties)
        table.parameters = {**kept, **ours}
        if staged.schema() != current.schema():
            of_hive_2 = property_as_bool(self.properties, HIVE2_COMPATIBLE, HIVE2_COMPATIBLE_DEFAULT)
            table.sd.cols = _construct_hive_storage_descriptor(staged.schema(), None, of_hive_2).cols
        return table

    def _find_out(self, failure: Exception, current: Table, staged: StagedTable) -> None:
        """Return where the pointer was moved. CommitFailedException where it was not, and will not be;
        CommitStateUnknownException where it still may.
        """

        def look() -> None:
            try:
                with self._client as client:
                    now = self._get_hive_table(client, *self._names(current.name())).parameters
            except NoSuchTableError:
                now = {}
            except (TException, OSError):
                raise StillUnknownError from failure
            if now.get(METADATA_LOCATION) == staged.metadata_location:
                return
            if isinstance(failure, _ANSWERS):
                raise CommitFailedException(str(failure)) from failure
            raise StillUnknownError from failure

        try:
            until_known(self._environment, self._environment.monotonic() + _LATE_SECONDS)(look)
        except StillUnknownError:
            raise CommitStateUnknownException(f"the metastore did not answer: {failure}") from failure

    def _names(self, identifier: Identifier) -> tuple[str, str]:
        return self.identifier_to_database_and_table(identifier, NoSuchTableError)


class HiveMetastore(Metastore, _LockingCatalog):
    """The catalog of a Hive metastore."""

    def __init__(self, name: str, open_store: OpenStore, environment: Environment, **given: Any) -> None:
        self._environment = environment
        super().__init__(name, open_store, environment, **given)
