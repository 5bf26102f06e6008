"""The options of a sink that changes rows by their keys, checked at construction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from timeline.versions.keys import KEY_SCOPES, TABLE_SCOPE

KEY_OPTIONS = (
    "key",
    "sequence_by",
    "delete_where",
    "key_scope",
    "null_keys",
    "except_columns",
    "key_index",
    "partial_update",
    "changelog_table",
)
"""The options of changes by key, by their names."""
UPSERT = "upsert"
DELETE = "delete"
INDEXES = ("auto", "scan", "index")
NULL_KEYS = ("refuse", "insert")


@dataclass(frozen=True, kw_only=True)
class KeyOptions:
    """The options of a sink with `operation="upsert"` or "delete"."""

    columns: tuple[str, ...]
    sequence_by: str | None = None
    delete_where: str | None = None
    scope: str = TABLE_SCOPE
    null_keys: str = "refuse"
    except_columns: tuple[str, ...] = ()
    deletes_only: bool = False
    partial: bool | tuple[str, ...] = False
    """Whether columns that are null in a change keep their stored value: all but the key and the sequence, or
    those that are named.
    """
    index: str = "auto"
    """One of `INDEXES`."""
    changelog_table: str | None = None
    """The location of the second table that gets the changes of each version."""


def key_options(operation: str, given: Mapping[str, Any]) -> KeyOptions | None:
    """Return the options of changes by key, checked; None for an operation that only inserts.

    Raises TypeError or ValueError that names the option, its value, and what to do.
    """
    named = [name for name in KEY_OPTIONS if given.get(name)]
    if operation not in (UPSERT, DELETE):
        if named:
            raise ValueError(
                f'{named[0]} needs operation="upsert" or operation="delete"; the operation is {operation!r}:'
                f" {named[0]}={given[named[0]]!r}"
            )
        return None
    columns = _names("key", given.get("key") or (), 'key=["user_id"]')
    if not columns:
        raise ValueError(f'operation={operation!r} needs the columns of the key, such as key=["user_id"]')
    sequence_by, delete_where = given.get("sequence_by"), given.get("delete_where")
    for name, value in (("sequence_by", sequence_by), ("delete_where", delete_where)):
        if value is not None and not (isinstance(value, str) and value.strip()):
            raise TypeError(f"{name} must be text, or left out; it is {value!r}")
    if operation == DELETE and delete_where is not None:
        raise ValueError(
            f'operation="delete" deletes the key of every row; leave out delete_where={delete_where!r}, or'
            ' say operation="upsert"'
        )
    if given.get("allow_duplicates"):
        raise ValueError(
            "allow_duplicates=True lets an insert bring a key that the table has;"
            f" operation={operation!r} keeps each key once: leave it out"
        )
    if sequence_by in columns:
        raise ValueError(
            f"sequence_by says which of two rows of one key is newer, so it is no column of the key:"
            f" {sequence_by!r}"
        )
    excepted = _names("except_columns", given.get("except_columns") or (), 'except_columns=["op"]')
    if both := [name for name in excepted if name in (*columns, sequence_by)]:
        raise ValueError(f"except_columns cannot leave out the key or the sequence: {both[0]!r}")
    partial = given.get("partial_update", False)
    if operation == DELETE and partial:
        raise ValueError(f'operation="delete" updates no column: leave out partial_update={partial!r}')
    if not isinstance(partial, bool):
        partial = _names("partial_update", partial, 'partial_update=True, or ["name", "email"]')
        if not partial:
            raise ValueError(
                "partial_update names no column, so it would keep no stored value: leave it out, or say"
                " partial_update=True for all columns"
            )
        if both := [name for name in partial if name in (*columns, sequence_by, *excepted)]:
            raise ValueError(
                "partial_update cannot name the key, the sequence, or what except_columns leaves out:"
                f" {both[0]!r}"
            )
    scope = _one_of("key_scope", given.get("key_scope") or TABLE_SCOPE, KEY_SCOPES)
    index = _one_of("key_index", given.get("key_index") or INDEXES[0], INDEXES)
    return KeyOptions(
        columns=columns,
        partial=partial,
        sequence_by=sequence_by,
        delete_where=delete_where,
        scope=scope,
        null_keys=_one_of("null_keys", given.get("null_keys") or NULL_KEYS[0], NULL_KEYS),
        except_columns=excepted,
        deletes_only=operation == DELETE,
        index=index,
        changelog_table=given.get("changelog_table"),
    )


def _names(option: str, value: Any, example: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) and name for name in value):
        raise TypeError(f"{option} must be a list of columns, such as {example}, not {value!r}")
    if len(set(value)) < len(value):
        raise ValueError(f"{option} names a column twice: {list(value)}")
    return tuple(value)


def _one_of(option: str, value: Any, known: Sequence[str]) -> str:
    if value not in known:
        raise ValueError(f"{option} must be one of {', '.join(known)}, not {value!r}")
    return str(value)
