"""pyiceberg's catalog in SQL: on sqlite, or on PostgreSQL with time-outs on connections and statements."""

from __future__ import annotations

from typing import Any
from weakref import finalize

from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import Connection, event
from sqlalchemy.engine import ExceptionContext, make_url

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
