"""The live files on which a clustering plan depends: the others are neither read nor kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from pyiceberg.manifest import ManifestFile

from planners.clustering.candidates import Candidates, Recency, candidates
from planners.clustering.policy import ClusteringPolicy
from planners.clustering.selection import RecentPartitions
from planners.model import TableFile, TablePartition
from planners.partitions import comparable
from streaming_sink.clustering.file_view import FileView
from timeline.manifests.contents import count_live, is_data
from timeline.manifests.pruning import Partition
from timeline.manifests.selected_files import Selection, select_files
from timeline.manifests.stated_files import last_time
from timeline.versions.head import Head

_EXPLAINED = 10_000
"""The most files that a plan is given only to say why it leaves them out."""
NONE_UNFIT: Mapping[str, str] = {}
NONE_WAITING = frozenset[TablePartition]()


def known_files(
    head: Head,
    policy: ClusteringPolicy,
    reserved: Mapping[str, str],
    unfit: Mapping[str, str] = NONE_UNFIT,
    waiting: Collection[TablePartition] = NONE_WAITING,
) -> list[TableFile]:
    """Return the live files of the head on which a plan depends: data files with their bounds on the policy's
    sort columns, where these decide something, and, for a policy that rewrites file by file, with what there
    is to change in them; and all delete files, which no plan takes. Of the other data files some, so that the
    plan says why it left them out.

    `reserved`: location → the plan that has it; `unfit`: location → why the file cannot be read; no file of a
    partition that is `waiting` is taken. `committed_at` is the time that begins the file's id, in
    milliseconds; for a name that is not ours, the time of the first snapshot from its sequence number on.

    Reads the manifests that may hold such files, by their names and their list (R35): where these are wrong,
    a file is missed and stays as it is. ValueError for a column to encrypt that the table lacks.
    """
    view = FileView(head, policy, reserved, unfit, waiting)
    files: dict[str, TableFile] = {}
    holding: dict[str, ManifestFile] = {}
    selection, explained = _selection(view, candidates(policy, _specs(head))), 0
    for manifest, live in head.select(selection):
        if not selection.takes(live) and not head.has_deletes(live):
            if explained == _EXPLAINED:
                continue
            explained += 1
        files[live.location] = view.of(live)
        holding[live.location] = manifest
    files |= view.with_entries(files, holding)
    return [*files.values(), *map(view.of, head.delete_files())]


def count_data_files(head: Head) -> int:
    """Return how many live data files the manifest list counts."""
    return sum(map(count_live, filter(is_data, head.manifests)))


def _specs(head: Head) -> set[int]:
    return {it.partition_spec_id for it in head.manifests if is_data(it) and count_live(it)}


def _selection(view: FileView, chosen: Candidates) -> Selection:
    asked: dict[Partition, bool] = {}

    def holds(partition: Partition) -> bool:
        key = _comparable(partition)
        if key not in asked:
            asked[key] = chosen.holds(key)
        return asked[key]

    values = next((it.values for it in chosen.selected if it.values is not None), None)
    wanted = Selection(chosen.below_bytes, holds if chosen.selected else None, values=values)
    if chosen.recent is None:
        return wanted
    recent = _recent(view, chosen.recent, wanted)
    return replace(wanted, holds=lambda it: _comparable(it) in recent, partitions=recent)


def _recent(view: FileView, strategy: RecentPartitions, wanted: Selection) -> frozenset[TablePartition]:
    """Return the partitions that were written last. The manifests of the newest files are read, until older
    files can change nothing.
    """
    head, recency = view.head, Recency(strategy, view.policy)
    manifests = sorted(wanted.manifests(head.manifests, head.pruning), key=last_time, reverse=True)
    later = [*map(last_time, manifests[1:]), 0]
    for manifest, next_time in zip(head.manifest_files.ahead(manifests), later, strict=True):
        for _, live in select_files(head.manifest_files, [manifest], wanted):
            if wanted.takes(live):
                recency.add(view.of(live))
        if recency.is_settled(next_time):
            break
    return recency.partitions()


def _comparable(partition: Partition) -> TablePartition:
    return TablePartition(partition[0], comparable(partition[1]))
