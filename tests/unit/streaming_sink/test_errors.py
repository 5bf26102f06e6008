"""The errors that a user catches: all in one place, each with what to do next as data."""

from __future__ import annotations

import pytest

from streaming_sink import errors
from streaming_sink.errors import ErrorKind

KINDS = {
    ErrorKind.TRY_AGAIN: {"BufferZoneFullError", "CommitStateUnknownError", "StoreUnavailableError"},
    ErrorKind.PLAN_AGAIN: {"CommitConflictError", "RowsChangedError"},
    ErrorKind.REPAIR: {"CorruptTableError", "MirrorForkedError", "TableReplacedError"},
    ErrorKind.FIX_THE_CALL: {
        "AuditFailedError",
        "CheckpointRegressionError",
        "FencedError",
        "KeyConflictError",
        "RowsRefusedError",
        "SchemaMismatchError",
        "TableNotFoundError",
        "TableDroppedError",
        "TableRenamedError",
        "TimelineError",
        "UnknownFeatureError",
        "UnsafeCatalogError",
        "UnsafeStoreError",
        "UnsupportedTableError",
    },
}


def test_every_error_of_the_table_says_what_to_do_next() -> None:
    every = {name: getattr(errors, name) for name in errors.__all__}
    of_tables = {
        name: each
        for name, each in every.items()
        if isinstance(each, type) and issubclass(each, errors.TimelineError)
    }
    found = {kind: {name for name, each in of_tables.items() if each.kind is kind} for kind in ErrorKind}
    assert found == KINDS


def test_a_kind_is_text_for_logs_and_metrics() -> None:
    with pytest.raises(errors.TimelineError) as failure:
        raise errors.RowsChangedError("why", location="s3://lake/t")
    assert failure.value.kind == "plan again"
