"""How the merges of a pass are divided among tasks, and what each of these needs to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from planners.fills import FillPlan
from planners.model import TablePartition, comparable
from planners.shared_deletes import own_from
from streaming_sink.tasks.files.delete_merging import DeleteMerge, RunMerge, SharingFile
from streaming_sink.tasks.job import PartitionSource, SortedBy
from streaming_sink.tasks.rows.fill_task import Fill
from timeline.versions.head import Head

Portion = list[Fill | DeleteMerge | RunMerge]
_MERGE_COSTS = 256 * 1024
"""Opening the files of a merge of delete files takes as long as filling so many bytes."""
_NO_ORDERS: Mapping[str, tuple[SortedBy, ...]] = {}
_NONE_SHARE: Mapping[TablePartition, Mapping[str, SharingFile]] = {}


def sharing_files(
    head: Head, plan: FillPlan, fold_above: float
) -> dict[TablePartition, dict[str, SharingFile]]:
    """Return the live files of the partitions whose shared delete files are merged. Those that the pass
    rewrites get no delete file of their own: it would name a file that has left.
    """
    found: dict[TablePartition, dict[str, SharingFile]] = {it.partition: {} for it in plan.run_merges}
    rewritten = {file.path for fill in plan.fills for file in fill.inputs}
    for file in head.files_near(found.keys()):
        files = found.get(TablePartition(file.spec_id, comparable(file.partition)))
        if files is not None:
            least = None if file.location in rewritten else own_from(file.rows, fold_above)
            files[file.location] = SharingFile(file.rows, least)
    return found


def divide(
    plan: FillPlan,
    tasks: int,
    sources: Mapping[int, tuple[PartitionSource, ...]],
    orders: Mapping[str, tuple[SortedBy, ...]] = _NO_ORDERS,
    sharing: Mapping[TablePartition, Mapping[str, SharingFile]] = _NONE_SHARE,
) -> list[Portion]:
    """Divide the merges among at most so many tasks, of about equal bytes each. `sources`: the fields of each
    partition spec by its id; `orders`: those of the files that are folded alone, and keep theirs; `sharing`:
    the live files of the partitions whose shared delete files are merged.
    """
    most = min(tasks, len(plan.fills) + len(plan.delete_merges) + len(plan.run_merges))
    portions: list[Portion] = [[] for _ in range(most)]
    loads = [0] * most
    for number, fill in sorted(enumerate(plan.fills), key=lambda it: -it[1].bytes):
        least = loads.index(min(loads))
        inputs = tuple(file.input for file in fill.inputs)
        spec_id, values = fill.partition
        order = orders.get(inputs[0].path, ())
        is_sorted = any(file.sorted for file in fill.inputs)
        portions[least].append(Fill(number, values, sources[spec_id], inputs, fill.cuts, order, is_sorted))
        loads[least] += fill.bytes
    for number, merge in enumerate(plan.delete_merges):
        least = loads.index(min(loads))
        file = replace(merge.file.input, deletes=merge.deletes)
        portions[least].append(DeleteMerge(number, merge.file.partition, sources[merge.file.spec_id], file))
        loads[least] += _MERGE_COSTS
    for number, runs in enumerate(plan.run_merges):
        least = loads.index(min(loads))
        spec_id, values = runs.partition
        files = sharing[runs.partition]
        portions[least].append(RunMerge(number, values, sources[spec_id], runs.deletes, runs.into, files))
        loads[least] += _MERGE_COSTS * len(runs.deletes)
    return portions
