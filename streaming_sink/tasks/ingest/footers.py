"""What the footer of a Parquet file says of its columns, as the planner of registering asks for it."""

from __future__ import annotations

import json
from collections.abc import Collection
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq

from planners.ingestion.registering import FileColumn, FileFooter, TableColumn
from streaming_sink.tasks.leaves import FIELD_ID, field_id

_SPELLINGS = ("is_from_converted_type", "force_set_converted_type")
_PLAIN = [(f"INT{bits}", "Int", {"bitWidth": bits, "isSigned": True}) for bits in (32, 64)]
"""Annotations that say nothing new of a physical type; DuckDB writes them."""
_SAME = {pa.large_string(): pa.string(), pa.string_view(): pa.string(), pa.large_binary(): pa.binary()}
"""Types that a file may ask Arrow for, and that readers by Arrow take as the same; not so a time zone."""


def table_columns(schema: pa.Schema) -> tuple[TableColumn, ...]:
    """Return the columns of a table as its writer encodes them, by a file without rows."""
    written = BytesIO()
    pq.ParquetWriter(written, schema, store_schema=False, store_decimal_as_integer=True).close()
    kinds = _kinds(pq.ParquetFile(written))
    return tuple(
        TableColumn(column.name, kinds[column.name], field_id(column), not column.nullable)
        for column in schema
    )


def describe_footer(
    file: pq.ParquetFile, size: int, partitions: int, absent: Collection[str] = ()
) -> FileFooter:
    """Return what a file's footer says; `size`, `partitions` and `absent` as in `FileFooter`."""
    footer, kinds = file.metadata, _kinds(file)
    groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
    columns = []
    for place, column in enumerate(file.schema_arrow):
        nested = not kinds[column.name]
        chunks = [] if nested else [group.column(place) for group in groups]
        nulls = [None if it.statistics is None else it.statistics.null_count for it in chunks]
        stated = (column.metadata or {}).get(FIELD_ID)
        columns.append(
            FileColumn(
                column.name,
                kinds[column.name],
                None if stated is None else int(stated),
                None if None in nulls else sum(each or 0 for each in nulls),
                frozenset(it.compression for it in chunks),
                frozenset(encoding for it in chunks for encoding in it.encodings),
            )
        )
        if nested:
            break  # the places of leaves are no longer those of columns, and the file is rewritten anyway
    rows = tuple(group.num_rows for group in groups)
    return FileFooter(size, partitions, rows, tuple(columns), tuple(absent))


def _kinds(file: pq.ParquetFile) -> dict[str, str]:
    """Return the types of each top-level column, Parquet's and Arrow's; "" of a nested one."""
    plain = [column for column in file.schema_arrow if not pa.types.is_nested(column.type)]
    leaves = {leaf.path: leaf for leaf in map(file.schema.column, range(len(file.schema)))}
    kinds = dict.fromkeys(file.schema_arrow.names, "")
    return kinds | {it.name: f"{_kind(leaves[it.name])}, {_SAME.get(it.type, it.type)}" for it in plain}


def _kind(leaf: pq.ColumnSchema) -> str:
    logical = json.loads(leaf.logical_type.to_json())
    name = logical.pop("Type")
    stated = {key: value for key, value in logical.items() if key not in _SPELLINGS}
    if (leaf.physical_type, name, stated) in _PLAIN:
        name, stated = "None", {}
    size = f"({leaf.length})" if leaf.length else ""
    parts = [] if name == "None" else [name, *(f"{key}={value}" for key, value in stated.items())]
    return " ".join([f"{leaf.physical_type}{size}", *parts])
