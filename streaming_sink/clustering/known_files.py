"""The live files on which a clustering plan depends, as `TableFile` values: the others are neither read nor
kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.types import PrimitiveType

from planners.clustering.bound import PlanBound
from planners.clustering.candidates import Candidates, Recency, candidates
from planners.clustering.planner import files_to_compare
from planners.clustering.policy import ClusteringPolicy
from planners.clustering.selection import RecentPartitions
from planners.model import ColumnBounds, TableFile, TablePartition, comparable, partition_of
from streaming_sink.table.parquet_properties import leaf_names
from streaming_sink.table.planned_files import planned_file
from streaming_sink.tasks.clustering.row_strategy import FileByFileStrategy, StaleReason
from streaming_sink.tasks.clustering.strategies import make_strategy
from streaming_sink.tasks.encryption import KeyNames
from timeline import names
from timeline.manifests.contents import count_live, is_data
from timeline.manifests.entries import LiveFile
from timeline.manifests.pruning import Partition
from timeline.manifests.selected_files import Selection, select_files
from timeline.manifests.stated_files import last_time
from timeline.versions.head import Head
from timeline.versions.partitioning import specs_without_types

_EXPLAINED = 10_000
"""The most files that a plan is given only to say why it leaves them out."""
NONE_UNFIT: Mapping[str, str] = {}
NONE_WAITING = frozenset[TablePartition]()


@dataclass(frozen=True)
class KnownFiles:
    """The files of a head that a plan knows; see `known_files`."""

    files: list[TableFile]
    has_more: bool
    """Whether others, which may be rewritten too, were left for later passes."""


def known_files(
    head: Head,
    policy: ClusteringPolicy,
    reserved: Mapping[str, str],
    unfit: Mapping[str, str] = NONE_UNFIT,
    waiting: Collection[TablePartition] = NONE_WAITING,
    enough_bytes: int = 0,
    *,
    has_keys: bool = True,
) -> KnownFiles:
    """Return the live files of the head on which a plan depends: data files with their bounds on the policy's
    sort columns, where these decide something, and, for a policy that rewrites file by file, with what there
    is to change in them; and all delete files, which no plan takes. Of the other data files some, so that the
    plan says why it left them out.

    `reserved`: location → the plan that has it; `unfit`: location → why the file cannot be read; no file of a
    partition that is `waiting` is taken, and none that another writer has encrypted, or anyone where the pass
    has no keys. `committed_at` is the time that begins the file's id, in milliseconds; for a name that is not
    ours, the time of the first snapshot from its sequence number on.

    Reads the manifests that may hold such files, by their names and their list (R35): where these are wrong,
    a file is missed and stays as it is. Where the plan strategies judge each file by itself, those of the
    newest files come first, and no more are read once a plan has enough to rewrite, of `enough_bytes` that a
    pass may read (`PlanBound`): later passes find older files. ValueError for a column to encrypt that the
    table lacks.
    """
    view = FileView(head, policy, reserved, unfit, waiting, has_keys)
    files: dict[str, TableFile] = {}
    holding: dict[str, ManifestFile] = {}
    chosen = candidates(policy, _specs(head))
    selection, explained, has_more = _selection(view, chosen), 0, False
    bound = PlanBound(policy, enough_bytes)
    for manifest, live in head.select(selection, newest_first=chosen.is_exact):
        if not selection.takes(live) and not head.has_deletes(live):
            if explained == _EXPLAINED:
                continue
            explained += 1
        file = files[live.location] = view.of(live)
        holding[live.location] = manifest
        if chosen.is_exact and selection.takes(live) and bound.is_enough_with(file):
            has_more = True
            break
    files |= view.with_entries(files, holding)
    return KnownFiles([*files.values(), *map(view.of, head.delete_files())], has_more)


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


_ANOTHER_ORDER = "another order"
_WAITS = "another engine rewrites files of its partition, and a pass of the stream leaves it room for a while"
_WITHOUT_TYPES = (
    "is partitioned by a column whose type is not known any more, so that no manifest can list it anew"
)
_ENCRYPTED = "is encrypted, and the pass has no keys"
_ENCRYPTED_BY_OTHERS = "is encrypted by another writer, whose keys are not known"


@dataclass(frozen=True)
class FileView:
    """The files of a head under one policy; see `known_files`."""

    head: Head
    policy: ClusteringPolicy
    reserved: Mapping[str, str]
    unfit: Mapping[str, str]
    waiting: Collection[TablePartition]
    has_keys: bool = True

    def of(self, file: LiveFile) -> TableFile:
        """Return a file as far as it is known without its manifest's entry."""
        recorded = names.clustering_of(file.location)
        order, level = (None, 0) if recorded is None else (self._order(recorded[0]), recorded[1])
        known = planned_file(self.head, file, self.reserved.get(file.location))
        is_waiting = bool(self.waiting) and partition_of(known) in self.waiting
        return replace(
            known,
            unfit=_WAITS if is_waiting else self.unfit.get(file.location) or self._why_locked(file),
            clustered_by=order,
            level=level,
            committed_at=self._committed_at(file),
        )

    def _why_locked(self, file: LiveFile) -> str | None:
        if file.spec_id in self._fixed_specs:
            return _WITHOUT_TYPES
        if file.key_metadata is None:
            return None
        if not self.has_keys:
            return _ENCRYPTED
        return _ENCRYPTED_BY_OTHERS if KeyNames.from_bytes(file.key_metadata) is None else None

    def with_entries(
        self, files: Mapping[str, TableFile], holding: Mapping[str, ManifestFile]
    ) -> dict[str, TableFile]:
        """Return those of the files of which a plan needs to know more, with it; read from the manifests that
        hold them, one at a time.
        """
        stale_reason = self._stale_reason()
        now = self.head.metadata.last_updated_ms
        wanted = files if stale_reason else files_to_compare(files.values(), now, self.policy)
        manifests = {it.manifest_path: it for it in map(holding.__getitem__, wanted)}
        found = {}
        manifest_files = self.head.manifest_files
        for manifest in manifest_files.ahead(manifests.values(), copies=False):
            for entry in manifest_files.entries(manifest):
                path = entry.data_file.file_path
                if path in wanted:
                    outdated = stale_reason(entry.data_file) if stale_reason else None
                    found[path] = replace(
                        files[path], bounds=self._bounds(entry.data_file), outdated=outdated
                    )
        return found

    def _order(self, digest: str) -> str:
        """Return the order of a file. A name has a digest: it shows only whether it is the policy's order."""
        wanted, wanted_digest = self._wanted_order
        return wanted if wanted is not None and digest == wanted_digest else _ANOTHER_ORDER

    @cached_property
    def _wanted_order(self) -> tuple[str | None, str | None]:
        order = self.policy.order
        return order, None if order is None else names.order_digest(order)

    def _committed_at(self, file: LiveFile) -> int:
        file_id = names.file_id(file.location)
        return self._times.at(file.sequence_number) if file_id is None else names.ulid_time_ms(file_id)

    @cached_property
    def _fixed_specs(self) -> AbstractSet[int]:
        return specs_without_types(self.head.metadata)

    @cached_property
    def _times(self) -> _Times:
        return _Times(self.head)

    def _stale_reason(self) -> StaleReason | None:
        if not self.policy.file_by_file:
            return None
        schema = self.head.schema
        strategy = cast(FileByFileStrategy, make_strategy(self.policy.strategy, {}))
        return strategy.stale_reason(schema.field_ids, leaf_names(schema))

    @cached_property
    def _columns(self) -> list[tuple[str, int, PrimitiveType]]:
        fields = [(it.column, self.head.schema.find_field(it.column)) for it in self.policy.sort_by]
        return [
            (name, field.field_id, field.field_type)
            for name, field in fields
            if isinstance(field.field_type, PrimitiveType)
        ]

    def _bounds(self, file: DataFile) -> tuple[ColumnBounds, ...]:
        lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
        return tuple(
            ColumnBounds(name, from_bytes(kind, lower[field_id]), from_bytes(kind, upper[field_id]))
            for name, field_id, kind in self._columns
            if field_id in lower and field_id in upper
        )


class _Times:
    """When files of other writers were committed, by the first snapshot since that has not expired."""

    def __init__(self, head: Head) -> None:
        known = sorted((it.sequence_number or 0, it.timestamp_ms) for it in head.metadata.snapshots)
        self._numbers, self._times = [number for number, _ in known], [time for _, time in known]

    def at(self, sequence_number: int) -> int:
        place = bisect_left(self._numbers, sequence_number)
        return self._times[place] if sequence_number and place < len(self._times) else 0
