"""Avro messages of a schema registry, whose writer schema changes while the stream runs.

Messages are framed as Confluent's serializers do: a zero byte, the id of the writer's schema in four bytes,
and the Avro body. One batch may hold messages of several schemas. What cannot be decoded is quarantined, a
tombstone (a message that is null) is dropped and counted, and where the registry does not answer the stream
stops. Run it from the repository's folder; it starts a registry of its own on the loopback interface, and
needs no Kafka:

    python examples/avro_registry.py FOLDER
"""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import reduce
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from streaming_sink import Checks, IcebergSink, SchemaContract

# ------------------------------------------------------------------------------------------ what a job needs

MESSAGE, SCHEMA_ID, FAULT = "value", "schema_id", "fault"
"""Columns beside those of the messages. The table ignores the message, which is null in rows that are decoded
and all that there is of one that cannot be, and the fault, which says why it cannot."""
TOMBSTONE, NO_FRAME = "tombstone", "no frame of the registry"
UNKNOWN_ID, UNDECODABLE = "unknown schema id", "not decodable by its schema"
FAULTS = {TOMBSTONE: "drop", NO_FRAME: "quarantine", UNKNOWN_ID: "quarantine", UNDECODABLE: "quarantine"}
_PRIMITIVES: dict[str, spark.DataType] = {
    "boolean": spark.BooleanType(),
    "int": spark.IntegerType(),
    "long": spark.LongType(),
    "float": spark.FloatType(),
    "double": spark.DoubleType(),
    "bytes": spark.BinaryType(),
    "fixed": spark.BinaryType(),
    "string": spark.StringType(),
    "enum": spark.StringType(),
}
_LOGICAL: dict[str, spark.DataType] = {
    "date": spark.DateType(),
    "timestamp-millis": spark.TimestampType(),
    "timestamp-micros": spark.TimestampType(),
    "uuid": spark.StringType(),
}
_WIDER: tuple[list[spark.DataType], ...] = (
    [spark.IntegerType(), spark.LongType()],
    [spark.FloatType(), spark.DoubleType()],
)
SCHEMA_NOT_FOUND = 40403


class Registry:
    """The writer schemas of a registry with Confluent's interface, by id; each is asked for once."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._schemas: dict[int, dict[str, Any]] = {}

    def schema(self, number: int) -> dict[str, Any] | None:
        """Return a writer schema; None where the registry has none of this id. OSError where it gives no
        answer, since whether it has one is not known then.
        """
        if number not in self._schemas:
            try:
                with urllib.request.urlopen(f"{self._url}/schemas/ids/{number}", timeout=10) as answer:
                    self._schemas[number] = json.loads(json.load(answer)["schema"])
            except urllib.error.HTTPError as error:
                if _says_not_found(error):
                    return None
                raise
        return self._schemas[number]


def _says_not_found(error: urllib.error.HTTPError) -> bool:
    """Return whether the registry itself says that it has no such schema, and not a proxy, for example."""
    with error, suppress(KeyError, TypeError, ValueError):
        return bool(json.load(error)["error_code"] == SCHEMA_NOT_FOUND)
    return False


def decode(batch: DataFrame, registry: Registry) -> DataFrame:
    """Return a batch with its messages' fields as columns: those of all writer schemas in it, by name.

    Reads the batch twice, so persist it. ValueError for a type that is no column's.
    """
    framed = (sf.length(MESSAGE) >= 5) & (sf.substring(MESSAGE, 1, 1) == sf.lit(b"\0"))
    number = sf.conv(sf.hex(sf.substring(MESSAGE, 2, 4)), 16, 10).cast("long")
    found = sorted(row[0] for row in batch.where(framed).select(number).distinct().collect())
    schemas = {each: schema for each in found if (schema := registry.schema(each)) is not None}
    fields = reduce(common_type, map(spark_type, schemas.values()), spark.StructType())
    if taken := {*batch.columns, SCHEMA_ID, FAULT} & set(fields.fieldNames()):
        raise ValueError(f"a message has a field of the name of a column; rename the column: {taken}")
    added = spark.StructType().add(SCHEMA_ID, "long").add(FAULT, "string")
    columns = spark.StructType([*batch.schema.fields, *added.fields, *fields.fields])
    return batch.mapInArrow(_decoder(schemas, fields), columns)


def _decoder(
    schemas: dict[int, dict[str, Any]], fields: spark.StructType
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def decode_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fastavro.read.LOGICAL_READERS.pop("string-uuid", None)  # Spark has no type but text
        parsed = {number: fastavro.parse_schema(schema) for number, schema in schemas.items()}
        own = {number: _arrow_type(spark_type(schema)) for number, schema in schemas.items()}
        kind = _arrow_type(fields)
        nothing = pa.array([{}], kind)

        def decode_one(message: bytes | None) -> tuple[int | None, str | None, pa.Array]:
            if message is None:
                return None, TOMBSTONE, nothing
            if len(message) < 5 or message[0]:
                return None, NO_FRAME, nothing
            number, body = int.from_bytes(message[1:5], "big"), io.BytesIO(message[5:])
            if number not in parsed:
                return number, UNKNOWN_ID, nothing
            try:
                row = fastavro.schemaless_reader(body, parsed[number])
                pa.array([row], own[number])  # an int that is none fits the long of another schema
                row = pa.array([row], kind)
            except (EOFError, IndexError, OverflowError, ValueError):  # Arrow's are ValueErrors
                return number, UNDECODABLE, nothing
            return (number, UNDECODABLE, nothing) if body.read(1) else (number, None, row)

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


def _arrow_type(fields: spark.StructType) -> pa.StructType:
    return pa.struct(list(to_arrow_schema(fields)))


def spark_type(avro: Any) -> Any:
    """Return Spark's type of an Avro type. ValueError for a union of several types but null."""
    if isinstance(avro, list):
        types = [each for each in avro if each != "null"]
        if len(types) != 1:
            raise ValueError(f"a column has one type, and this is a union of several: {avro}")
        return spark_type(types[0])
    if isinstance(avro, str):
        return _PRIMITIVES[avro]
    if avro.get("logicalType") == "decimal":
        return spark.DecimalType(avro["precision"], avro.get("scale", 0))
    if avro.get("logicalType") in _LOGICAL:
        return _LOGICAL[avro["logicalType"]]
    if avro["type"] == "record":
        return spark.StructType(
            [spark.StructField(field["name"], spark_type(field["type"])) for field in avro["fields"]]
        )
    if avro["type"] == "array":
        return spark.ArrayType(spark_type(avro["items"]))
    if avro["type"] == "map":
        return spark.MapType(spark.StringType(), spark_type(avro["values"]))
    return spark_type(avro["type"])


def common_type(one: spark.DataType, other: spark.DataType) -> spark.DataType:
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

_ID, _LONG_ID = {"name": "id", "type": "int"}, {"name": "id", "type": "long"}
_PRICE = {"name": "price", "type": "double"}
_COUNTRY = {"name": "country", "type": ["null", "string"]}
_PLACED_AT = {"name": "placed_at", "type": {"type": "long", "logicalType": "timestamp-micros"}}
_SKU, _PIECES = {"name": "sku", "type": "string"}, {"name": "pieces", "type": "int"}


def _lines(*fields: dict[str, Any]) -> dict[str, Any]:
    line = {"type": "record", "name": "line", "fields": fields}
    return {"name": "lines", "type": {"type": "array", "items": line}}


ORDERS: dict[int, list[dict[str, Any]]] = {
    1: [_ID, _PRICE],
    2: [_ID, _PRICE, _COUNTRY],
    3: [_LONG_ID, _PRICE, _PLACED_AT, _lines(_SKU)],
    4: [_LONG_ID, _PRICE, _PLACED_AT, _lines(_SKU, _PIECES)],
}
"""The fields of each version of the writer schema: a column more, then a wider type and a list of records,
then a field in these."""


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        fields = ORDERS.get(int(self.path.rsplit("/", 1)[1]))
        schema = {"type": "record", "name": "order", "fields": fields}
        found = {"schema": json.dumps(schema)}
        self.send_response(200 if fields else 404)
        self.end_headers()
        self.wfile.write(json.dumps(found if fields else {"error_code": SCHEMA_NOT_FOUND}).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def message(number: int, **fields: Any) -> bytes:
    """Return one message in the frame of the registry's serializers."""
    body = io.BytesIO()
    schema = {"type": "record", "name": "order", "fields": ORDERS[number]}
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), fields)
    return b"\0" + number.to_bytes(4, "big") + body.getvalue()


BATCHES = [
    [None],
    [message(1, id=1, price=9.5), message(1, id=2, price=1.5)],
    [message(2, id=3, price=2.0, country="IN"), message(1, id=4, price=3.0), b"no message"],
    [
        message(3, id=3_000_000_000, price=4.0, placed_at=0, lines=[]),
        message(2, id=5, price=5.0, country=None)[:-3],
    ],
    [
        message(3, id=6, price=6.0, placed_at=0, lines=[{"sku": "a"}]),
        message(4, id=7, price=7.0, placed_at=0, lines=[{"sku": "b", "pieces": 2}]),
        message(1, id=2**40, price=8.0),
    ],
    [b"\0" + (99).to_bytes(4, "big") + b"by a schema that was deleted"],
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
