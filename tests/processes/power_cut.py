"""A stream into a table on a disk that forgets: run it, cut the power anywhere, and open the table after."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.processes.disk import Choice, Recorder, State, put, states
from tests.processes.streams import Run, open_or_create, rows_in, rows_of
from timeline.clock import Environment
from timeline.stores import LocalStore
from timeline.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from timeline.versions.head import Head

STREAM = 0
BATCHES = 3
FILLED = 1
"""The batch that comes as a fill."""


class Lost(AssertionError):  # noqa: N818 (it is what the test is looking for)
    """After a cut the table does not hold what it must, or does not work."""


class PowerCut:
    """One table below `folder`, written by lives that are recorded, then cut."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._monkeypatch = monkeypatch
        self.folder = folder
        self.folder.mkdir()
        self._location = folder / "lake" / "table"
        self.recorder = Recorder(folder)
        self._acknowledged = -1

    def live(self, dies_at: int | None = None, ingest: Callable[[Run, int], Any] | None = None) -> None:
        """Run the stream from the batch after the last that was acknowledged, to its end or its death."""
        self.recorder.run(self._monkeypatch, lambda: self._ingest(ingest or _ingest), dies_at)

    def _ingest(self, ingest: Callable[[Run, int], Any]) -> None:
        run = Run(STREAM, open_or_create(LocalStore(self._location), _environment()))
        for batch in range(self._acknowledged + 1, BATCHES):
            done = ingest(run, batch)
            self._acknowledged = batch
            self.recorder.tell((batch, done.version))

    def check(self, *choices: Choice, from_event: int = 0) -> int:
        """Cut at every event from one on, as each choice has it; return how many states that made.

        Lost says which cut the table does not survive.
        """
        count = 0
        with self._monkeypatch.context() as patch:
            patch.setattr(os, "fsync", lambda descriptor: None)  # this table need not outlive anything
            for cut, told, state in states(self.recorder.events, choices):
                if cut < from_event:
                    continue
                count += 1
                shutil.rmtree(self.folder)
                self.folder.mkdir()
                put(state, self.folder)
                try:
                    self._check_table(told)
                except Exception as failure:
                    before = self.recorder.events[max(cut - 4, 0) : cut]
                    raise Lost(_told(cut, told, state, before, failure)) from failure
        return count

    def _check_table(self, told: list[tuple[int, int]]) -> None:
        store = LocalStore(self._location)
        batch, version = told[-1] if told else (-1, 0)
        if told:
            head = Table.open(store, _environment()).head
            assert head.number >= version, f"version {version} was acknowledged; the head is {head.number}"
            _check_rows(head, batch)
        table = open_or_create(store, _environment())
        known = table.head.transaction(f"stream-{STREAM}")
        _check_rows(table.head, batch)
        # As the restarted query does: first again what was not acknowledged, then the next one.
        run = Run(STREAM, table)
        retried = batch + 1
        before = table.head.number
        done = run.commit(retried)
        skipped = known is not None and known.batch == retried
        assert done.version == before + (not skipped), "the retry found another version than the head's next"
        assert run.commit(retried + 1).version == done.version + 1
        found = rows_in(Table.open(store, _environment()).head)
        assert found == _rows(retried + 1), "the retry lost rows, or doubled them"


def _check_rows(head: Head, acknowledged: int) -> None:
    """All that was acknowledged, or that and the batch that was on its way: each row once."""
    found = rows_in(head)
    assert found in (_rows(acknowledged), _rows(acknowledged + 1)), f"rows after the cut: {sorted(found)}"


def _rows(last: int) -> Counter[int]:
    return Counter(each for batch in range(last + 1) for each in rows_of(STREAM, batch))


def _ingest(run: Run, batch: int) -> Any:
    return run.commit(batch, fill=batch == FILLED)


def _environment() -> Environment:
    return Environment(random=random.Random(random.SystemRandom().getrandbits(64)))


def _told(cut: int, told: list[Any], state: State, before: list[Any], failure: Exception) -> str:
    shown = "\n  ".join(f"{path}: {'folder' if data is None else len(data)}" for path, data in sorted(state))
    last = "\n  ".join(str(event)[:150] for event in before)
    return (
        f"{type(failure).__name__}: {failure}\ncut after event {cut}, acknowledged {told}, after"
        f"\n  {last}\nleft on the disk\n  {shown}"
    )
