"""The columns that a source file has in its path alone: Hive-style folders, such as day=2026-11-23.

Spark, Hive and Hudi write such files: a partition's column is in the name of its folder, and not in the
file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from streaming_sink.tasks.ingest.reading import SourceFileError
from streaming_sink.tasks.ingest.sources import folder_values

_NULL = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")
_DIGITS = re.compile(r"-?[0-9]+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


def path_columns(
    path: str, given: Iterable[str], schema: pa.Schema | None, besides: Collection[str] = ()
) -> dict[str, pa.Scalar]:
    """Return the value of each column that the path of a file states, and the file does not have.

    `given`: the columns that the file has. `schema`: the table's; columns that it does not have are left out,
    but for those of `besides`, and the others have its types. None, for the first file of a new table, takes
    a whole number as a long, a day as a date, and everything else as a string, as Spark does; so are the
    columns of `besides`. Times without an offset are in UTC. SourceFileError where a value is none of the
    column's type, or a name is the column's in another case.
    """
    own = set(given)
    lacking = {} if schema is None else {name.lower(): name for name in schema.names if name not in own}
    found: dict[str, pa.Scalar] = {}
    for name, text in folder_values(path).items():
        if name in own:
            continue
        if schema is None or (name in besides and name not in schema.names):
            found[name] = _inferred(text)
        elif name in schema.names:
            kind = schema.field(name).type
            if not pa.types.is_nested(kind):
                found[name] = _typed(name, text, kind)
        elif (column := lacking.get(name.lower())) is not None:
            raise SourceFileError(f"its path has the table's column {column} in another case: {name}={text}")
    return found


def with_columns(rows: pa.Table, constants: Mapping[str, pa.Scalar]) -> pa.Table:
    """Return the rows with a column more for each constant."""
    for name, value in constants.items():
        rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
    return rows


def with_fields(schema: pa.Schema, constants: Mapping[str, pa.Scalar]) -> pa.Schema:
    """Return a schema with the fields that `with_columns` adds."""
    for name, value in constants.items():
        schema = schema.append(pa.field(name, value.type))
    return schema


def _inferred(text: str) -> pa.Scalar:
    if text == _NULL:
        return pa.scalar(None, pa.string())
    if _WHOLE.fullmatch(text):
        return pa.scalar(int(text), pa.int64())
    if _DATE.fullmatch(text):
        try:
            return pa.scalar(date.fromisoformat(text), pa.date32())
        except ValueError:
            pass
    return pa.scalar(text, pa.string())


def _typed(name: str, text: str, kind: pa.DataType) -> pa.Scalar:
    if isinstance(kind, pa.BaseExtensionType):
        kind = pa.string()  # of a uuid, which the table's column takes as text
    if text == _NULL:
        return pa.scalar(None, kind)
    value = pa.scalar(text, pa.string())
    try:
        if (
            pa.types.is_timestamp(kind)
            and kind.tz is not None
            and not re.search(r"(Z|[+-]\d\d:?\d\d)$", text)
        ):
            return pc.assume_timezone(value.cast(pa.timestamp(kind.unit)), "UTC").cast(kind)
        typed = value.cast(kind)
        if pa.types.is_floating(kind) and _DIGITS.fullmatch(text) and typed.as_py() != int(text):
            raise pa.ArrowInvalid(f"{text} would be rounded")
        return typed
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SourceFileError(f"its path does not fit the column {name} of {kind}: {error}") from error
