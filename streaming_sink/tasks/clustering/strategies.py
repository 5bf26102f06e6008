"""Execution strategies by name: what a plan calls them is all that a table ever says about code.

One's own is a class with one method, made from the plan's parameters and given to `execute` by its name:

    class Shortest:
        def __init__(self, parameters):
            self.column = parameters["column"]

        def rewrite(self, group):
            place = group.schema.get_field_index(self.column)
            return group.sorted(lambda rows: [Key(pc.utf8_length(rows.column(place)))])

    execute(spark, table, plan, strategies={"shortest": Shortest})
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from planners.clustering.plan import Strategy
from planners.clustering.policy import nearest
from streaming_sink.tasks.clustering.curve_order import order_along_curve
from streaming_sink.tasks.clustering.encrypting import Encrypt
from streaming_sink.tasks.clustering.job import RowStrategy
from streaming_sink.tasks.clustering.ordering import order_by_columns
from streaming_sink.tasks.clustering.rows import GroupRows

Factory = Callable[[Mapping[str, str]], RowStrategy]
"""Makes a strategy from the plan's parameters; ValueError for those that cannot be."""


class BinPack:
    """Joins files, and leaves their rows in order."""

    def rewrite(self, group: GroupRows, /) -> Iterable[pa.RecordBatch]:
        return group.read()


class Sort:
    """Sorts by the group's columns, the first before the second."""

    in_ranges = True

    def rewrite(self, group: GroupRows, /) -> Iterable[pa.RecordBatch]:
        return group.sorted(order_by_columns(group.schema, group.sort_by), group.sort_columns)


class AlongCurve:
    """Sorts by the place on a space-filling curve through the group's columns: "zorder" or "hilbert"."""

    in_ranges = True

    def __init__(self, curve: str) -> None:
        self._curve = curve

    def rewrite(self, group: GroupRows, /) -> Iterable[pa.RecordBatch]:
        return group.sorted(order_along_curve(group, self._curve), group.sort_columns)


def _plain(name: str, make: Callable[[], RowStrategy]) -> Factory:
    def made(parameters: Mapping[str, str]) -> RowStrategy:
        if parameters:
            raise ValueError(f"strategy {name!r} takes no parameters: {dict(parameters)}")
        return make()

    return made


STRATEGIES: Mapping[str, Factory] = {
    "bin_pack": _plain("bin_pack", BinPack),
    "sort": _plain("sort", Sort),
    "zorder": _plain("zorder", lambda: AlongCurve("zorder")),
    "hilbert": _plain("hilbert", lambda: AlongCurve("hilbert")),
    "drop_columns": _plain("drop_columns", BinPack),  # rows are read in the table's current schema anyway
    "encrypt": Encrypt,
}


def strategy_of(planned: Strategy, more: Mapping[str, Factory]) -> RowStrategy:
    """Return what a plan names. ValueError, with the nearest name, for one that nobody registered.

    ValueError too for one's own under a built-in name: what the table says of files goes by these.
    """
    if taken := sorted(STRATEGIES.keys() & more.keys()):
        raise ValueError(f"strategies has a built-in name, choose another: {', '.join(taken)}")
    known = {**STRATEGIES, **more}
    if planned.name not in known:
        raise nearest("clustering strategy", planned.name, known)
    return known[planned.name](dict(planned.parameters))
