"""The audit of a staged work item: row counts by the files' footers, expectations, the user's function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table.snapshots import Snapshot

from planners.values import Value
from streaming_sink.durations import Duration, duration, spelled
from streaming_sink.tasks.errors import DataFileError
from streaming_sink.tasks.files.data_file_reader import open_data_file
from streaming_sink.zones.errors import AuditFailedError, StagedFilesLostError
from streaming_sink.zones.landed import expected_rows
from timeline.stores.base import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEFAULT_TIMEOUT_MS = 7 * 24 * 3600 * 1000
_READERS = 8


@dataclass(frozen=True)
class StagedItem:
    """A work item that waits for its audit."""

    number: int
    table: str
    """The table's location."""
    snapshot_id: int
    """By it any reader of Iceberg sees the table as it was when the item was staged, with the item's rows."""
    rows: DataFrame
    """The item's rows alone."""
    sources: tuple[str, ...]
    """The paths of its source files, of which some may have been rejected."""


@dataclass(frozen=True, repr=False)
class Audit(Value):
    """What a work item must pass before it is published, beside the count of its rows.

    `conditions` are SQL over the table's columns, none of which may be false for a row.
    `function` gets a `StagedItem`; the item fails where it raises, or returns False. It is a function that a
    worker can import, or its name, "package.module:function"; in a dict and a repr it is its name. An item
    that has been staged for longer than `timeout`, by the table's own time, is unstaged: the next worker that
    takes it writes it again.

    TypeError or ValueError for a value that is none of these.
    """

    conditions: Sequence[str] = ()
    function: Callable[[StagedItem], object] | str | None = None
    timeout: Duration = "7 days"

    def __post_init__(self) -> None:
        texts: Any = self.conditions
        if not isinstance(texts, (list, tuple)) or not all(
            isinstance(it, str) and it.strip() for it in texts
        ):
            raise TypeError(
                f'conditions must be a list of SQL conditions such as "price >= 0", not {texts!r}'
            )
        object.__setattr__(self, "conditions", tuple(texts))
        if isinstance(self.function, str) and not all(self.function.partition(":")):
            raise ValueError(f"function must be named as package.module:function, not {self.function!r}")
        if self.function is not None and not isinstance(self.function, str) and not callable(self.function):
            raise TypeError(f"function must be a function or its name, not {self.function!r}")
        if not duration("timeout", self.timeout):
            raise ValueError(f"timeout must be above 0, such as 7 days, not {self.timeout!r}")
        object.__setattr__(self, "timeout", spelled("timeout", self.timeout))

    def __repr__(self) -> str:
        return repr(replace(self, function=self._named)) if callable(self.function) else super().__repr__()

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON has them; of a function its name alone."""
        return {**super().to_dict(), "function": self._named}

    def to_stored(self) -> dict[str, Any]:
        """Return what the zone's own file says of it; of a function its name alone."""
        return {
            "conditions": list(self.conditions),
            "function": self._named or "",
            "timeout_ms": round(duration("timeout", self.timeout).total_seconds() * 1000),
        }

    @property
    def _named(self) -> str | None:
        given = self.function
        if given is None or isinstance(given, str):
            return given
        # Of an object that is called, its class would be no audit: another process is to find nothing.
        name = getattr(given, "__qualname__", f"{type(given).__qualname__}()")
        return f"{given.__module__}:{name}"


def audit_option(given: bool | Audit | Callable[[StagedItem], object] | None) -> Audit | None:
    """Return the audit that `BufferZone(audit=...)` means; None for none. TypeError for another value."""
    if given is None or isinstance(given, bool):
        return Audit() if given else None
    if isinstance(given, Audit):
        return given
    if callable(given):
        return Audit(function=given)
    raise TypeError(f"audit must be True, False, an ingest.Audit or a function, not {given!r}")


def check_row_counts(store: Store, staged: Snapshot, files: Sequence[DataFile]) -> None:
    """Raise AuditFailedError where the footers of the staged files hold other rows than those of the sources
    that they were made of, and StagedFilesLostError where one is missing or damaged.
    """
    with ThreadPoolExecutor(_READERS, thread_name_prefix="audit") as pool:
        rows = sum(pool.map(lambda file: _rows_in(store, file.file_path), files))
    if rows != (expected := expected_rows(staged)):
        raise AuditFailedError(f"{rows:,} rows were staged, and the source files have {expected:,}")


def _rows_in(store: Store, location: str) -> int:
    try:
        with open_data_file(store, location, "a staged file") as file:
            return file.rows
    except DataFileError as failure:
        if isinstance(failure.__cause__, (FileNotFoundError, pa.ArrowInvalid)):
            raise StagedFilesLostError(str(failure)) from failure
        raise
