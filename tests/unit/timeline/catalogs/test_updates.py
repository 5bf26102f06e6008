"""A commit as updates under requirements: pyiceberg applies them to the base, and gets the same metadata."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSnapshotUpdate,
    SetSnapshotRefUpdate,
    update_table_metadata,
)
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import NestedField, StringType, StructType

from tests.unit.timeline.world import BY_P, Lake
from timeline import properties
from timeline.catalogs.updates import CatalogCommit, catalog_commit
from timeline.changes.changes import Append, Replace, SetProperties
from timeline.changes.schema_changes import AddSortOrder, MergeSchema, SetPartitioning


def applied(base: TableMetadataV2, commit: CatalogCommit) -> TableMetadataV2:
    for requirement in commit.requirements:
        requirement.validate(base)
    made = update_table_metadata(base, commit.updates)
    assert isinstance(made, TableMetadataV2)
    return made


def committed(lake: Lake, *changes: Any) -> tuple[TableMetadataV2, TableMetadataV2]:
    before = lake.table.head.metadata
    lake.table.commit(list(changes))
    return before, lake.table.head.metadata


def same(made: TableMetadataV2, wanted: TableMetadataV2) -> None:
    for name in (
        "snapshots",
        "snapshot_log",
        "refs",
        "current_snapshot_id",
        "last_sequence_number",
        "last_updated_ms",
        "properties",
        "sort_orders",
        "schemas",
        "partition_specs",
    ):
        left, right = getattr(made, name), getattr(wanted, name)
        if name == "properties":
            left.pop(properties.PROBED_STORES, None), right.pop(properties.PROBED_STORES, None)
        assert left == right, name


def test_append_and_replace_are_two_snapshots_and_main_moves_once() -> None:
    lake = Lake()
    old, new = lake.file(), lake.file()
    lake.table.commit([Append((old,))])
    replace = Replace(frozenset({old.file_path, new.file_path}), (lake.merged(old, new),))
    before, after = committed(lake, Append((new,)), replace)
    commit = catalog_commit(before, after)
    assert sum(isinstance(each, AddSnapshotUpdate) for each in commit.updates) == 2
    assert sum(isinstance(each, SetSnapshotRefUpdate) for each in commit.updates) == 1
    same(applied(before, commit), after)


def test_a_first_append_asserts_that_there_is_no_main() -> None:
    lake = Lake()
    before, after = committed(lake, Append((lake.file(),)))
    commit = catalog_commit(before, after)
    same(applied(before, commit), after)
    with pytest.raises(CommitFailedException, match="main"):
        applied(after, commit)


def test_properties_and_sort_orders_are_set_and_removed() -> None:
    lake = Lake()
    lake.table.commit([SetProperties({"a": "1", "b": "2"})])
    order = SortOrder(SortField(source_id=1, transform=IdentityTransform()), order_id=7)
    before, after = committed(lake, SetProperties({"a": "3"}, frozenset({"b"})), AddSortOrder(order))
    made = applied(before, catalog_commit(before, after))
    assert made.properties == after.properties
    assert made.sort_orders == after.sort_orders
    assert "b" not in made.properties


def test_the_other_fields_of_a_ref_are_kept() -> None:
    lake = Lake()
    lake.table.commit([Append((lake.file(),))])
    head = lake.table.head.metadata
    main = SnapshotRef(
        snapshot_id=head.refs["main"].snapshot_id,
        snapshot_ref_type=SnapshotRefType.BRANCH,
        max_snapshot_age_ms=5,
        min_snapshots_to_keep=3,
    )
    tag = SnapshotRef(snapshot_id=main.snapshot_id, snapshot_ref_type=SnapshotRefType.TAG, max_ref_age_ms=9)
    lake.change_metadata(lambda metadata: {"refs": {"main": main, "kept": tag}})
    lake.table.refresh()
    before, after = committed(lake, Append((lake.file(),)))
    made = applied(before, catalog_commit(before, after))
    assert made.refs == after.refs
    assert made.refs["main"].max_snapshot_age_ms == 5
    without_tag = after.model_copy(update={"refs": {"main": after.refs["main"]}})
    assert applied(after, catalog_commit(after, without_tag)).refs.keys() == {"main"}


@pytest.mark.parametrize(
    "changed",
    [
        {"current_snapshot_id": 5, "refs": {}},
        {"current_schema_id": 9},
        {"default_spec_id": 9},
        {"table_uuid": "11111111-1111-4111-8111-111111111111"},
    ],
)
def test_a_commit_is_refused_on_any_other_base(changed: dict[str, Any]) -> None:
    lake = Lake()
    lake.table.commit([Append((lake.file(),))])
    before, after = committed(lake, Append((lake.file(),)))
    commit = catalog_commit(before, after)
    moved = before.model_copy(update=changed)
    with pytest.raises(CommitFailedException):
        applied(moved, commit)


def test_a_schema_that_grows_is_added_and_made_the_current_one() -> None:
    lake = Lake()
    note = StructType(NestedField(0, "note", StringType(), required=False))
    before, after = committed(lake, MergeSchema(note))
    made = applied(before, catalog_commit(before, after))
    assert made.model_dump(exclude={"last_updated_ms", "metadata_log", "properties"}) == after.model_dump(
        exclude={"last_updated_ms", "metadata_log", "properties"}
    )
    assert (made.current_schema_id, made.last_column_id) == (1, 3)


def test_a_new_partition_spec_is_added_and_made_the_default_and_an_old_one_only_that() -> None:
    lake = Lake()
    wanted = PartitionSpec(PartitionField(1, 0, BucketTransform(4), "id_bucket"))
    before, after = committed(lake, SetPartitioning(wanted, "app"))
    made = applied(before, catalog_commit(before, after))
    assert made.partition_specs == after.partition_specs
    assert (made.default_spec_id, made.last_partition_id) == (1, 1001)
    with pytest.raises(CommitFailedException, match="last assigned partition id"):
        applied(before.model_copy(update={"last_partition_id": 1007}), catalog_commit(before, after))
    before, after = committed(lake, SetPartitioning(BY_P, "app"))
    commit = catalog_commit(before, after)
    assert not any(isinstance(update, AddPartitionSpecUpdate) for update in commit.updates)
    assert applied(before, commit).default_spec_id == 0


def test_what_the_updates_cannot_say_is_refused() -> None:
    lake = Lake()
    before = lake.table.head.metadata
    with pytest.raises(ValueError, match="cannot change location"):
        catalog_commit(before, before.model_copy(update={"location": "elsewhere"}))
    with pytest.raises(ValueError, match="cannot change the schemas"):
        catalog_commit(before, before.model_copy(update={"schemas": []}))


def test_no_append_passes_over_a_column_that_others_have_added() -> None:
    """Also where the schema that has it has the id of the one that the files are of, which they removed."""
    lake = Lake()
    base, after = committed(lake, Append((lake.file(),)))
    commit = catalog_commit(base, after)
    column = NestedField(9, "theirs", StringType(), required=False)
    schema = Schema(*base.schema().fields, column, schema_id=base.current_schema_id)
    now = base.model_copy(update={"schemas": [schema], "last_column_id": 9})
    with pytest.raises(CommitFailedException, match="last assigned field id has changed"):
        applied(now, commit)
