"""What tasks report to the driver: descriptors of the files that they wrote, as plain values that pickle."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from planners.model import PartitionKey
from streaming_sink.tasks.plain_arrays import bytes_array
from timeline.errors import StoreUnavailableError
from timeline.stores.base import Store, paths_below

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
    """The names of its keys, as the manifest holds them; None for a file that is not encrypted."""


@dataclass(frozen=True, slots=True)
class Merge:
    """A fill: `merged` holds exactly the live rows of `inputs` and the rows of the new file `new`."""

    inputs: tuple[str, ...]
    new: str
    merged: WrittenFile
    applied: tuple[str, ...] = ()
    """The delete files whose rows it leaves out."""
    deleted_rows: int = 0
    """How many rows these are."""


@dataclass(frozen=True, slots=True)
class MergeSkipped:
    """A fill that wrote only its new rows, and why."""

    inputs: tuple[str, ...]
    new: str
    reason: str
    culprit: str | None = None
    """The input that cannot be merged at all; None where too few rows came."""


@dataclass(frozen=True, slots=True)
class Sifted:
    """The rows of one task that failed a check, or were replayed."""

    files: tuple[WrittenFile, ...]
    """Files of the quarantine, not of the table: quarantined rows, and the marks of replayed ones."""
    quarantined: int
    dropped: int
    counts: Mapping[int, int]
    """Number of a check → the rows that failed it."""
    examples: Mapping[int, str]
    """Number of a check → a row that failed it, as JSON; of checks that drop rows none."""


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
    """The fingerprint of its rows, see `fingerprint_of`; 0 if they carry none."""


@dataclass(frozen=True, slots=True)
class DeletedRows:
    """Rows of one data file that the changes of a task replace or delete."""

    data_file: str
    positions: Raw
    """64-bit integers of the machine, each once."""


@dataclass(frozen=True, slots=True)
class DeletedKeys:
    """The keys that the changes of a task delete, found or not. Those of its new rows are in its files."""

    hashes: Raw
    """128 bits each, as `hash_keys` makes them."""
    sequences: Raw
    """As `sequence_values` makes them."""
    kind: str
    """Their type, as numpy names it."""


@dataclass(frozen=True, slots=True)
class DamagedRun:
    """A run of the key index that a task could not read, so that it has scanned the files instead."""

    path: str


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """What became of the changes of one task, each key once."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    absent: int = 0
    """Deletes of keys that the table does not hold."""
    late: int = 0
    """Changes that are older than what the table holds of their key: a row, or that it was deleted.
    Of partial updates, keys of which nothing counts, and something is older than what the table holds.
    """
    unchanged: int = 0
    """Changes whose row the table holds already, with the same sequence. Of partial updates, keys of
    which the table holds all that the batch brings.
    """
    superseded: int = 0
    """Changes of a key of which the batch brings a newer one."""
    tied: int = 0
    """Those of them that have the same sequence and other values: the order of the values has decided."""
    repeated: int = 0
    """Keys of which the table held several rows, as others insert them; one at most is left where the change
    counts.
    """


TaskResult = (
    WrittenFile
    | Merge
    | MergeSkipped
    | Sifted
    | TaskReport
    | DeletedRows
    | DeletedKeys
    | DamagedRun
    | ChangeCounts
)
RESULT_COLUMN = "result"


def encode_results(results: Iterable[object]) -> pa.RecordBatch:
    """Return the rows by which a task reports `results` to the driver, one each."""
    pickled = [pickle.dumps(result, protocol=pickle.HIGHEST_PROTOCOL) for result in results]
    return pa.RecordBatch.from_arrays([bytes_array(pickled, pa.binary())], names=[RESULT_COLUMN])


def decode_result(data: bytes) -> Any:
    """Return one of the results that `encode_results` pickled; the bytes come from this application's own
    tasks, over Spark's own channel.
    """
    return pickle.loads(data)


def delete_files(store: Store, files: Iterable[WrittenFile]) -> None:
    """Delete files that will never be published, best effort: what remains is an orphan. Files by reference
    stay (R28).
    """
    with suppress(StoreUnavailableError):
        store.delete(paths_below(store, (file.path for file in files)))
