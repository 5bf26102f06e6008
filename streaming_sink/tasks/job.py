"""What the driver tells the writing tasks and what they answer: plain values that pickle, no Spark and no
pyiceberg.

A Python worker imports this module on its first batch, so it imports as little as it can.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.compute as pc

from planners.model import Bucket, PartitionKey
from timeline.stores.base import Store

if TYPE_CHECKING:
    from streaming_sink.tasks.encryption import Cipher, KeyNames


@dataclass(frozen=True, slots=True)
class PartitionSource:
    """One field of the partition spec: where its value comes from, and how."""

    name: str
    source: tuple[str, ...]
    """Names from the top-level column down to the (nested) source field."""
    transform: str
    """As Iceberg's metadata spells it: "identity", "day", "bucket[16]", "truncate[4]", "void", …"""


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """How good one column's filter is to be."""

    false_positives: float = 0.01
    """The share of the values that are not there for which it may say "perhaps"."""
    different: int | None = None
    """Different values of a row group at most; with more it says "perhaps" more often. None: what fits."""


@dataclass(frozen=True, slots=True)
class ParquetSettings:
    """What pyarrow is told about encoding; made from the table's `write.parquet.*` properties."""

    compression: str = "zstd"
    compression_level: int | None = None
    row_group_bytes: int = 128 * 1024 * 1024
    page_bytes: int = 1024 * 1024
    page_rows: int = 20_000
    dictionary_page_bytes: int = 2 * 1024 * 1024
    bloom_filters: Mapping[int, BloomFilter] = field(default_factory=dict)
    """By the field id of a leaf; a leaf that is not named has none."""
    bloom_filter_bytes: int = 1024 * 1024
    """What a filter takes of a row group at most, however many values there are."""


@dataclass(frozen=True, slots=True)
class SortedBy:
    """One column that the rows of a file are sorted by: the first counts most."""

    field_id: int
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class FileIds:
    """The parts of a data file's name that the driver decides (R6): no executor's clock matters."""

    time_ms: int
    app_id: str
    batch: int


@dataclass(frozen=True, slots=True)
class TaskBuckets:
    """The buckets of one task, as (index in the plan, bucket), in the order in which their partition fills
    them."""

    buckets: tuple[tuple[int, Bucket], ...] = ()


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
    """Spark partition -> the buckets that are its alone."""
    shared: TaskBuckets
    """Buckets of partitions that come as a whole to one task, whichever that is."""
    rows_per_new_file: int
    max_file_bytes: int
    first_free_bucket: int = 0
    """Number of the first file that no bucket planned."""
    fast_workers: bool = True
    """See `streaming_sink.tasks.fast_workers`."""
    cipher: Cipher | None = None
    """What reads encrypted files, and writes them; None where no keys are at hand."""
    key_names: KeyNames | None = None
    """What new files are encrypted under; None leaves them plain."""


Raw = bytes
"""Bytes of a bound; `WrittenFile.bytes` hides the builtin's name."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """One closed, durable data file. Counts are keyed by the field id of a leaf; bounds hold Iceberg's raw
    bytes."""

    path: str
    """Its absolute name, as manifests spell it."""
    partition: PartitionKey
    bucket: int
    rows: int
    bytes: int
    column_sizes: Mapping[int, int]
    value_counts: Mapping[int, int]
    null_counts: Mapping[int, int]
    nan_counts: Mapping[int, int]
    lower_bounds: Mapping[int, Raw]
    upper_bounds: Mapping[int, Raw]
    split_offsets: tuple[int, ...]
    key_metadata: Raw | None = None
    """What the table says of its keys; None for a file that is not encrypted."""


@dataclass(frozen=True, slots=True)
class Merge:
    """A fill: `merged` holds exactly the rows of `inputs` and of the new file `new`."""

    inputs: tuple[str, ...]
    new: str
    merged: WrittenFile


@dataclass(frozen=True, slots=True)
class MergeSkipped:
    """A fill that wrote only its new rows, and why."""

    inputs: tuple[str, ...]
    new: str
    reason: str


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What one task did. Seconds run from its first pull of a batch to its last file's close."""

    task: int
    attempt: int
    rows: int
    seconds: float
    read_seconds: float
    """Waiting for rows from upstream; the rest of `seconds` is writing."""
    spilled_bytes: int = 0
    fingerprint: int = 0
    """Of its rows, see `fingerprint_of`; 0 where they carry none."""


TaskResult = WrittenFile | Merge | MergeSkipped | TaskReport
RESULT_COLUMN = "result"
FINGERPRINT = "__streaming_sink_fingerprint"
"""A column of the rows of a batch that was counted: a hash of each row. No column of the table."""


def fingerprint_of(batch: pa.RecordBatch, before: int = 0) -> int:
    """Return the fingerprint of `batch` and of what came `before`: the same for the same rows in any order
    and in whatever parts, 0 where rows carry none.
    """
    if FINGERPRINT not in batch.schema.names:
        return before
    return (before + (pc.sum(batch.column(FINGERPRINT)).as_py() or 0)) % 2**64


@dataclass(frozen=True, slots=True)
class TaskResults:
    """The results of all tasks of one action."""

    new: tuple[WrittenFile, ...] = ()
    merges: tuple[Merge, ...] = ()
    skipped: tuple[MergeSkipped, ...] = ()
    tasks: tuple[TaskReport, ...] = ()


def encode(result: TaskResult) -> bytes:
    """Return the bytes in which a task hands `result` to the driver."""
    return pickle.dumps(result, protocol=pickle.HIGHEST_PROTOCOL)


def decode(data: bytes) -> TaskResult:
    """Return the result that `encode` made. The bytes come from our own tasks, over Spark's own channel."""
    return cast(TaskResult, pickle.loads(data))
