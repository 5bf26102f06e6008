"""A streaming process of its own, which a test may stop, let go on, and kill as a power cut does."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.streams import metadata_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import IO

ROOT = Path(__file__).resolve().parents[2]
_SECONDS = 400
_STEPS = ("STARTED", "FROZEN", "LANDED", "GREW")
"""Lines that no test has to wait for."""


class Child:
    """A Python process with a JVM and workers of its own, which says by lines where it is."""

    def __init__(self, code: str, arguments: Iterable[Any], errors: IO[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.strip())
        self._lines.put("ENDED")

    def says(self, word: str, seconds: float = _SECONDS) -> str:
        """Wait for a line that begins with the word, and return it."""
        give_up_at = time.monotonic() + seconds
        while True:
            line = self._lines.get(timeout=max(0.01, give_up_at - time.monotonic()))
            if line.startswith(word):
                return line
            assert line.startswith(_STEPS), f"waited for {word}, and it says: {line}"

    def wait_for_version(self, location: str, version: int) -> None:
        """Return once the table has come to a version: no time fits all machines."""
        give_up_at = time.monotonic() + _SECONDS
        while version_of(location) < version:
            assert time.monotonic() < give_up_at, f"the table did not come to version {version}"
            assert self._process.poll() is None, "the stream ended by itself"
            time.sleep(0.002)

    def assert_runs_for(self, seconds: float) -> None:
        with pytest.raises(subprocess.TimeoutExpired):  # else it ended before its kill: give it more to do
            self._process.wait(seconds)

    def thaw(self) -> None:
        os.killpg(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End driver, JVM and workers at once, as a power cut of the container does."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


def version_of(location: str) -> int:
    """Return the number of the table's newest version, 0 where there is none."""
    path = metadata_file(location)
    return 0 if path is None else int(path.rpartition("/v")[2].partition(".")[0])
