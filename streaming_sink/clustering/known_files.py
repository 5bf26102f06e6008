"""The planner's view of a table's files: translates the live files of a head to `TableFile` values."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import cast

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import PrimitiveType

from planners.clustering.policy import ClusteringPolicy
from planners.model import ColumnBounds, TableFile
from streaming_sink.table.parquet_properties import leaf_names
from streaming_sink.table.planned_files import planned_file
from streaming_sink.tasks.clustering.row_strategy import FileByFileStrategy, StaleReason
from streaming_sink.tasks.clustering.strategies import make_strategy
from timeline import names
from timeline.manifests.contents import is_data
from timeline.manifests.entries import LiveFile
from timeline.versions.head import Head

_ANOTHER_ORDER = "another order"
NONE_UNFIT: Mapping[str, str] = {}


def known_files(
    head: Head, policy: ClusteringPolicy, reserved: Mapping[str, str], unfit: Mapping[str, str] = NONE_UNFIT
) -> Iterator[TableFile]:
    """Yield every live file of the head: data files with their bounds on the policy's sort columns and, for a
    policy that rewrites file by file, what there is to change in them; delete files, which no plan takes.

    `reserved`: location → the plan that has it; `unfit`: location → why the file cannot be read.
    `committed_at` is the time that begins the file's id, in milliseconds; for a name that is not ours, the
    time of the first snapshot from its sequence number on. Reads the manifests that are not in memory.

    ValueError for a column to encrypt that the table lacks.
    """
    columns = _columns(head.schema, policy)
    stale_reason, times = _stale_reason(policy, head.schema), _Times(head)
    needs_entries = bool(columns or stale_reason)
    for manifest in head.manifest_files.ahead(filter(is_data, head.manifests), copies=not needs_entries):
        bounds, changes = {}, {}
        if needs_entries:
            for it in head.manifest_files.entries(manifest):
                bounds[it.data_file.file_path] = _bounds(it.data_file, columns)
                changes[it.data_file.file_path] = stale_reason(it.data_file) if stale_reason else None
        for file in head.manifest_files.contents(manifest).files.values():
            known = _known(head, policy, file, bounds.get(file.location, ()), reserved.get(file.location))
            if not known.committed_at:
                known = replace(known, committed_at=times.at(file.sequence_number))
            yield replace(known, outdated=changes.get(file.location), unfit=unfit.get(file.location))
    for delete in head.delete_files():
        yield _known(head, policy, delete, (), None)


class _Times:
    """When files of other writers were committed, by the first snapshot since that has not expired."""

    def __init__(self, head: Head) -> None:
        known = sorted((it.sequence_number or 0, it.timestamp_ms) for it in head.metadata.snapshots)
        self._numbers, self._times = [number for number, _ in known], [time for _, time in known]

    def at(self, sequence_number: int) -> int:
        place = bisect_left(self._numbers, sequence_number)
        return self._times[place] if sequence_number and place < len(self._times) else 0


def _stale_reason(policy: ClusteringPolicy, schema: Schema) -> StaleReason | None:
    if not policy.file_by_file:
        return None
    strategy = cast(FileByFileStrategy, make_strategy(policy.strategy, {}))
    return strategy.stale_reason(schema.field_ids, leaf_names(schema))


def _known(
    head: Head,
    policy: ClusteringPolicy,
    file: LiveFile,
    bounds: tuple[ColumnBounds, ...],
    reserved_by: str | None,
) -> TableFile:
    order, level = _order(file.location, policy)
    file_id = names.file_id(file.location)
    return replace(
        planned_file(head, file, reserved_by),
        bounds=bounds,
        clustered_by=order,
        level=level,
        committed_at=0 if file_id is None else names.ulid_time_ms(file_id),
    )


def _order(location: str, policy: ClusteringPolicy) -> tuple[str | None, int]:
    """Return the order and level of a file. A name has a digest: it shows only whether it is the policy's
    order.
    """
    recorded = names.clustering_of(location)
    if recorded is None:
        return None, 0
    digest, level = recorded
    wanted = policy.order
    is_wanted = wanted is not None and digest == names.order_digest(wanted)
    return (wanted if is_wanted else _ANOTHER_ORDER), level


def _columns(schema: Schema, policy: ClusteringPolicy) -> list[tuple[str, int, PrimitiveType]]:
    fields = [(it.column, schema.find_field(it.column)) for it in policy.sort_by]
    return [
        (name, field.field_id, field.field_type)
        for name, field in fields
        if isinstance(field.field_type, PrimitiveType)
    ]


def _bounds(file: DataFile, columns: list[tuple[str, int, PrimitiveType]]) -> tuple[ColumnBounds, ...]:
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    return tuple(
        ColumnBounds(name, from_bytes(kind, lower[field_id]), from_bytes(kind, upper[field_id]))
        for name, field_id, kind in columns
        if field_id in lower and field_id in upper
    )
