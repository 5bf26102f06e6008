"""What becomes of the rows of a batch: they are appended, or they change the rows of their keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from planners.values import Value, check_is_dict, one_of
from streaming_sink.options.values.checks import location_text
from streaming_sink.tasks.batches import RESERVED_PREFIX
from timeline.versions.keys import KEY_SCOPES, TABLE_SCOPE

INDEXES = ("auto", "scan", "index")
NULL_KEYS = ("refuse", "insert")


@dataclass(frozen=True, kw_only=True, repr=False)
class Append(Value):
    """Appends all rows, as right-sized files: the default.

    A table with a key refuses an append, unless `allow_duplicates` says that its keys are known to be new.
    """

    operation: ClassVar[str] = "insert"

    allow_duplicates: bool = False

    def __post_init__(self) -> None:
        _check_bool("allow_duplicates", self.allow_duplicates)


@dataclass(frozen=True, kw_only=True, repr=False)
class BulkInsert(Append):
    """Appends all rows, one file for each task and partition, without profile, plan or shuffle, and fills no
    small file; for backfills.
    """

    operation: ClassVar[str] = "bulk_insert"


@dataclass(frozen=True, kw_only=True, repr=False)
class WriteByKey(Value):
    """What writes by key have in common: see `Upsert`, and docs/upserts.md."""

    key: Sequence[str]
    sequence_by: str | None = None
    except_columns: Sequence[str] = ()
    key_scope: str = TABLE_SCOPE
    null_keys: str = "refuse"
    key_index: str = "auto"
    changelog_table: str | None = None

    operation: ClassVar[str]

    def __post_init__(self) -> None:
        columns = _names("key", self.key, 'key=["user_id"]')
        if not columns:
            raise ValueError('key must name the columns of the key, such as key=["user_id"]')
        if odd := [name for name in columns if name.startswith(RESERVED_PREFIX) or "\0" in name]:
            raise ValueError(f"a column of the key cannot have this name in a table: {odd[0]!r}")
        if len({name.casefold() for name in columns}) < len(columns):
            raise ValueError(f"two columns of the key differ in case alone, so no batch has both: {columns}")
        object.__setattr__(self, "key", columns)
        _check_text("sequence_by", self.sequence_by)
        if self.sequence_by in columns:
            raise ValueError(
                f"sequence_by says which of two rows of one key is newer, so it is no column of the key:"
                f" {self.sequence_by!r}"
            )
        excepted = _names("except_columns", self.except_columns, 'except_columns=["op"]')
        if both := [name for name in excepted if name in (*columns, self.sequence_by)]:
            raise ValueError(f"except_columns cannot leave out the key or the sequence: {both[0]!r}")
        object.__setattr__(self, "except_columns", excepted)
        one_of("key_scope", self.key_scope, KEY_SCOPES)
        one_of("null_keys", self.null_keys, NULL_KEYS)
        one_of("key_index", self.key_index, INDEXES)
        if self.changelog_table is not None:
            text = location_text("changelog_table", self.changelog_table)
            object.__setattr__(self, "changelog_table", text)

    @property
    def deletes_only(self) -> bool:
        return isinstance(self, Delete)

    @property
    def condition(self) -> str | None:
        """The SQL condition of rows that delete their key; None where none, or all, do."""
        return None

    @property
    def keeps(self) -> bool | tuple[str, ...]:
        """Whether columns that are null in a change keep their stored value: all but the key and the
        sequence, or those that are named.
        """
        return False


@dataclass(frozen=True, kw_only=True, repr=False)
class Upsert(WriteByKey):
    """Each row takes the place of the row of its key.

    `key`: the columns of the key. Of each key the last change by `sequence_by` counts, over late changes and
    several writers; without it, the last commit. `delete_where`: an SQL condition of rows that delete their
    key. `except_columns` are not written. `key_scope`: a key is unique in the "table", or in each
    "partition". `null_keys`: "refuse" a null in the key, or "insert" its row. `key_index`: how keys are
    found, by "scan" or "index"; "auto" decides by the table's size. `partial_update`: columns that are null
    in a change keep their stored value; True for all, or their names. `changelog_table`: the location of a
    second table that gets what each version has changed.

    TypeError or ValueError for impossible values; columns are checked at the first batch.
    """

    operation: ClassVar[str] = "upsert"

    delete_where: str | None = None
    partial_update: bool | Sequence[str] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_text("delete_where", self.delete_where)
        if isinstance(self.partial_update, bool):
            return
        partial = _names("partial_update", self.partial_update, 'partial_update=True, or ["name", "email"]')
        if not partial:
            raise ValueError(
                "partial_update names no column, so it would keep no stored value: leave it out, or say"
                " partial_update=True for all columns"
            )
        if both := [it for it in partial if it in (*self.key, self.sequence_by, *self.except_columns)]:
            raise ValueError(
                "partial_update cannot name the key, the sequence, or what except_columns leaves out:"
                f" {both[0]!r}"
            )
        object.__setattr__(self, "partial_update", partial)

    @property
    def condition(self) -> str | None:
        return self.delete_where

    @property
    def keeps(self) -> bool | tuple[str, ...]:
        return self.partial_update if isinstance(self.partial_update, bool) else tuple(self.partial_update)


@dataclass(frozen=True, kw_only=True, repr=False)
class Delete(WriteByKey):
    """Each row deletes the row of its key; see `Upsert` for the options."""

    operation: ClassVar[str] = "delete"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.null_keys != "refuse":
            raise ValueError(
                "null_keys says what becomes of a row that is written without a key, and Delete writes none:"
                f" leave out null_keys={self.null_keys!r}"
            )


Write = Append | Upsert | Delete
WRITES: Mapping[str, type[Append | Upsert | Delete]] = {
    each.operation: each for each in (Append, BulkInsert, Upsert, Delete)
}


def write_to_dict(write: Write) -> dict[str, Any]:
    """Return a write as a plain dict, with the name of its operation."""
    return {"operation": write.operation, **write.to_dict()}


def write_from_dict(stored: Mapping[str, Any]) -> Write:
    """Return the write of a dict of `write_to_dict`. TypeError for what is no dict, ValueError for an unknown
    operation or option.
    """
    values = dict(check_is_dict("a write", stored))
    kind = WRITES[one_of("operation", values.pop("operation", Append.operation), list(WRITES))]
    return kind.from_dict(values)


def _check_text(option: str, value: object) -> None:
    if value is not None and not (isinstance(value, str) and value.strip()):
        raise TypeError(f"{option} must be text, or left out; it is {value!r}")


def _check_bool(option: str, value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{option} must be True or False, not {value!r}")


def _names(option: str, value: Any, example: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) and name for name in value):
        raise TypeError(f"{option} must be a list of columns, such as {example}, not {value!r}")
    if len(set(value)) < len(value):
        raise ValueError(f"{option} names a column twice: {list(value)}")
    return tuple(value)
