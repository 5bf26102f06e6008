"""What it costs to evolve a table's schema for a batch, in requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as spark

from streaming_sink import SchemaContract
from streaming_sink.batch.target import Destination
from streaming_sink.options import SinkOptions
from tests.unit.timeline.world import Lake
from timeline.versions.transactions import Transaction

if TYPE_CHECKING:
    import pytest


def test_a_schema_evolves_in_two_puts_one_list_and_one_get(monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake()
    destination = Destination(SinkOptions(location=lake.store.location, schema=SchemaContract.evolving()))
    monkeypatch.setattr(destination, "_table", lake.table)
    batch = spark.StructType([spark.StructField("note", spark.StringType())])
    known = destination.target(batch, fresh=True)
    lake.store.count()
    fitted = destination.fit(known, batch, Transaction("app", "query", "run", 0))
    assert lake.store.count() == {"PUT": 2, "LIST": 1, "GET": 1}
    assert fitted.evolved == "the table's schema has evolved: note added as string"
    assert fitted.schema == lake.open().head.schema
