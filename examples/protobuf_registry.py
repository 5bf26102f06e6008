"""Protobuf messages of a schema registry, whose writer schema changes while the stream runs.

Messages are framed as Confluent's serializers do: a zero byte, the id of the writer's schema in four bytes,
the place of the message's type in that schema's file, and the body. One batch may hold messages of several
schemas. What cannot be decoded is quarantined, a tombstone (a message that is null) is dropped and counted,
and where the registry does not answer the stream stops. Run it from the repository's folder; it starts a
registry of its own on the loopback interface, and needs neither Kafka nor a Protobuf compiler:

    python examples/protobuf_registry.py FOLDER
"""

from __future__ import annotations

import base64
import io
import json
import os
import struct
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from streaming_sink import Checks, IcebergSink, SchemaContract

# ------------------------------------------------------------------------------------------ what a job needs

MESSAGE, SCHEMA_ID, FAULT = "value", "schema_id", "fault"
"""Columns beside those of the messages. The table ignores the message, which is null in rows that are decoded
and all that there is of one that cannot be, and the fault, which says why it cannot."""
TOMBSTONE, NO_FRAME = "tombstone", "no frame of the registry"
UNKNOWN_TYPE, UNDECODABLE = "unknown schema id or message index", "not decodable by its schema"
FAULTS = {TOMBSTONE: "drop", NO_FRAME: "quarantine", UNKNOWN_TYPE: "quarantine", UNDECODABLE: "quarantine"}
_TYPES: dict[int, spark.DataType] = {
    FieldDescriptor.CPPTYPE_BOOL: spark.BooleanType(),
    FieldDescriptor.CPPTYPE_INT32: spark.IntegerType(),
    FieldDescriptor.CPPTYPE_INT64: spark.LongType(),
    FieldDescriptor.CPPTYPE_UINT32: spark.LongType(),
    FieldDescriptor.CPPTYPE_UINT64: spark.DecimalType(20, 0),
    FieldDescriptor.CPPTYPE_FLOAT: spark.FloatType(),
    FieldDescriptor.CPPTYPE_DOUBLE: spark.DoubleType(),
    FieldDescriptor.CPPTYPE_ENUM: spark.StringType(),
    FieldDescriptor.CPPTYPE_STRING: spark.StringType(),
}
_WIDER: tuple[list[spark.DataType], ...] = (
    [spark.IntegerType(), spark.LongType()],
    [spark.FloatType(), spark.DoubleType()],
)
_TIMESTAMP = "google.protobuf.Timestamp"
SCHEMA_NOT_FOUND = 40403

Frame = tuple[int, tuple[int, ...]]
"""The id of a writer schema, and the indexes of a message's type in its file: that of the message, then those
of messages nested in it."""


class Registry:
    """The writer schemas of a registry with Confluent's interface, by id; each is asked for once."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._files: dict[int, bytes] = {}

    def file(self, number: int) -> bytes | None:
        """Return a writer schema, a serialized FileDescriptorProto; None where the registry has none of this
        id. OSError where it gives no answer, since whether it has one is not known then.
        """
        if number not in self._files:
            url = f"{self._url}/schemas/ids/{number}?format=serialized"
            try:
                with urllib.request.urlopen(url, timeout=10) as answer:
                    self._files[number] = base64.b64decode(json.load(answer)["schema"])
            except urllib.error.HTTPError as error:
                if _says_not_found(error):
                    return None
                raise
        return self._files[number]


def _says_not_found(error: urllib.error.HTTPError) -> bool:
    """Return whether the registry itself says that it has no such schema, and not a proxy, for example."""
    with error, suppress(KeyError, TypeError, ValueError):
        return bool(json.load(error)["error_code"] == SCHEMA_NOT_FOUND)
    return False


def read_frame(message: bytes) -> tuple[Frame, bytes] | None:
    """Return the frame of a message and its body; None where it has no frame."""
    stream = io.BytesIO(message)
    try:
        magic, number = struct.unpack(">BI", stream.read(5))
        count = _read_varint(stream)
        indexes = tuple(_read_varint(stream) for _ in range(count)) or (0,)
    except (struct.error, IndexError):
        return None
    return None if magic or count < 0 else ((number, indexes), stream.read())


def _read_varint(stream: io.BytesIO) -> int:
    """Return a number of 32 bits in Protobuf's zigzag encoding. IndexError where there is none."""
    number = 0
    for shift in range(0, 35, 7):
        byte = stream.read(1)[0]
        number |= (byte & 127) << shift
        if byte < 128:
            return (number >> 1) ^ -(number & 1)
    raise IndexError("a number of 32 bits takes five bytes at most")


def find_type(file: bytes, indexes: Sequence[int]) -> Descriptor | None:
    """Return a message type of a schema; None where it has none at this place.

    TypeError for a schema that imports another file than Google's timestamp.proto.
    """
    pool = DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    types = pool.AddSerializedFile(file).message_types_by_name
    found = None
    for index in indexes:
        if not 0 <= index < len(types):
            return None
        found = list(types.values())[index]
        types = found.nested_types_by_name
    return found


def decode(batch: DataFrame, registry: Registry) -> DataFrame:
    """Return a batch with its messages' fields as columns: those of all message types in it, by name.

    Reads the batch twice, so persist it. ValueError for a type that is no column's.
    """
    frames = batch.select(MESSAGE).mapInArrow(_read_frames, "number long, indexes array<long>").distinct()
    files: dict[Frame, bytes] = {}
    fields = spark.StructType()
    for number, indexes in sorted(frames.collect()):
        file = registry.file(number)
        if file is not None and (found := find_type(file, indexes)) is not None:
            files[number, tuple(indexes)] = file
            fields = common_type(fields, spark_type(found))
    if taken := {*batch.columns, SCHEMA_ID, FAULT} & set(fields.fieldNames()):
        raise ValueError(f"a message has a field of the name of a column; rename the column: {taken}")
    added = spark.StructType().add(SCHEMA_ID, "long").add(FAULT, "string")
    columns = spark.StructType([*batch.schema.fields, *added.fields, *fields.fields])
    return batch.mapInArrow(_decoder(files, to_arrow_schema(fields)), columns)


def _read_frames(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        read = {read_frame(message) for message in batch.column(0).to_pylist() if message is not None}
        frames = sorted({frame for frame, _ in filter(None, read)})
        numbers = pa.array([number for number, _ in frames], pa.int64())
        indexes = pa.array([indexes for _, indexes in frames], pa.list_(pa.int64()))
        yield pa.RecordBatch.from_pydict({"number": numbers, "indexes": indexes})


def _decoder(
    files: dict[Frame, bytes], fields: pa.Schema
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def decode_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        classes = {frame: GetMessageClass(find_type(file, frame[1])) for frame, file in files.items()}
        kind = pa.struct(list(fields))
        nothing = pa.array([{}], kind)

        def decode_one(message: bytes | None) -> tuple[int | None, str | None, pa.Array]:
            if message is None:
                return None, TOMBSTONE, nothing
            read = read_frame(message)
            if read is None:
                return None, NO_FRAME, nothing
            frame, body = read
            if frame not in classes:
                return frame[0], UNKNOWN_TYPE, nothing
            try:
                return frame[0], None, pa.array([as_row(classes[frame].FromString(body))], kind)
            except (DecodeError, OverflowError, pa.ArrowInvalid):
                return frame[0], UNDECODABLE, nothing

        for batch in batches:
            messages = batch.column(MESSAGE).to_pylist()
            rows = [decode_one(message) for message in messages]
            kept = [message if fault else None for message, (_, fault, _) in zip(messages, rows, strict=True)]
            place = batch.schema.get_field_index(MESSAGE)
            columns = batch.set_column(place, MESSAGE, pa.array(kept, pa.binary())).columns
            columns.append(pa.array([number for number, _, _ in rows], pa.int64()))
            columns.append(pa.array([fault for _, fault, _ in rows], pa.string()))
            columns += pa.concat_arrays([nothing[:0], *(row for _, _, row in rows)]).flatten()
            names = [*batch.schema.names, SCHEMA_ID, FAULT, *fields.names]
            yield pa.RecordBatch.from_arrays(columns, names=names)

    return decode_batches


def as_row(message: Message) -> dict[str, Any]:
    """Return the fields of a message, as Arrow takes them: null where a field with presence is absent, else
    Protobuf's default.
    """
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Message, field: FieldDescriptor) -> Any:
    value = getattr(message, field.name)
    if _is_map(field):
        inside = field.message_type.fields_by_name["value"]
        return [(key, _single(value[key], inside)) for key in value]
    if field.is_repeated:
        return [_single(each, field) for each in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _single(value, field)


def _single(value: Any, field: FieldDescriptor) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.message_type is None:
        return value
    if field.message_type.full_name == _TIMESTAMP:
        return value.seconds * 1_000_000 + value.nanos // 1000
    return as_row(value)


def spark_type(message: Descriptor, within: tuple[str, ...] = ()) -> spark.StructType:
    """Return Spark's type of a message. ValueError for one that holds messages of its own type."""
    within = (*within, message.full_name)
    fields = []
    for field in message.fields:
        inner = field.message_type
        if inner is not None and inner.full_name in within:
            raise ValueError(f"no column holds messages within themselves, at any depth: {inner.full_name}")
        if inner is None:
            kind = spark.BinaryType() if field.type == field.TYPE_BYTES else _TYPES[field.cpp_type]
        else:
            kind = spark.TimestampType() if inner.full_name == _TIMESTAMP else spark_type(inner, within)
        if _is_map(field):
            kind = spark.MapType(kind["key"].dataType, kind["value"].dataType)
        elif field.is_repeated:
            kind = spark.ArrayType(kind)
        fields.append(spark.StructField(field.name, kind))
    return spark.StructType(fields)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def common_type(one: spark.DataType, other: spark.DataType) -> Any:
    """Return the type that holds the values of both, with the fields of both. ValueError where none does."""
    if isinstance(one, spark.StructType) and isinstance(other, spark.StructType):
        kinds = {field.name: field.dataType for field in one.fields}
        for field in other.fields:
            kinds[field.name] = common_type(kinds.get(field.name, field.dataType), field.dataType)
        return spark.StructType([spark.StructField(name, kind) for name, kind in kinds.items()])
    if isinstance(one, spark.ArrayType) and isinstance(other, spark.ArrayType):
        return spark.ArrayType(common_type(one.elementType, other.elementType))
    if isinstance(one, spark.MapType) and isinstance(other, spark.MapType):
        return spark.MapType(one.keyType, common_type(one.valueType, other.valueType))
    for wider in _WIDER:
        if one in wider and other in wider:
            return max(one, other, key=wider.index)
    if one != other:
        raise ValueError(f"messages have two types for one name: {one.typeName()}, {other.typeName()}")
    return one


def make_sink(table: str) -> IcebergSink:
    """Return a sink whose table grows with the writer schemas, and of which each fault is an expectation."""
    ignored = SchemaContract(new_columns="ignore")
    return IcebergSink(
        table,
        app_id="orders",
        contract=SchemaContract(
            new_columns="add", new_fields="add", widening="widen", columns={MESSAGE: ignored, FAULT: ignored}
        ),
        checks=Checks({f"{FAULT} <> '{fault}'": action for fault, action in FAULTS.items()}),
    )


# --------------------------------------------------------------------------------------- what plays the world


def _field(name: str, number: int, kind: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "number": number, "type": f"TYPE_{kind.upper()}", **more}


_ID, _LONG_ID = _field("id", 1, "int32"), _field("id", 1, "int64")
_PRICE = _field("price", 2, "double")
_COUNTRY = _field("country", 3, "string", proto3Optional=True, oneofIndex=0)
_PLACED_AT = _field("placed_at", 4, "message", typeName=".google.protobuf.Timestamp")
_LINES = _field("lines", 5, "message", typeName=".Order.Line", label="LABEL_REPEATED")
_GIFT = _field("gift", 6, "message", typeName=".Order.Line")
_STATUS = _field("status", 7, "enum", typeName=".Status")
_COUNTS = _field("counts", 8, "message", typeName=".Order.CountsEntry", label="LABEL_REPEATED")
_SKU, _PIECES, _NOTE = _field("sku", 1, "string"), _field("pieces", 2, "int32"), _field("note", 3, "string")


def _schema(*fields: dict[str, Any], line: Sequence[dict[str, Any]] = (), before: int = 0) -> bytes:
    """Return what protoc makes of a .proto file: an order with these fields, after some other messages."""
    entry = [_field("key", 1, "string"), _field("value", 2, "int64")]
    order = {
        "name": "Order",
        "field": fields,
        "nestedType": [
            {"name": "Line", "field": line},
            {"name": "CountsEntry", "field": entry, "options": {"mapEntry": True}},
        ],
        "oneofDecl": [{"name": "_country"}] if _COUNTRY in fields else [],
    }
    file = {
        "name": "orders.proto",
        "syntax": "proto3",
        "dependency": ["google/protobuf/timestamp.proto"],
        "enumType": [
            {"name": "Status", "value": [{"name": "NEW", "number": 0}, {"name": "PAID", "number": 1}]}
        ],
        "messageType": [*({"name": f"Other{each}"} for each in range(before)), order],
    }
    return ParseDict(file, FileDescriptorProto()).SerializeToString()


ORDERS: dict[int, bytes] = {
    1: _schema(_ID, _PRICE),
    2: _schema(_ID, _PRICE, _COUNTRY),
    3: _schema(_LONG_ID, _PRICE, _PLACED_AT, _LINES, line=[_SKU, _PIECES]),
    4: _schema(_LONG_ID, _LINES, _GIFT, _STATUS, _COUNTS, line=[_SKU, _PIECES, _NOTE], before=1),
}
"""The versions of the writer schema: a column more, then a wider type and a list of messages, then a field in
these, an enum and a map."""


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        assert query == "format=serialized"
        number = int(path.rsplit("/", 1)[1])
        answer: dict[str, Any] = {"error_code": SCHEMA_NOT_FOUND}
        if number in ORDERS:
            answer = {"schemaType": "PROTOBUF", "schema": base64.b64encode(ORDERS[number]).decode()}
        self.send_response(200 if number in ORDERS else 404)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def message(number: int, **fields: Any) -> bytes:
    """Return one message in the frame of the registry's serializers."""
    place = len(FileDescriptorProto.FromString(ORDERS[number]).message_type) - 1
    kind = GetMessageClass(find_type(ORDERS[number], [place]))
    # The indexes are preceded by their number; (0,) alone is spelled as 0. In zigzag encoding n is 2 * n.
    indexes = bytes([2, 2 * place]) if place else b"\0"
    return b"\0" + number.to_bytes(4, "big") + indexes + ParseDict(fields, kind()).SerializeToString()


_NOW = "2026-01-01T00:00:00.000001Z"
BATCHES = [
    [None],
    [message(1, id=1, price=9.5), message(1, id=2)],
    [message(2, id=3, price=2.0, country="IN"), message(1, id=4, price=3.0), b"no message"],
    [
        message(3, id=3_000_000_000, placed_at=_NOW, lines=[{"sku": "a", "pieces": 2}, {"sku": "b"}]),
        message(4, id=5, lines=[{"sku": "c", "note": "gift"}], gift={"sku": "d"}, status="PAID"),
        message(2, id=6, price=5.0, country="DE")[:-1],
    ],
    [
        message(4, id=7, status=2, counts={"a": 2**40}),
        message(1, id=8),
        b"\0" + (99).to_bytes(4, "big") + b"\0by a schema that was deleted",
        message(1, id=9)[:5] + b"\2\2",  # the second message type, which schema 1 lacks
        message(1, id=9)[:5] + b"\xff" * 20,
    ],
]


def main(folder: str) -> None:
    """Stream the messages into FOLDER/orders, a file a batch, and show the table."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    registry = Registry(f"http://127.0.0.1:{server.server_port}")
    source = Path(folder, "messages")
    source.mkdir(parents=True)
    for number, messages in enumerate(BATCHES):
        path = source / f"{number}.parquet"
        pq.write_table(pa.table({MESSAGE: pa.array(messages, pa.binary())}), path)
        os.utime(path, (number, number))  # Spark's file source orders by modification time

    session = SparkSession.builder.master("local[2]").config("spark.log.level", "ERROR").getOrCreate()
    sink = make_sink(str(Path(folder, "orders")))

    def land(batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        try:
            sink(decode(batch, registry), batch_id)
        finally:
            batch.unpersist()

    stream = session.readStream.schema(f"{MESSAGE} BINARY").option("maxFilesPerTrigger", 1)
    writer = stream.parquet(str(source)).writeStream.foreachBatch(land).trigger(availableNow=True)
    writer.option("checkpointLocation", str(Path(folder, "checkpoint"))).start().awaitTermination()
    sink.finish()
    for report in sink.reports:
        sys.stdout.write(report.line() + "\n")
    server.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
