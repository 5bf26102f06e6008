"""Iceberg's sort orders of a plan's groups: the table has an order before a file refers to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform

from planners.clustering.plan import ClusteringGroup
from planners.clustering.sort_fields import SortField as PlannedField
from planners.clustering.strategies import traits
from streaming_sink.tasks.job import SortedBy
from timeline.changes.schema_changes import AddSortOrder
from timeline.table import Table
from timeline.versions.head import Head


def sort_order_ids(table: Table, groups: Iterable[ClusteringGroup]) -> Mapping[tuple[str, ...], int]:
    """Return the id of each order that groups are sorted by; one commit adds those that the table lacks.

    Orders stay in the table, so a later plan with the same columns needs no such commit.
    """
    schema = table.head.schema
    sorting = [it.sort_by for it in groups if traits(it.strategy.name).is_iceberg_order]
    wanted = {sort_by: iceberg_order(schema, sort_by) for sort_by in sorting}
    missing = [order for order in wanted.values() if table.head.sort_order_id(order) is None]
    if missing:
        table.commit([AddSortOrder(order) for order in missing])
    ids = {sort_by: table.head.sort_order_id(order) for sort_by, order in wanted.items()}
    return {sort_by: order_id for sort_by, order_id in ids.items() if order_id is not None}


def planned_sort_order(schema: Schema, group: ClusteringGroup) -> tuple[SortedBy, ...]:
    """Return the order of the files that a group makes, for footers; () where Iceberg has no such order."""
    if not traits(group.strategy.name).is_iceberg_order:
        return ()
    return _identity_fields(iceberg_order(schema, group.sort_by))


def recorded_sort_order(head: Head, order_id: int) -> tuple[SortedBy, ...]:
    """Return the order that the table has under this id, for footers; () for an unknown id."""
    order = head.metadata.sort_order_by_id(order_id)
    return () if order is None else _identity_fields(order)


def _identity_fields(order: SortOrder) -> tuple[SortedBy, ...]:
    """Return the leading fields of an order that sort by a column itself."""
    fields = []
    for field in order.fields:
        if not isinstance(field.transform, IdentityTransform):
            break
        fields.append(
            SortedBy(
                field.source_id,
                descending=field.direction == SortDirection.DESC,
                nulls_first=field.null_order == NullOrder.NULLS_FIRST,
            )
        )
    return tuple(fields)


def iceberg_order(schema: Schema, sort_by: Iterable[str]) -> SortOrder:
    """Return the order that a group's `sort_by` spells, without an id."""
    parsed = [PlannedField.parse(text) for text in sort_by]
    return SortOrder(
        *(
            SortField(
                source_id=schema.find_field(field.column).field_id,
                transform=IdentityTransform(),
                direction=SortDirection.DESC if field.descending else SortDirection.ASC,
                null_order=NullOrder.NULLS_FIRST if field.nulls_first else NullOrder.NULLS_LAST,
            )
            for field in parsed
        )
    )
