"""The processes of a race: writers that commit their batches one by one, and readers that look all the time.

What they saw they note in files of their own before they go on: once they are killed nobody else knows it.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.processes.streams import ROWS, Run
from timeline.names import version_number
from timeline.stores import Created, CreateOutcome, Exists, LocalStore
from timeline.table import Committed, Table

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class Plan:
    """What all processes of a race are told."""

    location: str
    notes: Path
    """A folder for what the processes note, and for the version files that retention deletes."""
    writers: int = 8
    commits: int = 100
    kept: int | None = None
    """Version files that retention leaves; None: as many as the product has it."""
    freezes: float = 0.0
    """How often a writer stops itself right before it creates a version, and right after, until continued."""
    clusterers: int = 0
    fill_every: int = 10
    broken: str = ""
    """A rule that the writers do not keep: "confirm" (R1) or "link" (R9)."""


class Acknowledged(NamedTuple):
    """A commit that returned."""

    batch: int
    version: int
    """The version that holds it, or, where it was found to be committed before, a later one."""
    new: int


class Seen(NamedTuple):
    """What a reader saw, told by `Table.head`."""

    version: int
    commit_id: str
    batches: int


def write(plan: Plan, stream: int) -> None:
    """Commit the stream's batches, from the first that is not acknowledged."""
    _change_the_rules(plan)
    store = _WriterStore(plan.location)
    store.plan, store.note = plan, plan.notes / f"frozen-{stream}"
    store.waits_for_others = stream % 2 == 0 and not plan.freezes
    run = Run(stream, Table.open(store))
    store.freezes = True
    with _Notes(plan.notes / f"acknowledged-{stream}") as notes:
        for batch in range(len(acknowledged(plan, stream)), plan.commits):
            done = run.commit(batch, fill=batch % plan.fill_every == plan.fill_every - 1)
            notes.add(Acknowledged(batch, done.version, int(isinstance(done, Committed))))


def read(plan: Plan, reader: int) -> None:
    """Look at the table until killed: an odd reader with nothing cached, an even one with what it knows."""
    store = LocalStore(plan.location)
    table, last = Table.open(store), -1
    with _Notes(plan.notes / f"seen-{reader}") as notes:
        while True:
            head = Table.open(store).head if reader % 2 else table.refresh()
            if head.number != last:
                rows = sum(live.rows for live in head.live_files())
                assert rows % ROWS == 0, f"version {head.number} has half a batch: {rows} rows"
                notes.add(Seen(head.number, head.version.commit_id, rows // ROWS))
                last = head.number
            time.sleep(0.01)


def acknowledged(plan: Plan, stream: int) -> list[Acknowledged]:
    return [Acknowledged(*map(int, line)) for line in _lines(plan.notes / f"acknowledged-{stream}")]


def seen(plan: Plan, reader: int) -> list[Seen]:
    lines = _lines(plan.notes / f"seen-{reader}")
    return [Seen(int(version), commit_id, int(batches)) for version, commit_id, batches in lines]


def frozen(plan: Plan, stream: int) -> int | None:
    """Return the version at which a writer has stopped itself, or is about to; None where it goes on."""
    try:
        return int((plan.notes / f"frozen-{stream}").read_text() or 0)
    except FileNotFoundError:
        return None


class _Notes:
    """A file of lines, each of which is on the disk before anything else happens."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def __enter__(self) -> _Notes:
        return self

    def __exit__(self, *failure: object) -> None:
        self._file.close()

    def add(self, values: Iterable[object]) -> None:
        self._file.write(f"{' '.join(map(str, values))}\n".encode())
        os.fsync(self._file.fileno())


def _lines(path: Path) -> list[list[str]]:
    """Return the whole lines of a file; a writer may have died in the middle of its last one."""
    text = path.read_text() if path.exists() else ""
    return [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]


class _WriterStore(LocalStore):
    """Keeps a copy of each version file that is deleted, and stops its process where it hurts most."""

    plan: Plan
    note: Path
    freezes = False
    waits_for_others = False
    """Half of the writers do: the others commit out of turn, so that there are races."""

    def take_turn(self) -> contextlib.AbstractContextManager[object] | None:
        return super().take_turn() if self.waits_for_others else contextlib.nullcontext()

    def create(self, path: str, data: bytes) -> CreateOutcome:
        number = version_number(path)
        if number is None:
            return super().create(path, data)
        self._freeze_at(number)
        outcome = super().create(path, data)
        self._freeze_at(number)
        return outcome

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            if version_number(path) is not None:
                with contextlib.suppress(FileNotFoundError):
                    os.link(self.uri(path), self.plan.notes / f"version-{uuid.uuid4()}")
            super().delete([path])

    def _freeze_at(self, number: int) -> None:
        if self.freezes and random.random() < self.plan.freezes:
            self.note.write_text(str(number))
            os.kill(os.getpid(), signal.SIGSTOP)
            self.note.unlink()


def _change_the_rules(plan: Plan) -> None:
    if plan.kept is not None:
        _set_everywhere("VERSIONS_ALWAYS_KEPT", plan.kept)
        _set_everywhere("VERSION_AGE_MS", -1)
        _set_everywhere("MAINTAIN_EVERY", 1)
        _set_everywhere("RECENT_COMMITS_KEPT", 2 * plan.kept)
    if plan.broken == "confirm":
        from timeline.commit import version_log
        from timeline.commit.log import Won

        assert callable(version_log.confirm)
        vars(version_log)["confirm"] = lambda log, candidate, *rest: Won(
            candidate, candidate.head, log.list()
        )
    if plan.broken == "link":
        from timeline.stores import local

        assert callable(local.link_into_place)
        vars(local)["link_into_place"] = _check_then_rename


def _set_everywhere(name: str, value: int) -> None:
    modules = [module for path, module in sys.modules.items() if path.startswith("timeline.")]
    found = [module for module in modules if hasattr(module, name)]
    assert found, f"there is no constant {name} any more"
    for module in found:
        setattr(module, name, value)


def _check_then_rename(temporary: str, final: str) -> CreateOutcome:
    if os.path.exists(final):
        return Exists()
    time.sleep(0.05)  # so that all writers meet in here
    os.rename(temporary, final)
    return Created()
