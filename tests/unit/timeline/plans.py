"""What the suites of clustering plans share: small plans, their files, and ways to damage the timeline."""

from __future__ import annotations

from typing import Any

from pyiceberg.manifest import DataFile

from tests.unit.timeline.world import Lake
from timeline import instants
from timeline.changes import Append, Replace, SetProperties
from timeline.instants import State
from timeline.reservations import Reservations
from timeline.stores import MemoryStore


def plan_of(*groups: tuple[DataFile, ...]) -> dict[str, Any]:
    return {
        "planned_at": 1,
        "target_file_bytes": 1 << 30,
        "selected_by": [{"name": "all", "parameters": {}}],
        "groups": [
            {
                "inputs": [file.file_path for file in group],
                "partition": ["0"],
                "bytes": sum(file.file_size_in_bytes for file in group),
                "rows": sum(file.record_count for file in group),
                "output_files": 1,
                "sort_by": [],
                "strategy": {"name": "bin_pack", "parameters": {}},
                "remainder": True,
                "level": 1,
                "files_saved": 1,
                "reasons": [],
            }
            for group in groups
        ],
        "left_out": [],
    }


def replace(lake: Lake, *files: DataFile) -> Replace:
    return Replace(frozenset(file.file_path for file in files), (lake.merged(*files),))


def two_files(lake: Lake) -> tuple[DataFile, DataFile]:
    files = lake.file(), lake.file()
    lake.table.commit([Append(files)])
    return files


def reserved(lake: Lake) -> dict[str, str]:
    return Reservations(MemoryStore(lake.name)).files(lake.open().head)


def state_of(lake: Lake, plan_id: str) -> State:
    (found,) = (instant.state for instant in instants.show(lake.open()) if instant.plan_id == plan_id)
    return found


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
