"""Actors that change the partition spec: applications that want different ones, and change their minds."""

from __future__ import annotations

import json

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform

from tests.simulation.acting import Body, patiently, patiently_refreshed, think
from tests.simulation.raw import OURS, ViolationError
from tests.simulation.scheduler import Actor
from tests.simulation.simulation import BY_P, Simulation
from timeline.changes.schema_changes import SetPartitioning
from timeline.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    SchemaMismatchError,
    StoreUnavailableError,
)
from timeline.table import Committed, Table

_P = BY_P.fields[0]
WISHES = (
    BY_P,
    *(
        PartitionSpec(_P, PartitionField(1, 0, transform, name))
        for transform, name in (
            (BucketTransform(4), "id_bucket"),
            (BucketTransform(8), "id_bucket"),
            (TruncateTransform(10), "id_trunc"),
            (IdentityTransform(), "id"),
        )
    ),
)
"""All begin with the column that tells where a file is."""


def repartition(sim: Simulation, times: int) -> Body:
    """An application that asks for one partitioning after the other, without a look at the newest head."""

    def body(actor: Actor) -> None:
        process = sim.process(actor)
        table = patiently(sim, process, process.open)
        for _ in range(times if isinstance(table, Table) else 0):
            assert isinstance(table, Table)
            think(sim, process, 1.5)
            wanted = sim.random.choice(WISHES)
            try:
                outcome = table.commit([SetPartitioning(wanted, actor.name)])
            except SchemaMismatchError:
                sim.meet("another had changed the partitioning")
            except CommitConflictError:
                sim.meet("another had partitioned so")
            except (CommitStateUnknownError, StoreUnavailableError):
                continue
            else:
                assert isinstance(outcome, Committed)
                sim.meet("repartitioned")
                sim.oracle.acknowledged(None, [], outcome.version)
                stored = sim.oracle.member(outcome.version).properties.get(OURS + "repartitioned", "{}")
                if json.loads(stored).get("app-id") != actor.name:
                    raise ViolationError(f"a partitioning was acknowledged at {outcome.version}: {stored}")
            patiently_refreshed(sim, process, table)

    return body
