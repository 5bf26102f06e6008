"""A stream and a partner's files in one buffer zone, whose announcements go through a Kafka topic.

Files are staged in the store, and the topic says that they are there: a planner reads it, decides by the
zone's rules which files land together, and records that before a worker lands them. Any number of zones share
the topic, and a message that is lost, doubled or late costs time, never rows. It needs a broker and
`pip install 'streaming-sink[kafka]'`, and no connector for Spark. Run it from the repository's folder:

    python examples/kafka_buffer.py localhost:9092 FOLDER
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from streaming_sink import ingest
from streaming_sink.zones.ledger import Ledger

# ------------------------------------------------------------------------------------------ what a job needs

CLICK = "id BIGINT, country STRING"


def make_zone(broker: str, folder: str) -> ingest.BufferZone:
    """Return a zone that lands files together once they are a hundred, or one has waited for a minute."""
    return ingest.BufferZone(
        f"{folder}/buffer",
        table=f"{folder}/clicks",
        partition_by=["country"],
        rules=ingest.Rules(max_files=100, max_age="1 minute"),
        announcements=f"kafka://{broker}/announced",
    )


def siphon_clicks(session: SparkSession, zone: ingest.BufferZone, folder: str) -> None:
    """Stage each batch of a stream once. With Spark's Kafka connector the source is `format("kafka")`."""
    stream = session.readStream.schema(CLICK).option("maxFilesPerTrigger", 1).json(f"{folder}/messages")
    writer = stream.writeStream.foreachBatch(zone.siphon("clicks")).trigger(availableNow=True)
    writer.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()


def land(session: SparkSession, folder: str) -> list[ingest.Landed]:
    """Plan and land all that was announced: the zone itself says where, so that its location is enough."""
    return ingest.run(session, ingest.BufferZone(f"{folder}/buffer"), available_now=True)


# --------------------------------------------------------------------------------------- what plays the world

COUNTRIES = ("DE", "FR", "IN")
BATCHES, PARTNER_FILES, ROWS = 3, 5, 10


def clicks(start: int) -> list[dict[str, object]]:
    """Return some clicks, of all countries."""
    return [{"id": id_, "country": COUNTRIES[id_ % len(COUNTRIES)]} for id_ in range(start, start + ROWS)]


def write_messages(folder: Path) -> None:
    """Write a file for each batch of the stream."""
    folder.mkdir(parents=True)
    for number in range(BATCHES):
        path = folder / f"{number}.json"
        path.write_text("\n".join(map(json.dumps, clicks(number * ROWS))))
        os.utime(path, (number, number))  # Spark's file source orders by modification time


def write_partner_files(folder: Path) -> list[str]:
    """Write a partner's files, and return their names."""
    folder.mkdir(parents=True)
    names = [str(folder / f"part-{number:04}.parquet") for number in range(PARTNER_FILES)]
    for number, name in enumerate(names):
        pq.write_table(pa.Table.from_pylist(clicks((BATCHES + number) * ROWS)), name)
    return names


def main(broker: str, folder: str) -> None:
    """Announce both kinds of files in the topic of the broker, land them, and say where each is."""
    folder = str(Path(folder).absolute())
    write_messages(Path(folder, "messages"))
    names = write_partner_files(Path(folder, "drop"))
    zone = make_zone(broker, folder)
    for _ in range(2):  # as a producer does that had no answer
        pushed = zone.push(*names)
        sys.stdout.write(f"{pushed.files} files announced\n")

    session = SparkSession.builder.master("local[2]").config("spark.log.level", "ERROR").getOrCreate()
    siphon_clicks(session, zone, folder)
    for landed in land(session, folder):
        sys.stdout.write(landed.line() + "\n")
    for entry in Ledger(zone).entries():
        where = Path(entry.path).relative_to(folder)
        sys.stdout.write(f"{where}: {entry.state} in snapshot {entry.snapshot_id}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
