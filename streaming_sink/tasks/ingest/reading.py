"""Reads source files into Arrow, and says of each that cannot be read why."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Container, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.compute import any as pa_any
from pyarrow.compute import is_inf, match_substring_regex

from planners.ingestion.buffering import BufferedFile
from streaming_sink.tasks.errors import RowsDoNotFitError
from streaming_sink.tasks.ingest.avro import arrow_columns
from streaming_sink.tasks.ingest.calendars import check_is_gregorian, is_hybrid
from streaming_sink.tasks.ingest.json_text import why_unparsable
from streaming_sink.tasks.ingest.large_numbers import (
    check_csv,
    check_json,
    check_json_is_finite,
    inferred_doubles,
)
from streaming_sink.tasks.ingest.parquet import open_footer, read_all
from streaming_sink.tasks.ingest.sources import (
    Sources,
    folder_of,
    identity_of_bytes,
    is_local,
    local_identity,
)
from streaming_sink.tasks.ingest.texts import cast_parsed, holds_map, parsed_type, without_times
from timeline.errors import StoreUnavailableError

_MOST_BLOCK = (1 << 31) - 1
_HEADER = 1 << 16
"""Bytes among which the header of a CSV ends."""
_EXAMPLE = 200
_HEXADECIMAL = re.compile(rb"0[xX]")
WHOLE_BYTES = 32 * 1024 * 1024
"""A smaller file is read with one request, and its bytes are those that were announced."""


class SourceFileError(Exception):
    """A source file cannot land; the message says why. Others of its work item go on."""


@contextmanager
def reading_errors() -> Iterator[None]:
    """Turn what a reader raises on damaged or odd bytes into SourceFileError."""
    try:
        yield
    except (SourceFileError, StoreUnavailableError, MemoryError):
        raise
    except RowsDoNotFitError as unfit:
        raise SourceFileError(str(unfit)) from unfit
    except Exception as failure:
        message = " ".join(str(failure).split())[:300]
        raise SourceFileError(f"{type(failure).__name__}: {message}") from failure


def open_bytes(sources: Sources, file: BufferedFile) -> pa.NativeFile | pa.PythonFile:
    """Open a source file for reading. SourceFileError where it is deleted, empty, or holds other bytes than
    when it was announced; StoreUnavailableError where the store does not answer.
    """
    folder, name = folder_of(file.path)
    try:
        store = sources.store(folder)
    except ValueError as outside:
        raise SourceFileError(str(outside)) from outside
    if not sources.allows_file(file.path):
        raise SourceFileError("it is a symbolic link out of the zone's sources")
    if file.bytes == 0:
        raise SourceFileError("it is empty; announce it again once it is written")
    try:
        if file.bytes <= WHOLE_BYTES:
            stored = store.read(name)
            identity = local_identity(stored.identity) if is_local(file.path) else stored.identity
            _check_identity(file, identity)
            return pa.BufferReader(stored.data)
        check_unchanged(sources, file)
        return pa.PythonFile(store.open_input(name), mode="r")
    except FileNotFoundError as missing:
        raise SourceFileError("it was deleted after it was announced") from missing


def check_whole(sources: Sources, file: BufferedFile, rows: int, stated: int | None) -> None:
    """Raise SourceFileError where a file was replaced while it was read, or has other rows than it states."""
    if file.bytes > WHOLE_BYTES:
        check_unchanged(sources, file)  # its pages were read one after another
    if stated is not None and rows != stated:
        raise SourceFileError(f"it states {stated:,} rows, and holds {rows:,}; write it anew")


def check_unchanged(sources: Sources, file: BufferedFile) -> None:
    """Raise SourceFileError where a file has other bytes now than when it was announced."""
    seen = sources.look(file.path)
    _check_identity(file, None if seen is None else seen[1])


def _check_identity(file: BufferedFile, identity: str | None) -> None:
    if identity is None:
        raise SourceFileError("it was deleted after it was announced")
    if identity != identity_of_bytes(file.identity):
        raise SourceFileError("it was replaced by other bytes after it was announced; announce it again")


def open_parquet(data: pa.NativeFile) -> pq.ParquetFile:
    with reading_errors():
        return open_footer(data)


def read_rows(
    file: BufferedFile, data: pa.NativeFile, schema: pa.Schema | None, stated: Container[str] = ()
) -> pa.Table:
    """Return the rows of a source file of any format. `schema`: the types that columns of a text format get;
    None infers them. `stated`: columns that it may lack, since its path has them.
    """
    with reading_errors():
        if file.format == "parquet":
            return read_all(data)
        if file.format == "json":
            return _read_json(data, schema, stated)
        if file.format == "csv":
            return _read_csv(data, schema)
        return _read_avro(data)


def _read_json(data: pa.NativeFile, schema: pa.Schema | None, stated: Container[str]) -> pa.Table:
    """Return the rows of JSON lines. `stated`: columns that it may lack."""
    import pyarrow.json as pj

    text = data.read()
    if why := why_unparsable(text):
        raise SourceFileError(why)
    # A block must hold a whole object, however long it is.
    options = pj.ReadOptions(block_size=_block(data))

    def parsed(kinds: pa.Schema | None) -> pa.Table:
        return pj.read_json(pa.BufferReader(text), options, pj.ParseOptions(explicit_schema=kinds))

    rows = parsed(_spelled(schema, stated))
    # The parser takes some texts for times, without their offset, and others not: text is text in JSON.
    texts = pa.schema([(field.name, without_times(field.type)) for field in rows.schema])
    if texts.types != rows.schema.types:
        rows = parsed(texts)
    for column in rows.columns:
        check_json_is_finite(column.combine_chunks())
    known = None if schema is None else pa.struct(schema)
    if doubles := inferred_doubles(pa.struct(rows.schema), known):
        check_json(text, doubles)
    return _typed(_without_absent(rows, schema, text), schema)


def _without_absent(rows: pa.Table, schema: pa.Schema | None, text: bytes) -> pa.Table:
    """Leave out columns of the table that a file does not have. The parser makes columns of nulls of all that
    it is given, so the file would seem to have them, also beside one of another case.
    """
    spelled = Counter(name.lower() for name in rows.column_names)
    absent = [
        name
        for name in (() if schema is None else schema.names)
        if name in rows.column_names
        and rows.column(name).null_count == rows.num_rows
        and (spelled[name.lower()] > 1 or not _has_key(text, name))
    ]
    return rows.drop_columns(absent) if absent else rows


def _has_key(text: bytes, name: str) -> bool:
    """Return whether JSON may have the key of a column: where characters are escaped it always may."""
    return b"\\" in text or json.dumps(name, ensure_ascii=False).encode() in text


def _block(data: pa.NativeFile) -> int:
    """Return the size of a block that has all of a file."""
    size: int = data.size()
    return max(1 << 20, min(size, _MOST_BLOCK))


def _read_csv(data: pa.NativeFile, schema: pa.Schema | None) -> pa.Table:
    import pyarrow.csv as pc

    kinds = {} if schema is None else {field.name: parsed_type(field.type) for field in schema}
    # Null is what is empty and not quoted. By default "NA" and "null" would be nulls too, in text.
    options = pc.ConvertOptions(
        column_types=kinds, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    # In a file of one column a blank line is a row, whose value is empty: Arrow's own writer makes such.
    begin = data.read(_HEADER)
    data.seek(0)
    header = next(csv.reader(io.StringIO(begin.decode("latin-1"), newline="")), [])
    parsing = pc.ParseOptions(newlines_in_values=True, ignore_empty_lines=len(header) != 1)
    # A block must hold a whole row, however long it is.
    reading = pc.ReadOptions(block_size=_block(data))
    rows = pc.read_csv(data, reading, parsing, options)
    if not rows.num_rows and schema is not None and not set(rows.column_names) & set(schema.names):
        raise SourceFileError(
            "its only line is taken for the header, and the table has none of its columns; begin the file"
            f" with a header: {', '.join(rows.column_names)[:_EXAMPLE]}"
        )
    doubtful = [
        field.name
        for field, column in zip(rows.schema, rows.columns, strict=True)
        if pa.types.is_float64(field.type) and (field.name not in kinds or pa_any(is_inf(column)).as_py())
    ]
    if doubtful:
        data.seek(0)
        options.include_columns = doubtful
        options.column_types = dict.fromkeys(doubtful, pa.string())
        for name, texts in zip(doubtful, pc.read_csv(data, reading, parsing, options), strict=True):
            check_csv(texts, rows.column(name), name not in kinds)
    data.seek(0)
    text = data.read()
    _check_quotes(text)
    whole = [field.name for field in rows.schema if pa.types.is_integer(field.type)]
    if whole and _HEXADECIMAL.search(text):
        data.seek(0)
        options.include_columns, options.column_types = whole, dict.fromkeys(whole, pa.string())
        _check_is_decimal(pc.read_csv(data, reading, parsing, options))
    return _typed(rows, schema)


def _check_is_decimal(texts: pa.Table) -> None:
    """Raise SourceFileError for a whole number that Arrow has read as a hexadecimal one."""
    for name, column in zip(texts.column_names, texts.columns, strict=True):
        found = column.filter(match_substring_regex(column, "^[ \t]*[-+]?0[xX]"))
        if len(found):
            raise SourceFileError(
                f"{name} has a number in hexadecimal; write whole numbers in decimal: {found[0]}"
            )


def _check_quotes(data: bytes) -> None:
    """Raise SourceFileError for a quoted value that does not end, or ends in the middle of another one: Arrow
    takes all lines up to there for one value, without a word.
    """
    if b'"' not in data:
        return
    csv.field_size_limit(_MOST_BLOCK)
    rows, line = csv.reader(io.TextIOWrapper(io.BytesIO(data), "latin-1", newline=""), strict=True), 1
    try:
        for _ in rows:
            line = rows.line_num + 1
    except csv.Error as error:
        raise SourceFileError(
            f"a quote of the row that begins in line {line} is not closed where a value ends, and would"
            f" swallow the lines after it; close it, and write a quote inside of a value twice: {error}"
        ) from error


def _read_avro(data: pa.NativeFile) -> pa.Table:
    import fastavro

    reader = fastavro.reader(io.BytesIO(data.read()))
    rows = pa.Table.from_pylist(list(reader), arrow_columns(reader.writer_schema))
    if is_hybrid({name.encode(): str(text).encode() for name, text in reader.metadata.items()}):
        check_is_gregorian(rows)
    return rows


def _spelled(schema: pa.Schema | None, without: Container[str]) -> pa.Schema | None:
    """Return the columns as a parser of JSON reads them, without field ids and requirements, and without
    maps, which it does not know: an object in their place becomes a struct, which no map takes.
    """
    if schema is None:
        return None
    fields = [
        (field.name, parsed_type(field.type))
        for field in schema
        if field.name not in without and not holds_map(field.type)
    ]
    return pa.schema(fields)


def _typed(rows: pa.Table, schema: pa.Schema | None) -> pa.Table:
    """Return the rows with the table's types, of the columns that the table has."""
    known = {} if schema is None else {field.name: field.type for field in schema}
    for place, name in enumerate(rows.column_names):
        if name not in known or parsed_type(known[name]) == known[name]:
            continue
        try:
            chunks = [cast_parsed(chunk, known[name]) for chunk in rows.column(place).chunks]
        except pa.ArrowInvalid as error:
            raise SourceFileError(
                f"a value does not fit the column {name} of {known[name]}: {error}"
            ) from error
        if chunks:
            rows = rows.set_column(place, name, pa.chunked_array(chunks))
    # A parser fills decimals up to the bytes that hold them, beyond the digits that their type has.
    for column in rows.columns:
        if pa.types.is_decimal(column.type) or pa.types.is_nested(column.type):
            column.validate(full=True)
    return rows
