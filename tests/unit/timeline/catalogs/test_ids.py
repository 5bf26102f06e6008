"""Ids that others take between a load and a commit: each has one meaning, so a loser takes others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, StructType

from tests.unit.timeline.logs.kinds import CatalogKind
from timeline.changes.changes import Change
from timeline.changes.schema_changes import AddSortOrder, MergeSchema, SetPartitioning
from timeline.table import Committed, Table


@pytest.fixture
def kind(tmp_path: Path) -> Iterator[CatalogKind]:
    made = CatalogKind(tmp_path)
    yield made
    made.close()


def wanted(table: Table, name: str, kind: Any) -> StructType:
    return StructType(*table.head.schema.fields, NestedField(99, name, kind, required=False))


def commit_after(kind: CatalogKind, theirs: Any, change: Change) -> Table:
    """Commit a change over one that another engine makes before the request comes."""
    table = kind.create()
    kind.answers.append(theirs)
    committed = table.commit([change])
    assert isinstance(committed, Committed)
    assert committed.attempts == 2
    return kind.open()


def test_a_column_that_came_and_went_keeps_its_id_from_a_new_one(kind: CatalogKind) -> None:
    """The schema's id is then as before: the last id that was assigned alone shows it."""
    table = kind.create()

    def add_and_drop() -> None:
        with kind.read().update_schema() as edit:
            edit.add_column("theirs", StringType())
        with kind.read().update_schema() as edit:
            edit.delete_column("theirs")

    change = MergeSchema(wanted(table, "ours", LongType()))
    head = commit_after(kind, add_and_drop, change).head
    assert {it.name: it.field_id for it in head.schema.fields} == {"id": 1, "p": 2, "ours": 4}


def test_a_column_of_the_same_name_is_one_column(kind: CatalogKind) -> None:
    table = kind.create()

    def add() -> None:
        with kind.read().update_schema() as edit:
            edit.add_column("theirs", StringType())
            edit.add_column("both", LongType())

    struct = StructType(
        *table.head.schema.fields,
        NestedField(99, "both", LongType(), required=False),
        NestedField(98, "ours", LongType(), required=False),
    )
    head = commit_after(kind, add, MergeSchema(struct)).head
    ids = {it.name: it.field_id for it in head.schema.fields}
    assert ids == {"id": 1, "p": 2, "theirs": 3, "both": 4, "ours": 5}


def test_a_sort_order_of_others_keeps_its_id(kind: CatalogKind) -> None:
    def order() -> None:
        with kind.read().update_sort_order() as edit:
            edit.asc("p", IdentityTransform())

    mine = SortOrder(SortField(source_id=1, transform=IdentityTransform()))
    head = commit_after(kind, order, AddSortOrder(mine)).head
    orders = {it.order_id: [each.source_id for each in it.fields] for it in head.metadata.sort_orders}
    assert orders == {0: [], 1: [2], 2: [1]}
    assert head.sort_order_id(mine) == 2


def test_a_partition_field_of_others_keeps_its_id(kind: CatalogKind) -> None:
    table = kind.create()
    before = table.head.metadata

    def bucket() -> None:
        with kind.read().update_spec() as edit:
            edit.add_field("id", BucketTransform(4), "theirs")

    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(8), "ours"))
    head = commit_after(kind, bucket, SetPartitioning(spec, "app")).head
    fields = {(f.field_id, str(f.transform)) for it in head.metadata.partition_specs for f in it.fields}
    assert fields == {(1000, "identity"), (1001, "bucket[4]"), (1002, "bucket[8]")}
    assert before.partition_specs == head.metadata.partition_specs[:1]


def test_a_schema_that_the_table_has_had_is_made_current_again(kind: CatalogKind) -> None:
    """A catalog that knows the same fields under another id gives none a second one."""
    table = kind.create()
    with kind.read().update_schema(allow_incompatible_changes=True) as edit:
        edit.update_column("id", required=True)
    table.refresh()
    assert table.head.schema.find_field("id").required
    fields = (NestedField(99, it.name, it.field_type, required=False) for it in table.head.schema.fields)
    table.commit([MergeSchema(StructType(*fields))])
    after = kind.open().head.metadata
    assert (len(after.schemas), after.current_schema_id) == (2, 0)
    assert not after.schema().find_field("id").required
