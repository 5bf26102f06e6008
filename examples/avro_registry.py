"""Avro messages of a schema registry, whose writer schema changes while the stream runs.

Messages are framed as Confluent's serializers do: a zero byte, the id of the writer's schema in four bytes,
and the Avro body. One batch may hold messages of several schemas. Run it from the repository's folder; it
starts a registry of its own on the loopback interface, and needs no Kafka:

    python examples/avro_registry.py FOLDER
"""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
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

from streaming_sink import IcebergSink, SchemaContract

# ------------------------------------------------------------------------------------------ what a job needs

MESSAGE = "value"
"""The column of messages: null in rows that are decoded, and all that there is of one that cannot be."""
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


class Registry:
    """The writer schemas of a registry with Confluent's interface, by id; each is asked for once."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._schemas: dict[int, dict[str, Any]] = {}

    def schema(self, number: int) -> dict[str, Any]:
        """Return a writer schema. HTTPError where the registry has none of this id."""
        if number not in self._schemas:
            with urllib.request.urlopen(f"{self._url}/schemas/ids/{number}", timeout=10) as answer:
                self._schemas[number] = json.loads(json.load(answer)["schema"])
        return self._schemas[number]


def decode(batch: DataFrame, registry: Registry) -> DataFrame:
    """Return a batch with its messages' fields as columns: those of all writer schemas in it, by name.

    Reads the batch twice, so persist it.
    """
    framed = sf.length(MESSAGE) > 5
    framed = framed & (sf.substring(MESSAGE, 1, 1) == sf.lit(b"\0"))
    number = sf.when(framed, sf.conv(sf.hex(sf.substring(MESSAGE, 2, 4)), 16, 10).cast("long"))
    numbered = batch.withColumn("schema_id", number)
    found = sorted(row[0] for row in numbered.select("schema_id").distinct().collect() if row[0] is not None)
    parts = [numbered.where("schema_id IS NULL").drop("schema_id")]
    for each in found:
        of_schema = numbered.where(sf.col("schema_id") == each).drop("schema_id")
        parts.append(_decoded(of_schema, registry.schema(each)))
    return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), parts)


def _decoded(messages: DataFrame, schema: dict[str, Any]) -> DataFrame:
    fields = spark_type(schema)
    assert isinstance(fields, spark.StructType)
    columns = spark.StructType([*messages.schema.fields, *fields.fields])
    return messages.mapInArrow(_decoder(schema, to_arrow_schema(fields)), columns)


def _decoder(
    schema: dict[str, Any], fields: pa.Schema
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def decode_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fastavro.read.LOGICAL_READERS.pop("string-uuid", None)  # Spark has no type but text
        parsed, kind = fastavro.parse_schema(schema), pa.struct(list(fields))
        for batch in batches:
            place = batch.schema.get_field_index(MESSAGE)
            rows, undecoded = [pa.array([], kind)], []
            for message in batch.column(place).to_pylist():
                body = io.BytesIO(message[5:])
                try:
                    row = pa.array([fastavro.schemaless_reader(body, parsed)], kind)
                    broken = body.read(1) != b""
                except (EOFError, IndexError, OverflowError, ValueError):  # Arrow's are ValueErrors
                    broken = True
                rows.append(pa.array([{}], kind) if broken else row)
                undecoded.append(message if broken else None)
            made = pa.concat_arrays(rows)
            kept = batch.set_column(place, MESSAGE, pa.array(undecoded, pa.binary()))
            names = [*kept.schema.names, *fields.names]
            yield pa.RecordBatch.from_arrays([*kept.columns, *made.flatten()], names=names)

    return decode_batches


def spark_type(avro: Any) -> spark.DataType:
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


def make_sink(table: str) -> IcebergSink:
    """Return a sink whose table grows with the writer schemas; what cannot be decoded is quarantined."""
    return IcebergSink(
        table,
        app_id="orders",
        schema=SchemaContract(
            new_columns="add",
            new_fields="add",
            widening="widen",
            columns={MESSAGE: SchemaContract(new_columns="ignore")},
        ),
        expectations={f"{MESSAGE} IS NULL": "quarantine"},
    )


# --------------------------------------------------------------------------------------- what plays the world

ORDERS: dict[int, list[dict[str, Any]]] = {
    1: [{"name": "id", "type": "int"}, {"name": "price", "type": "double"}],
    2: [
        {"name": "id", "type": "int"},
        {"name": "price", "type": "double"},
        {"name": "country", "type": ["null", "string"]},
    ],
    3: [
        {"name": "id", "type": "long"},
        {"name": "price", "type": "double"},
        {"name": "placed_at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
"""The fields of each version of the writer schema: a column more, then another and a wider type."""


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        fields = ORDERS[int(self.path.rsplit("/", 1)[1])]
        schema = {"type": "record", "name": "order", "fields": fields}
        body = json.dumps({"schema": json.dumps(schema)}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def message(number: int, **fields: Any) -> bytes:
    """Return one message in the frame of the registry's serializers."""
    body = io.BytesIO()
    schema = {"type": "record", "name": "order", "fields": ORDERS[number]}
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), fields)
    return b"\0" + number.to_bytes(4, "big") + body.getvalue()


BATCHES = [
    [message(1, id=1, price=9.5), message(1, id=2, price=1.5)],
    [message(2, id=3, price=2.0, country="IN"), message(1, id=4, price=3.0), b"no message"],
    [message(3, id=3_000_000_000, price=4.0, placed_at=0), message(2, id=5, price=5.0, country=None)[:-3]],
    [message(3, id=6, price=6.0, placed_at=0), message(1, id=2**40, price=7.0)],
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
