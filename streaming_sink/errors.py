"""The errors that a sink raises on purpose, in one place for `except`. Each message says what to do next."""

from streaming_sink.spark.worker_failures import WorkerEnvironmentError
from streaming_sink.table.quarantine_table import RowsRefusedError
from timeline.errors import (
    CheckpointRegressionError,
    CommitConflictError,
    CommitStateUnknownError,
    CorruptTableError,
    FencedError,
    KeyConflictError,
    SchemaMismatchError,
    StoreUnavailableError,
    TableNotFoundError,
    TimelineError,
    UnknownFeatureError,
    UnsafeStoreError,
)

__all__ = [
    "CheckpointRegressionError",
    "CommitConflictError",
    "CommitStateUnknownError",
    "CorruptTableError",
    "FencedError",
    "KeyConflictError",
    "RowsRefusedError",
    "SchemaMismatchError",
    "StoreUnavailableError",
    "TableNotFoundError",
    "TimelineError",
    "UnknownFeatureError",
    "UnsafeStoreError",
    "WorkerEnvironmentError",
]
