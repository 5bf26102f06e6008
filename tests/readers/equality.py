"""How many rows a reader finds by `column = value`, asked so that it skips what it can.

`judges.py` reads whole tables; this asks readers for what they look up in bounds and bloom filters.
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl
import pyiceberg.types as it
from pyiceberg.expressions import EqualTo, IsNaN

from tests.jars import require_iceberg_runtime
from tests.readers import chdb_judge, judges, spark_judge
from tests.readers.processes import in_process_of

if TYPE_CHECKING:
    from collections.abc import Sequence


def counts_equal(reader: str, location: str, asked: Sequence[tuple[str, it.IcebergType, Any]]) -> list[int]:
    """Return in how many rows the reader finds each value of a column of this type; a dot in its name leads
    to a field of a struct.
    """
    match reader:
        case "pyiceberg":
            return [_pyiceberg_count(location, column, value) for column, _, value in asked]
        case "polars":
            return [_polars_count(location, *each) for each in asked]
        case "duckdb":
            return [_duckdb_count(location, *each) for each in asked]
        case "chdb":
            conditions = [f"{column} = {_chdb_literal(kind, value)}" for column, kind, value in asked]
            return [in_process_of("chdb", chdb_judge.count, location, each) for each in conditions]
        case "spark":
            jar = str(require_iceberg_runtime())
            conditions = [f"{column} = {_spark_literal(kind, value)}" for column, kind, value in asked]
            return in_process_of("spark", spark_judge.counts, jar, location, conditions)
        case _:
            raise ValueError(f"no reader is called {reader!r}")


def _pyiceberg_count(location: str, column: str, value: Any) -> int:
    is_nan = isinstance(value, float) and math.isnan(value)
    condition = IsNaN(column) if is_nan else EqualTo(column, value)
    return judges._open(location).scan(row_filter=condition).to_arrow().num_rows


def _polars_count(location: str, column: str, kind: it.IcebergType, value: Any) -> int:
    top, *inside = column.split(".")
    found = pl.col(top)
    for name in inside:
        found = found.struct.field(name)
    wanted = value.bytes if isinstance(value, uuid.UUID) else value
    literal = pl.lit(wanted, dtype=_polars_type(kind))
    frame = pl.scan_iceberg(str(judges.metadata_file(location)))
    return frame.filter(found == literal).select(pl.len()).collect().item()


def _polars_type(kind: it.IcebergType) -> pl.DataType | None:
    match kind:
        case it.FloatType():
            return pl.Float32()
        case it.DecimalType():
            return pl.Decimal(kind.precision, kind.scale)
        case _:
            return None


def _duckdb_count(location: str, column: str, kind: it.IcebergType, value: Any) -> int:
    metadata = judges.metadata_file(location)
    sql = f"SELECT count(*) FROM iceberg_scan('{metadata}') WHERE {column} = {_duckdb_literal(kind, value)}"
    return judges._duckdb().cursor().execute(sql).fetchall()[0][0]


def _duckdb_literal(kind: it.IcebergType, value: Any) -> str:
    match value:
        case bytes():
            return "'" + "".join(f"\\x{byte:02x}" for byte in value) + "'::BLOB"
        case str():
            return f"decode(from_hex('{value.encode().hex()}'))"
        case Decimal():
            return f"'{value:f}'::{kind}"
        case _:
            return f"'{value}'::{'VARCHAR' if isinstance(kind, it.StringType) else kind}"


def _chdb_literal(kind: it.IcebergType, value: Any) -> str:
    match value:
        case str() | bytes():
            stored = value.encode() if isinstance(value, str) else value
            plain = f"unhex('{stored.hex()}')"
            return f"toFixedString({plain}, {len(kind)})" if isinstance(kind, it.FixedType) else plain
        case Decimal():
            assert isinstance(kind, it.DecimalType)
            width = 32 if kind.precision <= 9 else 64 if kind.precision <= 18 else 128
            return f"toDecimal{width}('{value:f}', {kind.scale})"
        case float():
            return f"toFloat{32 if isinstance(kind, it.FloatType) else 64}('{value}')"
        case dt.datetime():
            return f"toDateTime64('{value.replace(tzinfo=None)}', 6, 'UTC')"
        case dt.date():
            return f"toDate32('{value}')"
        case uuid.UUID():
            return f"toUUID('{value}')"
        case _:
            return str(value)


def _spark_literal(kind: it.IcebergType, value: Any) -> str:
    match value:
        case bytes():
            return f"X'{value.hex()}'"
        case str():
            return f"decode(X'{value.encode().hex()}', 'UTF-8')"
        case uuid.UUID():
            return f"'{value}'"
        case Decimal():
            return f"cast('{value:f}' AS {kind})"
        case _:
            name = {"long": "bigint", "timestamp": "timestamp_ntz", "timestamptz": "timestamp"}
            return f"cast('{value}' AS {name.get(str(kind), str(kind))})"
