"""Tables that pyiceberg and pyarrow write, by which the judges themselves are judged."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyiceberg.types as it
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.table import Table

_F = it.NestedField
_UTC = dt.timezone.utc
_BEFORE_1970 = dt.datetime(1969, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001 (the type has no zone)
_MILLENNIUM = dt.datetime(2000, 1, 1)  # noqa: DTZ001
_LAST = dt.datetime(9999, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001

_TYPES: dict[str, it.IcebergType] = {
    "a_boolean": it.BooleanType(),
    "an_int": it.IntegerType(),
    "a_long": it.LongType(),
    "a_float": it.FloatType(),
    "a_double": it.DoubleType(),
    "a_decimal9": it.DecimalType(9, 2),
    "a_decimal18": it.DecimalType(18, 4),
    "a_decimal38": it.DecimalType(38, 10),
    "a_date": it.DateType(),
    "a_time": it.TimeType(),
    "a_timestamp": it.TimestampType(),
    "a_timestamptz": it.TimestamptzType(),
    "a_string": it.StringType(),
    "a_uuid": it.UUIDType(),
    "a_fixed": it.FixedType(5),
    "a_binary": it.BinaryType(),
    "a_struct": it.StructType(
        _F(101, "x", it.IntegerType()),
        _F(102, "y", it.StringType()),
        _F(103, "z", it.StructType(_F(104, "w", it.DoubleType()))),
    ),
    "a_list": it.ListType(105, it.IntegerType(), element_required=False),
    "a_map": it.MapType(106, it.StringType(), 107, it.LongType(), value_required=False),
    "a_list_of_structs": it.ListType(
        108,
        it.StructType(_F(109, "p", it.TimestampType()), _F(110, "q", it.DecimalType(10, 3))),
        element_required=False,
    ),
    "a_map_of_lists": it.MapType(
        111,
        it.IntegerType(),
        112,
        it.ListType(113, it.StringType(), element_required=False),
        value_required=False,
    ),
}

_ORDINARY: dict[str, Any] = {
    "a_boolean": True,
    "an_int": -7,
    "a_long": 2**60,
    "a_float": 1.5,
    "a_double": float("nan"),
    "a_decimal9": Decimal("-1.23"),
    "a_decimal18": Decimal("99999999999999.9999"),
    "a_decimal38": Decimal("-1234567890123456789012345678.0123456789"),
    "a_date": dt.date(1899, 12, 31),
    "a_time": dt.time(23, 59, 59, 999999),
    "a_timestamp": _BEFORE_1970,
    "a_timestamptz": dt.datetime(1900, 1, 1, 1, 2, 3, 4, tzinfo=_UTC),
    "a_string": "grüße\n,'\"",
    "a_uuid": uuid.UUID(int=2**127 + 5).bytes,
    "a_fixed": b"\x00\x01\xff\xfe\x00",
    "a_binary": b"\xff\x00\x80",
    "a_struct": {"x": 1, "y": "a", "z": {"w": float("-inf")}},
    "a_list": [1, None, 3],
    "a_map": [("k", 1), ("n", None)],
    "a_list_of_structs": [
        {"p": _MILLENNIUM, "q": Decimal("1.500")},
        None,
        {"p": None, "q": None},
    ],
    "a_map_of_lists": [(1, ["a", None]), (2, []), (3, None)],
}

_EDGE: dict[str, Any] = {
    "a_boolean": False,
    "an_int": 2**31 - 1,
    "a_long": -(2**63),
    "a_float": float("inf"),
    "a_double": -0.0,
    "a_decimal9": Decimal("0.00"),
    "a_decimal18": Decimal("-0.0001"),
    "a_decimal38": Decimal("0E-10"),
    "a_date": dt.date(9999, 12, 31),
    "a_time": dt.time(0),
    "a_timestamp": _LAST,
    "a_timestamptz": dt.datetime(2262, 4, 12, tzinfo=_UTC),
    "a_string": "",
    "a_uuid": uuid.UUID(int=0).bytes,
    "a_fixed": b"\x00" * 5,
    "a_binary": b"",
    "a_struct": {"x": None, "y": None, "z": None},
    "a_list": [],
    "a_map": [],
    "a_list_of_structs": [],
    "a_map_of_lists": [],
}


LISTS = ("a_list", "a_map", "a_list_of_structs", "a_map_of_lists")
"""The columns with several values a row, of whose files no row group is copied."""


def every_type(without: Sequence[str] = ()) -> Schema:
    """Return a schema with a nullable column of every Iceberg v2 type."""
    kept = [(name, kind) for name, kind in _TYPES.items() if name not in without]
    return Schema(*(_F(i, name, kind) for i, (name, kind) in enumerate(kept, start=1)))


def rows_of_every_type(schema: Schema) -> pa.Table:
    """Return an ordinary row, a row of nulls and a row of edge values."""
    names = schema_to_pyarrow(schema).names
    whole = [_ORDINARY, dict.fromkeys(names), _EDGE]
    arrow = schema_to_pyarrow(schema, include_field_ids=False)
    return pa.Table.from_pylist([{name: row[name] for name in names} for row in whole], schema=arrow)


def write_reference_table(
    folder: Path,
    schema: Schema,
    batches: Sequence[pa.Table],
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
) -> None:
    """Write a table with one snapshot per batch.

    The data files of an unpartitioned table are pyarrow's own: pyiceberg 0.12 writes a null list of structs
    as an empty one.
    """
    catalog = InMemoryCatalog("reference", warehouse=str(folder.parent))
    catalog.create_namespace("reference")
    table = catalog.create_table("reference.table", schema, location=str(folder), partition_spec=spec)
    for number, batch in enumerate(batches):
        if spec.is_unpartitioned():
            _append_by_pyarrow(table, batch, folder / "data" / f"{number}.parquet")
        else:
            table.append(batch)
    Path(folder, "metadata", "v1.metadata.json").write_bytes(Path(table.metadata_location).read_bytes())
    Path(folder, "metadata", "version-hint.text").write_text("1")
    catalog.close()


def _append_by_pyarrow(table: Table, batch: pa.Table, path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(batch.cast(schema_to_pyarrow(table.schema())), path)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=str(path),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=batch.num_rows,
        file_size_in_bytes=path.stat().st_size,
    )
    file.spec_id = table.spec().spec_id
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(file)
