"""A race of real processes on one table, with kills and freezes, and the judgement of what they left."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.processes import clusterers, writers
from tests.processes.streams import app_id, open_or_create, rows_of
from tests.processes.writers import Plan
from tests.spark.streams import ids_of
from timeline import properties
from timeline.names import version_number
from timeline.stores import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.process import BaseProcess

READERS = 2
_SECONDS_FOR_A_PLAN = 20
_SECONDS_WITHOUT_PROGRESS = 120
_MOST_FROZEN = 3
_TARGETS = {"writer": writers.write, "clusterer": clusterers.cluster}

_Runner = tuple[str, int]
"""A role, and the number of who has it."""


def race(plan: Plan, *, kills: int = 0, seed: int = 1) -> list[bool]:
    """Run the plan to its end: every writer has its commits acknowledged, however often it was killed.

    Returns of each kill of a writer whether it had committed in that life.
    """
    plan.notes.mkdir()
    open_or_create(LocalStore(plan.location))
    with _processes(plan) as race:
        race.run(kills, random.Random(seed))
    return race.after_a_commit


@dataclass
class _Race:
    plan: Plan
    context: Any
    running: dict[_Runner, BaseProcess] = field(default_factory=dict)
    after_a_commit: list[bool] = field(default_factory=list)
    _done_before: dict[_Runner, int] = field(default_factory=dict)
    """How many commits of a writer were acknowledged when it was started."""

    def start(self, runner: _Runner) -> None:
        role, number = runner
        if role == "writer":
            # Died while it was frozen: its successor is not.
            (self.plan.notes / f"frozen-{number}").unlink(missing_ok=True)
            self._done_before[runner] = self._done(number)
        process = self.context.Process(target=_TARGETS[role], args=(self.plan, number))
        process.start()
        self.running[runner] = process

    def run(self, kills: int, chance: random.Random) -> None:
        commits = self.plan.writers * self.plan.commits
        # By progress, not by time: so the kills spread over the race on any machine.
        due = sorted(chance.randrange(commits * 9 // 10) for _ in range(kills))
        for role, count in (("writer", self.plan.writers), ("clusterer", self.plan.clusterers)):
            for number in range(count):
                self.start((role, number))
        progress, give_up_at = -1, 0.0
        while self._writers():
            done = sum(self._done(stream) for stream in range(self.plan.writers))
            if done > progress:
                progress, give_up_at = done, time.monotonic() + _SECONDS_WITHOUT_PROGRESS
            assert time.monotonic() < give_up_at, f"no commit for {_SECONDS_WITHOUT_PROGRESS} s after {done}"
            self._reap()
            if due and done >= due[0] and (victims := self._victims()):
                due.pop(0)
                time.sleep(chance.uniform(0, 0.03))
                self._kill(chance.choice(victims))
            self._thaw()
            time.sleep(0.005)
        # Writers on a busy machine may be done before a clusterer has rewritten anything. Where their fills
        # have taken the inputs of every plan, and left nothing to plan, none completes: race again.
        give_up_at = time.monotonic() + _SECONDS_FOR_A_PLAN
        while self.plan.clusterers and not clusterers.check(self.plan.location)["completed"]:
            if time.monotonic() > give_up_at or not clusterers.have_work(self.plan.location):
                break
            self._reap()
            time.sleep(0.1)

    def _writers(self) -> list[int]:
        return sorted(number for role, number in self.running if role == "writer")

    def _victims(self) -> list[_Runner]:
        """Return whom the next kill may hit: every other one hits a writer that has committed in its life."""
        if self.plan.clusterers or len(self.after_a_commit) % 2:
            return sorted(self.running)
        return [("writer", number) for number in self._writers() if self._has_committed(number)]

    def _has_committed(self, stream: int) -> bool:
        return self._done(stream) > self._done_before["writer", stream]

    def _done(self, stream: int) -> int:
        return len(writers.acknowledged(self.plan, stream))

    def _kill(self, runner: _Runner) -> None:
        self.running[runner].kill()
        self.running[runner].join()
        if runner[0] == "writer":
            self.after_a_commit.append(self._has_committed(runner[1]))
        self.start(runner)

    def _reap(self) -> None:
        """Forget the writers that are done. Clusterers go on until they are killed."""
        for (role, number), process in list(self.running.items()):
            if process.exitcode is not None:
                told = f"{role} {number} ended with {process.exitcode}"
                assert (role, process.exitcode) == ("writer", 0), told
                del self.running[role, number]

    def _thaw(self) -> None:
        """Let those go on that the table has left behind, or that would leave nobody to go ahead."""
        frozen = {
            stream: number
            for stream in self._writers()
            if (number := writers.frozen(self.plan, stream)) is not None
        }
        head = max(_live_versions(self.plan.location))
        most = min(_MOST_FROZEN, len(self._writers()) - 1)
        for stream, number in sorted(frozen.items()):
            # Half of them so late that the head has forgotten their commit, too.
            behind = (self.plan.kept or 0) * (3 if stream % 2 else 1) + 2
            if head >= number + behind or len(frozen) > most:
                os.kill(self.running["writer", stream].pid or 0, signal.SIGCONT)


@contextmanager
def _processes(plan: Plan) -> Iterator[_Race]:
    # Forked from a server that has imported everything: a writer is back 10 ms after its death.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["pyarrow.parquet", "timeline.table", "streaming_sink.tasks.rows.write_task"]
    )
    race = _Race(plan, context)
    readers = [context.Process(target=writers.read, args=(plan, number)) for number in range(READERS)]
    for reader in readers:
        reader.start()
    try:
        yield race
        assert [reader.exitcode for reader in readers] == [None] * READERS, "a reader failed"
    finally:
        for process in [*readers, *race.running.values()]:
            process.kill()
            process.join()


# ------------------------------------------------------------------------------------- the judgement


@dataclass(frozen=True)
class _Version:
    number: int
    commit_id: str
    parent: tuple[int, str] | None
    batches: dict[str, int]
    """The last batch of each application."""


def check(plan: Plan) -> Counter[str]:
    """Hold what the processes noted against the table; AssertionError where they do not agree.

    Returns how often what happened, so that a test sees that its race was one.
    """
    lineage = _lineage(plan)
    committed = _committed(lineage)
    for stream in range(plan.writers):
        app, told = app_id(stream), writers.acknowledged(plan, stream)
        assert [each.batch for each in told] == list(range(plan.commits))
        for each in told:
            at = committed.get((app, each.batch), [])
            assert len(at) == 1, f"batch {each.batch} of {app} was acknowledged, and is in versions {at}"
            assert (each.version == at[0]) if each.new else (each.version >= at[0])
    for reader in range(READERS):
        last = 0
        for seen in writers.seen(plan, reader):
            assert seen.version in lineage, f"a reader saw version {seen.version}, which was not committed"
            version = lineage[seen.version]
            assert seen.commit_id == version.commit_id, f"a reader saw a fork of version {seen.version}"
            assert seen.batches == sum(batch + 1 for batch in version.batches.values())
            assert seen.version >= last, f"a reader saw version {seen.version} after {last}"
            last = seen.version
        assert last, f"reader {reader} saw nothing"
    expected = [rows_of(stream, batch) for stream in range(plan.writers) for batch in range(plan.commits)]
    assert ids_of(plan.location) == Counter(each for rows in expected for each in rows)
    files = _versions(plan)
    return Counter(
        versions=len(lineage),
        deleted=len(lineage) - len(_live_versions(plan.location)),
        forks=len({version.commit_id for version in files}) - len(lineage),
        found_again=sum(
            not each.new for stream in range(plan.writers) for each in writers.acknowledged(plan, stream)
        ),
        seen=sum(len(writers.seen(plan, reader)) for reader in range(READERS)),
        **clusterers.check(plan.location),
    )


def _lineage(plan: Plan) -> dict[int, _Version]:
    """Return the head and all its ancestors, by number; each must be the successor of the one before."""
    by_id = {(version.number, version.commit_id): version for version in _versions(plan)}
    live = _live_versions(plan.location)
    version = _parse(live[max(live)])
    lineage = {version.number: version}
    while version.parent is not None:
        assert version.parent in by_id, f"version {version.number} names a parent that never was"
        parent = by_id[version.parent]
        assert parent.number == version.number - 1
        lineage[parent.number] = version = parent
    assert sorted(lineage) == list(range(1, max(live) + 1))
    return lineage


def _committed(lineage: dict[int, _Version]) -> dict[tuple[str, int], list[int]]:
    """Return the versions that committed each batch; each application's come in order, one in a version."""
    found: dict[tuple[str, int], list[int]] = {}
    before: dict[str, int] = {}
    for number, version in sorted(lineage.items()):
        changed = {app: batch for app, batch in version.batches.items() if batch != before.get(app)}
        assert len(changed) <= 1
        for app, batch in changed.items():
            assert batch == before.get(app, -1) + 1, f"{app} went from {before.get(app)} to {batch}"
            found.setdefault((app, batch), []).append(number)
        before = version.batches
    return found


def _versions(plan: Plan) -> list[_Version]:
    """Return every version file that ever was, as far as anybody acted on it."""
    return [_parse(path) for path in [*_live_versions(plan.location).values(), *plan.notes.glob("version-*")]]


def _live_versions(location: str) -> dict[int, Path]:
    found = ((version_number(path.name), path) for path in Path(location, "metadata").iterdir())
    return {number: path for number, path in found if number is not None}


def _parse(path: Path) -> _Version:
    stated = json.loads(path.read_text())["properties"]
    parent = int(stated[properties.PARENT_VERSION])
    prefix = properties.TRANSACTION_PREFIX
    return _Version(
        int(stated[properties.VERSION]),
        stated[properties.COMMIT_ID],
        (parent, stated[properties.PARENT_COMMIT_ID]) if parent else None,
        {
            key.removeprefix(prefix): json.loads(stated[key])["batch"]
            for key in stated
            if key.startswith(prefix)
        },
    )
