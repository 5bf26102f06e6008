"""Sort orders that files may name: they come with a commit, keep their ids, and leave the default alone."""

from __future__ import annotations

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.types import LongType, NestedField

from timeline.changes.schema_changes import AddSortOrder
from timeline.stores import MemoryStore
from timeline.table import Table

SCHEMA = Schema(NestedField(1, "a", LongType()), NestedField(2, "b", LongType()))


def _by(*columns, direction=SortDirection.ASC):
    return SortOrder(*(SortField(it, direction=direction, null_order=NullOrder.NULLS_LAST) for it in columns))


def _tables(count):
    """Return one table, opened so many times."""
    store = MemoryStore("memory://sorted")
    Table.create(store, SCHEMA, UNPARTITIONED_PARTITION_SPEC)
    return [Table.open(store) for _ in range(count)]


def test_an_added_order_gets_the_next_id_and_is_found_by_its_fields():
    (table,) = _tables(1)
    assert table.head.sort_order_id(_by(1)) is None
    table.commit([AddSortOrder(_by(1)), AddSortOrder(_by(2, 1))])
    assert [table.head.sort_order_id(order) for order in (_by(1), _by(2, 1), _by(1, 2))] == [1, 2, None]
    assert table.head.sort_order_id(_by(1, direction=SortDirection.DESC)) is None
    assert table.head.metadata.default_sort_order_id == 0


def test_an_order_that_the_table_knows_is_not_added_again():
    (table,) = _tables(1)
    table.commit([AddSortOrder(_by(1))])
    table.commit([AddSortOrder(_by(1)), AddSortOrder(_by(1))])
    assert [order.order_id for order in table.head.metadata.sort_orders] == [0, 1]


def test_two_writers_who_add_orders_at_once_get_an_id_each():
    one, two = _tables(2)
    one.commit([AddSortOrder(_by(1))])
    two.commit([AddSortOrder(_by(2))])
    one.refresh()
    for table in (one, two):
        assert [table.head.sort_order_id(order) for order in (_by(1), _by(2))] == [1, 2]
