"""Actors that delete: one expires snapshots, one removes orphans behind the fence."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from tests.simulation.acting import (
    Body,
    patiently,
    patiently_refreshed,
    think,
)
from tests.simulation.scheduler import Actor
from tests.simulation.simulation import (
    Simulation,
)
from timeline.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    CorruptTableError,
    StoreUnavailableError,
)
from timeline.maintenance.expiry import expire_snapshots
from timeline.maintenance.orphans import remove_orphan_files
from timeline.table import Table


def expire(sim: Simulation, times: int) -> Body:
    """Takes old snapshots out of the metadata, and deletes what they left long ago."""

    def clean(table: Table) -> None:
        expire_snapshots(
            table,
            max_snapshot_age=timedelta(seconds=sim.random.choice([0, 1, 5])),
            min_snapshots_to_keep=1,
            max_snapshots=sim.random.choice([None, 3]),
            dry_run=sim.random.random() < 0.1,
        )

    return _clean(sim, times, clean)


def remove_orphans(sim: Simulation, times: int) -> Body:
    """Raises the fence, and deletes what nothing refers to behind it."""

    def clean(table: Table) -> None:
        age = timedelta(seconds=sim.random.choice([0.1, 1, 5]))
        remove_orphan_files(table, older_than=age, dry_run=sim.random.random() < 0.1)

    return _clean(sim, times, clean)


def _clean(sim: Simulation, times: int, clean: Callable[[Table], None]) -> Body:
    def body(actor: Actor) -> None:
        process = sim.process(actor)
        table = patiently(sim, process, process.open)
        for _ in range(times if isinstance(table, Table) else 0):
            assert isinstance(table, Table)
            think(sim, process, 2.0)
            sim.tell(actor.name, "CLEAN")
            try:
                clean(table)
                sim.meet(f"{actor.name.rstrip(chr(39))} done")
            except (CommitStateUnknownError, StoreUnavailableError) as failure:
                sim.tell(actor.name, f"=> {type(failure).__name__}: {failure}")
            except CorruptTableError as failure:
                if not failure.files or not sim.oracle.damaged_notes.issuperset(failure.files):
                    raise
                sim.meet("cleaner held up by a damaged note")
            except CommitConflictError as failure:
                sim.tell(actor.name, f"=> {type(failure).__name__}: {failure}")
                if patiently_refreshed(sim, process, table) is None:
                    return

    return body
