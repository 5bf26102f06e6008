"""What the suites of plans share: two kinds, small plans, their files, and ways to damage the timeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyiceberg.manifest import DataFile

from tests.unit.timeline.world import Lake
from timeline import properties
from timeline.changes.changes import Append, Replace, SetProperties
from timeline.manifests.entries import LiveFile
from timeline.plans import instants
from timeline.plans.instants import State
from timeline.plans.kinds import Item, PlanKind
from timeline.plans.plan_file import STRINGS, PlanSchema, array_of, field, record
from timeline.plans.registry import kind_of
from timeline.plans.reservations import Reservations
from timeline.stores import MemoryStore


def _merge(job: Item, files: Sequence[DataFile], applied: frozenset[str], deleted_rows: int) -> Replace:
    return Replace(frozenset(job["sources"]), tuple(files), applied, deleted_rows)


MERGING = PlanKind(
    name="merging",
    schema=PlanSchema(
        "MergingPlan",
        "A plan of the second kind.",
        record(
            "Merging",
            "What is merged.",
            field(
                "jobs",
                array_of(
                    record("Job", "Files that are merged.", field("sources", STRINGS, "Their locations."))
                ),
                "The work items.",
            ),
        ),
    ),
    items="jobs",
    inputs=lambda job: list(job["sources"]),
    change=_merge,
    timeout_property=properties.DELETION_GRACE_MS,
)
"""A second kind, with a folder, a schema and a time-out of its own: nothing on the timeline is clustering's.
"""


def plan_of(kind: PlanKind, *groups: tuple[DataFile, ...]) -> dict[str, Any]:
    if kind is MERGING:
        return {"jobs": [{"sources": [file.file_path for file in group]} for group in groups]}
    return {
        "planned_at": 1,
        "target_file_bytes": 1 << 30,
        "selected_by": [{"name": "all", "parameters": {}}],
        "groups": [
            joined(
                "0",
                [file.file_path for file in group],
                sum(file.file_size_in_bytes for file in group),
                sum(file.record_count for file in group),
            )
            for group in groups
        ],
        "left_out": [],
    }


def joined(partition: str, inputs: list[str], size: int, rows: int) -> dict[str, Any]:
    """Return the group of a plan that joins files."""
    return {
        "inputs": inputs,
        "partition": [partition],
        "bytes": size,
        "rows": rows,
        "output_files": 1,
        "sort_by": [],
        "strategy": {"name": "bin_pack", "parameters": {}},
        "remainder": True,
        "level": 1,
        "files_saved": len(inputs) - 1,
        "reasons": [],
    }


def joined_live(partition: object, files: Sequence[LiveFile]) -> dict[str, Any]:
    """Return the group of a plan that joins live files."""
    inputs = [file.location for file in files]
    return joined(str(partition), inputs, sum(it.bytes for it in files), sum(it.rows for it in files))


def replace(lake: Lake, *files: DataFile) -> Replace:
    return Replace(frozenset(file.file_path for file in files), (lake.merged(*files),))


def two_files(lake: Lake) -> tuple[DataFile, DataFile]:
    files = lake.file(), lake.file()
    lake.table.commit([Append(files)])
    return files


def reserved(lake: Lake) -> dict[str, str]:
    return Reservations(MemoryStore(lake.name)).files(lake.open().head)


def state_of(lake: Lake, plan_id: str) -> State:
    shown = instants.show_plan(lake.open(), kind_of(plan_id))
    (state,) = (instant.state for instant in shown if instant.plan_id == plan_id)
    return state


def commits(lake: Lake, count: int) -> None:
    for number in range(count):
        lake.table.commit([SetProperties({"n": str(number)})])


def damage(store: MemoryStore, data: bytes | None) -> None:
    """Delete or overwrite every file of the timeline, behind everyone's back."""
    quiet = MemoryStore(store._name)
    for path in [listed.path for listed in quiet.list_below("_timeline")]:
        if data is None:
            quiet.delete([path])
        else:
            quiet.overwrite(path, data)
