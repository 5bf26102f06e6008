"""A Hive metastore in memory: its tables, and its locks, with requests that get lost."""

from __future__ import annotations

import contextlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from hive_metastore.ttypes import (
    AlreadyExistsException,
    Database,
    LockResponse,
    LockState,
    MetaException,
    NoSuchLockException,
    NoSuchObjectException,
    ShowLocksResponse,
    ShowLocksResponseElement,
)
from thrift.transport.TTransport import TTransportException

BEFORE, AFTER = "before its effect", "after its effect"
"""When the connection is lost."""


class Metastore:
    """A metastore that gives a lock to one after the other, and moves a pointer without a look, as 3.1.3."""

    def __init__(self, folder: Any, now_ms: Callable[[], int]) -> None:
        self._folder, self._now_ms = folder, now_ms
        self.compares = False
        """Whether it looks at the pointer where it is told to, as 2.3.10 and 4."""
        self.tables = dict[tuple[str, str], Any]()
        self.locks = dict[int, ShowLocksResponseElement]()
        self.requests = list[str]()
        self.meets = defaultdict[str, deque[Any]](deque)
        """By request: BEFORE, AFTER, or something that happens before it is sent."""

    @contextlib.contextmanager
    def connection(self, *_: Any) -> Iterator[Any]:
        """Be connected to."""
        yield _Client(self)

    def do_get_database(self, name: str) -> Database:
        return Database(name=name, locationUri=f"file:{self._folder}/{name}.db", parameters={})

    def do_get_all_databases(self) -> list[str]:
        return sorted({database for database, _ in self.tables})

    def do_create_database(self, database: Database) -> None:
        """Nothing: each is there."""

    def do_create_table(self, table: Any) -> None:
        name = table.dbName, table.tableName
        if name in self.tables:
            raise AlreadyExistsException(str(name))
        self.tables[name] = table

    def do_get_table(self, dbname: str, tbl_name: str) -> Any:
        if (dbname, tbl_name) not in self.tables:
            raise NoSuchObjectException(tbl_name)
        return self.tables[dbname, tbl_name]

    def do_drop_table(self, dbname: str, name: str, deleteData: bool) -> None:  # noqa: N803 - Hive's own
        assert not deleteData
        del self.tables[dbname, name]

    def do_get_all_tables(self, db_name: str) -> list[str]:
        return [name for database, name in self.tables if database == db_name]

    def do_get_table_objects_by_name(self, dbname: str, tbl_names: list[str]) -> list[Any]:
        return [self.tables[dbname, name] for name in tbl_names]

    def do_alter_table_with_environment_context(
        self, dbname: str, tbl_name: str, new_tbl: Any, context: Any
    ) -> None:
        known = self.do_get_table(dbname, tbl_name).parameters
        stated = context.properties
        key = stated["expected_parameter_key"]
        if self.compares and known[key] != stated["expected_parameter_value"]:
            raise MetaException("The table has been modified")
        self.tables[dbname, tbl_name] = new_tbl

    def do_lock(self, wanted: Any) -> LockResponse:
        number = len(self.requests)
        self.locks[number] = ShowLocksResponseElement(
            lockid=number, agentInfo=wanted.agentInfo, user=wanted.user, hostname=wanted.hostname
        )
        return self.do_check_lock(self.locks[number])

    def do_check_lock(self, wanted: Any) -> LockResponse:
        self.do_heartbeat(wanted)
        lock = self.locks[wanted.lockid]
        lock.state = LockState.ACQUIRED if lock.lockid == min(self.locks) else LockState.WAITING
        return LockResponse(wanted.lockid, lock.state)

    def do_heartbeat(self, wanted: Any) -> None:
        if wanted.lockid not in self.locks:
            raise NoSuchLockException
        self.locks[wanted.lockid].lastheartbeat = self._now_ms()

    def do_unlock(self, wanted: Any) -> None:
        self.locks.pop(wanted.lockid, None)

    def do_show_locks(self, _: Any) -> ShowLocksResponse:
        return ShowLocksResponse(list(self.locks.values()))


class _Client:
    """What a connection has: requests, of copies."""

    def __init__(self, metastore: Metastore) -> None:
        self._metastore = metastore

    def __getattr__(self, request: str) -> Callable[..., Any]:
        def send(*given: Any, **named: Any) -> Any:
            metastore = self._metastore
            metastore.requests.append(request)
            meets = metastore.meets[request].popleft() if metastore.meets[request] else None
            if callable(meets):
                meets()
            if meets == BEFORE:
                raise TTransportException(message="the connection was lost")
            answer = getattr(metastore, f"do_{request}")(*deepcopy(given), **deepcopy(named))
            if meets == AFTER:
                raise TTransportException(message="the connection was lost")
            return deepcopy(answer)

        return send
