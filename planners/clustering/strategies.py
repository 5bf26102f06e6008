"""The registry of execution strategies: each name, the class behind it, and what the class needs.

To add a strategy, write its class and add one row to `BUILT_IN`. The planner, the checks of options, the
driver and the tasks read the row; none of them compares names. The custom strategies of users are in no
registry: `traits` returns what holds for all of them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from planners.suggestions import unknown_name


@dataclass(frozen=True, slots=True)
class Strategy:
    """What rewrites a group's rows, or what chose its files: a name, and parameters in the order of names."""

    name: str
    parameters: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value}' for name, value in self.parameters)})"


class SortColumns(Enum):
    """Whether a strategy takes `sort_by`."""

    REQUIRED = "required"
    OPTIONAL = "optional"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Traits:
    """What a strategy needs, and what it does to rows and files."""

    implementation: str | None = None
    """The class, as the entry point "module:name": `streaming_sink` loads it, the planners never do. None for
    a custom strategy, whose class the user gives."""
    sort_columns: SortColumns = SortColumns.OPTIONAL
    makes_order: bool = True
    """It puts rows into an order of its own; the files record that order in their names."""
    along_curve: bool = False
    """The order is a space-filling curve through the columns: sorted files still overlap in each column."""
    is_iceberg_order: bool = False
    """The order is a sort order of Iceberg, which the table and the Parquet footers record. Iceberg has none
    for curves, or for a custom order."""
    file_by_file: bool = False
    """Each file becomes one file, with its rows in their order. Takes only files in which it has something to
    change."""
    sets_keys: bool = False
    """It names the keys that encrypt its files; all others keep the keys of their inputs. Needs `keys`."""
    parameters: frozenset[str] | None = frozenset()
    """The names of its parameters; None where the class checks them."""


BUILT_IN: Mapping[str, Traits] = {
    "bin_pack": Traits(
        "streaming_sink.tasks.clustering.strategies:BinPack",
        SortColumns.REFUSED,
        makes_order=False,
    ),
    "sort": Traits(
        "streaming_sink.tasks.clustering.strategies:Sort",
        SortColumns.REQUIRED,
        is_iceberg_order=True,
    ),
    "zorder": Traits(
        "streaming_sink.tasks.clustering.strategies:ZOrder",
        SortColumns.REQUIRED,
        along_curve=True,
    ),
    "hilbert": Traits(
        "streaming_sink.tasks.clustering.strategies:Hilbert",
        SortColumns.REQUIRED,
        along_curve=True,
    ),
    "drop_columns": Traits(
        "streaming_sink.tasks.clustering.strategies:DropColumns",
        SortColumns.REFUSED,
        makes_order=False,
        file_by_file=True,
    ),
    "encrypt": Traits(
        "streaming_sink.tasks.clustering.encrypting:Encrypt",
        SortColumns.REFUSED,
        makes_order=False,
        file_by_file=True,
        sets_keys=True,
        parameters=frozenset({"footer_key", "column_keys"}),
    ),
}
"""The registry. Names and orders are in the names of data files and in saved plans: never rename one."""

_CUSTOM = Traits(parameters=None)


def traits(name: str) -> Traits:
    """Return what the strategy of this name needs; a name that is not built in is a custom strategy."""
    return BUILT_IN.get(name, _CUSTOM)


def sorting_names() -> list[str]:
    """Return the names of the built-in strategies that sort by columns."""
    return [name for name, it in BUILT_IN.items() if it.sort_columns is SortColumns.REQUIRED]


def choose_strategy(
    given: str | Strategy | None,
    parameters: Mapping[str, str],
    *,
    sorts: bool,
    custom: Collection[str] = (),
) -> Strategy:
    """Return the strategy that options ask for: by default "sort" with sort columns, "bin_pack" without.

    ValueError for a name that is neither built in nor among the `custom` ones, with the nearest; and for
    parameters beside a `Strategy`, which has its own.
    """
    if isinstance(given, Strategy):
        if parameters:
            raise ValueError(f"parameters belong in the Strategy that is given: {given}")
        return given
    name = given if given is not None else "sort" if sorts else "bin_pack"
    if name not in BUILT_IN and name not in custom:
        raise unknown_name("clustering strategy", name, {*BUILT_IN, *custom})
    return Strategy(name, tuple(sorted(parameters.items())))


def check_sort_columns(strategy: Strategy, columns: Collection[str]) -> None:
    """Raise ValueError where a strategy lacks the columns that it needs, or has some that it cannot use."""
    wanted = traits(strategy.name).sort_columns
    if wanted is SortColumns.REQUIRED and not columns:
        raise ValueError(f"strategy {strategy.name!r} needs columns to sort by; give sort_by")
    if wanted is SortColumns.REFUSED and columns:
        raise ValueError(
            f"strategy {strategy.name!r} does not sort; drop sort_by or choose one of "
            f"{', '.join(sorting_names())}: sort_by={list(columns)}"
        )


def check_parameters(strategy: Strategy) -> None:
    """Raise ValueError for a parameter that the strategy does not have, with the nearest that it has."""
    known = traits(strategy.name).parameters
    if known is None:
        return
    if strategy.parameters and not known:
        raise ValueError(f"strategy {strategy.name!r} takes no parameters: {dict(strategy.parameters)}")
    for name, _ in strategy.parameters:
        if name not in known:
            raise unknown_name(f"parameter of strategy {strategy.name!r}", name, known)


def order_name(strategy: Strategy, sort_by: tuple[str, ...]) -> str | None:
    """Return the name of the order that a strategy, with its parameters, puts rows in; None for one that
    keeps their order.
    """
    if not traits(strategy.name).makes_order:
        return None
    parameters = [json.dumps(dict(strategy.parameters))] if strategy.parameters else []
    return f"{strategy.name}({', '.join([*sort_by, *parameters])})"
