"""The interface between a strategy and the group that it rewrites, inside a task."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Protocol

import pyarrow as pa

from planners.clustering.sort_fields import SortField
from streaming_sink.tasks.clustering.ordering import Order
from streaming_sink.tasks.encryption import KeyNames


class Group(Protocol):
    """The rows of one group, in the table's current schema. A strategy may read them several times."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def rows(self) -> int: ...

    @property
    def memory_bytes(self) -> int:
        """Arrow bytes that the whole task may hold."""

    @property
    def sort_by(self) -> tuple[SortField, ...]: ...

    @property
    def sort_columns(self) -> frozenset[str]:
        """The names of the table's columns that `sort_by` refers to."""

    def read(self, columns: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows, file after file; only these columns, if `columns` names some."""

    def sample(self, columns: Collection[str]) -> pa.Table:
        """Return these columns of a sample of the group's rows: the same rows in every task and attempt."""

    def sorted(self, order: Order, columns: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, within bounded memory. `columns`, by default all, are those that `order`
        reads.
        """


class RowStrategy(Protocol):
    """Puts the rows of a group in order. Made on the driver, pickled, and used by one task."""

    def rewrite(self, group: Group, /) -> Iterable[pa.RecordBatch]:
        """Yield every row of the group exactly once, in the order in which files are to hold them.

        The caller divides the rows into files. `group.read` and `group.sorted` hold bounded memory, and so
        must this. If a strategy yields more or fewer rows, nothing of its group is published.

        Several tasks may run a strategy for one group if its class has `in_ranges = True`: all its rows
        must come out of one call of `group.sorted`, which then yields this task's range of the order. It is
        not called if its class has `joins = True`: the caller then takes the rows as they are.
        """


def joins(strategy: RowStrategy) -> bool:
    """Return whether a strategy takes the rows as they are, and joins their files alone."""
    return getattr(strategy, "joins", False)


class FileStatistics(Protocol):
    """What a manifest entry records of a data file, as far as strategies read it."""

    @property
    def column_sizes(self) -> Mapping[int, int] | None: ...

    @property
    def value_counts(self) -> Mapping[int, int] | None: ...

    @property
    def key_metadata(self) -> bytes | None: ...


Leaves = Iterable[tuple[str, int]]
"""The table's columns of single values: name and field id."""

StaleReason = Callable[[FileStatistics], str | None]
"""Returns what there is to change in a file, in words; None for nothing."""


class FileByFileStrategy(RowStrategy, Protocol):
    """A strategy with the trait `file_by_file`: it says which files it has something to change in."""

    def stale_reason(self, field_ids: Collection[int], leaves: Leaves) -> StaleReason:
        """Return the test of a file. `field_ids` are all fields of the table's current schema.

        ValueError for parameters that do not fit the table.
        """


class KeySettingStrategy(RowStrategy, Protocol):
    """A strategy with the trait `sets_keys`."""

    def key_names(self, leaves: Leaves) -> KeyNames:
        """Return the names of the keys of the files that it writes. ValueError as `stale_reason`."""
