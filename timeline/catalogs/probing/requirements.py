"""What commits require of a table in a catalog, each as it holds and as it does not, for the probe (R33)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import NamedTuple

from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUUID,
    TableRequirement,
)

from timeline.versions.partitioning import last_partition_id

_NEVER = 1_000_000
"""So far ahead that no change of others to the table makes it true."""


class Broken(NamedTuple):
    """Requirements of which one does not hold."""

    what: str
    lost: str
    """What would be lost under a catalog that passes over it."""
    requirements: tuple[TableRequirement, ...]


def as_it_is(metadata: TableMetadataV2) -> tuple[TableRequirement, ...]:
    """Return requirements that hold. That on the schema lets what sets the current one again change none
    that another engine has set since.
    """
    main = metadata.refs.get(MAIN_BRANCH)
    return (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=None if main is None else main.snapshot_id),
        AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
    )


def broken(metadata: TableMetadataV2) -> Iterator[Broken]:
    """Yield requirements that do not hold on a table, each beside those that do."""
    held = as_it_is(metadata)
    stale = "a commit that was checked against an older state of the table would land"
    wrong: list[tuple[str, str, TableRequirement]] = [
        (
            "the requirement on main's snapshot",
            "of two commits that meet, one would be overwritten, and its acknowledged rows lost",
            AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=1),
        ),
        (
            "the requirement on the table's uuid",
            "a commit to a table that was dropped would land in another one of its name",
            AssertTableUUID(uuid=uuid.UUID(int=metadata.table_uuid.int ^ 1)),
        ),
        (
            "the requirement on the schema",
            f"{stale}, with rows that its columns do not fit",
            AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id + _NEVER),
        ),
        (
            "the requirement on the partition spec",
            f"{stale}, with files under another partitioning",
            AssertDefaultSpecId(default_spec_id=metadata.default_spec_id + _NEVER),
        ),
        (
            "the requirement on the last field id",
            "of two columns that are added at once, one would show the values of the other",
            AssertLastAssignedFieldId(last_assigned_field_id=metadata.last_column_id + _NEVER),
        ),
        (
            "the requirement on the last partition id",
            "of two partition fields that are added at once, one would show the values of the other",
            AssertLastAssignedPartitionId(last_assigned_partition_id=last_partition_id(metadata) + _NEVER),
        ),
    ]
    if MAIN_BRANCH in metadata.refs:
        wrong.append(
            (
                "the requirement that a table is empty",
                "of two writers of a new table, the rows of one would be lost",
                AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=None),
            )
        )
    for what, lost, requirement in wrong:
        kept = [it for it in held if type(it) is not type(requirement)]
        yield Broken(what, lost, (*kept, requirement))
