"""The errors that a sink raises on purpose, in one place for `except`. Each message says what to do next."""

from streaming_sink.checks.quarantine_table import RowsRefusedError
from streaming_sink.spark.interruption import BatchInterruptedError
from streaming_sink.spark.worker_failures import WorkerEnvironmentError
from streaming_sink.zones.errors import AuditFailedError, BufferZoneFullError
from timeline.errors import (
    CheckpointRegressionError,
    CommitConflictError,
    CommitStateUnknownError,
    CorruptTableError,
    ErrorKind,
    FencedError,
    KeyConflictError,
    MirrorForkedError,
    RowsChangedError,
    SchemaMismatchError,
    StoreUnavailableError,
    TableDroppedError,
    TableNotFoundError,
    TableRenamedError,
    TableReplacedError,
    TimelineError,
    UnknownFeatureError,
    UnsafeCatalogError,
    UnsafeStoreError,
    UnsupportedTableError,
)

__all__ = [
    "AuditFailedError",
    "BatchInterruptedError",
    "BufferZoneFullError",
    "CheckpointRegressionError",
    "CommitConflictError",
    "CommitStateUnknownError",
    "CorruptTableError",
    "ErrorKind",
    "FencedError",
    "KeyConflictError",
    "MirrorForkedError",
    "RowsChangedError",
    "RowsRefusedError",
    "SchemaMismatchError",
    "StoreUnavailableError",
    "TableDroppedError",
    "TableNotFoundError",
    "TableRenamedError",
    "TableReplacedError",
    "TimelineError",
    "UnknownFeatureError",
    "UnsafeCatalogError",
    "UnsafeStoreError",
    "UnsupportedTableError",
    "WorkerEnvironmentError",
]
