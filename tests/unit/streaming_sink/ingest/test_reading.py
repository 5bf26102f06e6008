"""Text and Avro files: their rows are what they state, and no other ones."""

from __future__ import annotations

import io
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from planners.buffering import BufferedFile
from streaming_sink.tasks.ingest.reading import SourceFileError, read_rows

TEXT = pa.schema([pa.field("a", pa.string(), metadata={"PARQUET:field_id": "1"})])


def read(kind: str, data: bytes, schema: pa.Schema | None = None) -> pa.Table:
    return read_rows(BufferedFile("/x", "1", len(data), 0, kind), pa.BufferReader(data), schema)


def avro(kind: Any, values: Sequence[Any]) -> bytes:
    written = io.BytesIO()
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]}
    fastavro.writer(written, fastavro.parse_schema(schema), [{"a": value} for value in values])
    return written.getvalue()


def test_only_what_is_empty_and_not_quoted_is_null_in_csv() -> None:
    rows = read("csv", b'b,a\n1,NA\n1,null\n1,NaN\n1,""\n1,\n', TEXT)
    assert rows["a"].to_pylist() == ["NA", "null", "NaN", "", None]


def test_values_of_several_lines_are_whole_wherever_a_block_of_csv_ends() -> None:
    values = [f"{number}\nz{number}" for number in range(200_000)]
    data = "a\n" + "\n".join(f'"{value}"' for value in values)
    assert read("csv", data.encode(), TEXT)["a"].to_pylist() == values


def test_a_long_json_object_is_read() -> None:
    data = b'{"a": "%s"}\n{"a": "y"}' % (b"x" * 3_000_000)
    assert [len(value) for value in read("json", data, TEXT)["a"].to_pylist()] == [3_000_000, 1]


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ({"type": "map", "values": "long"}, [{"x": 1}, {"y": 2}], pa.map_(pa.string(), pa.int64())),
        (["null", "int"], [None, 1], pa.int32()),
        (["null", "int"], [None], pa.int32()),
        ("float", [0.5], pa.float32()),
        ({"type": "array", "items": ["null", "string"]}, [["x", None]], pa.list_(pa.string())),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, ["A"], pa.string()),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
            [Decimal("1.25")],
            pa.decimal128(10, 2),
        ),
        ("long", [], pa.int64()),
    ],
)
def test_the_types_of_avro_are_those_of_its_schema(
    kind: Any, values: Sequence[Any], expected: pa.DataType
) -> None:
    rows = read("avro", avro(kind, values))
    assert rows.schema.field("a").type == expected
    found = [dict(value) if pa.types.is_map(expected) else value for value in rows["a"].to_pylist()]
    assert found == list(values)


def test_a_union_of_several_types_is_refused() -> None:
    with pytest.raises(SourceFileError, match="a union of several types is no column"):
        read("avro", avro(["long", "string"], [1, "x"]))


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("csv", b"a,b\n1.5,9223372036854775808\n2,1\n"),
        ("csv", b"a\n-9223372036854775809\n"),
        ("json", b'{"a": {"b": [99999999999999999999]}}\n\n{"a": null}\n'),
    ],
)
def test_a_whole_number_of_an_inferred_type_that_no_long_holds_is_refused(kind: str, data: bytes) -> None:
    with pytest.raises(SourceFileError, match="a whole number above 64 bits, which a double would round"):
        read(kind, data)


@pytest.mark.parametrize(
    ("kind", "data"),
    [("csv", b"a\n9223372036854775807\n1.5\n"), ("json", b'{"a": "99999999999999999999", "c": 1.5}\n')],
)
def test_other_numbers_are_read(kind: str, data: bytes) -> None:
    assert read(kind, data).num_rows
