"""A commit as a catalog takes it: updates under requirements, from the metadata before and after it.

A version file is the whole next metadata. A catalog keeps the metadata itself: it takes the difference, and
the requirements under which the difference still holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AddSortOrderUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from timeline import properties
from timeline.versions.partitioning import last_partition_id

_NOT_IN_A_CATALOG = frozenset({properties.METADATA_PATH, properties.GC_ENABLED, properties.PROBED_STORES})
"""What guards version files from other writers. In a catalog's table it would stop their expiry."""
_MUST_STAY = (
    "format_version",
    "table_uuid",
    "location",
    "default_sort_order_id",
)


class CatalogCommit(NamedTuple):
    """What a catalog is sent for one commit."""

    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]


def catalog_commit(base: TableMetadataV2, after: TableMetadataV2) -> CatalogCommit:
    """Return the updates that make `after` of `base`, and the requirements that protect them. Pure.

    The requirements hold the parent of the new snapshots, the schema and the spec that the files were checked
    against, and each ref that the commit moves. No catalog has a requirement on properties: of two commits
    that move no ref and set one property, the second wins, and an append passes beside a raised fence (R6).
    So a log on a catalog must let every commit move main, by an empty replace if nothing else does.
    ValueError for a difference that is not covered.
    """
    _check_is_covered(base, after)
    return CatalogCommit(tuple(_requirements(base, after)), tuple(_difference(base, after)))


def without_expiry(commit: CatalogCommit) -> CatalogCommit:
    """Return a commit that removes no snapshot. Pure."""
    kept = (it for it in commit.updates if not isinstance(it, RemoveSnapshotsUpdate))
    return commit._replace(updates=tuple(kept))


def may_pass(commit: CatalogCommit, metadata: TableMetadata) -> bool:
    """Return whether a table meets the requirements of a commit. Pure."""
    return all(_is_met(requirement, metadata) for requirement in commit.requirements)


def _is_met(requirement: TableRequirement, metadata: TableMetadata) -> bool:
    if isinstance(requirement, AssertRefSnapshotId):  # pyiceberg refuses every other one than main at first
        ref = metadata.refs.get(requirement.ref)
        return requirement.snapshot_id == (None if ref is None else ref.snapshot_id)
    try:
        requirement.validate(metadata)
    except CommitFailedException:
        return False
    return True


def _requirements(base: TableMetadataV2, after: TableMetadataV2) -> Iterator[TableRequirement]:
    yield AssertTableUUID(uuid=base.table_uuid)
    yield AssertCurrentSchemaId(current_schema_id=base.current_schema_id)
    yield AssertDefaultSpecId(default_spec_id=base.default_spec_id)
    # A column that others have added and dropped since had the id that a new one would get. Where they have
    # removed schemas as well, one with another column may have the id of that which the files are of.
    yield AssertLastAssignedFieldId(last_assigned_field_id=base.last_column_id)
    if base.partition_specs != after.partition_specs:
        yield AssertLastAssignedPartitionId(last_assigned_partition_id=last_partition_id(base))
    if base.sort_orders != after.sort_orders:
        # A catalog gives an order another id where others have taken it since; files are to refer to it.
        yield AssertDefaultSortOrderId(default_sort_order_id=base.default_sort_order_id)
    # pyiceberg asserts no other ref of a table without snapshots, which cannot have one.
    beside = _moved_refs(base, after) if base.snapshots else {}
    for name in sorted({MAIN_BRANCH, *beside}):
        ref = base.refs.get(name)
        yield AssertRefSnapshotId(ref=name, snapshot_id=None if ref is None else ref.snapshot_id)


def _difference(base: TableMetadataV2, after: TableMetadataV2) -> Iterator[TableUpdate]:
    for schema in after.schemas[len(base.schemas) :]:
        yield AddSchemaUpdate(schema_=schema)
    if base.current_schema_id != after.current_schema_id:
        yield SetCurrentSchemaUpdate(schema_id=after.current_schema_id)
    for spec in after.partition_specs[len(base.partition_specs) :]:
        yield AddPartitionSpecUpdate(spec=spec)
    if base.default_spec_id != after.default_spec_id:
        yield SetDefaultSpecUpdate(spec_id=after.default_spec_id)
    known_orders = {order.order_id for order in base.sort_orders}
    for order in after.sort_orders:
        if order.order_id not in known_orders:
            yield AddSortOrderUpdate(sort_order=order)
    before = {snapshot.snapshot_id for snapshot in base.snapshots}
    for snapshot in after.snapshots:
        if snapshot.snapshot_id not in before:
            yield AddSnapshotUpdate(snapshot=snapshot)
    for name, ref in _moved_refs(base, after).items():
        if ref is None:
            yield RemoveSnapshotRefUpdate(ref_name=name)
        else:
            # All fields of the ref: a catalog wipes those that are left out.
            yield SetSnapshotRefUpdate(
                ref_name=name,
                type=ref.snapshot_ref_type,
                snapshot_id=ref.snapshot_id,
                max_ref_age_ms=ref.max_ref_age_ms,
                max_snapshot_age_ms=ref.max_snapshot_age_ms,
                min_snapshots_to_keep=ref.min_snapshots_to_keep,
            )
    if expired := sorted(before - {snapshot.snapshot_id for snapshot in after.snapshots}):
        yield RemoveSnapshotsUpdate(snapshot_ids=expired)
    stated = _kept_in_a_catalog(after)
    if changed := {key: value for key, value in stated.items() if base.properties.get(key) != value}:
        yield SetPropertiesUpdate(updates=changed)
    if removed := sorted(base.properties.keys() - after.properties.keys()):
        yield RemovePropertiesUpdate(removals=removed)


def _moved_refs(base: TableMetadataV2, after: TableMetadataV2) -> Mapping[str, SnapshotRef | None]:
    """Return the refs that differ, as they are afterwards; None for one that was removed."""
    names = sorted(base.refs.keys() | after.refs.keys())
    return {name: after.refs.get(name) for name in names if base.refs.get(name) != after.refs.get(name)}


def _kept_in_a_catalog(metadata: TableMetadataV2) -> dict[str, str]:
    return {key: value for key, value in metadata.properties.items() if key not in _NOT_IN_A_CATALOG}


def _check_is_covered(base: TableMetadataV2, after: TableMetadataV2) -> None:
    for name in _MUST_STAY:
        if getattr(base, name) != getattr(after, name):
            raise ValueError(
                f"a commit to a catalog cannot change {name}: from {getattr(base, name)} to"
                f" {getattr(after, name)}"
            )
    specs = base.partition_specs
    if base.schemas != after.schemas[: len(base.schemas)] or specs != after.partition_specs[: len(specs)]:
        raise ValueError("a commit to a catalog cannot change the schemas or partition specs that it has")
