"""Text and Avro files: their rows are what they state, and no other ones."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest

from planners.ingestion.buffering import BufferedFile
from streaming_sink.tasks.batches import conform
from streaming_sink.tasks.ingest.reading import SourceFileError, read_rows

TEXT = pa.schema([pa.field("a", pa.string(), metadata={"PARQUET:field_id": "1"})])


def read(kind: str, data: bytes, schema: pa.Schema | None = None) -> pa.Table:
    return read_rows(BufferedFile("/x", "1", len(data), 0, kind), pa.BufferReader(data), schema)


def avro(kind: Any, values: Sequence[Any], **said: str) -> bytes:
    written = io.BytesIO()
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]}
    fastavro.writer(written, fastavro.parse_schema(schema), [{"a": value} for value in values], metadata=said)
    return written.getvalue()


def test_only_what_is_empty_and_not_quoted_is_null_in_csv() -> None:
    rows = read("csv", b'b,a\n1,NA\n1,null\n1,NaN\n1,""\n1,\n', TEXT)
    assert rows["a"].to_pylist() == ["NA", "null", "NaN", "", None]


def test_values_of_several_lines_are_whole_wherever_a_block_of_csv_ends() -> None:
    values = [f"{number}\nz{number}" for number in range(200_000)]
    data = "a\n" + "\n".join(f'"{value}"' for value in values)
    assert read("csv", data.encode(), TEXT)["a"].to_pylist() == values


UTC_TIME, TIME = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
MORNING = datetime.fromisoformat("2026-11-23T10:00:00.5")
AT_UTC = datetime.fromisoformat("2026-11-23T10:00:00.500000+00:00")
ID = UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")


@pytest.mark.parametrize("format_", ["json", "csv"])
@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.bool_(), "true", True),
        (pa.int32(), "7", 7),
        (pa.int64(), "-7", -7),
        (pa.float32(), "1.5", 1.5),
        (pa.float64(), "1.5", 1.5),
        (
            pa.decimal128(38, 2),
            "123456789012345678901234567890.12",
            Decimal("123456789012345678901234567890.12"),
        ),
        (pa.string(), '"2026-11-23"', "2026-11-23"),
        (pa.date32(), '"2026-11-23"', date(2026, 11, 23)),
        (pa.time64("us"), '"10:00:00.5"', time(10, 0, 0, 500_000)),
        (TIME, '"2026-11-23T10:00:00.5"', MORNING),
        (TIME, '"2026-11-23 10:00:00.5"', MORNING),
        (UTC_TIME, '"2026-11-23T10:00:00.5Z"', AT_UTC),
        (UTC_TIME, '"2026-11-23 12:00:00.5+02:00"', AT_UTC),
        (UTC_TIME, '"2026-11-23T10:00:00.5"', AT_UTC),
        (pa.binary(), '"AP8="', b"\0\xff"),
        (pa.binary(2), '"AP8="', b"\0\xff"),
        (pa.uuid(), f'"{ID}"', ID),
    ],
)
def test_text_is_read_in_the_tables_types(format_: str, kind: pa.DataType, text: str, value: object) -> None:
    schema = pa.schema([pa.field("a", kind), pa.field("b", pa.int64())])
    data = f'{{"a": {text}, "b": 1}}\n{{"b": 2}}\n' if format_ == "json" else f"a,b\n{text},1\n,2\n"
    rows = conform(read(format_, data.encode(), schema).combine_chunks().to_batches()[0], schema)
    assert rows.schema.field("a").type == kind
    assert rows["a"].to_pylist() == [value, None]


@pytest.mark.parametrize("format_", ["json", "csv"])
@pytest.mark.parametrize(
    ("kind", "text", "told"),
    [
        (pa.date32(), "23.11.2026", "23.11.2026"),
        (pa.time64("us"), "10h", "10h"),
        (TIME, "2026-11-23T10:00:00Z", "expected no zone offset"),
        (UTC_TIME, "noon", "noon"),
        (UTC_TIME, "2026-11-23T10:00:00.123456789Z", "123456789"),
        (pa.binary(), "x", "does not spell bytes in base64"),
        (pa.binary(), "YWJj====", "more padding"),
        (pa.binary(), "YWK=", "bits beside the bytes"),
        (pa.binary(4), "AP8=", "fixed_size_binary"),
        (pa.decimal128(4, 2), "1.255", "1.255|data loss"),
    ],
)
def test_text_that_is_none_of_the_tables_type_is_refused_with_the_value(
    format_: str, kind: pa.DataType, text: str, told: str
) -> None:
    data = f'{{"a": "{text}"}}\n' if format_ == "json" else f"a\n{text}\n"
    with pytest.raises(SourceFileError, match=told):
        read(format_, data.encode(), pa.schema([pa.field("a", kind)]))


def test_dates_inside_of_json_are_read_in_the_tables_types() -> None:
    day, inner = date(2026, 11, 23), pa.struct([("d", pa.date32()), ("x", pa.int64())])
    kinds = {"s": inner, "l": pa.list_(pa.date32()), "ls": pa.list_(inner)}
    lines = [
        {"s": {"d": "2026-11-23", "new": 1}, "l": ["2026-11-23", None], "ls": [{"d": "2026-11-23", "x": 1}]},
        {"s": None, "l": None, "ls": [None, {"x": 2}]},
        {"s": {"x": 3}, "l": []},
    ]
    data = "\n".join(map(json.dumps, lines)).encode()
    assert read("json", data, pa.schema(list(kinds.items()))).to_pylist() == [
        {
            "s": {"d": day, "x": None, "new": 1},
            "l": [day, None],
            "ls": [{"d": day, "x": 1}],
        },
        {"s": None, "l": None, "ls": [None, {"d": None, "x": 2}]},
        {"s": {"d": None, "x": 3, "new": None}, "l": [], "ls": None},
    ]


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ('a,b\n1,x\n2,"y\n3,z\n4,w\n', 3),
        ('a,b\n1,x\n2,"y\n3,z\n4,"w"\n5,v\n', 3),
        ('a,b\r\n1,"two\r\nlines"\r\n2,"y\r\n3,"z"\r\n', 4),
        ('a,b\n1,"x"y\n', 2),
    ],
)
def test_a_quote_that_is_not_closed_is_told_with_its_line(data: str, line: int) -> None:
    """Five of ten rows landed, without a word: the others were one value."""
    with pytest.raises(SourceFileError, match=f"the row that begins in line {line} is not closed"):
        read("csv", data.encode())


def test_quotes_where_they_belong_are_read() -> None:
    data = 'a,b\n1,"say ""x"", y"\n2,5" pipe\n3,"two\n\nlines"\n'
    assert read("csv", data.encode())["b"].to_pylist() == ['say "x", y', '5" pipe', "two\n\nlines"]


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
        ({"type": "string", "logicalType": "uuid"}, [ID], pa.uuid()),
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


@pytest.mark.parametrize(
    ("kind", "first"), [("date", -141_427), ("timestamp-micros", -2_208_988_800_000_000)]
)
def test_old_dates_of_the_hybrid_calendar_are_refused_in_avro(kind: str, first: int) -> None:
    stored = {"type": "int" if kind == "date" else "long", "logicalType": kind}
    legacy = {"org.apache.spark.legacyDateTime": ""}
    assert read("avro", avro(stored, [first], **legacy)).num_rows == 1
    assert read("avro", avro(stored, [first - 1])).num_rows == 1
    with pytest.raises(SourceFileError, match="in the hybrid calendar"):
        read("avro", avro(stored, [first - 1], **legacy))


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


@pytest.mark.parametrize(
    "data",
    [
        '{"a": 1.5, "s": "x\u2028y\u0085z"}',  # which Python takes for ends of lines
        '{"a": 1.5,\n "s": "x"}',
        '{"a": 1.5} {"a": 2.5}\n\n',
        '\ufeff{"a": 1.5}',
    ],
)
def test_json_with_doubles_of_an_inferred_type_is_read_however_its_lines_end(data: str) -> None:
    assert read("json", data.encode())["a"][0].as_py() == 1.5


def test_a_number_of_a_new_field_that_no_long_holds_is_refused() -> None:
    known = pa.schema([("s", pa.struct([("a", pa.int64())]))])
    with pytest.raises(SourceFileError, match="a whole number above 64 bits"):
        read("json", b'{"s": {"a": 1, "b": 18446744073709551617}}', known)


def test_a_number_of_a_decimal_column_is_read_beside_doubles_of_an_inferred_type() -> None:
    known = pa.schema([("a", pa.decimal128(38, 0)), ("s", pa.struct([("a", pa.list_(pa.float64()))]))])
    rows = read("json", b'{"a": 99999999999999999999, "s": {"a": [99999999999999999999]}, "n": 1.5}', known)
    assert rows["a"].to_pylist() == [Decimal(99999999999999999999)]


@pytest.mark.parametrize(
    ("kind", "data", "column"),
    [
        ("json", b'{"a": 1e39}', pa.float32()),
        ("json", b'{"a": -1e39}', pa.float32()),
        ("csv", b"a\n1e39\n", pa.float32()),
        ("csv", b"a\n1.5\n-1e400\n", pa.float64()),
        ("csv", b"a\n1.5\n1e400\n", None),
    ],
)
def test_a_number_too_large_for_its_column_is_refused(
    kind: str, data: bytes, column: pa.DataType | None
) -> None:
    with pytest.raises(SourceFileError, match=r"would be infinite|is out of range.*1e400"):
        read(kind, data, None if column is None else pa.schema([("a", column)]))


@pytest.mark.parametrize("column", [pa.float32(), pa.float64()])
def test_a_number_that_is_said_to_be_infinite_is_read(column: pa.DataType) -> None:
    rows = read("csv", b"a\ninf\n-Infinity\nNaN\n0.1\n", pa.schema([("a", column)]))
    assert [str(value) for value in rows["a"].to_pylist()[:3]] == ["inf", "-inf", "nan"]
    assert rows["a"][3] == pa.scalar(0.1, column)


def test_a_row_of_csv_is_read_however_long_it_is() -> None:
    assert read("csv", b"a,b\n1," + b"x" * 5_000_000 + b"\n2,y\n")["a"].to_pylist() == [1, 2]


@pytest.mark.parametrize(
    "data", [b"null\n", b'\n  null\n{"a": "x"}\n', b"\xef\xbb\xbfnull", b'null {"a": "x"}']
)
@pytest.mark.parametrize("schema", [None, TEXT])
def test_json_that_begins_with_null_is_refused_before_the_parser_ends_the_process(
    data: bytes, schema: pa.Schema | None
) -> None:
    with pytest.raises(SourceFileError, match="the first value is null"):
        read("json", data, schema)


@pytest.mark.parametrize(
    ("begin", "end"), [("[", "]"), ('{"a": ', "}"), ('["]", ', "]"), ('["\\"]", ', "]"), ('["\\\\", ', "]")]
)
def test_json_that_is_too_deep_is_refused_before_the_parser_ends_the_process(begin: str, end: str) -> None:
    """Brackets in texts close nothing."""
    deep = f'{{"b": "{"]" * 60_000}", "a": {begin * 30_000}1{end * 30_000}}}\n'
    with pytest.raises(SourceFileError, match="more than 1,000 levels deep"):
        read("json", b'{"b": 1}\n' + deep.encode())


def test_json_whose_text_has_many_brackets_is_read() -> None:
    lines = b'{"a": "[{\\"["}\n' * 2000
    assert set(read("json", lines, TEXT)["a"].to_pylist()) == {'[{"['}


@pytest.mark.parametrize("text", ["0x10", "0X1f", " 0x1"])
def test_a_whole_number_in_hexadecimal_is_refused(text: str) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    with pytest.raises(SourceFileError, match="a has a number in hexadecimal"):
        read("csv", f"a,b\n1,x\n{text},y\n".encode(), schema)
    assert read("csv", b"a,b\n1,0x10\n", schema)["b"].to_pylist() == ["0x10"]


def test_a_csv_without_a_header_is_refused_where_its_row_would_be_lost() -> None:
    with pytest.raises(SourceFileError, match=r"only line is taken for the header.*: hello, 1"):
        read("csv", b"hello,1\n", TEXT)
    assert read("csv", b"a,b\n", TEXT).num_rows == 0


def test_json_with_a_column_in_another_case_has_that_column_alone() -> None:
    assert read("json", b'{"A": "x"}\n', TEXT).column_names == ["A"]
    assert read("json", b'{"A": "x"}\n{"a": "y"}\n', TEXT).column_names == ["a", "A"]


def test_a_null_after_an_object_is_a_row_of_nulls() -> None:
    assert read("json", b'{"a": "x"}\nnull\n', TEXT)["a"].to_pylist() == ["x", None]


@pytest.mark.parametrize(
    ("kind", "text"), [(pa.decimal128(10, 2), "100000000"), (pa.decimal128(38, 2), "1e36")]
)
@pytest.mark.parametrize("format_", ["json", "csv"])
def test_a_number_of_more_digits_than_a_decimal_has_is_refused(
    format_: str, kind: pa.DataType, text: str
) -> None:
    data = f'{{"a": {text}}}\n' if format_ == "json" else f"a,b\n{text},1\n"
    with pytest.raises(SourceFileError, match="precision"):
        read(format_, data.encode(), pa.schema([("a", kind)]))


@pytest.mark.parametrize("schema", [None, pa.schema([("a", pa.float64())]), pa.schema([("a", pa.float32())])])
@pytest.mark.parametrize("number", ["9" * 310, f"-{'9' * 400}"])
def test_a_number_of_json_that_no_double_holds_is_refused(schema: pa.Schema | None, number: str) -> None:
    with pytest.raises(SourceFileError, match="infinite"):
        read("json", f'{{"a": {number}}}\n'.encode(), schema)
    with pytest.raises(SourceFileError, match="infinite"):
        read("json", f'{{"s": {{"a": [1.5, {number}]}}}}\n'.encode())


def test_blank_lines_of_a_csv_of_one_column_are_nulls() -> None:
    assert read("csv", b"a\nx\n\ny\n\n", TEXT)["a"].to_pylist() == ["x", None, "y", None]
    assert read("csv", b"\na\nx\n", TEXT)["a"].to_pylist() == ["x"]


@pytest.mark.parametrize("header", [b"a,b", b'a,"b\nc"', b'a,"b""c"'])
def test_blank_lines_of_a_csv_of_several_columns_are_no_rows(header: bytes) -> None:
    assert read("csv", header + b"\nx,1\n\ny,2\n\n", TEXT)["a"].to_pylist() == ["x", "y"]


def test_a_csv_of_one_column_whose_name_has_a_comma_keeps_its_nulls() -> None:
    assert read("csv", b'"a,b"\nx\n\ny\n')["a,b"].to_pylist() == ["x", None, "y"]


@pytest.mark.parametrize(
    "text", ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00+01:00", "2026-01-01T00:00:00.5Z", "2026-01-01"]
)
def test_text_of_json_without_a_type_is_text_whatever_it_spells(text: str) -> None:
    """The parser took some of these for times without a zone, which no time with an offset fits then."""
    rows = read("json", json.dumps({"a": text, "s": {"x": [text]}}).encode())
    assert rows.to_pylist() == [{"a": text, "s": {"x": [text]}}]
    known = pa.schema([("t", pa.timestamp("us", tz="UTC")), ("s", pa.struct([("x", pa.list_(pa.date32()))]))])
    line = {"t": "2026-01-01T00:00:00Z", "a": text, "s": {"x": ["2026-01-02"], "y": text}}
    rows = read("json", json.dumps(line).encode(), known)
    assert rows.schema.field("t").type == pa.timestamp("us", tz="UTC")
    assert rows["a"].to_pylist() == [text]
    assert rows["s"].to_pylist() == [{"x": [date(2026, 1, 2)], "y": text}]


@pytest.mark.parametrize(
    "kind",
    [
        pa.map_(pa.int32(), pa.timestamp("us", tz="UTC")),
        pa.struct([("m", pa.map_(pa.string(), pa.int64()))]),
        pa.list_(pa.map_(pa.string(), pa.int64())),
    ],
)
def test_json_without_the_map_that_the_table_has_is_read(kind: pa.DataType) -> None:
    """A table of partial updates has a map of the sink's own, which no file brings."""
    known = pa.schema([("a", pa.int32()), ("m", kind)])
    assert read("json", b'{"a": 1}\n', known).to_pylist() == [{"a": 1}]


def test_json_without_a_column_of_the_table_does_not_have_it() -> None:
    """The contract may refuse a file that lacks a column: it landed, with nulls."""
    known = pa.schema([("a", pa.int32()), ("größe", pa.string())])
    assert read("json", b'{"a": 1}\n', known).column_names == ["a"]
    for text in ('{"a": 1, "größe": null}', json.dumps({"a": 1, "größe": None})):
        assert read("json", text.encode(), known).to_pylist() == [{"a": 1, "größe": None}]
