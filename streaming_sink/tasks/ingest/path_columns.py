"""The columns that a source file has in its path alone: Hive-style folders, such as day=2026-11-23.

Spark, Hive and Hudi write such files: a partition's column is in the name of its folder, and not in the
file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date
from urllib.parse import unquote

import pyarrow as pa

from streaming_sink.tasks.ingest.reading import SourceFileError
from streaming_sink.tasks.ingest.texts import cast_parsed

_NULL = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")
_DIGITS = re.compile(r"-?[0-9]+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


def path_columns(
    stated: Mapping[str, str], given: Iterable[str], schema: pa.Schema | None
) -> dict[str, pa.Scalar]:
    """Return the value of each column that the path of a file states, and the file does not have.

    `stated`: as `Sources.stated`. `given`: the columns that the file has. `schema`: the table's; None for the
    first file of a new one. Its columns have its types, and text means what `typed` says. Of other columns a
    whole number is a long, a day a date, and everything else a string, as in Spark: what becomes of them the
    schema contract decides, as of columns in a file. SourceFileError where a value is none of the column's
    type, or a name is the column's in another case.
    """
    if not stated:
        return {}
    own = set(given)
    spelled_otherwise = {name.lower() for name in own}
    lacking = {} if schema is None else {name.lower(): name for name in schema.names if name not in own}
    found: dict[str, pa.Scalar] = {}
    for name, escaped in stated.items():
        if name in own:
            continue
        text = _unescaped(name, escaped)
        if schema is not None and name in schema.names:
            found[name] = _typed(name, text, schema.field(name).type)
        elif (column := lacking.get(name.lower())) is not None:
            raise SourceFileError(f"its path has the table's column {column} in another case: {name}={text}")
        elif name.lower() not in spelled_otherwise:
            found[name] = _inferred(text)
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


def _unescaped(name: str, text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError as error:
        raise SourceFileError(f"its path has text that is not valid UTF-8: {name}={text}") from error


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
    try:
        value = cast_parsed(pa.array([text]), kind)[0]
        if pa.types.is_floating(kind) and _DIGITS.fullmatch(text) and value.as_py() != int(text):
            raise pa.ArrowInvalid(f"{text} would be rounded")
        return value
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SourceFileError(f"its path does not fit the column {name} of {kind}: {error}") from error
