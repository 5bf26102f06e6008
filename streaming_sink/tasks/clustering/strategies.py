"""The classes of the built-in strategies, and how a planned strategy becomes one.

`planners.clustering.strategies` is the registry: a plan on the timeline names a strategy and its parameters,
never code. A custom strategy is a class with one method, made from the plan's parameters and given to
`execute` by its name:

    class Shortest:
        def __init__(self, parameters):
            self.column = parameters["column"]

        def rewrite(self, group):
            index = group.schema.get_field_index(self.column)
            return group.sorted(lambda rows: [Key(pc.utf8_length(rows.column(index)))])

    execute(spark, location, plan_id, strategies={"shortest": Shortest})
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pkgutil import resolve_name

import pyarrow as pa

from planners.clustering import curves
from planners.clustering.strategies import BUILT_IN, Strategy, check_parameters, traits
from planners.suggestions import unknown_name
from streaming_sink.tasks.clustering.curve_order import Curve, order_along_curve
from streaming_sink.tasks.clustering.ordering import order_by_columns
from streaming_sink.tasks.clustering.row_strategy import (
    FileStatistics,
    Group,
    Leaves,
    RowStrategy,
    StaleReason,
)

Factory = Callable[[Mapping[str, str]], RowStrategy]
"""Makes a strategy from the plan's parameters; ValueError for impossible ones."""


class _WithoutParameters:
    def __init__(self, _parameters: Mapping[str, str] | None = None) -> None:
        pass


class BinPack(_WithoutParameters):
    """Joins files. Row groups may be copied as they are: within these, the rows keep their order."""

    joins = True

    def rewrite(self, group: Group, /) -> Iterable[pa.RecordBatch]:
        return group.read()


class Sort(_WithoutParameters):
    """Sorts by the group's columns, the first before the second."""

    in_ranges = True

    def rewrite(self, group: Group, /) -> Iterable[pa.RecordBatch]:
        return group.sorted(order_by_columns(group.schema, group.sort_by), group.sort_columns)


class ZOrder(_WithoutParameters):
    """Sorts by the position on a space-filling curve through the group's columns."""

    in_ranges = True
    curve: Curve = staticmethod(curves.zorder)

    def rewrite(self, group: Group, /) -> Iterable[pa.RecordBatch]:
        return group.sorted(order_along_curve(group, self.curve), group.sort_columns)


class Hilbert(ZOrder):
    """As `ZOrder`, along a curve without jumps: ranges of it fall into fewer pieces."""

    curve: Curve = staticmethod(curves.hilbert)


class DropColumns(_WithoutParameters):
    """Frees the space of columns that the table has dropped: rows are read in the table's current schema."""

    def rewrite(self, group: Group, /) -> Iterable[pa.RecordBatch]:
        return group.read()

    def stale_reason(self, field_ids: Collection[int], _leaves: Leaves) -> StaleReason:
        """Read the columns of a file from its statistics, which list them in every metrics mode."""
        current = frozenset(field_ids)

        def reason(file: FileStatistics) -> str | None:
            dropped = sorted({*(file.column_sizes or {}), *(file.value_counts or {})} - current)
            if not dropped:
                return None
            return f"hold columns that the table dropped, fields {', '.join(map(str, dropped))}"

        return reason


def make_strategy(planned: Strategy, custom: Mapping[str, Factory]) -> RowStrategy:
    """Return the strategy that a plan names. ValueError, with the nearest name, for an unknown one.

    ValueError too for a custom strategy under a built-in name, which decides what the table records.
    """
    if taken := sorted(BUILT_IN.keys() & custom.keys()):
        raise ValueError(f"strategies has a built-in name, choose another: {', '.join(taken)}")
    if planned.name not in BUILT_IN and planned.name not in custom:
        raise unknown_name("clustering strategy", planned.name, {*BUILT_IN, *custom})
    check_parameters(planned)
    entry_point = traits(planned.name).implementation
    make: Factory = custom[planned.name] if entry_point is None else resolve_name(entry_point)
    return make(dict(planned.parameters))
