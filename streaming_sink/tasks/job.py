"""What the driver sends to tasks: where and how they write data files, as plain values that pickle.

A Python worker imports this module on its first batch, so it imports as little as it can.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

import pyarrow as pa

from planners.model import Bucket
from timeline.names import DATA_FOLDER
from timeline.stores.base import Store

if TYPE_CHECKING:
    from streaming_sink.tasks.encryption import Cipher, KeyNames
    from streaming_sink.tasks.files.metrics import ColumnMetrics
    from streaming_sink.tasks.keys.scanning import KeyedFile


DELETES = "__streaming_sink_deletes"
"""The column that says of a change that it deletes its key; absent where no change does."""


@dataclass(frozen=True, slots=True)
class PartitionSource:
    """One field of the partition spec: its source column, and its transform."""

    name: str
    source: tuple[str, ...]
    """Names from the top-level column down to the (nested) source field. Empty where all values are null: the
    transform is `void`, or another engine has dropped the column.
    """
    transform: str
    """As Iceberg's metadata spells it: "identity", "day", "bucket[16]", "truncate[4]", "void", …"""


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """The precision of one column's bloom filter."""

    false_positives: float = 0.01
    """The share of absent values for which it may answer "perhaps"."""
    different: int | None = None
    """The most distinct values of a row group; more of them raise the share above. None: as many as fit."""


@dataclass(frozen=True, slots=True)
class ParquetSettings:
    """Encoding settings of pyarrow, from the table's `write.parquet.*` properties."""

    compression: str = "zstd"
    compression_level: int | None = None
    row_group_bytes: int = 128 * 1024 * 1024
    page_bytes: int = 1024 * 1024
    page_rows: int = 20_000
    dictionary_page_bytes: int = 2 * 1024 * 1024
    bloom_filters: Mapping[int, BloomFilter] = field(default_factory=dict)
    """By the field id of a leaf; a leaf that is not named has none."""
    bloom_filter_bytes: int = 1024 * 1024
    """The most bytes of a filter in a row group, for any number of values."""
    copied_from_bytes: int = 4 * 1024 * 1024
    """A merge copies row groups of so many bytes or more; it decodes smaller ones."""


@dataclass(frozen=True, slots=True)
class SortedBy:
    """One column that the rows of a file are sorted by; the first is the most significant."""

    field_id: int
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class FileIds:
    """The parts of a data file's name that the driver sets (R6): no executor's clock matters."""

    time_ms: int
    app_id: str
    batch: int


@dataclass(frozen=True, slots=True)
class TaskBuckets:
    """The buckets of one task, as (index in the plan, bucket), in the order in which rows fill them."""

    buckets: tuple[tuple[int, Bucket], ...] = ()


@dataclass(frozen=True, slots=True)
class SiftedCheck:
    """One check of a batch's rows, as tasks need it."""

    name: str
    action: str
    """ "quarantine", "refuse" or "drop"; see `streaming_sink.tasks.rows.failures`."""
    column: str | None = None


@dataclass(frozen=True, slots=True)
class Sieve:
    """What becomes of rows that fail a check. Of rows with a column `REPLAYED` the quarantine gets a mark."""

    checks: tuple[SiftedCheck, ...]
    """By their numbers in the column `FAILED`."""
    came: tuple[str, ...]
    """The columns of the batch as it came: what is quarantined of a row."""
    query_id: str
    quarantine: WorkerJob | None = None
    """How the quarantine's files are written; None where no check quarantines."""
    unfit: int | None = None
    """The number of the check that tasks make themselves: values that the table's columns do not hold. None
    refuses the batch for such a value."""
    table_uuid: str = ""
    """The table that the batch is for, as the quarantine names it."""
    apart: frozenset[str] = frozenset()
    """Columns whose text refuses the batch all the same, where it is not valid UTF-8."""


@dataclass(frozen=True, slots=True)
class SearchedFile:
    """One live data file in which keys were found."""

    location: str
    """As manifests spell it."""
    rows: int
    """By the table, deleted ones included."""
    deletes: tuple[str, ...] = ()
    """The position-delete files that may apply to it."""


@dataclass(frozen=True, slots=True)
class CoveredFiles:
    """The live data files in which a run of the table's key index finds keys."""

    run: str
    """Its path."""
    live: bytes
    """A bit for each data file of its footer, in their order: whether it is one of them."""


@dataclass(frozen=True, slots=True)
class KeyJob:
    """By which key the changes of a batch land, and in which files older rows of it may be."""

    columns: tuple[str, ...]
    sequence_by: str | None
    """The column whose larger value wins; None where a key comes once a batch, and always wins."""
    table_uuid: UUID
    """Of which the seed of the hashes of keys is made."""
    files: tuple[KeyedFile, ...] = ()
    """Those of the live data files that no run of the table's index covers, or all of them."""
    covered: tuple[CoveredFiles, ...] = ()
    """The others, each in one run."""
    deletes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The position-delete files that may apply to a data file, by its location; of those that have some."""
    tombstones: tuple[str, ...] = ()
    """The files of deleted keys."""
    indexed_from: int | None = None
    """From so many rows on, which a task searches, it looks its keys up in runs, and by a scan only in files
    that none covers; None for never."""
    in_partitions: bool = False
    """Whether a key is unique in each partition, and not in the table."""
    partial: tuple[str, ...] = ()
    """Columns that keep their stored value where a change has a null."""
    inserts_null_keys: bool = False
    """Whether rows without a key are inserted; else they are refused."""
    except_columns: tuple[str, ...] = ()
    """Columns of the batch that bring no value, though the table may have a column of that name."""
    needs_ids: bool = False
    """As `KeyColumns` has it."""


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """Everything a task needs to turn rows into data files of one table."""

    store: Store
    schema: pa.Schema
    """The table's Arrow schema with `PARQUET:field_id` on every field."""
    partition_by: tuple[PartitionSource, ...]
    parquet: ParquetSettings
    metrics: Mapping[int, str]
    """Field id of a leaf -> "none", "counts", "truncate(n)" or "full"; a leaf that is not named has none."""
    ids: FileIds
    tasks: Mapping[int, TaskBuckets]
    """Spark partition -> the buckets that only it fills."""
    shared: TaskBuckets
    """Buckets of partitions whose rows all come to one task; which one is not known."""
    rows_per_new_file: int
    max_file_bytes: int
    first_free_bucket: int = 0
    """Number of the first file beyond the planned buckets."""
    folder: str = DATA_FOLDER
    """Below the table's location."""
    fast_workers: bool = True
    """See `streaming_sink.tasks.fast_workers`."""
    needs_ids: bool = False
    """Whether files are read by field ids alone: others may rename the table's columns."""
    cipher: Cipher | None = None
    """Reads and writes encrypted files; None if no keys are available."""
    key_names: KeyNames | None = None
    """The keys that encrypt new files; None leaves them plain."""
    sieve: Sieve | None = None
    """None where no row is checked."""
    keys: KeyJob | None = None
    """None where rows are only added."""
    stated: Mapping[str, ColumnMetrics] = field(default_factory=dict)
    """The NaNs and bounds of files that are merged, by their locations, as manifests state them."""
