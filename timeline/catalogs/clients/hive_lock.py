"""A metastore's lock of a table: waited for in turn, shown to be held, and ended where its holder has died.

A metastore ends a lock that is silent for `hive.txn.timeout`, 300 seconds by default; one without Hive's
housekeeping ends none, so that each client that dies would lock its table for good.
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import (
    CheckLockRequest,
    DataOperationType,
    HeartbeatRequest,
    LockComponent,
    LockLevel,
    LockRequest,
    LockResponse,
    LockState,
    LockType,
    ShowLocksRequest,
    ShowLocksResponseElement,
    UnlockRequest,
)
from pyiceberg.exceptions import WaitingForLockException
from thrift.Thrift import TException

from timeline.clock import Environment
from timeline.slots.retrying import retrying

Connect = Callable[[], AbstractContextManager[Client]]
_OURS = "streaming-sink "
_WAIT_SECONDS = 330.0
_DEAD_MS = 300_000
"""So long is a metastore's own time-out. A holder sends its change within seconds of its last heartbeat."""
_LONGEST_PAUSE = 0.1
_LOOK_SECONDS = 10.0


@dataclass(frozen=True)
class TableLock:
    """The exclusive lock of one table, as pyiceberg and Iceberg's Java library take it too."""

    connect: Connect
    environment: Environment
    database: str
    table: str

    def acquire(self) -> int:
        """Return the id of the lock once it is held. WaitingForLockException where others keep it."""
        agent = f"{_OURS}{self.environment.random.getrandbits(60):015x}"
        component = LockComponent(
            type=LockType.EXCLUSIVE,
            level=LockLevel.TABLE,
            dbname=self.database,
            tablename=self.table,
            operationType=DataOperationType.NO_TXN,
            isTransactional=True,
        )
        wanted = LockRequest(
            component=[component], user=getpass.getuser(), hostname=socket.gethostname(), agentInfo=agent
        )
        try:
            with self.connect() as client:
                answer = client.lock(wanted)
                if answer.state != LockState.ACQUIRED:
                    self._await(client, answer)
                return int(answer.lockid)
        except BaseException:
            self._abandon(agent)
            raise

    def show_held(self, client: Client, lock: int) -> float:
        """Return when the metastore was asked whether the lock is held. TException where it is not."""
        asked_at = self.environment.monotonic()
        client.heartbeat(HeartbeatRequest(lockid=lock))
        return asked_at

    def release(self, lock: int) -> None:
        """End the lock. Where the metastore does not answer, the next one who waits does it later."""
        with suppress(TException, OSError), self.connect() as client:
            client.unlock(UnlockRequest(lockid=lock))

    def _await(self, client: Client, answer: LockResponse) -> None:
        clock = self.environment.monotonic
        look_at = clock() + _LOOK_SECONDS

        def ask() -> None:
            nonlocal look_at
            if client.check_lock(CheckLockRequest(lockid=answer.lockid)).state == LockState.ACQUIRED:
                return
            if clock() >= look_at:
                look_at = clock() + _LOOK_SECONDS
                self._end_dead(client, answer.lockid)
            raise WaitingForLockException

        try:
            give_up_at = clock() + _WAIT_SECONDS
            retrying(self.environment, WaitingForLockException, give_up_at, lambda _: _LONGEST_PAUSE)(ask)
        except WaitingForLockException as waited:
            holders = [
                f"lock {it.lockid} of {it.user} on {it.hostname} ({it.agentInfo})"
                for it in self._locks(client)
                if it.state == LockState.ACQUIRED
            ]
            raise WaitingForLockException(
                f"others have locked {self.database}.{self.table} for {_WAIT_SECONDS:.0f} s; where the holder"
                " has died, unlock it by its id, and let the metastore's housekeeping do so next time:"
                f" {', '.join(holders)}"
            ) from waited

    def _end_dead(self, client: Client, waiting: int) -> None:
        """End the locks of this sink's processes that have died, by the metastore's clock."""
        locks = self._locks(client)
        now = next((it.lastheartbeat for it in locks if it.lockid == waiting), 0)
        for lock in locks:
            if str(lock.agentInfo).startswith(_OURS) and lock.lastheartbeat < now - _DEAD_MS:
                client.unlock(UnlockRequest(lockid=lock.lockid))

    def _abandon(self, agent: str) -> None:
        """End a lock whose id may have been lost with an answer: nothing was sent under it."""
        with suppress(TException, OSError), self.connect() as client:
            for lock in self._locks(client):
                if lock.agentInfo == agent:
                    client.unlock(UnlockRequest(lockid=lock.lockid))

    def _locks(self, client: Client) -> list[ShowLocksResponseElement]:
        wanted = ShowLocksRequest(dbname=self.database, tablename=self.table)
        return list(client.show_locks(wanted).locks or ())
