"""Actors that drop the table and make it again, and what becomes of the others (R17)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from tests.simulation.acting import TRIES, Body, patiently, think, told
from tests.simulation.scheduler import Actor
from tests.simulation.simulation import BY_P, SCHEMA, Process, Simulation
from timeline.changes.drop_changes import Drop
from timeline.errors import CommitConflictError, CommitStateUnknownError, TableDroppedError
from timeline.table import Table


def drop(sim: Simulation, times: int, table_properties: Mapping[str, str]) -> Body:
    """Somebody drops the table, and makes it again, or leaves that to others."""

    def body(actor: Actor) -> None:
        process = sim.process(actor)
        for _ in range(times):
            think(sim, process, 5.0)
            with suppress(TableDroppedError):  # another one was first
                table = patiently(sim, process, process.open)
                if isinstance(table, Table):
                    sim.tell(actor.name, "DROP")
                    told(sim, process, [], partial(table.commit, [Drop()]))
            think(sim, process, sim.random.choice([0.1, 2.0]))
            if sim.random.random() < 0.8:
                make(sim, process, table_properties)

    return body


def make_in_the_end(sim: Simulation, table_properties: Mapping[str, str]) -> Body:
    """A stream that starts when all others have ended makes the table again, where it was dropped."""

    def body(actor: Actor) -> None:
        make(sim, sim.calm_process(actor), table_properties)

    return body


def make(sim: Simulation, process: Process, table_properties: Mapping[str, str]) -> None:
    """Make the table where it was dropped, or open the one that is there."""

    def create() -> Table:
        given = {"table_properties": table_properties, "environment": process.environment}
        return Table.create(process.store, SCHEMA, BY_P, store_is_checked=True, **given)  # type: ignore[arg-type]

    try:
        patiently(sim, process, create)
    except (CommitConflictError, CommitStateUnknownError) as failure:
        sim.tell(process.actor.name, f"=> {type(failure).__name__}: {failure}")


def outliving(sim: Simulation, body: Body) -> Body:
    """An actor that begins anew where it is told that the table was dropped."""

    def beginning_anew(actor: Actor) -> None:
        for _ in range(TRIES):
            try:
                body(actor)
            except TableDroppedError:
                sim.meet("told of the drop")
                think(sim, sim.process(actor), 2.0)
            else:
                return

    return beginning_anew
