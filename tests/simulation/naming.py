"""Actors that give names to snapshots and take them away, of the table's own and of other engines'."""

from __future__ import annotations

from tests.simulation.acting import Body, patiently, patiently_refreshed, think, told
from tests.simulation.ref_judge import PREFIX
from tests.simulation.scheduler import Actor
from tests.simulation.simulation import Process, Simulation
from timeline.changes.ref_changes import Branch, RemoveRef, Tag
from timeline.table import Committed, Table

NAMED = 900_000
"""From this seed on, up to those of two tables, snapshots get names, which others move and remove."""
NAMED_IN_A_CATALOG = 5_900_000
"""From this seed on, up to those with keys, names that other engines give and move are removed."""
_NAMES = 2


def has_names(seed: int) -> bool:
    """Return whether snapshots get names in a schedule of one table."""
    return NAMED <= seed < 1_000_000


def has_names_in_a_catalog(seed: int) -> bool:
    """Return whether names of other engines are removed in a schedule of a table in a catalog."""
    return NAMED_IN_A_CATALOG <= seed < 6_000_000


def name(sim: Simulation, times: int) -> Body:
    """Somebody sets a name that is free, or removes it as it was seen a while ago. To move one is both."""

    def body(actor: Actor) -> None:
        process = sim.process(actor)
        table = patiently(sim, process, process.open)
        for _ in range(times if isinstance(table, Table) else 0):
            assert isinstance(table, Table)
            think(sim, process, 1.0)
            if patiently_refreshed(sim, process, table) is None:
                return
            which = f"{PREFIX}{sim.random.randrange(_NAMES)}"
            if which in table.head.metadata.refs:
                _remove(sim, process, table, which)
            elif table.head.snapshot is not None:
                _set(sim, process, table, which)

    return body


def _set(sim: Simulation, process: Process, table: Table, which: str) -> None:
    main = list(table.head.main_snapshots())
    snapshot_id = sim.random.choice([main[0], main[-1], sim.random.choice(main)]).snapshot_id
    kind = sim.random.choice([Tag, Tag, Branch])
    sim.oracle.refs.will_set((which, snapshot_id, kind.kind.value))
    sim.tell(process.actor.name, f"SET {which} to {snapshot_id}")
    told(sim, process, [], lambda: table.commit([kind(which, snapshot_id)]))


def remove_theirs(sim: Simulation, times: int) -> Body:
    """Somebody removes names that other engines have given, and may move beside main at any time."""

    def body(actor: Actor) -> None:
        process = sim.process(actor)
        table = patiently(sim, process, process.open)
        for _ in range(times if isinstance(table, Table) else 0):
            assert isinstance(table, Table)
            think(sim, process, 1.0)
            if patiently_refreshed(sim, process, table) is None:
                return
            if found := sorted(table.head.metadata.refs.keys() - {"main"}):
                _remove(sim, process, table, sim.random.choice(found))

    return body


def _remove(sim: Simulation, process: Process, table: Table, which: str) -> None:
    ref = table.head.metadata.refs[which]
    seen = which, ref.snapshot_id, ref.snapshot_ref_type.value
    sim.oracle.refs.will_remove(seen)
    think(sim, process, sim.random.choice([0.1, 1.0, 5.0]))
    sim.tell(process.actor.name, f"REMOVE {which}, of {ref.snapshot_id}")
    change = RemoveRef(which, ref.snapshot_id, ref.snapshot_ref_type)
    outcome = told(sim, process, [], lambda: table.commit([change]))
    if isinstance(outcome, Committed):
        sim.oracle.refs.removed(seen, outcome.version)
