"""The stages of a landing, each a value that the stage before it makes:

    opened -> fitted -> written -> judged -> committed -> followed -> reported

What was not judged cannot be committed: a commit takes a `Judged`, and `checking.judge` alone makes one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streaming_sink.checks.row_checks import RowRules
from streaming_sink.keyed.by_key import KeyedWrite
from streaming_sink.tasks.job import FileIds
from streaming_sink.writing.planning import Planned
from streaming_sink.writing.target import Target
from streaming_sink.writing.writer import WriteResult
from timeline.changes.changes import Change
from timeline.table import Committed, Table
from timeline.versions.transactions import Transaction
from timeline.versions.work_items import WorkItem


@dataclass(frozen=True, slots=True)
class Settled:
    """The table has the rows: since an earlier try, or because what that one has staged was published now."""

    table: Table
    published: Committed | None = None


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """The table, which the rows fit, and what becomes of rows that do not."""

    target: Target
    rules: RowRules = field(default_factory=RowRules)


@dataclass(frozen=True, slots=True)
class Written:
    """Closed and durable files that no version names yet."""

    fitted: Fitted
    planned: Planned
    ids: FileIds
    result: WriteResult
    keyed: KeyedWrite | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """Written files that may be committed."""

    written: Written


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """The changes of one commit, all or none, and what is stored with them."""

    changes: tuple[Change, ...]
    schema_id: int
    transaction: Transaction | WorkItem
    summary: Mapping[str, str]
    open_below_bytes: int
