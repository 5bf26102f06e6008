"""The announcements of a buffer zone in a Kafka topic, which other zones and strangers write to as well."""

from __future__ import annotations

import runpy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from streaming_sink import ingest
from streaming_sink.zones.ledger import Ledger
from streaming_sink.zones.planning.flux import Flux
from tests import jars
from tests.servers import kafka
from tests.spark.streams import metadata_file
from tests.tiers import only_in_soak
from timeline.errors import StoreUnavailableError

EXAMPLE = Path(__file__).parents[2] / "examples" / "kafka_buffer.py"

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.jar]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.Broker]:
    try:
        with kafka.broker(tmp_path_factory.mktemp("kafka")) as running:
            yield running
    except jars.JarUnavailableError as unavailable:
        pytest.skip(str(unavailable))


def zone_at(folder: Path, address: str, name: str = "zone") -> ingest.BufferZone:
    return ingest.BufferZone(
        str(folder / name), table=str(folder / f"table-{name}"), announcements=f"kafka://{address}/announced"
    )


def sources(folder: Path, *names: str) -> list[str]:
    (folder / "drop").mkdir(exist_ok=True)
    for name in names:
        pq.write_table(pa.table({"id": [1]}), folder / "drop" / f"{name}.parquet")
    return [str(folder / "drop" / f"{name}.parquet") for name in names]


@only_in_soak
def test_files_are_planned_once_from_a_topic_that_zones_and_strangers_share(
    broker: kafka.Broker, tmp_path: Path
) -> None:
    zone, other = (zone_at(tmp_path, broker.address, name) for name in ("zone", "other"))
    paths = sources(tmp_path, "a", "b", "c", "d")
    zone.push(*paths[:2])
    other.push(*paths)
    stranger = Producer({"bootstrap.servers": broker.address})
    for key in (b"somebody", zone.definition.id.encode()):
        for partition in range(3):
            stranger.produce("announced", b"no announcement", key, partition=partition)
    stranger.flush(10)
    zone.push(*paths[1:3])
    planned = Flux(zone).plan(flush=True)
    assert planned is not None
    assert [file.path for item in planned.items for file in item.files] == paths[:3]
    zone.push(*paths)
    late = Flux(ingest.BufferZone(str(tmp_path / "zone")))  # a planner that knows the zone's location alone
    second = late.plan(flush=True)
    assert second is not None
    assert [file.path for item in second.items for file in item.files] == paths[3:]
    assert late.plan(flush=True) is None
    assert [item.number for item in second.items] == [1]


@pytest.mark.spark
def test_the_example_lands_a_stream_and_a_partners_files_by_one_commit(
    broker: kafka.Broker, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(EXAMPLE))["main"](broker.address, str(tmp_path))
    said = capsys.readouterr().out
    assert said.count("5 files announced") == 2
    assert "8 files became 3 in 3 partitions, 80 rows" in said
    table = StaticTable.from_metadata(metadata_file(str(tmp_path / "clicks")) or "")
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(80))
    zone = ingest.BufferZone(str(tmp_path / "buffer"))
    assert Counter(entry.state for entry in Ledger(zone).entries()) == {"landed": 8}
    assert not (tmp_path / "buffer" / "log").exists()  # the announcements are in the topic


def test_a_broker_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming_sink.zones.kafka_log._SECONDS", 1.0)
    zone = zone_at(tmp_path, "127.0.0.1:1")
    with pytest.raises(StoreUnavailableError, match="the Kafka topic of the buffer zone does not answer"):
        zone.push(*sources(tmp_path, "a"))


@pytest.mark.parametrize("url", ["kafka://host:9092", "http://host/topic", "kafka://host:9092/a/b", "topic"])
def test_a_topic_that_is_spelled_otherwise_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(ValueError, match="announcements must be spelled kafka://host:9092/topic"):
        ingest.BufferZone(str(tmp_path / "zone"), table=str(tmp_path / "table"), announcements=url)
