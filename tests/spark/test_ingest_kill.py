"""kill -9 of the parts of a zone, each a process of its own: each file lands once, whatever was cut off.
The soak announces in a topic as well.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from streaming_sink import ingest
from streaming_sink.zones.ledger import Ledger
from tests import jars
from tests.servers import kafka
from tests.spark.children import Kills, processes_below
from tests.spark.source_files import rows_from, rows_in, write_parquet
from tests.tiers import count, longer_in_soak, only_in_soak

pytestmark = [pytest.mark.spark, pytest.mark.slow, longer_in_soak]

ROOT = Path(__file__).resolve().parents[2]
FILES = count(90, 600)
KILLS = count(2, 10)
_SECONDS = 300
_PATIENT = ("--patience", "2 seconds")
PARTS = {"flux": (), "work": _PATIENT, "dispatch": _PATIENT}
_CLASSIC = {
    "PYSPARK_SUBMIT_ARGS": "--master local[1] --driver-memory 512m --conf spark.ui.enabled=false"
    " --conf spark.driver.bindAddress=127.0.0.1 --conf spark.driver.host=127.0.0.1 pyspark-shell"
}


class Parts:
    """The parts of a zone that run, each the leader of a group of processes. Several of one kind have names
    of their own: work, work-2. A dispatcher is the other zones', too.
    """

    def __init__(
        self,
        zone: str,
        folder: Path,
        environment: Mapping[str, str] = _CLASSIC,
        other_zones: Sequence[str] = (),
    ) -> None:
        self._zone, self._folder, self._environment = zone, folder, environment
        self._other_zones = other_zones
        self._groups: list[int] = []
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: dict[str, Path] = {}
        self._planned_before = 0

    def start(self, part: str) -> None:
        kind = part.partition("-")[0]
        self._logs[part] = self._folder / f"log-{part}-{len(self._groups)}"
        if part == "flux":
            self._planned_before = self._planned()
        zones = (self._zone, *self._other_zones) if kind == "dispatch" else (self._zone,)
        with self._logs[part].open("ab") as log:
            self._running[part] = subprocess.Popen(
                [sys.executable, "-m", "streaming_sink", "ingest", kind, *zones, *PARTS[kind]],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), **self._environment},
                start_new_session=True,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._groups.append(self._running[part].pid)

    def log(self, part: str) -> str:
        return self._logs[part].read_text()

    def has_committed(self, part: str) -> bool:
        """Return whether this process, or one that it has started, has recorded a plan or landed an item."""
        if part == "flux":
            return self._planned() > self._planned_before
        return re.search(r"^work item \d+: ", self.log(part), re.MULTILINE) is not None

    def _planned(self) -> int:
        return sum(1 for _ in ingest.BufferZone(self._zone).plans_after(0))

    def kill(self, part: str, *, whole_group: bool) -> None:
        """End a part, with the workers that it has started or without them."""
        ended = self._running[part]
        assert ended.poll() is None, f"{part} has ended by itself: {self.log(part)[-2000:]}"
        (os.killpg if whole_group else os.kill)(ended.pid, signal.SIGKILL)
        ended.wait()

    def kill_a_worker(self, chance: random.Random) -> bool:
        """End one of the workers that the dispatcher has started, alone; return whether there was one."""
        below = processes_below(self._running["dispatch"].pid)
        workers = sorted(pid for pid, (_, command) in below.items() if " ingest work " in command)
        if workers:
            with suppress(ProcessLookupError):
                os.kill(chance.choice(workers), signal.SIGKILL)
        return bool(workers)

    def end(self) -> None:
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        for process in self._running.values():
            process.wait()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def broker_in(folder: Path, stack: ExitStack) -> kafka.Broker:
    folder.mkdir()
    try:
        return stack.enter_context(kafka.broker(folder))
    except jars.JarUnavailableError as unavailable:
        pytest.skip(str(unavailable))


@pytest.mark.parametrize(
    "announced_in", ["files", pytest.param("kafka", marks=[pytest.mark.jar, only_in_soak])]
)
def test_parts_that_are_killed_land_each_file_once(
    announced_in: str, tmp_path: Path, stack: ExitStack
) -> None:
    rng, kills, hit = random.Random(5), KILLS, Kills()
    where, topic = str(tmp_path / "zone"), None
    if announced_in == "kafka":
        broker = broker_in(tmp_path / "kafka", stack)
        topic, kills = f"kafka://{broker.address}/announced", max(1, KILLS // 3)
    zone = ingest.BufferZone(
        where,
        table=str(tmp_path / "table"),
        partition_by=["day"],
        rules=ingest.Rules(max_files=10, max_age="1 second"),
        announcements=topic,
    )
    names = [
        write_parquet(tmp_path / "drop" / f"{number:04}.parquet", rows_from(number * 10, 10))
        for number in range(FILES)
    ]
    zone.push(names[0])  # makes the zone, which the processes open by its location alone
    (tmp_path / "logs").mkdir()
    parts = Parts(where, tmp_path / "logs")
    stack.callback(parts.end)
    for part in PARTS:
        parts.start(part)
    share = -(-FILES // (kills + 1))
    for kill in range(kills + 1):
        if kill == kills // 2:  # workers that start from now on stage and audit
            ingest.BufferZone(where, audit=True).definition  # noqa: B018
        zone.push(*names[kill * share : (kill + 1) * share])
        if kill == kills:
            break
        if hit.commits_before(rng):
            part = _one_that_has_committed(parts, rng)
        else:
            time.sleep(rng.uniform(2, 7))
            part = rng.choice(list(PARTS))
        if topic is not None and kill == kills // 2:
            broker.restart()
        hit.record(committed=parts.has_committed(part))
        parts.kill(part, whole_group=rng.random() < 0.5)
        parts.start(part)
    hit.assert_half_came_after_a_commit()
    give_up_at = time.monotonic() + _SECONDS
    while (states := Counter(entry.state for entry in Ledger(zone).entries()))["landed"] < FILES:
        assert time.monotonic() < give_up_at, (states, [parts.log(part)[-1000:] for part in PARTS])
        time.sleep(0.5)
    assert states == {"landed": FILES}
    assert sorted(entry.path for entry in Ledger(zone).entries()) == names
    assert rows_in(str(tmp_path / "table")) == rows_from(0, FILES * 10)
    assert not Ledger(zone).staged


def _one_that_has_committed(parts: Parts, rng: random.Random) -> str:
    """Wait for one of those that land, or now and then for the planner; return it."""
    wanted = rng.choice([["flux"], ["work", "dispatch"], ["work", "dispatch"]])
    give_up_at = time.monotonic() + _SECONDS
    while not (found := [part for part in wanted if parts.has_committed(part)]):
        assert time.monotonic() < give_up_at, [parts.log(part)[-1000:] for part in PARTS]
        time.sleep(0.05)
    time.sleep(rng.choice([0.0, rng.uniform(0.0, 2.0)]))
    return rng.choice(found)
