"""A streaming process of its own, which a test may stop, let go on, and kill as a power cut does."""

from __future__ import annotations

import json
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
from timeline.properties import TRANSACTION_PREFIX

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable
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
            stdin=subprocess.PIPE,
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

    def send(self, line: str) -> None:
        """Hand the process a line at its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def says(self, word: str, seconds: float = _SECONDS) -> str:
        """Wait for a line that begins with the word, and return it."""
        give_up_at = time.monotonic() + seconds
        while True:
            line = self._lines.get(timeout=max(0.01, give_up_at - time.monotonic()))
            if line.startswith(word):
                return line
            assert line.startswith(_STEPS), f"waited for {word}, and it says: {line}"

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Return once it holds: no time fits all machines."""
        give_up_at = time.monotonic() + _SECONDS
        while not condition():
            assert time.monotonic() < give_up_at, "what the test waits for did not come"
            assert self._process.poll() is None, "the stream ended by itself"
            time.sleep(0.002)

    def wait_for_batch(self, location: str, app_id: str, batch: int) -> None:
        """Return once the table has this batch of the application."""
        self.wait_until(lambda: last_batch(location, app_id) >= batch)

    def assert_runs_for(self, seconds: float) -> None:
        with pytest.raises(subprocess.TimeoutExpired):  # else it ended before its kill: give it more to do
            self._process.wait(seconds)

    def kill_jvm(self) -> None:
        """End the JVM alone: the Python driver goes on for as long as it will."""
        [jvm] = [
            pid
            for pid, (_, command) in processes_below(self._process.pid).items()
            if "org.apache.spark.deploy" in command
        ]
        os.kill(jvm, signal.SIGKILL)

    def kill_a_worker(self, chance: random.Random) -> bool:
        """End one Python worker alone, of which this returns whether there was one."""
        below = processes_below(self._process.pid)
        daemons = {pid for pid, (_, command) in below.items() if "pyspark.daemon" in command}
        workers = sorted(pid for pid in daemons if below[pid][0] in daemons)
        if workers:
            with suppress(ProcessLookupError):
                os.kill(chance.choice(workers), signal.SIGKILL)
        return bool(workers)

    def thaw(self) -> None:
        os.killpg(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End driver, JVM and workers at once, as a power cut of the container does."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


def processes_below(pid: int) -> dict[int, tuple[int, str]]:
    """Return the processes that one has started, and those of these: their parent and command."""
    every: dict[int, tuple[int, str]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            command = (folder / "cmdline").read_text(errors="replace").replace("\0", " ")
            every[int(folder.name)] = (int(parent), command)
    found: dict[int, tuple[int, str]] = {}
    parents = {pid}
    while parents:
        new = {pid: each for pid, each in every.items() if each[0] in parents}
        found |= new
        parents = set(new)
    return found


class Kills:
    """What the kills of a test have hit: a run that dies before it commits is the easy case.

    Every other kill waits for commits of the run that it is going to hit, so half of them find one on any
    machine; the others come when they come.
    """

    def __init__(self, most: int = 3) -> None:
        self._most = most
        self.after_a_commit: list[bool] = []
        """Of each kill whether the run had committed."""

    def commits_before(self, chance: random.Random) -> int:
        """Return how many batches the run commits before the next kill."""
        return chance.randint(1 - len(self.after_a_commit) % 2, self._most)

    def record(self, *, committed: bool) -> None:
        self.after_a_commit.append(committed)

    def assert_half_came_after_a_commit(self) -> None:
        assert 2 * sum(self.after_a_commit) >= len(self.after_a_commit) > 0, self.after_a_commit


def last_batch(location: str, app_id: str) -> int:
    """Return the last batch of an application that the table has, -1 where it has none."""
    path = metadata_file(location)
    properties = {} if path is None else json.loads(Path(path).read_text())["properties"]
    known = properties.get(TRANSACTION_PREFIX + app_id)
    return -1 if known is None else int(json.loads(known)["batch"])
