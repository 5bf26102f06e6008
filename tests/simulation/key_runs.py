"""The key index in the simulation: who keeps its runs, and what befalls them. Streams look keys up in them.

All of it is the real code, and the runs are in the simulated store. Where a stream looks, runs have come
late, were deleted, damaged, or are of files that have gone; whatever they are, it finds every row.
"""

from __future__ import annotations

import io
import logging
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random
from typing import BinaryIO, cast
from unittest import mock

from planners import key_runs
from streaming_sink.keyed.key_upkeep import key_columns
from streaming_sink.options.values.writes import WriteByKey
from streaming_sink.tasks.changes import finding
from streaming_sink.tasks.errors import DataFileError
from streaming_sink.tasks.key_index import merging, runs, upkeep
from streaming_sink.tasks.key_index.index import KeyIndex
from streaming_sink.tasks.key_index.merging import build_run
from streaming_sink.tasks.key_index.open_runs import OpenRuns
from streaming_sink.tasks.key_index.upkeep import maintain
from streaming_sink.tasks.keys.scanning import KeyColumns, KeyedFile, scope_salt
from tests.simulation.acting import Body, patiently, patiently_refreshed, think
from tests.simulation.scheduler import Actor
from tests.simulation.simulation import Process, Simulation, first_id_time
from tests.simulation.store import SimulatedStore
from timeline import names
from timeline.errors import CommitConflictError, StoreUnavailableError
from timeline.stores.base import Store
from timeline.table import Table
from timeline.versions.head import Head
from timeline.versions.keys import PARTITION_SCOPE

_HARM = ("deleted", "deleted", "deleted", "damaged", "cut off", "of other rows", "of another key", "stale")


INDEXED = 2_500_000
"""From this seed on, up to those of buffer zones, streams look their keys up in an index."""


class HeldRuns(OpenRuns):
    """The runs that a process has open. Those of a schedule have names of others', so no copy is shared."""

    def __init__(self, sim: Simulation, drawn: Random) -> None:
        super().__init__(f"{tempfile.gettempdir()}/no-such-folder-{os.getpid()}")
        self._sim, self._drawn = sim, drawn

    def _on_disk(self, store: Store, path: str) -> BinaryIO:
        assert isinstance(store, SimulatedStore)
        if store.actor is not None and self._drawn.random() < 0.5:  # it is large
            seconds = self._drawn.choice([0.3, 3.0])
            store.actor.wait(lambda answer: self._sim.scheduler.after(seconds, lambda: answer(None)))
        with store.open_input(path) as source:
            data = source.read()
        file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
        file.write(data)
        self._sim.meet("a run opened")
        return cast(BinaryIO, file)


class Runs:
    """The index of the key of a simulation's table."""

    def __init__(self, sim: Simulation, keys: WriteByKey) -> None:
        self.sim, self._keys = sim, keys
        self._drawn = Random(f"runs {sim.seed}")
        self._held: dict[str, HeldRuns] = defaultdict(partial(HeldRuns, sim, self._drawn))

    def arrange(self, start: Callable[..., None]) -> None:
        """Start who keeps the index, and who does harm to it."""
        for number in range(self._drawn.choice([1, 1, 2])):
            start(f"indexer{number}", self._keep(self._drawn.randrange(6, 20)))
        if self._drawn.random() < 0.8:
            start("vandal of runs", self._spoil(self._drawn.randrange(4, 24)))

    @contextmanager
    def small_and_held(self) -> Iterator[None]:
        """Have runs of few entries, and each process its own."""

        def index_of(store: SimulatedStore, columns: KeyColumns) -> KeyIndex:
            name = "" if store.actor is None else store.actor.name
            if self._drawn.random() < 0.5:  # a worker that is new
                self._held.pop(name, None)
            return KeyIndex(store, columns, self._held[name])

        with ExitStack() as stack:
            for module, name, value in (
                (finding, "KeyIndex", index_of),
                (runs, "BLOCK_ENTRIES", 3),
                (merging, "BLOCK_ENTRIES", 3),
                (key_runs, "RUNS_A_TIER", 2),
                (key_runs, "FIRST_TIER_ROWS", 4),
                (key_runs, "BUILD_ROWS", 6),
                (upkeep, "GRACE_MS", 3000),
            ):
                stack.enter_context(mock.patch.object(module, name, value))
            stack.enter_context(mock.patch.object(logging.getLogger("streaming_sink.keys"), "disabled", True))
            yield

    def _keep(self, times: int) -> Body:
        """A process that does the upkeep of the index so many times, each for a head that may be old."""

        def keep(process: Process, table: Table) -> None:
            columns, files = table.on_head(self._looked_up)
            now = first_id_time(process, table.head)
            index = KeyIndex(process.store, columns, self._held[process.actor.name])
            try:
                made = maintain(index, files, partial(process.environment.new_id, now), now)
            except DataFileError:  # of an old head: its files have gone
                self.sim.meet("a run of files that have gone")
                return
            for what in ("built", "merged", "deleted"):
                self.sim.met[f"runs {what}"] += len(getattr(made, what))

        return self._at_times(times, keep)

    def _spoil(self, times: int) -> Body:
        """Somebody who deletes and damages runs, and writes some that are of no use, or not of this key."""

        def spoil(process: Process, table: Table) -> None:
            random, store = self._drawn, process.store
            columns, files = table.on_head(self._looked_up)
            folder = names.key_run_folder(columns.digest)
            found = [it.path for it in store.list_folder(folder)]
            fresh = names.key_run_path(
                columns.digest, process.environment.new_id(first_id_time(process, table.head))
            )
            kind = random.choice(_HARM)
            self.sim.meet(f"a run {kind}")
            if kind in ("of other rows", "of another key"):
                digest = columns.digest if kind == "of other rows" else "0" * 16
                more = int(kind == "of other rows")
                store.overwrite(
                    fresh, _empty_run(digest, columns, [it._replace(rows=it.rows + more) for it in files])
                )
            elif found:
                path = random.choice(found)
                data = bytearray(store.read(path).data)
                if kind == "deleted":
                    store.delete([path])
                elif kind == "stale":  # another one of the same files
                    store.overwrite(fresh, bytes(data))
                elif kind == "cut off":
                    store.overwrite(path, bytes(data[: len(data) // random.choice([1, 2, 9])]))
                elif data:
                    data[random.randrange(random.choice([len(data), 40])) % len(data)] ^= (
                        1 << random.randrange(8)
                    )
                    store.overwrite(path, bytes(data))

        return self._at_times(times, spoil, calm=True)

    def _looked_up(self, head: Head) -> tuple[KeyColumns, list[KeyedFile]]:
        scoped = self._keys.key_scope == PARTITION_SCOPE
        live = sorted(head.live_files(), key=lambda it: it.location)
        files = [KeyedFile(it.location, it.rows, scope_salt(scoped, it.partition)) for it in live]
        return key_columns(head, self._keys), files

    def _at_times(self, times: int, do: Callable[[Process, Table], None], *, calm: bool = False) -> Body:
        def body(actor: Actor) -> None:
            process = self.sim.calm_process(actor) if calm else self.sim.process(actor)
            table = patiently(self.sim, process, process.open)
            for _ in range(times if isinstance(table, Table) else 0):
                assert isinstance(table, Table)
                think(self.sim, process, 0.6)
                try:
                    if self._drawn.random() < 0.7 and patiently_refreshed(self.sim, process, table) is None:
                        return
                    do(process, table)
                except (StoreUnavailableError, FileNotFoundError):
                    continue
                except CommitConflictError:  # the table was made again
                    return

        return body


def _empty_run(digest: str, columns: KeyColumns, files: list[KeyedFile]) -> bytes:
    """Return a run that covers files, and has none of their keys."""
    output = io.BytesIO()
    build_run(output, digest, files, (), columns.kind)
    return output.getvalue()
