"""The input of planners, and the plans that they return: frozen values; bytes and rows are integers.

A planner never sees Spark, a store, a clock or a log: `streaming_sink` translates between these values and
the table.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

PartitionKey = tuple[Hashable, ...]
"""The values of one table partition, one per field of the partition spec, after its transform; () for an
unpartitioned table. Opaque to the planners: they only compare and print it."""


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """The least and the greatest value of one column in one file, nulls aside; None where unknown.

    Values of one column are comparable with each other in all files. Bounds may be wider than the values
    (Iceberg truncates long strings), never narrower.
    """

    column: str
    lower: Any
    upper: Any


class TablePartition(NamedTuple):
    """One partition of a table that may have had several partition specs: values mean something under their
    spec alone.
    """

    spec_id: int
    values: PartitionKey


class FileContent(Enum):
    """What a file of the table holds, numbered as in Iceberg's manifests."""

    DATA = 0
    POSITION_DELETES = 1
    EQUALITY_DELETES = 2


@dataclass(frozen=True, slots=True)
class PositionDeletes:
    """A delete file that may apply to a data file, and how many rows it deletes."""

    path: str
    rows: int
    run: int | None = None
    """The commit that added it, where it may name several data files, and delete any number of rows of each;
    None where it names the one data file alone."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """A data file whose live rows a task reads: all but those that its delete files delete."""

    path: str
    rows: int
    """The rows that it holds, deleted or not."""
    deletes: tuple[PositionDeletes, ...] = ()

    @property
    def live_rows(self) -> int:
        """The rows that delete files of it alone leave: fewer where others delete some of them, and more
        where two of another engine delete the same row.
        """
        return max(0, self.rows - sum(each.rows for each in self.deletes if each.run is None))


@dataclass(frozen=True, slots=True)
class TableFile:
    """One live file of the table, as the planner needs to know it. Paths are unique in a table."""

    path: str
    partition: PartitionKey
    bytes: int
    """Live bytes: the file's size, less the share of the rows that delete files of it alone delete."""
    rows: int
    """Live rows, but for those that shared delete files delete: how many is not in the metadata."""
    sorted: bool = False
    """It carries a sort order (a clustered file)."""
    deleted_bytes: int = 0
    """The rest of the file's size."""
    deleted_rows: int = 0
    """The rest of its rows."""
    deletes: tuple[PositionDeletes, ...] = ()
    """The delete files that may apply to it."""
    has_deletes_by_value: bool = False
    """Equality deletes may apply to it, which are never applied here."""
    spec_id: int = 0
    """The partition spec that it was written under."""
    encryption: str | None = None
    """Identifies the keys that encrypt it; None for a file that is not encrypted."""
    reserved_by: str | None = None
    """The id of the pending plan that reserves it."""
    unfit: str | None = None
    """Why its rows cannot be read, in words, where that is known."""
    bounds: tuple[ColumnBounds, ...] = ()
    """Bounds of the columns that clustering sorts by; a column may be missing, and is then unknown."""
    clustered_by: str | None = None
    """The order in which clustering wrote it, as `ClusteringPolicy.order` spells it."""
    level: int = 0
    """The `ClusteringGroup.level` of the group that wrote it: how often its rows, in full files already, were
    sorted again against their neighbours."""
    committed_at: int = 0
    """When its rows were committed: a time or a sequence number, of the same kind in all files."""
    outdated: str | None = None
    """What a strategy that rewrites file by file has to change in it, in words; None for nothing."""
    content: FileContent = FileContent.DATA

    @property
    def input(self) -> InputFile:
        """The file as a task reads it."""
        return InputFile(self.path, self.rows + self.deleted_rows, self.deletes)


def describe_deletes(file: TableFile) -> str | None:
    """Return why a file cannot be rewritten because of deletes, or None where no delete is involved."""
    if file.content is FileContent.POSITION_DELETES:
        return "holds position deletes, not rows"
    if file.content is FileContent.EQUALITY_DELETES:
        return "holds equality deletes, not rows"
    return "carries deletes by value" if file.has_deletes_by_value else None


@dataclass(frozen=True, slots=True)
class Arrival:
    """Rows that this batch brings, or is expected to bring, to one table partition."""

    partition: PartitionKey
    rows: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """Rows of one partition that become one new file, or that join existing small files in one merged file.

    Without `inputs` the rows become a new file. With `inputs` the writer writes `d` (the new rows alone) and
    `m` (the rows of the inputs and the new rows); where fewer than `min_rows` rows arrive, it writes only
    `d`. A bucket that gets no row writes nothing.
    """

    partition: PartitionKey
    rows: int
    """Rows planned for it. Where a task has another bucket of the same partition after this one, the file
    ends exactly here. 0 in a standby bucket, which waits for rows that were not forecast."""
    inputs: tuple[InputFile, ...] = ()
    """The small files that it fills."""
    input_bytes: int = 0
    input_rows: int = 0
    """Live rows of these files."""
    min_rows: int = 1
    """The least number of joining rows for which the merge is worth its bytes; more than `rows` in a
    standby bucket."""
    max_rows: int | None = None
    """The rows after which a task ends the last bucket that it has of a partition; None means `rows`. As many
    as fit into the file, or a little more than `rows` where these almost fill it, so that the scatter of a
    hash leaves no tiny file."""

    @property
    def fills(self) -> bool:
        """Whether it merges if exactly the planned rows come."""
        return bool(self.inputs) and self.rows >= self.min_rows


class FillVerdict(Enum):
    FILLED = "filled"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class Decision:
    """Why one existing file was or was not filled."""

    path: str
    partition: PartitionKey
    bytes: int
    verdict: FillVerdict
    reason: str


@dataclass(frozen=True, slots=True)
class InsertPlan:
    """Where the rows of one batch go. `buckets` are in the order in which their partition fills them."""

    buckets: tuple[Bucket, ...]
    decisions: tuple[Decision, ...]
    bytes_per_row: int
    rows_per_new_file: int
    """The rows of a file in a partition that was not forecast, or beyond the last bucket."""
    max_file_bytes: int


_NAN = float("nan")


def comparable(partition: PartitionKey) -> PartitionKey:
    """Return the key with one and the same NaN for every NaN, so that a partition of NaN equals itself."""
    if not any(value != value for value in partition):
        return partition
    return tuple(_NAN if value != value else value for value in partition)


def partition_of(file: TableFile) -> TablePartition:
    """Return the partition of a file, whose key is comparable."""
    return TablePartition(file.spec_id, comparable(file.partition))


def sort_key(partition: PartitionKey) -> tuple[tuple[str, str], ...]:
    """Return what orders partitions of mixed types and None: each value's type name and repr."""
    return tuple((type(value).__name__, repr(value)) for value in partition)
