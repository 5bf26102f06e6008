"""pyiceberg's catalog in SQL: on sqlite, or on PostgreSQL with time-outs on connections and statements."""

from __future__ import annotations

from typing import Any
from weakref import finalize

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.typedef import Identifier
from sqlalchemy import ColumnElement, Connection, event, select, update
from sqlalchemy.engine import ExceptionContext, make_url
from sqlalchemy.orm import Session

from timeline.catalogs.clients.metastore import Metastore
from timeline.catalogs.clients.store_io import OpenStore
from timeline.clock import Environment

_CONNECT_SECONDS, _ANSWER_SECONDS = 10, 60
_LIBPQ = ("psycopg", "psycopg2")
"""Drivers that take libpq's parameters."""


class SqlMetastore(Metastore, SqlCatalog):
    """A catalog in SQL whose metadata files are durable, and whose requests end."""

    def __init__(self, name: str, open_store: OpenStore, environment: Environment, **given: Any) -> None:
        super().__init__(name, open_store, environment, **{**given, "uri": _with_timeouts(given["uri"])})
        finalize(self, self.engine.dispose)
        event.listen(self.engine, "handle_error", _drop_connection)
        if self.engine.dialect.name == "postgresql":
            event.listen(self.engine, "begin", _limit)

    def read_pointer(self, identifier: Identifier) -> str | None:
        """Return the place of a table's metadata file, "" where it is no table of Iceberg; None where there
        is no table of this name.
        """
        with Session(self.engine) as session:
            found = session.execute(select(IcebergTables.metadata_location).where(*self._named(identifier)))
            row = found.one_or_none()
        return None if row is None else row[0] or ""

    def move_pointer(self, identifier: Identifier, base: str, place: str) -> None:
        """Move the pointer of a table from one metadata file to another, by a compare-and-swap.
        CommitFailedException where it is no longer at `base`.
        """
        found = (*self._named(identifier), IcebergTables.metadata_location == base)
        moved = update(IcebergTables).where(*found)
        moved = moved.values(metadata_location=place, previous_metadata_location=base)
        with Session(self.engine) as session:
            if session.connection().execute(moved).rowcount < 1:
                raise CommitFailedException("another writer was first")
            session.commit()

    def _named(self, identifier: Identifier) -> tuple[ColumnElement[bool], ...]:
        """Return the conditions under which a row is that of a table."""
        return (
            IcebergTables.catalog_name == self.name,
            IcebergTables.table_namespace == Catalog.namespace_to_string(identifier[:-1]),
            IcebergTables.table_name == identifier[-1],
        )


def _drop_connection(failure: ExceptionContext) -> None:
    """Close the connection of a failure. After a failed COMMIT, SQLAlchemy's pool gives it out again within
    the same transaction, whose changes a read would show as if they were committed.
    """
    failure.is_disconnect, failure.invalidate_pool_on_disconnect = True, False


def _with_timeouts(uri: str) -> str:
    address = make_url(uri)
    if address.get_driver_name() not in _LIBPQ:
        return uri
    limits = {"connect_timeout": str(_CONNECT_SECONDS), "tcp_user_timeout": str(_ANSWER_SECONDS * 1000)}
    kept = {**limits, **address.query}
    return address.set(query=kept).render_as_string(hide_password=False)


def _limit(connection: Connection) -> None:
    """End a statement that waits, as for the lock of a client that was stopped within its transaction."""
    connection.exec_driver_sql(f"SET LOCAL statement_timeout = {_ANSWER_SECONDS * 1000}")
