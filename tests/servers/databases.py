"""Databases that a catalog in SQL is in: a file of sqlite, and PostgreSQL where this machine has it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.servers import launch
from tests.servers.binaries import ServerUnavailableError

PASSWORD = "hush-hush"
_TIMEOUT_SECONDS = 60


@dataclass(frozen=True)
class SqlDatabase:
    """A running database, and the folder of the tables."""

    uri: str
    warehouse: Path

    @property
    def properties(self) -> dict[str, str]:
        return {"type": "sql", "name": "lake", "uri": self.uri, "warehouse": f"file://{self.warehouse}"}


@contextlib.contextmanager
def sqlite(folder: Path) -> Iterator[SqlDatabase]:
    """Return a catalog in a file."""
    yield SqlDatabase(f"sqlite:///{folder}/catalog.db", folder / "warehouse")


@contextlib.contextmanager
def postgresql(folder: Path) -> Iterator[SqlDatabase]:
    """Run an empty PostgreSQL till the block is left. ServerUnavailableError where it, or psycopg,
    is not installed.
    """
    if find_spec("psycopg") is None:
        raise ServerUnavailableError("pip install 'psycopg[binary]'")
    initdb, server, port = _program("initdb"), _program("postgres"), launch.free_port()
    # It refuses to be run by root; and pytest's folders are for their owner alone.
    user = {"user": "postgres"} if os.getuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="postgresql-") as work:
        data, password = Path(work, "data"), Path(work, "password")
        data.mkdir()
        password.write_text(PASSWORD)
        if user:
            Path(work).chmod(0o755)
            shutil.chown(data, "postgres")
            shutil.chown(password, "postgres")
        made = [initdb, "-D", str(data), "-U", "lake", "-A", "scram-sha-256", f"--pwfile={password}"]
        log = (folder / "log").open("w")
        subprocess.run(made, cwd="/", stdout=log, check=True, timeout=_TIMEOUT_SECONDS, **user)
        settings = ["listen_addresses=127.0.0.1", f"unix_socket_directories={data}", "fsync=off"]
        command = [
            server,
            "-D",
            str(data),
            "-p",
            str(port),
            *(it for each in settings for it in ("-c", each)),
        ]
        process = subprocess.Popen(command, cwd="/", stdout=log, stderr=log, **user)
        try:
            _await(port, process)
            address = f"postgresql+psycopg://lake:{PASSWORD}@127.0.0.1:{port}/postgres"
            yield SqlDatabase(address, folder / "warehouse")
        finally:
            process.send_signal(signal.SIGQUIT)
            process.wait(_TIMEOUT_SECONDS)
            log.close()


def _program(name: str) -> str:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda it: int(it.parts[-3]))
    program = str(found[-1]) if found else shutil.which(name)
    if program is None:
        raise ServerUnavailableError(f"PostgreSQL's {name} is not installed")
    return program


def _await(port: int, process: subprocess.Popen[bytes]) -> None:
    """Return when the server takes connections."""
    import psycopg

    end = time.monotonic() + _TIMEOUT_SECONDS
    address = f"postgresql://lake:{PASSWORD}@127.0.0.1:{port}/postgres"
    while True:
        try:
            return psycopg.connect(address, connect_timeout=2).close()
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > end:
                raise
            time.sleep(0.1)
