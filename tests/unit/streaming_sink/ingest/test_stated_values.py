"""What footers and indexes of source files state of their values is compared with their rows: a reader passes
over rows by a bound that is wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_sink.tasks.batches import conform_valid
from streaming_sink.tasks.ingest.parquet import open_footer
from streaming_sink.tasks.ingest.profile_task import SourceMisstated
from streaming_sink.tasks.ingest.register_task import SourceToRegister, register
from streaming_sink.tasks.ingest.source_groups import SourceGroups
from streaming_sink.tasks.job import ParquetSettings
from streaming_sink.tasks.leaves import leaves
from streaming_sink.tasks.row_groups.compact import BINARY, I64, STRUCT, Field, Struct
from streaming_sink.tasks.row_groups.stated_values import GroupValues
from tests.unit.streaming_sink.ingest.lying_footers import lying, lying_index
from tests.unit.streaming_sink.ingest.test_source_groups import (
    SCHEMA,
    SOURCES,
    field,
    files_of,
    ids_in,
    job_of,
    landed,
    pages_of,
    rows,
    write,
)

DAYS = pa.array([-700_000, 5, None, 2_900_000], pa.int32())
TIMES = pa.array([-(2**55), 0, None, 2**55], pa.int64())
EDGES: dict[str, pa.Array] = {
    "int": pa.array([-(2**31), 7, None, 2**31 - 1], pa.int32()),
    "long": pa.array([-(2**63), 7, None, 2**63 - 1]),
    "float": pa.array([-0.0, float("nan"), None, 3.5], pa.float32()),
    "double": pa.array([float("-inf"), float("nan"), 0.0, float("inf")]),
    "no number": pa.array([float("nan"), None]),
    "boolean": pa.array([False, None, True]),
    "date": DAYS.cast(pa.date32()),
    "time": pa.array([0, None, 86_399_999_999]).cast(pa.time64("us")),
    "timestamp": TIMES.cast(pa.timestamp("us")),
    "timestamptz": TIMES.cast(pa.timestamp("us", "UTC")),
    "string": pa.array(["", "z" * 50, None, "é\U0010ffff"]),
    "binary": pa.array([b"", b"\xff" * 5, None, b"\x00"]),
    "fixed": pa.array([b"\x80abc", None, b"\x7fabc"], pa.binary(4)),
    "decimal 9": pa.array([Decimal("-9999999.99"), None, Decimal("0.01")], pa.decimal128(9, 2)),
    "decimal 18": pa.array([Decimal(-1), Decimal(10**17 - 1)], pa.decimal128(18, 0)),
    "decimal 38": pa.array([Decimal(10**27) + Decimal("0.5"), Decimal(-1)], pa.decimal128(38, 10)),
    "uuid": pa.ExtensionArray.from_storage(
        pa.uuid(), pa.array([UUID(int=2**127).bytes, None, UUID(int=1).bytes], pa.binary(16))
    ),
    "nulls": pa.nulls(3, pa.string()),
}


def one_column(kind: pa.DataType, *, nested: bool) -> pa.Schema:
    if nested:
        return pa.schema([field("s", pa.struct([field("v", kind, 2)]), 1)])
    return pa.schema([field("v", kind, 2)])


def table_of(values: pa.Array, *, nested: bool) -> pa.Table:
    schema = one_column(values.type, nested=nested)
    if not nested:
        return pa.table([values], schema)
    parent = pa.StructArray.from_arrays([values], fields=[*schema[0].type])
    return pa.table([pa.concat_arrays([parent, pa.nulls(1, parent.type)])], schema)


def misstated(path: Path, schema: pa.Schema) -> str:
    """Why the first row group of a file states something else than it has."""
    file, found = pq.ParquetFile(path), GroupValues(leaves(schema))
    for batch in file.read_row_group(0).to_batches(max_chunksize=2):
        found.add(conform_valid(batch, schema))
    return found.why_misstated(file.metadata.row_group(0))


@pytest.mark.parametrize("as_integer", [True, False])
@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("kind", EDGES)
def test_what_a_writer_states_of_each_type_holds(
    tmp_path: Path, kind: str, nested: bool, as_integer: bool
) -> None:
    table = table_of(EDGES[kind], nested=nested)
    path = write(tmp_path / "a.parquet", table, store_decimal_as_integer=as_integer)
    assert misstated(path, table.schema) == ""


def later(data: bytes, stored: int) -> bytes:
    """A bound of another value: the first or the last byte of it is another one."""
    at = len(data) - 1 if stored in (6, 7) else 0
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] if data else b"\x01"


@pytest.mark.parametrize("bound", [5, 6])
@pytest.mark.parametrize("kind", sorted(EDGES.keys() - {"no number", "nulls", "boolean"}))
def test_a_bound_that_is_wrong_is_seen_for_each_type(tmp_path: Path, kind: str, bound: int) -> None:
    values = EDGES[kind].drop_null()
    if kind == "double":  # a bit beside infinity is NaN, which bounds nothing
        values = pa.array([-0.5, float("nan"), 2.5])
    table = table_of(values, nested=False)
    path = write(tmp_path / "a.parquet", table)
    texts = pa.types.is_string(values.type) or pa.types.is_binary(values.type)

    def change(meta: Any) -> None:
        statistics: Struct = meta[12].value
        data = bytes(statistics[bound].value)
        # Of texts a bound may be wider, as one that is cut off is.
        wrong = (data + b"\x00" if bound == 6 else data[:-1]) if texts else later(data, meta[1].value)
        for number in (bound, {5: 1, 6: 2}[bound]):
            if number in statistics:
                statistics[number] = Field(BINARY, wrong)

    assert "v states values from" in misstated(lying(path, change), table.schema)


def test_a_wider_bound_of_text_is_a_bound(tmp_path: Path) -> None:
    table = table_of(pa.array(["banana", "cherry"]), nested=False)

    def change(meta: Any) -> None:
        meta[12].value[5], meta[12].value[6] = Field(BINARY, b"ci"), Field(BINARY, b"b")

    assert misstated(lying(write(tmp_path / "a.parquet", table), change), table.schema) == ""


def test_nulls_values_and_rows_that_are_wrong_are_seen(tmp_path: Path) -> None:
    table = table_of(pa.array([1, None, 3]), nested=False)

    def nulls(meta: Any) -> None:
        meta[12].value[3] = Field(I64, 2)

    path = write(tmp_path / "a.parquet", table)
    assert misstated(lying(path, nulls), table.schema) == "v states 2 nulls, and has 1"
    found = GroupValues(leaves(table.schema))
    found.add(table.to_batches()[0])
    found.add(table.to_batches()[0])
    group = pq.read_metadata(path).row_group(0)
    assert found.why_misstated(group) == "a row group states 3 rows, and holds 6"


def last_id(meta: Any) -> None:
    if meta[3].value.items == [b"id"]:
        for number in (1, 5):
            meta[12].value[number] = Field(BINARY, struct.pack("<q", 98))


def no_null(meta: Any) -> None:
    if meta[3].value.items == [b"x"]:
        meta[12] = Field(STRUCT, meta[12].value | {3: Field(I64, 0)})


@pytest.mark.parametrize("change", [last_id, no_null])
def test_a_row_group_with_a_wrong_statistic_is_decoded(tmp_path: Path, change: Any) -> None:
    path = lying(write(tmp_path / "a.parquet", rows(0)), change)
    (file,) = files_of(landed(tmp_path, [path]))
    assert pages_of(file.path) != pages_of(path)
    assert (file.upper_bounds[1], file.null_counts[3]) == (struct.pack("<q", 99), 13)
    assert pq.read_table(file.path, filters=[("id", "=", 99)]).num_rows == 1


def of_a_page(number: int, value: Any) -> Callable[[Struct], None]:
    def change(index: Struct) -> None:
        index[number].value.items[1] = value

    return change


@pytest.mark.parametrize(
    ("place", "change"),
    [
        (0, of_a_page(2, struct.pack("<q", 51))),
        (0, of_a_page(3, struct.pack("<q", 98))),
        (0, of_a_page(1, True)),
        (1, of_a_page(2, b"moo")),
        (2, of_a_page(5, 7)),
        (2, of_a_page(3, struct.pack("<d", 24.0))),
    ],
)
def test_a_row_group_with_a_wrong_statistic_of_a_page_is_decoded(
    tmp_path: Path, place: int, change: Callable[[Struct], None]
) -> None:
    options: dict[str, Any] = {"write_page_index": True, "max_rows_per_page": 50, "write_batch_size": 10}
    sound = write(tmp_path / "a.parquet", rows(0, 200), **options)
    (copied,) = files_of(landed(tmp_path / "sound", [sound]))
    assert pages_of(copied.path) == pages_of(sound)
    path = lying_index(write(tmp_path / "b.parquet", rows(0, 200), **options), place, change)
    (file,) = files_of(landed(tmp_path, [path]))
    assert pages_of(file.path) != pages_of(path)
    assert ids_in([file]) == [[*range(200)]]


@pytest.mark.parametrize("kind", sorted(EDGES.keys() - {"nulls", "boolean"}))
def test_row_groups_of_each_type_with_indexes_are_copied(tmp_path: Path, kind: str) -> None:
    """No statistic of a sound file is taken for a wrong one."""
    numbers = np.random.default_rng(7)
    values = EDGES[kind].take(pa.array(numbers.integers(0, len(EDGES[kind]), 400)))
    schema, options = one_column(values.type, nested=True), {"max_rows_per_page": 50, "write_batch_size": 10}
    table = table_of(values, nested=True)
    unnamed = pa.Table.from_batches(table.to_batches()).cast(
        pa.schema([pa.field("s", pa.struct([pa.field("v", values.type)]))])
    )
    path = write(
        tmp_path / "a.parquet", unnamed, write_page_index=True, store_decimal_as_integer=True, **options
    )
    with pa.OSFile(str(path)) as data:
        groups = SourceGroups(schema, ParquetSettings(copied_from_bytes=1))
        assert groups.may_copy(open_footer(data), data.size())
        found = groups.read(data)
        assert found is not None
        assert [group.stored is not None for group in found] == [True]


def test_a_file_with_a_wrong_bound_is_not_registered(tmp_path: Path) -> None:
    """Of two row groups the first one has it."""
    path = lying(write(tmp_path / "a.parquet", rows(0, 200), row_group_size=100), last_id)
    (file,), _ = SOURCES.find([str(path)], 0)
    job = job_of(tmp_path, SCHEMA, (), ParquetSettings())
    found, _ = register(job, SOURCES, [SourceToRegister(0, file, (), 200)], 0)
    assert isinstance(found, SourceMisstated)
    assert found.reason == "id states values from 0 to 98, and has 0 to 99"
    assert not [*tmp_path.glob("table-*/**/*.parquet")]
